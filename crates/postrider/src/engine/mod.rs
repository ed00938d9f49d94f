//! The loop between store and network.
//!
//! [`Engine::start`] spawns four kinds of tasks. The *loop* ([`run`]) owns the dispatcher and performs its actions;
//! it is the only one that decides what starts. *Attempts* ([`attempt`]) send and judge, one task each, and report to the
//! loop. The *settler* ([`settle`]) commits judged results in order and tells the loop; the *keeper* ([`keep`]) writes the few
//! states of breakers and holds that outlive a restart. People ask the loop through [`control::Control`]. A loop that dies is started
//! again from the store: what was in flight is sent again, nothing is lost.
//!
//! The engine knows neither SQL nor HTTP: [`Store`] and [`Courier`] are traits, and so is the clock, so that the simulation
//! runs this very code on paused time.

mod attempt;
pub mod control;
mod keep;
mod run;
mod settle;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use postrider_core::dispatcher::DispatcherConfig;
use postrider_store::Store;
use postrider_store::record::Payload;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::control::Control;
use self::run::Run;
use crate::alerts::notice::Notices;
use crate::clock::Clock;
use crate::courier::Courier;
use crate::directory::Directory;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::supervisor::Supervisor;

/// Name of the engine's loop in `/healthz`.
const WORKER: &str = "engine";
/// What is left after the grace time for committing the last results.
const COMMIT_TIME: Duration = Duration::from_secs(5);

/// What the engine works with.
#[derive(Clone)]
pub struct Parts {
    /// Memory.
    pub store: Arc<dyn Store>,
    /// Where deliveries go.
    pub directory: Arc<Directory>,
    /// The network.
    pub courier: Arc<dyn Courier>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is reported.
    pub health: Health,
    /// Who is told when a destination fails.
    pub notices: Notices,
}

/// Bounds of the engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Bounds of lanes and dispatcher. A crash repeats at most `max_in_flight + max_unsettled` requests.
    pub dispatcher: DispatcherConfig,
    /// Payload bytes that one read of the store may bring.
    pub max_read_bytes: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            dispatcher: DispatcherConfig::default(),
            max_read_bytes: 8 << 20,
        }
    }
}

/// The instants that a shutdown keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closing {
    /// Requests that are out may go on until then.
    pub work_until: Instant,
    /// Results may be committed until then.
    pub commit_until: Instant,
}

impl Closing {
    /// From now on: `grace` for requests, and 5 s more for their results.
    #[must_use]
    pub fn after(grace: Duration) -> Self {
        let work_until = Instant::now() + grace;
        Self {
            work_until,
            commit_until: work_until + COMMIT_TIME,
        }
    }
}

/// The running engine.
#[derive(Debug)]
pub struct EngineHandle {
    closing: watch::Sender<Option<Closing>>,
    stop: watch::Sender<bool>,
    drained: watch::Receiver<Drained>,
    control: Control,
    supervised: JoinHandle<()>,
}

/// How a shutdown ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Requests that did not finish in time and were given up: their deliveries are sent again after a restart.
    pub given_up: usize,
}

/// Starts engines.
#[derive(Debug, Clone, Copy)]
pub struct Engine;

impl Engine {
    /// Starts the engine; it first looks for what an earlier process left pending. A loop that dies is started again from
    /// the store. Needs a Tokio runtime.
    #[must_use]
    pub fn start(parts: Parts, config: EngineConfig) -> EngineHandle {
        let (closing, asked_to_close) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let (ended, drained) = watch::channel(Drained::default());
        let (control, commands) = control::channel();
        let supervisor = Supervisor {
            health: parts.health.clone(),
            metrics: Arc::clone(&parts.metrics),
            stop: stopped,
        };
        let ended = Arc::new(ended);
        let supervised = supervisor.supervise(WORKER, move || {
            let run = Run::new(
                parts.clone(),
                config.clone(),
                asked_to_close.clone(),
                commands.clone(),
            );
            let ended = Arc::clone(&ended);
            async move {
                let drained = run.run().await;
                ended.send_replace(drained);
            }
        });
        EngineHandle {
            closing,
            stop,
            drained,
            control,
            supervised,
        }
    }
}

impl EngineHandle {
    /// Where to ask about destinations.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Starts nothing new, waits for requests that are out, and commits every result, as long as `closing` says.
    pub async fn shutdown(self, closing: Closing) -> Drained {
        self.stop.send_replace(true);
        self.closing.send_replace(Some(closing));
        if let Err(died) = self.supervised.await {
            tracing::error!(error = %died, "the engine died during shutdown");
        }
        *self.drained.borrow()
    }
}

/// A payload that waits in a lane.
#[derive(Debug, Clone)]
struct Freight(Arc<Payload>);

impl postrider_core::dispatcher::Payload for Freight {
    fn bytes(&self) -> usize {
        self.0.data.len()
    }
}
