//! `xtask load`: the load generator of the bench, as a process of its own, so that its CPU time is not the server's.
//!
//! It drives the server (or the sink, for the limit) over kept connections on loopback and prints one line of JSON.

mod client;
mod closed;
mod open;
mod samples;

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

pub(crate) use client::Client;
pub(crate) use samples::{Percentiles, Samples};

/// Options of `load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// A bare client against the sink: the limit of this machine.
    Bare(closed::BareArgs),
    /// Publishes as fast as the server answers.
    Publish(closed::PublishArgs),
    /// Publishes at a fixed rate and receives the deliveries itself.
    Latency(open::LatencyArgs),
}

/// Where the server is.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Its address.
    #[arg(long)]
    pub(crate) server: SocketAddr,
    /// Its API key.
    #[arg(long)]
    pub(crate) key: String,
}

/// What `bare` and `publish` print.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Throughput {
    /// Requests answered, or events acknowledged.
    pub(crate) done: u64,
    /// From the first request to the last answer.
    pub(crate) seconds: f64,
    /// From each request to its answer, without the first of [`closed::WARM_UP`]. Nothing is due at a fixed time here, so a
    /// stall counts once for each connection.
    pub(crate) latencies: Samples,
}

/// What `latency` prints.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// From the moment at which a publish was due to its answer.
    pub(crate) publish: Samples,
    /// From the moment at which a publish was due to the arrival of the delivery.
    pub(crate) end_to_end: Samples,
}

/// Runs the load and prints its result.
pub(crate) fn run(args: &LoadArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let line = runtime.block_on(async {
        match &args.kind {
            Kind::Bare(args) => serde_json::to_string(&closed::bare(args).await?),
            Kind::Publish(args) => serde_json::to_string(&closed::publish(args).await?),
            Kind::Latency(args) => serde_json::to_string(&open::latency(args).await?),
        }
        .context("failed to print the result")
    })?;
    println!("{line}");
    Ok(())
}
