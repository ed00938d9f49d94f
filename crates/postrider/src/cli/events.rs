//! `postrider events`: which events there are, and how far their deliveries are.

use std::collections::BTreeMap;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::client::{self, encoded};
use super::options::ServerArgs;
use super::output::{plain, say, shown, table};
use super::page::{PageArgs, say_more};

/// What to look at.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  postrider events list --tenant acme --limit 20\n  postrider events list --json | jq .models\n  postrider events show evt_019b76daa8007000800000000000002a"
)]
pub struct EventsArgs {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    /// The newest events
    List(ListArgs),
    /// One event with its attempts
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Only of this tenant (repeatable)
    #[arg(long, value_name = "ID")]
    tenant: Vec<String>,
    /// Only for this destination (repeatable)
    #[arg(long, value_name = "ID")]
    destination: Vec<String>,
    /// Only with this topic (repeatable)
    #[arg(long)]
    topic: Vec<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Event id
    id: String,
    /// Print the server's answers as one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub fn run(args: &EventsArgs) -> anyhow::Result<()> {
    match &args.command {
        EventsCommand::List(args) => list(args),
        EventsCommand::Show(args) => show(args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let mut query = args.page.query();
    for (name, values) in [
        ("tenant_id", &args.tenant),
        ("destination_id", &args.destination),
        ("topic", &args.topic),
    ] {
        for value in values {
            query.push_str(&format!("&{name}[]={}", encoded(value)));
        }
    }
    let page = client::get(&server, &format!("/api/v1/events?{query}")).context("list events")?;
    if args.page.json {
        return Ok(say(&page.to_string())?);
    }
    let rows: Vec<Vec<String>> = page["models"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|event| {
            let cell = |name: &str| plain(event[name].as_str().unwrap_or_default());
            vec![
                cell("id"),
                cell("tenant_id"),
                cell("topic"),
                cell("time"),
                deliveries(event),
            ]
        })
        .collect();
    say(&table(&["ID", "TENANT", "TOPIC", "TIME", "DELIVERIES"], &rows))?;
    say_more(&page)
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let path = format!("/api/v1/events/{}", encoded(&args.id));
    let event = client::get(&server, &path).context("show the event")?;
    let path = format!(
        "/api/v1/attempts?event_id[]={}&dir=asc&limit=1000&include[]=response_data",
        encoded(&args.id)
    );
    let attempts = client::get(&server, &path).context("list its attempts")?;
    if args.json {
        let both = serde_json::json!({ "event": event, "attempts": attempts["models"] });
        return Ok(say(&both.to_string())?);
    }
    for name in ["id", "tenant_id", "topic", "time", "metadata", "data"] {
        say(&format!("{name:<12}{}", shown(&event[name])))?;
    }
    say(&format!("{:<12}{}\n", "deliveries", deliveries(&event)))?;
    let rows: Vec<Vec<String>> = attempts["models"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|attempt| {
            [
                "time",
                "destination_id",
                "attempt_number",
                "status",
                "code",
                "duration_ms",
            ]
            .iter()
            .map(|name| shown(&attempt[*name]))
            .collect()
        })
        .collect();
    Ok(say(&table(
        &["TIME", "DESTINATION", "ATTEMPT", "STATUS", "CODE", "MS"],
        &rows,
    ))?)
}

/// `2 succeeded, 1 pending`, from the event's delivery summary; how many destinations it goes to without one.
fn deliveries(event: &Value) -> String {
    let Some(deliveries) = event["deliveries"].as_array() else {
        return event["matched_destination_ids"]
            .as_array()
            .map_or(0, Vec::len)
            .to_string();
    };
    let mut counts = BTreeMap::<&str, usize>::new();
    for delivery in deliveries {
        *counts
            .entry(delivery["status"].as_str().unwrap_or("unknown"))
            .or_default() += 1;
    }
    let texts: Vec<String> = counts
        .iter()
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    if texts.is_empty() {
        "none".to_owned()
    } else {
        texts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_counted_by_status() {
        let event = serde_json::json!({ "deliveries": [
            { "status": "succeeded" }, { "status": "pending" }, { "status": "succeeded" },
        ] });
        assert_eq!(deliveries(&event), "1 pending, 2 succeeded");
        assert_eq!(deliveries(&serde_json::json!({ "deliveries": [] })), "none");
        assert_eq!(
            deliveries(&serde_json::json!({ "matched_destination_ids": ["a"] })),
            "1"
        );
    }
}
