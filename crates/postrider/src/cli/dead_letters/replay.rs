//! Sending dead letters again: makes the job, then watches it.

use anyhow::Context;
use clap::Args;
use http::Method;
use postrider_core::dispatcher::DEFAULT_REPLAY_RATE;
use postrider_core::replay::MAX_RATE_PER_SECOND;
use serde_json::{Value, json};

use super::super::client;
use super::super::options::ServerArgs;
use super::super::output::{complain, say, shown};
use super::super::replays::{follow, told};
use super::filter::FilterArgs;

/// Options of `replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Mean all of them; without it, at least one filter is needed
    #[arg(long, conflicts_with = "everything_since")]
    all: bool,
    /// Send everything of the one destination since this time, delivered events too: for a receiver that lost its data
    #[arg(long, value_name = "TIME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    everything_since: Option<String>,
    /// Deliveries per second and destination, 1 to 1000
    #[arg(long, value_name = "PER_SECOND", default_value_t = DEFAULT_REPLAY_RATE.get(), value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE_PER_SECOND)))]
    rate: u32,
    /// Send by the destination's configuration of now, or by that of the time of death
    #[arg(long, value_parser = ["current", "original"], default_value = "current")]
    config: String,
    /// Only say how many it would be
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for its end
    #[arg(long)]
    detach: bool,
    /// Print the server's answers as they are
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let mut body = if args.everything_since.is_some() {
        args.filter.body()
    } else {
        args.filter.meant(args.all)?
    };
    body.insert("dry_run".to_owned(), args.dry_run.into());
    body.insert("rate_per_second".to_owned(), args.rate.into());
    body.insert("config".to_owned(), json!(args.config));
    if let Some(since) = &args.everything_since {
        body.insert("since".to_owned(), json!(since));
    }
    let body = Value::from(body).to_string().into_bytes();
    let answer = client::request(&server, Method::POST, "/api/v1/replays", body)
        .and_then(|answer| answer.json())
        .context("create the replay")?;
    if args.dry_run {
        let count = shown(&answer["count"]);
        let text = format!("{count} deliveries would be sent again");
        return Ok(say(&if args.json { answer.to_string() } else { text })?);
    }
    let id = answer["id"]
        .as_str()
        .context("read the id of the replay")?
        .to_owned();
    if answer["total"].as_u64() == Some(0) && !args.json {
        let unreachable = answer["unreachable"].as_u64().unwrap_or_default();
        let text = match unreachable {
            0 => "nothing to replay".to_owned(),
            _ => format!("nothing to replay: the destinations of all {unreachable} are deleted"),
        };
        return Ok(say(&text)?);
    }
    if args.detach {
        return Ok(say(&if args.json {
            answer.to_string()
        } else {
            told(&answer)
        })?);
    }
    complain(&format!("watching replay {id}; Ctrl-C ends only the watching"));
    follow(&server, &id, args.json)
}
