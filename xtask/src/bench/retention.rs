//! Publishing at full load while retention forgets: the same load on copies of one history, of which one server keeps
//! everything and the other forgets what is older than the least that can be kept.
//!
//! Both run several times, in turn, and their samples are taken together.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::Method;
use tokio::time::sleep;

use super::scenario::{Bench, publish, rate};
use super::server::{KEY, Server, Setting};
use super::sink::Sink;
use crate::load::{Client, Samples};

/// Events, each delivered to one of ten destinations, that are old when the measurement begins.
pub(super) const OLD: u64 = 500_000;
/// The least that retention keeps, and how much longer the history waits.
const KEPT: &str = "1m";
const AGEING: Duration = Duration::from_secs(63);
const TENANTS: u64 = 10;

const KEEPS: [Setting; 2] = [
    ("POSTRIDER_RETENTION__EVENTS", "off"),
    ("POSTRIDER_RETENTION__ATTEMPTS", "off"),
];
const FORGETS: [Setting; 2] = [
    ("POSTRIDER_RETENTION__EVENTS", KEPT),
    ("POSTRIDER_RETENTION__ATTEMPTS", KEPT),
];

/// All runs of one kind.
#[derive(Debug, Default)]
pub(super) struct Aged {
    /// From a publish to its answer.
    pub(super) latencies: Samples,
    /// Publishes a second of each run.
    pub(super) rates: Vec<f64>,
    /// Events that retention removed in all runs, with their attempts.
    pub(super) removed: u64,
}

/// Nothing was forgotten, and what is old was.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    pub(super) keeps: Aged,
    pub(super) forgets: Aged,
}

impl Bench {
    /// Makes the history, then runs both kinds in turn.
    pub(super) async fn forgetting(&self) -> Result<Forgetting> {
        eprintln!("a history of {OLD} events");
        let sink = Sink::start(&[]).await?;
        let mut history = Server::start(&self.folder, &KEEPS).await?;
        history.subscribe("t", TENANTS, Some(&sink.url())).await?;
        let (count, tenants) = (OLD.to_string(), TENANTS.to_string());
        let arguments = ["--batch", "100", "--connections", "8", "--tenants", &tenants];
        let arguments = [&arguments[..], &["--seconds", "300", "--count", &count]].concat();
        let done = publish(&history, &arguments).await?.done;
        ensure!(done >= OLD, "only {done} old events were published");
        sink.until(done).await?;
        sleep(AGEING).await;
        history.kill().await?;
        let mut forgetting = Forgetting::default();
        for run in 1..=self.scale.retention_rounds {
            eprintln!("publish at full load beside {OLD} old events, run {run}");
            self.aged(&history.data(), &KEEPS, &mut forgetting.keeps).await?;
            eprintln!("publish at full load while {OLD} old events are forgotten, run {run}");
            self.aged(&history.data(), &FORGETS, &mut forgetting.forgets)
                .await?;
        }
        ensure!(forgetting.keeps.removed == 0, "what was to stay was removed");
        ensure!(forgetting.forgets.removed > 0, "nothing was removed");
        Ok(forgetting)
    }

    async fn aged(&self, history: &Path, settings: &[Setting], aged: &mut Aged) -> Result<()> {
        let server = Server::start_on_copy(&self.folder, history, settings).await?;
        let (seconds, tenants) = (self.scale.retention_seconds.to_string(), TENANTS.to_string());
        let published = publish(&server, &["--seconds", &seconds, "--tenants", &tenants]).await?;
        aged.latencies.extend(&published.latencies);
        aged.rates.push(rate(published.done, published.seconds));
        aged.removed += removed(&server).await?;
        Ok(())
    }
}

/// Events that retention has removed, by the server's metrics.
async fn removed(server: &Server) -> Result<u64> {
    let mut client = Client::connect(server.address, Some(KEY)).await?;
    let metrics = client.succeed(Method::GET, "/metrics", String::new()).await?;
    let series = r#"postrider_retention_removed_total{kind="events"} "#;
    let metrics = String::from_utf8_lossy(&metrics);
    let value = metrics.lines().find_map(|line| line.strip_prefix(series));
    let value = value.with_context(|| format!("the metrics do not have {series}"))?;
    Ok(value.parse()?)
}
