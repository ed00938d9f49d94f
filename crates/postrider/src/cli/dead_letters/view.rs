//! Looking at dead letters.

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::super::client::{self, encoded};
use super::super::options::ServerArgs;
use super::super::output::{say, shortened, shown, table};
use super::super::page::{PageArgs, say_more};
use super::filter::FilterArgs;

/// Characters of an error in a table.
const MAX_ERROR: usize = 60;

/// Options of `list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// Options of `summary`.
#[derive(Debug, Args)]
pub(super) struct SummaryArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// How many groups at most, 1 to 1000
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
}

/// Options of `show`.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id of the delivery
    id: String,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
}

pub(super) fn list(args: &ListArgs) -> anyhow::Result<()> {
    let path = format!(
        "/api/v1/dead-letters?{}{}",
        args.page.query(),
        args.filter.query()
    );
    let answer = ask(&args.server, &path).context("list dead letters")?;
    if args.page.json {
        return Ok(say(&answer.to_string())?);
    }
    let rows = rows(&answer["models"], |letter| {
        vec![
            shown(&letter["id"]),
            shown(&letter["tenant_id"]),
            shown(&letter["destination_id"]),
            shown(&letter["topic"]),
            shown(&letter["reason"]),
            shown(&letter["attempts"]),
            shown(&letter["died_at"]),
            error(&letter["error"]),
        ]
    });
    let header = [
        "ID",
        "TENANT",
        "DESTINATION",
        "TOPIC",
        "REASON",
        "ATTEMPTS",
        "DIED",
        "LAST ERROR",
    ];
    say(&table(&header, &rows))?;
    say_more(&answer)
}

pub(super) fn summary(args: &SummaryArgs) -> anyhow::Result<()> {
    let path = format!(
        "/api/v1/dead-letters/summary?limit={}{}",
        args.limit,
        args.filter.query()
    );
    let answer = ask(&args.server, &path).context("count dead letters")?;
    if args.json {
        return Ok(say(&answer.to_string())?);
    }
    let rows = rows(&answer["models"], |group| {
        vec![
            shown(&group["count"]),
            shown(&group["code"]),
            shown(&group["category"]),
            shown(&group["tenant_id"]),
            shown(&group["destination_id"]),
            shown(&group["growth_per_hour"]),
            shown(&group["first_died_at"]),
            shown(&group["last_died_at"]),
            error(&group["last_error"]),
        ]
    });
    let header = [
        "COUNT",
        "CODE",
        "CATEGORY",
        "TENANT",
        "DESTINATION",
        "LAST HOUR",
        "FIRST",
        "LAST",
        "LAST ERROR",
    ];
    say(&table(&header, &rows))?;
    let letters = counted(&answer["count"], "dead letter");
    let groups = counted(&answer["groups"], "group");
    Ok(say(&format!("{letters} in {groups}"))?)
}

/// `1 group`, `2 groups`.
fn counted(number: &Value, what: &str) -> String {
    let plural = if number.as_u64() == Some(1) { "" } else { "s" };
    format!("{} {what}{plural}", shown(number))
}

pub(super) fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let path = format!("/api/v1/dead-letters/{}", encoded(&args.id));
    let letter = ask(&args.server, &path).context("show the dead letter")?;
    if args.json {
        return Ok(say(&letter.to_string())?);
    }
    for name in [
        "id",
        "tenant_id",
        "destination_id",
        "event_id",
        "topic",
        "reason",
        "category",
        "error",
        "created_at",
        "died_at",
    ] {
        say(&format!("{name:<16}{}", shown(&letter[name])))?;
    }
    for (name, value) in [
        ("metadata", &letter["event"]["metadata"]),
        ("data", &letter["event"]["data"]),
        ("url then", &letter["context"]["destination"]["config"]["url"]),
        ("policy then", &letter["context"]["retry_policy"]),
    ] {
        say(&format!("{name:<16}{}", shown(value)))?;
    }
    let rows = rows(&letter["history"], |attempt| {
        let body = shown(&attempt["response_data"]["body"]);
        let cell = |name: &str| shown(&attempt[name]);
        vec![
            cell("time"),
            cell("attempt_number"),
            cell("code"),
            cell("duration_ms"),
            cell("tier"),
            shortened(&body, MAX_ERROR),
        ]
    });
    let header = ["TIME", "ATTEMPT", "CODE", "MS", "TIER", "ANSWER"];
    Ok(say(&format!("\n{}", table(&header, &rows)))?)
}

fn ask(server: &ServerArgs, path: &str) -> anyhow::Result<Value> {
    client::get(&server.server()?, path)
}

fn rows(models: &Value, row: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    models.as_array().into_iter().flatten().map(row).collect()
}

fn error(value: &Value) -> String {
    shortened(&shown(value), MAX_ERROR)
}
