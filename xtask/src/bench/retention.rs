//! Publishing while retention forgets: the same load on two servers with the same history, one of which keeps it.
//!
//! Both have as many old events, and wait until these are older than the least that can be kept.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use super::scenario::{Bench, load, publish};
use super::server::{KEY, Server, Setting, free_address};
use crate::load::{Latencies, Samples};

/// Events that are old when the measurement begins.
pub(super) const OLD: u64 = 500_000;
/// The least that retention keeps, and how much longer the servers wait.
const KEPT: &str = "1m";
const AGEING: Duration = Duration::from_secs(63);
/// Publishes a second, to ten destinations that answer at once.
pub(super) const RATE: u64 = 1_000;
const TENANTS: &str = "10";

const KEEPS: [Setting; 1] = [("POSTRIDER_RETENTION__EVENTS", "off")];
const FORGETS: [Setting; 1] = [("POSTRIDER_RETENTION__EVENTS", KEPT)];

/// From due to answered.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// Nothing was forgotten.
    pub(super) keeps: Samples,
    /// The old events were being forgotten.
    pub(super) forgets: Samples,
}

impl Bench {
    /// Both kinds, one after the other.
    pub(super) async fn forgetting(&self) -> Result<Forgetting> {
        eprintln!("publish at {RATE}/s beside {OLD} old events");
        let keeps = self.aged(&KEEPS).await?.publish;
        eprintln!("publish at {RATE}/s while {OLD} old events are forgotten");
        let forgets = self.aged(&FORGETS).await?.publish;
        Ok(Forgetting { keeps, forgets })
    }

    async fn aged(&self, settings: &[Setting]) -> Result<Latencies> {
        let server = Server::start(&self.folder, settings).await?;
        // Nobody subscribes to the old ones: retention removes events, not the results of deliveries.
        server.subscribe("old", 1, None).await?;
        let receiver = free_address()?.to_string();
        let url = format!("http://{receiver}/hook");
        let count = OLD.to_string();
        let arguments = [
            "--batch",
            "100",
            "--connections",
            "8",
            "--seconds",
            "300",
            "--count",
            &count,
        ];
        let done = publish(&server, &arguments).await?.done;
        ensure!(done >= OLD, "only {done} old events were published");
        sleep(AGEING).await;
        server.subscribe("t", 10, Some(&url)).await?;
        let (address, rate) = (server.address.to_string(), RATE.to_string());
        let seconds = self.scale.retention_seconds.to_string();
        let mut arguments = vec!["latency", "--server", &address, "--key", KEY];
        arguments.extend(["--listen", &receiver, "--rate", &rate, "--seconds", &seconds]);
        arguments.extend(["--tenants", TENANTS]);
        load(&arguments).await
    }
}
