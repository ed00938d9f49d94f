//! `postrider policy`: what a retry policy does, attempt by attempt.

use std::time::Duration;

use clap::{Args, Subcommand};
use postrider_core::policy::{Preview, Range, RetryPolicy, duration};
use serde::Serialize;

use super::output::{say, table};
use super::policy_arg::{self, OutcomeArg, PolicyArg};

/// What to do with a policy.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// List every attempt that a policy makes of a receiver that always answers the same
    Preview(PreviewArgs),
}

/// List every attempt that a policy makes of a receiver that always answers the same.
///
/// Needs no server. Counts no time for requests, breaker, holds and windows, which come on top: see `postrider simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider policy preview
  postrider policy preview --policy three_tier --assume timeout
  postrider policy preview --policy '{\"backoff\":{\"base\":\"30s\"},\"max_attempts\":6}' --assume 429 --json
  postrider policy preview --policy @policy.toml")]
struct PreviewArgs {
    /// Preset, policy as JSON, or @FILE with one as JSON or TOML
    #[arg(long, value_name = "POLICY", default_value = "standard", value_parser = policy_arg::policy)]
    policy: PolicyArg,
    /// What every attempt sees: a status code, or a kind of error such as timeout
    #[arg(long, value_name = "OUTCOME", default_value = "500", value_parser = policy_arg::outcome)]
    assume: OutcomeArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints it.
///
/// # Errors
/// When standard output is closed.
pub fn run(args: &PolicyArgs) -> anyhow::Result<()> {
    match &args.command {
        PolicyCommand::Preview(args) => preview(args),
    }
}

fn preview(args: &PreviewArgs) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Printed<'a> {
        policy: &'a RetryPolicy,
        assume: &'a str,
        #[serde(flatten)]
        preview: &'a Preview,
    }
    let policy = &args.policy.policy;
    let preview = policy.preview(&args.assume.outcome);
    if args.json {
        let printed = Printed {
            policy,
            assume: &args.assume.word,
            preview: &preview,
        };
        say(&serde_json::to_string(&printed)?)?;
    } else {
        say(&shown(&preview))?;
    }
    Ok(())
}

fn shown(preview: &Preview) -> String {
    let rows: Vec<Vec<String>> = preview
        .attempts
        .iter()
        .map(|attempt| {
            vec![
                attempt.number.to_string(),
                attempt.tier.to_string(),
                attempt.cause.to_string(),
                between(attempt.delay),
                span(attempt.offset.earliest_ms),
                span(attempt.offset.expected_ms),
                span(attempt.offset.latest_ms),
                match (attempt.certain, attempt.likely) {
                    (true, _) => "",
                    (false, true) => "likely",
                    (false, false) => "possible",
                }
                .to_owned(),
            ]
        })
        .collect();
    let header = [
        "#", "TIER", "CAUSE", "DELAY", "EARLIEST", "EXPECTED", "LATEST", "",
    ];
    let end = match preview.ends {
        Some(reason) => format!("then a dead letter: {reason}"),
        None => "then nothing is left to try".to_owned(),
    };
    let likely = preview.attempts.iter().filter(|attempt| attempt.likely).count();
    format!(
        "{}\n\n{likely} attempts expected, the last after {} ({}); {end}",
        table(&header, &rows),
        span(preview.window.expected_ms),
        between(preview.window),
    )
}

fn between(range: Range) -> String {
    if range.earliest_ms == range.latest_ms {
        span(range.latest_ms)
    } else {
        format!("{} to {}", span(range.earliest_ms), span(range.latest_ms))
    }
}

/// Milliseconds for people: exact below a minute, else in whole seconds.
fn span(millis: u64) -> String {
    let rounded = if millis < 60_000 {
        millis
    } else {
        (millis + 500) / 1_000 * 1_000
    };
    duration::text(Duration::from_millis(rounded))
}

#[cfg(test)]
mod tests {
    use postrider_core::outcome::Outcome;

    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_attempt() {
        let policy = policy_arg::policy(
            r#"{"backoff": {"schedule": ["5s", "2m"]}, "max_attempts": 3, "jitter": "none", "immediate": {"retries": 0},
                "long_term": {"enabled": false}}"#,
        );
        let text = shown(&policy.unwrap().policy.preview(&Outcome::status(500)));
        let expected = "\
#  TIER     CAUSE    DELAY  EARLIEST  EXPECTED  LATEST
1  backoff  first    0s     0s        0s        0s
2  backoff  backoff  5s     5s        5s        5s
3  backoff  backoff  2m     2m5s      2m5s      2m5s

3 attempts expected, the last after 2m5s (2m5s); then a dead letter: exhausted_retries";
        assert_eq!(text, expected);
    }

    #[test]
    fn spans_are_short() {
        for (millis, text) in [
            (0, "0s"),
            (563, "563ms"),
            (1_266, "1s266ms"),
            (64_400, "1m4s"),
            (3_600_000, "1h"),
        ] {
            assert_eq!(span(millis), text);
        }
    }
}
