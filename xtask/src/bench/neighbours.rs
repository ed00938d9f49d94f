//! Latency of healthy destinations beside others, healthy or not.
//!
//! What is compared are tails of a few milliseconds, and a shared machine's own noise is as large. So every neighbourhood
//! is measured several times, in turn, each round beginning with another. The samples of all its runs are taken together,
//! and each round's tails are compared with each other, so that what slows a whole round down is on both sides.

use anyhow::Result;

use super::scenario::{Bench, load};
use super::server::{KEY, Server, free_address};
use super::sink::{Silence, Sink};
use crate::load::Latencies;

/// Healthy destinations, which share the measured rate.
pub(super) const HEALTHY: u64 = 10;
/// Other numbers of them, alone.
const OTHERS: [u64; 2] = [1, 1_000];

/// Who is beside the healthy ones. Each neighbour gets an event a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Beside {
    /// Nobody.
    Nobody,
    /// So many tenants that get the same events as the next, and have no destination: what others are compared with.
    Unsubscribed(u64),
    /// So many that answer at once: the same work for the server's store as the next, without its trouble.
    Answering(u64),
    /// So many that accept connections and never answer; a request to them ends at its timeout of 15 s.
    Hanging(u64),
}

impl Beside {
    /// What is measured.
    pub(super) const ALL: [Self; 5] = [
        Self::Nobody,
        Self::Unsubscribed(100),
        Self::Answering(100),
        Self::Hanging(1),
        Self::Hanging(100),
    ];
}

/// All runs with one neighbourhood.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// How many destinations share the measured rate.
    pub(super) healthy: u64,
    pub(super) beside: Beside,
    pub(super) latencies: Latencies,
    /// The 99th percentile of each round's run, end to end, in milliseconds.
    pub(super) p99s: Vec<f64>,
    /// Peak memory of the server, the highest of all runs, and what was still there at the end of that one.
    pub(super) rss_mb: f64,
}

impl Neighbours {
    fn new(healthy: u64, beside: Beside) -> Self {
        Self {
            healthy,
            beside,
            latencies: Latencies::default(),
            p99s: Vec::new(),
            rss_mb: 0.0,
        }
    }
}

impl Bench {
    /// Every neighbourhood, as often as the scale says, in turn; then other numbers of destinations, once.
    pub(super) async fn neighbours(&self) -> Result<Vec<Neighbours>> {
        let mut all = Beside::ALL.map(|beside| Neighbours::new(HEALTHY, beside));
        for _ in 0..self.scale.latency_rounds {
            for one in &mut all {
                self.measure(one).await?;
            }
            all.rotate_left(1);
        }
        all.sort_by_key(|one| one.beside);
        let mut all = Vec::from(all);
        for healthy in OTHERS {
            let mut one = Neighbours::new(healthy, Beside::Nobody);
            self.measure(&mut one).await?;
            all.push(one);
        }
        Ok(all)
    }

    async fn measure(&self, one: &mut Neighbours) -> Result<()> {
        let Neighbours { healthy, beside, .. } = *one;
        let (rate, run) = (self.scale.rate, one.p99s.len() + 1);
        eprintln!("latency at {rate}/s to {healthy} beside {beside:?}, run {run}");
        let (latencies, rss_mb) = self.beside(healthy, beside).await?;
        one.latencies.publish.extend(&latencies.publish);
        one.latencies.end_to_end.extend(&latencies.end_to_end);
        one.p99s.push(latencies.end_to_end.percentiles().p99);
        one.rss_mb = one.rss_mb.max(rss_mb);
        Ok(())
    }

    async fn beside(&self, healthy: u64, beside: Beside) -> Result<(Latencies, f64)> {
        let silence = Silence::start().await?;
        let sink = Sink::start(&[]).await?;
        let server = Server::start(&self.folder, &[]).await?;
        let receiver = free_address()?.to_string();
        let url = format!("http://{receiver}/hook");
        server.subscribe("t", healthy, Some(&url)).await?;
        let (neighbours, url) = match beside {
            Beside::Nobody => (0, None),
            Beside::Unsubscribed(count) => (count, None),
            Beside::Answering(count) => (count, Some(sink.url())),
            Beside::Hanging(count) => (count, Some(silence.url())),
        };
        server.subscribe("b", neighbours, url.as_deref()).await?;
        let address = server.address.to_string();
        let (healthy, neighbours) = (healthy.to_string(), neighbours.to_string());
        let (rate, seconds) = (
            self.scale.rate.to_string(),
            self.scale.latency_seconds.to_string(),
        );
        let mut arguments = vec!["latency", "--server", &address, "--key", KEY];
        arguments.extend(["--listen", &receiver, "--rate", &rate, "--seconds", &seconds]);
        arguments.extend(["--tenants", &healthy, "--beside", &neighbours]);
        Ok((load(&arguments).await?, server.peak_rss_mb()?))
    }
}
