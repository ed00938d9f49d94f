//! Tells the operator what is alarming, and when it is over.
//!
//! One supervised task ([`worker`]) compares numbers with thresholds every ten seconds ([`levels`]) and takes what the
//! engine's loop notices at once ([`notice`]); core decides what is worth telling ([`postrider_core::alert`]). What is told
//! is first kept in the store, then logged, counted and, when a webhook is configured, published as an event of
//! Postrider's own tenant ([`operator`]), so that it is signed and retried like every other. An alert that fires is
//! restored after a restart and not raised again; one that could not be published is published then, under the same id.
//!
//! It knows no SQL and no HTTP, and nothing waits for it: the engine drops its oldest notice rather than wait.

mod book;
mod levels;
pub mod notice;
pub mod operator;
pub mod shape;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::secret::Secret;
use postrider_store::Store;
use tokio::task::JoinHandle;

use self::notice::Notices;
use self::worker::Worker;
use crate::clock::Clock;
use crate::directory::Directory;
use crate::engine;
use crate::engine::control::Control;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::supervisor::Supervisor;

/// Name of the task in `/healthz`.
const WORKER: &str = "alerts";

/// When there is an alert; zero turns one off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    /// Dead letters in the queue.
    pub dead_letters: u64,
    /// Those of one destination.
    pub dead_letters_per_destination: u64,
    /// Dead letters that came within an hour.
    pub dead_letter_growth: u64,
    /// Those of one destination.
    pub dead_letter_growth_per_destination: u64,
    /// 99th percentile of the time from publish to success.
    pub time_to_success_p99: Duration,
    /// How long a delivery may be due.
    pub oldest_due_age: Duration,
    /// Whether an open circuit breaker is one.
    pub breaker_open: bool,
    /// Whether a destination that was disabled, but not by request, is one.
    pub destination_disabled: bool,
    /// Whether deliveries that used up all attempts are one.
    pub retries_exhausted: bool,
    /// Failures in a row that are alarming; told at 50, 70, 90 and 100 % of it.
    pub consecutive_failures: u64,
}

impl Default for Thresholds {
    /// 1,000 and 100 dead letters, 200 and 50 an hour, 5 minutes, 15 minutes, 100 failures in a row; all on.
    fn default() -> Self {
        Self {
            dead_letters: 1_000,
            dead_letters_per_destination: 100,
            dead_letter_growth: 200,
            dead_letter_growth_per_destination: 50,
            time_to_success_p99: Duration::from_secs(300),
            oldest_due_age: Duration::from_secs(900),
            breaker_open: true,
            destination_disabled: true,
            retries_exhausted: true,
            consecutive_failures: 100,
        }
    }
}

/// Where alerts are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The operator's receiver, which the address guard has to allow like any destination.
    pub url: String,
    /// Signs what is sent: `whsec_…`.
    pub secret: Secret,
}

/// What alerts are configured with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertsConfig {
    /// When there is one.
    pub thresholds: Thresholds,
    /// Where they are sent; without it they are logged and can be read.
    pub webhook: Option<Webhook>,
}

/// What alerts work with.
#[derive(Clone)]
pub struct Parts {
    /// Memory, and the source of most numbers.
    pub store: Arc<dyn Store>,
    /// Names, and who is disabled.
    pub directory: Arc<Directory>,
    /// How destinations fare.
    pub engine: Control,
    /// What the engine notices.
    pub notices: Notices,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Parts {
    /// Those of the engine, and where to ask it.
    #[must_use]
    pub fn beside(parts: engine::Parts, control: Control) -> Self {
        let engine::Parts {
            store,
            directory,
            notices,
            clock,
            metrics,
            ..
        } = parts;
        Self {
            store,
            directory,
            engine: control,
            notices,
            clock,
            metrics,
        }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("alerts::Parts").finish_non_exhaustive()
    }
}

/// Watches until the supervisor's stop. [`operator::ensure`] must have been called with the same configuration.
pub fn start(parts: Parts, config: AlertsConfig, supervisor: &Supervisor) -> JoinHandle<()> {
    let stop = supervisor.stop.clone();
    supervisor.supervise(WORKER, move || {
        Worker::new(parts.clone(), config.clone()).run(stop.clone())
    })
}
