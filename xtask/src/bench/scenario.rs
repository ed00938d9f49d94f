//! The scenarios. Each answers numbers; what they mean is the report's business.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use tokio::process::Command;
use tokio::time::Instant;

use super::Scale;
use super::server::{KEY, Server, binary};
use super::sink::{Silence, Sink};
use crate::load::Throughput;

/// What all scenarios share.
#[derive(Debug)]
pub(super) struct Bench {
    /// Where data folders are made.
    pub(super) folder: PathBuf,
    /// How much.
    pub(super) scale: Scale,
}

/// Throughput of deliveries, and what it cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivered {
    /// Deliveries a second, from the first publish (or the start of the server) to the last arrival.
    pub(super) per_second: f64,
    /// Of the server alone.
    pub(super) cpu_seconds_per_1000: f64,
    /// Of the server, at the highest.
    pub(super) rss_mb: f64,
}

impl Bench {
    /// Requests a second of a bare client against the sink.
    pub(super) async fn bare(&self) -> Result<f64> {
        eprintln!("bare client against the sink");
        let sink = Sink::start(&[]).await?;
        let arguments = [
            "bare",
            "--sink",
            &sink.address.to_string(),
            "--seconds",
            &self.seconds(),
        ];
        let done: Throughput = load(&arguments).await?;
        Ok(rate(done.done, done.seconds))
    }

    /// Events a second that are accepted when nobody subscribes to them.
    pub(super) async fn accepts(&self) -> Result<f64> {
        eprintln!("accepts without a destination");
        let server = Server::start(&self.folder, &[]).await?;
        server.subscribe("t", 1, None).await?;
        let done = publish(&server, &["--seconds", &self.seconds()]).await?;
        Ok(rate(done.done, done.seconds))
    }

    /// Publishes and waits until all has arrived.
    pub(super) async fn publish(&self, destinations: u64, batch: u64) -> Result<Delivered> {
        eprintln!("publish by {batch}, {destinations} destinations");
        let sink = Sink::start(&[]).await?;
        let server = Server::start(&self.folder, &[]).await?;
        server.subscribe("t", destinations, Some(&sink.url())).await?;
        let (tenants, batch, count) = (
            destinations.to_string(),
            batch.to_string(),
            self.scale.count.to_string(),
        );
        let before = server.cpu_seconds()?;
        let start = Instant::now();
        let mut arguments = vec!["--tenants", &tenants, "--batch", &batch];
        let seconds = self.seconds();
        if batch == "1" {
            arguments.extend(["--seconds", &seconds]);
        } else {
            // By count, so that a fast accept does not pile up a backlog without end.
            arguments.extend(["--seconds", "60", "--connections", "8", "--count", &count]);
        }
        let published = publish(&server, &arguments).await?;
        sink.until(published.done).await?;
        delivered(&server, published.done, start, before)
    }

    /// Publishes to a receiver that says nothing, kills the server, starts a sink in the receiver's place and then the
    /// server: what is measured is all of a restart with a stored backlog, from the start of the process on.
    pub(super) async fn drain(&self, destinations: u64) -> Result<Delivered> {
        eprintln!("drain a backlog, {destinations} destinations");
        let silence = Silence::start().await?;
        let mut server = Server::start(&self.folder, &[]).await?;
        server.subscribe("t", destinations, Some(&silence.url())).await?;
        let (tenants, count) = (destinations.to_string(), self.scale.count.to_string());
        let arguments = [
            "--tenants",
            &tenants,
            "--batch",
            "100",
            "--connections",
            "8",
            "--seconds",
            "60",
            "--count",
            &count,
        ];
        let published = publish(&server, &arguments).await?;
        server.kill().await?;
        let address = silence.address;
        silence.end().await;
        let sink = Sink::start_at(address, &[]).await?;
        let start = Instant::now();
        server.start_again()?;
        sink.until(published.done).await?;
        delivered(&server, published.done, start, 0.0)
    }

    fn seconds(&self) -> String {
        self.scale.seconds.to_string()
    }
}

fn delivered(server: &Server, count: u64, start: Instant, cpu_before: f64) -> Result<Delivered> {
    let seconds = start.elapsed().as_secs_f64();
    let cpu = server.cpu_seconds()? - cpu_before;
    ensure!(count > 0, "nothing was published");
    Ok(Delivered {
        per_second: rate(count, seconds),
        cpu_seconds_per_1000: cpu * 1_000.0 / as_f64(count),
        rss_mb: server.peak_rss_mb()?,
    })
}

pub(super) async fn publish(server: &Server, arguments: &[&str]) -> Result<Throughput> {
    let address = server.address.to_string();
    let mut all = vec!["publish", "--server", &address, "--key", KEY];
    all.extend(arguments);
    load(&all).await
}

/// Runs the load generator as a process and reads its result.
pub(super) async fn load<T: DeserializeOwned>(arguments: &[&str]) -> Result<T> {
    // Not `output`, which would take its complaints too.
    let child = Command::new(binary("xtask"))
        .arg("load")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start the load generator")?;
    let output = child
        .wait_with_output()
        .await
        .context("failed to read what the load generator says")?;
    ensure!(
        output.status.success(),
        "the load generator failed: load {}",
        arguments.join(" ")
    );
    serde_json::from_slice(&output.stdout).context("failed to understand the load generator")
}

pub(super) fn rate(count: u64, seconds: f64) -> f64 {
    as_f64(count) / seconds
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^53")]
pub(super) fn as_f64(count: u64) -> f64 {
    count as f64
}
