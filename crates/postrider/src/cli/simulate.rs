//! `postrider simulate`: what a retry policy does to a receiver that comes back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::outcome::Outcome;
use postrider_core::policy::{RetryPolicy, duration};

use super::policy_arg::{self, PolicyArg};
use crate::simulate::tally::Tally;
use crate::simulate::variants::{Protection, without};
use crate::simulate::world::{Receiver, Scenario, play};
use crate::simulate::{chart, text};

/// More deliveries than this would take too long to be of use.
const MAX_DELIVERIES: u32 = 1_000_000;

/// Play a retry policy against a receiver that is out for a while.
///
/// Runs the dispatcher and the policy of the server on a clock that jumps, so that hours take a moment. Shows the
/// requests per second that the receiver sees, when deliveries succeed, and totals; with --svg also as a picture.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  postrider simulate --policy standard --deliveries 10000 --outage 30m
  postrider simulate --policy standard --without jitter --without jitter,breaker,window
  postrider simulate --policy '{\"preset\":\"batch\",\"max_attempts\":8}' --compare outpost --svg compare.svg")]
pub struct SimulateArgs {
    /// Preset, policy as JSON, or @FILE with one as JSON or TOML.
    #[arg(long, value_name = "POLICY", default_value = "standard", value_parser = policy_arg::policy)]
    policy: PolicyArg,
    /// Another policy beside it; may be repeated.
    #[arg(long, value_name = "POLICY", value_parser = policy_arg::policy)]
    compare: Vec<PolicyArg>,
    /// The policy once more with protections taken away: jitter, breaker, window, comma-separated; may be repeated.
    #[arg(long, value_name = "LIST", value_parser = protections)]
    without: Vec<Without>,
    /// Deliveries to one destination.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DELIVERIES)))]
    deliveries: u32,
    /// Publish them evenly over this long instead of all at once.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = policy_arg::duration)]
    publish_over: Duration,
    /// The receiver fails from the beginning for this long.
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = policy_arg::duration)]
    outage: Duration,
    /// How it fails: a status code, refused, timeout or dns.
    #[arg(long, value_name = "HOW", default_value = "503", value_parser = failure)]
    fail_with: FailWith,
    /// Requests that the receiver can work on at a time; it turns others away with 503.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    receiver_capacity: Option<u32>,
    /// How long it works on a request.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = policy_arg::duration)]
    latency: Duration,
    /// Varies the jitter.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the runs into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Protections that a run does without.
#[derive(Debug, Clone)]
struct Without(Vec<Protection>);

/// How the receiver fails.
#[derive(Debug, Clone)]
struct FailWith {
    word: String,
    outcome: Outcome,
    latency: Duration,
}

fn protections(list: &str) -> Result<Without, String> {
    let words = list.split(',').map(str::trim);
    words.map(str::parse).collect::<Result<_, String>>().map(Without)
}

fn failure(word: &str) -> Result<FailWith, String> {
    let (outcome, latency) = Receiver::failure(word)?;
    Ok(FailWith {
        word: word.to_owned(),
        outcome,
        latency,
    })
}

/// Plays, and prints.
///
/// # Errors
/// When a policy or a word is wrong, or the picture cannot be written.
#[expect(clippy::print_stdout, reason = "this is what the command is for")]
pub fn run(args: &SimulateArgs) -> anyhow::Result<()> {
    let runs: Vec<(String, Tally)> = scenarios(args)?
        .into_iter()
        .map(|(name, scenario)| (name, play(&scenario)))
        .collect();
    let outage = args.outage.as_secs();
    println!(
        "{} deliveries published within {}; the receiver answers {} for {}, then takes {} a request, {} at a time\n",
        args.deliveries,
        duration::text(args.publish_over),
        args.fail_with.word,
        duration::text(args.outage),
        duration::text(args.latency),
        args.receiver_capacity
            .map_or_else(|| "any number".to_owned(), |n| n.to_string()),
    );
    print!("{}", text::report(&runs, outage));
    if let Some(path) = &args.svg {
        let title = format!(
            "{} deliveries, receiver out for {}",
            args.deliveries,
            duration::text(args.outage)
        );
        std::fs::write(path, chart::svg(&title, &runs, outage))
            .with_context(|| format!("write {}", path.display()))?;
        println!("\ndrawn into {}", path.display());
    }
    Ok(())
}

fn scenarios(args: &SimulateArgs) -> anyhow::Result<Vec<(String, Scenario)>> {
    let base = scenario(args, args.policy.policy.clone());
    let mut runs = vec![(short(&args.policy.text), base.clone())];
    for list in &args.without {
        let names: Vec<_> = list.0.iter().map(ToString::to_string).collect();
        runs.push((
            format!("without {}", names.join(", ")),
            without(base.clone(), &list.0),
        ));
    }
    for other in &args.compare {
        runs.push((short(&other.text), scenario(args, other.policy.clone())));
    }
    if runs.len() > 6 {
        bail!("compare {} runs: a picture holds 6 at the most", runs.len());
    }
    Ok(runs)
}

fn scenario(args: &SimulateArgs, policy: RetryPolicy) -> Scenario {
    Scenario {
        deliveries: args.deliveries,
        publish_over: args.publish_over,
        receiver: Receiver {
            outage: args.outage,
            failure: args.fail_with.outcome.clone(),
            failure_latency: args.fail_with.latency,
            capacity: args.receiver_capacity,
            latency: args.latency,
        },
        policy: Arc::new(policy),
        dispatcher: DispatcherConfig::default(),
        seed: args.seed,
    }
}

/// A policy's text, short enough for a table.
fn short(policy: &str) -> String {
    let mut name: String = policy.chars().take(32).collect();
    if name.len() < policy.len() {
        name.push('…');
    }
    name
}
