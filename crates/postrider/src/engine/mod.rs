//! The loop between store and network.
//!
//! [`Engine::start`] spawns four kinds of tasks. The *loop* ([`run`]) owns the dispatcher and performs its actions;
//! it is the only one that decides what starts. *Attempts* ([`attempt`]) send and judge, one task each, and report to the
//! loop. The *settler* ([`settle`]) commits judged results in order and tells the loop; the *keeper* ([`keep`]) writes the few
//! states of breakers that outlive a restart. People ask the loop through [`control::Control`]. A loop that dies is started
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

use self::control::{Commands, Control};
use self::run::Run;
use crate::alerts::notice::Notices;
use crate::clock::Clock;
use crate::courier::Courier;
use crate::directory::Directory;
use crate::telemetry::health::{Health, WorkerState};
use crate::telemetry::metrics::Metrics;

/// Name of the engine's loop in `/healthz`.
const WORKER: &str = "engine";
/// A loop that died is started again after this, doubled each time up to [`MAX_RESTART_PAUSE`].
const RESTART_PAUSE: Duration = Duration::from_millis(200);
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(30);

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

/// The running engine.
#[derive(Debug)]
pub struct EngineHandle {
    stop: watch::Sender<Option<Duration>>,
    control: Control,
    supervisor: JoinHandle<Drained>,
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
    /// Starts the engine; it first looks for what an earlier process left pending. Needs a Tokio runtime.
    #[must_use]
    pub fn start(parts: Parts, config: EngineConfig) -> EngineHandle {
        let (stop, stopped) = watch::channel(None);
        let (control, commands) = control::channel();
        let supervisor = tokio::spawn(supervise(parts, config, stopped, commands));
        EngineHandle {
            stop,
            control,
            supervisor,
        }
    }
}

impl EngineHandle {
    /// Where to ask about destinations.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Starts nothing new, waits at most `grace` for requests that are out, and commits every result.
    pub async fn shutdown(self, grace: Duration) -> Drained {
        self.stop.send_replace(Some(grace));
        self.supervisor.await.unwrap_or_default()
    }
}

/// Runs the loop until it ends by itself; one that dies is started again.
async fn supervise(
    parts: Parts,
    config: EngineConfig,
    stopped: watch::Receiver<Option<Duration>>,
    commands: Commands,
) -> Drained {
    let mut pause = RESTART_PAUSE;
    loop {
        parts.health.set(WORKER, WorkerState::Healthy);
        let run = Run::new(parts.clone(), config.clone(), stopped.clone(), commands.clone());
        match tokio::spawn(run.run()).await {
            Ok(drained) => return drained,
            Err(died) => {
                tracing::error!(error = %died, "the engine's loop died; starting it again from the store");
                parts.health.set(
                    WORKER,
                    WorkerState::Failed("the loop died and is being restarted".to_owned()),
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_RESTART_PAUSE);
            }
        }
        if stopped.borrow().is_some() {
            return Drained::default();
        }
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
