//! A receiver that was down comes back with a limited capacity, and a backlog waits for it.
//!
//! It can work on so many requests at once, each takes it a while, and what is beyond is answered with 503. The same
//! backlog is sent twice: with all that protects receivers, and by a sender without breaker and window, that has as many
//! requests out as it may.

use anyhow::{Context, Result, ensure};
use hyper::Method;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use super::scenario::{Bench, as_f64, publish};
use super::server::{KEY, Server, free_address};
use super::sink::Sink;
use crate::load::Client;

/// Requests that the receiver can work on at once.
pub(super) const CAPACITY: u64 = 50;
/// How long it works on each.
pub(super) const WORK: Duration = Duration::from_millis(20);

/// Between two looks at the receiver's counts.
const LOOK: Duration = Duration::from_millis(100);
/// A breaker that opened while the receiver was down sends its probe within this.
const PROBE: Duration = Duration::from_secs(120);
/// The backlog gets this many times the time that it needs at full capacity.
const PATIENCE: f64 = 2.0;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The defaults.
    Protecting,
    /// No breaker, and a window of 1,000 from the beginning.
    Careless,
}

/// What the receiver saw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recovered {
    pub(super) sender: Sender,
    pub(super) backlog: u64,
    /// Events delivered when the run ended: all, or its time was over.
    pub(super) delivered: u64,
    /// From the first request to the last delivery.
    pub(super) seconds: f64,
    /// Requests beyond the capacity.
    pub(super) refused: u64,
    /// The longest time without a break in which more was in flight than it can take.
    pub(super) longest_over: Duration,
    /// All of that time.
    pub(super) total_over: Duration,
    /// Deliveries that became dead letters.
    pub(super) dead: u64,
    /// Peak memory of the server.
    pub(super) rss_mb: f64,
}

impl Recovered {
    /// Deliveries a second as a share of what the receiver can do.
    pub(super) fn of_capacity(&self) -> f64 {
        as_f64(self.delivered) / self.seconds / full_rate()
    }
}

fn full_rate() -> f64 {
    as_f64(CAPACITY) / WORK.as_secs_f64()
}

impl Bench {
    /// Publishes a backlog for a receiver that nobody can connect to, then lets it come back.
    pub(super) async fn storm(&self, sender: Sender) -> Result<Recovered> {
        let backlog = self.scale.count;
        eprintln!("a backlog of {backlog} for a receiver that comes back, {sender:?}");
        let careless = [
            ("POSTRIDER_BREAKER__FAILURES", "0"),
            ("POSTRIDER_BREAKER__RATE_PERCENT", "0"),
            ("POSTRIDER_BREAKER__SLOW_P95", "0s"),
            ("POSTRIDER_WINDOW__FLOOR", "1000"),
            ("POSTRIDER_WINDOW__INITIAL", "1000"),
            ("POSTRIDER_WINDOW__CEILING", "1000"),
        ];
        let settings: &[_] = match sender {
            Sender::Protecting => &[],
            Sender::Careless => &careless,
        };
        let receiver = free_address()?;
        let server = Server::start(&self.folder, settings).await?;
        server
            .subscribe("t", 1, Some(&format!("http://{receiver}/hook")))
            .await?;
        let count = backlog.to_string();
        let mut arguments = vec!["--batch", "100", "--connections", "8", "--seconds", "60"];
        arguments.extend(["--count", &count]);
        let published = publish(&server, &arguments).await?;
        ensure!(
            published.done >= backlog,
            "only {} were published",
            published.done
        );
        let (capacity, delay) = (CAPACITY.to_string(), format!("{}ms", WORK.as_millis()));
        let sink = Sink::start_at(receiver, &["--capacity", &capacity, "--delay", &delay]).await?;
        let seen = watch(&sink, published.done).await?;
        Ok(Recovered {
            sender,
            backlog: published.done,
            delivered: seen.delivered,
            seconds: seen.seconds,
            refused: seen.over("refused")?,
            longest_over: Duration::from_millis(seen.over("longest_ms")?),
            total_over: Duration::from_millis(seen.over("total_ms")?),
            dead: dead(&server).await?,
            rss_mb: server.peak_rss_mb()?,
        })
    }
}

/// What was seen from the first request on.
struct Seen {
    delivered: u64,
    seconds: f64,
    stats: Value,
}

impl Seen {
    fn over(&self, name: &str) -> Result<u64> {
        let found = self.stats["over_capacity"][name].as_u64();
        found.with_context(|| format!("the sink's counts have no `over_capacity.{name}`"))
    }
}

/// Waits for the first request, then until all has arrived or its time is over.
async fn watch(sink: &Sink, backlog: u64) -> Result<Seen> {
    let limit = Duration::from_secs_f64(as_f64(backlog) / full_rate() * PATIENCE);
    let begin = Instant::now();
    let mut first = None;
    let mut last = (0, begin);
    loop {
        let stats = sink.stats().await?;
        let delivered = stats["by_status"]["200"].as_u64().unwrap_or(0);
        if delivered > last.0 {
            last = (delivered, Instant::now());
            first.get_or_insert(last.1);
        }
        let Some(first) = first else {
            ensure!(begin.elapsed() < PROBE, "nothing arrived within {PROBE:?}");
            sleep(LOOK).await;
            continue;
        };
        if delivered >= backlog || first.elapsed() > limit {
            return Ok(Seen {
                delivered,
                seconds: (last.1 - first + LOOK).as_secs_f64(),
                stats,
            });
        }
        sleep(LOOK).await;
    }
}

/// Dead letters, from the server's metrics.
async fn dead(server: &Server) -> Result<u64> {
    let mut client = Client::connect(server.address, Some(KEY)).await?;
    let page = client.succeed(Method::GET, "/metrics", String::new()).await?;
    let page = String::from_utf8_lossy(&page);
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("postrider_dead_letters "))
        .context("the metrics have no dead letters")?;
    line.trim().parse().context("dead letters are not a number")
}
