//! `cargo xtask bench`: what Postrider does on this machine, as ratios to a bare HTTP client in the same run.
//!
//! Three processes on loopback: the server, a sink, and the load generator (this program again, as `load`), so that the
//! CPU time of each is its own. Every scenario starts a fresh server on a fresh folder, is bounded in time and count, and
//! ends when everything that was acknowledged has arrived. Absolute numbers are only good beside the limit of the same
//! run; the page says so, and puts the ratios first.

mod machine;
mod neighbours;
mod proc_stat;
mod report;
mod retention;
mod scenario;
mod server;
mod sink;
mod storm;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use crate::process::{at_root, cargo, run as run_command};
use report::Report;
use scenario::Bench;
use storm::Sender;

/// Options of `bench`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// A few seconds a scenario, and no change to `docs/benchmarks.md`: for development, not for comparison.
    #[arg(long)]
    quick: bool,
    /// Only these scenarios.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// How often the latencies beside each neighbourhood are measured; more rounds see smaller differences.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Where the servers keep their data: on the disk that is to be measured, or in memory. The page is only changed by runs in
    /// `target/bench`, which is the default.
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// A part of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Only {
    /// Throughput with 1, 10 and 1,000 destinations.
    Throughput,
    /// Latencies at a fixed rate, also beside hanging destinations.
    Latency,
    /// A backlog for a receiver that comes back with little capacity.
    Storm,
    /// Publishing while old events are forgotten.
    Retention,
}

/// How much of each scenario.
#[derive(Debug, Clone, Copy)]
struct Scale {
    /// Of a closed loop.
    seconds: u64,
    /// Of an open loop.
    latency_seconds: u64,
    /// How often each open loop runs.
    latency_rounds: u64,
    /// Publishes a second of an open loop.
    rate: u64,
    /// Of publishing while retention forgets, and while it does not.
    retention_seconds: u64,
    /// How often each of the two runs.
    retention_rounds: u64,
    /// Deliveries of a batch or a backlog.
    count: u64,
}

/// Builds, runs every scenario and writes the page.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    run_command(&mut cargo([
        "build",
        "--release",
        "--locked",
        "--package",
        "postrider",
        "--package",
        "xtask",
    ]))?;
    let folder = args.folder.clone().unwrap_or_else(|| at_root("target/bench"));
    std::fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let run = tempfile::TempDir::with_prefix_in("run-", folder).context("failed to make a folder")?;
    let folder = run.path().to_owned();
    let mut scale = if args.quick {
        Scale {
            seconds: 3,
            latency_seconds: 6,
            latency_rounds: 2,
            rate: 200,
            retention_seconds: 10,
            retention_rounds: 1,
            count: 10_000,
        }
    } else {
        Scale {
            seconds: 10,
            latency_seconds: 20,
            latency_rounds: 5,
            rate: 200,
            retention_seconds: 30,
            retention_rounds: 1,
            count: 100_000,
        }
    };
    if let Some(rounds) = args.rounds {
        scale.latency_rounds = rounds;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let report = runtime.block_on(measure(Bench { folder, scale }, args.only))?;
    let text = report.to_string();
    println!("\n{text}");
    if args.quick || args.only.is_some() || args.folder.is_some() {
        return Ok(());
    }
    report::rewrite(&at_root("docs/benchmarks.md"), &text)
}

async fn measure(bench: Bench, only: Option<Only>) -> Result<Report> {
    let mut report = Report::new(machine::describe()?, bench.scale);
    let wanted = |part| only.is_none_or(|only| only == part);
    if wanted(Only::Throughput) {
        report.limits.push(bench.bare().await?);
        report.accepts = Some(bench.accepts().await?);
        for destinations in [1, 10, 1_000] {
            report
                .single
                .push((destinations, bench.publish(destinations, 1).await?));
            report
                .batch
                .push((destinations, bench.publish(destinations, 100).await?));
            report
                .drain
                .push((destinations, bench.drain(destinations).await?));
            report.limits.push(bench.bare().await?);
        }
    }
    if wanted(Only::Latency) {
        report.neighbours = bench.neighbours().await?;
    }
    if wanted(Only::Storm) {
        for sender in [Sender::Protecting, Sender::Careless] {
            report.storms.push(bench.storm(sender).await?);
        }
    }
    if wanted(Only::Retention) {
        report.forgetting = Some(bench.forgetting().await?);
    }
    Ok(report)
}
