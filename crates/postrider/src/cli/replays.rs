//! `postrider replays`: jobs that send dead letters again.

use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use super::client::{self, encoded};
use super::options::{Server, ServerArgs};
use super::output::{Reported, complain, say, shown, table};
use super::progress::{Progress, span};
use super::signal::{Ending, Signals};

/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What to do with them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  postrider replays list\n  postrider replays show rpl_019b76daa8007000800000000000002a --follow\n  postrider replays pause rpl_019b76daa8007000800000000000002a\n\nA replay is made by `postrider dead-letters replay`."
)]
pub struct ReplaysArgs {
    #[command(subcommand)]
    command: ReplaysCommand,
}

#[derive(Debug, Subcommand)]
enum ReplaysCommand {
    /// The newest of them
    List(ListArgs),
    /// One with its progress
    Show(ShowArgs),
    /// Stop sending; what was handed over and not sent yet waits, unless another replay of the destination runs
    Pause(OneArgs),
    /// Go on sending
    Resume(OneArgs),
    /// End it; what was handed over is still sent, at its rate, and the rest stays as it is
    Cancel(OneArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// How many at most, 1 to 1000
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Watch it until it ends
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Args)]
struct OneArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id of the replay
    id: String,
    /// Print the server's answer as it is
    #[arg(long)]
    json: bool,
}

/// Does it.
pub fn run(args: &ReplaysArgs) -> anyhow::Result<()> {
    match &args.command {
        ReplaysCommand::List(args) => list(args),
        ReplaysCommand::Show(ShowArgs { one, follow: true }) => {
            follow(&one.server.server()?, &one.id, one.json)
        }
        ReplaysCommand::Show(ShowArgs { one, follow: false }) => {
            change(one, Method::GET, "", "show the replay")
        }
        ReplaysCommand::Pause(one) => change(one, Method::POST, "/pause", "pause the replay"),
        ReplaysCommand::Resume(one) => change(one, Method::POST, "/resume", "resume the replay"),
        ReplaysCommand::Cancel(one) => change(one, Method::POST, "/cancel", "cancel the replay"),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let path = format!("/api/v1/replays?limit={}", args.limit);
    let answer = client::get(&args.server.server()?, &path).context("list replays")?;
    if args.json {
        return Ok(say(&answer.to_string())?);
    }
    let columns = [
        "id",
        "state",
        "created_at",
        "total",
        "done",
        "succeeded",
        "failed",
        "canceled",
        "skipped",
        "eta_seconds",
    ];
    let rows: Vec<Vec<String>> = answer["models"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|replay| columns.iter().map(|column| shown(&replay[*column])).collect())
        .collect();
    let header = [
        "ID",
        "STATE",
        "CREATED",
        "TOTAL",
        "DONE",
        "SUCCEEDED",
        "FAILED",
        "CANCELED",
        "SKIPPED",
        "ETA S",
    ];
    Ok(say(&table(&header, &rows))?)
}

fn change(args: &OneArgs, method: Method, verb: &str, purpose: &'static str) -> anyhow::Result<()> {
    let path = format!("/api/v1/replays/{}{verb}", encoded(&args.id));
    let answer = client::request(&args.server.server()?, method, &path, Vec::new())
        .and_then(|answer| answer.json())
        .context(purpose)?;
    Ok(say(&if args.json {
        answer.to_string()
    } else {
        told(&answer)
    })?)
}

/// A replay in one line.
pub(super) fn told(replay: &Value) -> String {
    let number = |name: &str| replay[name].as_u64().unwrap_or_default();
    let mut text = format!(
        "{} {}: {} of {} done, {} succeeded, {} failed again",
        shown(&replay["id"]),
        shown(&replay["state"]),
        number("done"),
        number("total"),
        number("succeeded"),
        number("failed"),
    );
    for name in ["canceled", "skipped"] {
        let count = number(name);
        if count > 0 {
            text.push_str(&format!(", {count} {name}"));
        }
    }
    if let Some(seconds) = replay["eta_seconds"].as_u64() {
        text.push_str(&format!(", about {} to go", span(seconds)));
    }
    text
}

/// Watches a replay until it ends. Ctrl-C ends the watching, not the replay.
///
/// # Errors
/// [`Reported`] when some deliveries failed again or it was canceled.
pub(super) fn follow(server: &Server, id: &str, json: bool) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::install().context("watch for signals")?;
        let mut progress = Progress::default();
        tokio::select! {
            ended = watch(server, id, json, &mut progress) => ended,
            signal = signals.next() => {
                progress.end();
                complain(&format!(
                    "the replay goes on; see it with `postrider replays show {id}`, end it with `postrider replays cancel {id}`"
                ));
                let code = match signal {
                    Ending::Interrupt => 130,
                    Ending::Terminate => 143,
                };
                Err(Reported(code).into())
            }
        }
    })
}

async fn watch(server: &Server, id: &str, json: bool, progress: &mut Progress) -> anyhow::Result<()> {
    loop {
        let replay = look(server, id).await?;
        let number = |name: &str| replay[name].as_u64().unwrap_or_default();
        progress.draw(number("done"), number("total"), &told(&replay));
        let has_ended = matches!(replay["state"].as_str(), Some("done" | "canceled"));
        if has_ended {
            progress.end();
            say(&if json { replay.to_string() } else { told(&replay) })?;
            let is_good = replay["state"] == "done" && number("failed") == 0;
            return if is_good { Ok(()) } else { Err(Reported(1).into()) };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The replay as it is now. Failures that may pass are waited out; the replay goes on meanwhile.
async fn look(server: &Server, id: &str) -> anyhow::Result<Value> {
    let path = format!("/api/v1/replays/{}", encoded(id));
    let replay = client::ask_persistently(server, &Method::GET, &path, &[]).await;
    replay.with_context(|| {
        format!(
            "look at the replay (it does not need to be watched; follow it with `postrider replays show {id} --follow`)"
        )
    })
}
