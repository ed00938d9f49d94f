//! `postrider publish`: one event to a running server.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use http::Method;
use serde::Serialize;
use serde_json::value::RawValue;

use super::client;
use super::options::{Misused, ServerArgs};
use super::output::say;

const EXAMPLES: &str = "\
The event's data come from --data, from --file, or from standard input. They are sent byte for byte.

Examples:
  postrider publish --tenant acme --topic order.paid --data '{\"order\":42}'
  postrider publish --tenant acme --topic order.paid --id order-42-paid --file order.json
  cat order.json | postrider publish --tenant acme --topic order.paid --metadata source=shop";

/// What to publish, and where.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PublishArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Tenant whose destinations get it
    #[arg(long, value_name = "ID")]
    tenant: String,
    /// Topic
    #[arg(long)]
    topic: Option<String>,
    /// Data as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    data: Option<String>,
    /// File with the data as JSON; `-` is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Event id: publishing the same id again adds nothing
    #[arg(long)]
    id: Option<String>,
    /// Only to this destination
    #[arg(long, value_name = "ID")]
    destination: Option<String>,
    /// Metadata, sent as headers (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// When it happened, RFC 3339
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
    /// One attempt a destination, no retry
    #[arg(long)]
    no_retry: bool,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    tenant_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
    eligible_for_retry: bool,
    metadata: BTreeMap<&'a str, &'a str>,
    data: &'a RawValue,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| "must be NAME=VALUE".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Publishes it and prints its id.
pub fn run(args: &PublishArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let text = data(args)?;
    let data: &RawValue = serde_json::from_str(&text).context("read the data as JSON")?;
    let body = serde_json::to_vec(&Body {
        id: args.id.as_deref(),
        tenant_id: &args.tenant,
        destination_id: args.destination.as_deref(),
        topic: args.topic.as_deref(),
        time: args.time.as_deref(),
        eligible_for_retry: !args.no_retry,
        metadata: args
            .metadata
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
        data,
    })?;
    let answer = client::request(&server, Method::POST, "/api/v1/publish", body)?;
    let published = answer.json().context("publish")?;
    if args.json {
        say(&published.to_string())?;
    } else {
        let id = published["id"].as_str().unwrap_or_default();
        let count = published["destination_ids"].as_array().map_or(0, Vec::len);
        let was = if published["duplicate"] == true {
            "was there already"
        } else {
            "accepted"
        };
        say(&format!(
            "{id} {was}, for {count} destination{}",
            if count == 1 { "" } else { "s" }
        ))?;
    }
    Ok(())
}

fn data(args: &PublishArgs) -> anyhow::Result<String> {
    if let Some(data) = &args.data {
        return Ok(data.clone());
    }
    match &args.file {
        Some(path) if path.as_os_str() != "-" => {
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
        }
        None if std::io::stdin().is_terminal() => {
            Err(Misused("find the data: give --data JSON or --file FILE, or pipe them in").into())
        }
        _ => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("read the data from standard input")?;
            Ok(text)
        }
    }
}
