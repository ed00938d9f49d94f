//! Deleting dead letters.

use anyhow::Context;
use clap::Args;
use http::Method;
use serde_json::{Map, Value, json};

use super::super::client;
use super::super::confirm::confirm;
use super::super::options::{Server, ServerArgs};
use super::super::output::say;
use super::super::progress::Progress;
use super::filter::FilterArgs;

/// Options of `purge`.
#[derive(Debug, Args)]
pub(super) struct PurgeArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Mean all of them; without it, at least one filter is needed
    #[arg(long)]
    all: bool,
    /// Only say how many it would be
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print the server's last answer as it is
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &PurgeArgs) -> anyhow::Result<()> {
    let server = args.server.server()?;
    let filter = args.filter.meant(args.all)?;
    let purge = |dry_run, upto: &Value| purge(&server, &filter, dry_run, upto);
    // What died before the question was answered is meant, nothing that died later.
    let mut upto = Value::Null;
    // Where nobody is asked nothing is counted: that can take too long when there are very many.
    if args.dry_run || !args.yes {
        let counted = purge(true, &upto).context("count dead letters")?;
        let count = counted["count"].as_u64().unwrap_or_default();
        if args.dry_run {
            let text = format!("{count} dead letters would be deleted");
            return Ok(say(&if args.json { counted.to_string() } else { text })?);
        }
        if count > 0 {
            confirm(&format!("Delete {count} dead letters for ever?"), args.yes)?;
        }
        upto = counted["upto"].clone();
    }
    let mut progress = Progress::default();
    let mut purged = 0;
    // The server works for a bounded time on each request and says what is left.
    loop {
        let answer = purge(false, &upto).context("purge dead letters")?;
        upto = answer["upto"].clone();
        purged += answer["purged"].as_u64().unwrap_or_default();
        // Null when there are too many to count.
        let remaining = answer["remaining"].as_u64();
        let total = remaining.map_or(u64::MAX, |remaining| purged + remaining);
        progress.draw(purged, total, &format!("{purged} deleted"));
        if remaining == Some(0) {
            progress.end();
            let text = format!("{purged} dead letters deleted");
            let json = json!({ "purged": purged, "remaining": 0 });
            return Ok(say(&if args.json { json.to_string() } else { text })?);
        }
    }
}

/// With `upto` twice is like once: what is gone is gone, and what died later is not meant. Without it the server chooses, so
/// that a second request would mean more than the first.
fn purge(server: &Server, filter: &Map<String, Value>, dry_run: bool, upto: &Value) -> anyhow::Result<Value> {
    let mut body = filter.clone();
    body.insert("dry_run".to_owned(), dry_run.into());
    if !upto.is_null() {
        body.insert("upto".to_owned(), upto.clone());
    }
    let body = Value::from(body).to_string();
    let path = "/api/v1/dead-letters/purge";
    if upto.is_null() {
        client::request(server, Method::POST, path, body.into_bytes())?.json()
    } else {
        client::persist(server, &Method::POST, path, body.as_bytes())
    }
}
