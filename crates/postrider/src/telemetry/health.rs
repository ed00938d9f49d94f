//! Which parts of the process work, for `/healthz` and `/readyz`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::time::Timestamp;

/// State of one supervised part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerState {
    /// It works.
    Healthy,
    /// It works, but something is wrong that somebody should look at; with the reason in words.
    Degraded(String),
    /// It does not, with the reason in words.
    Failed(String),
}

/// All supervised parts by name; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Health {
    workers: Arc<Mutex<BTreeMap<&'static str, WorkerState>>>,
    /// The last write of a client that the store could not do, and why.
    refusal: Arc<Mutex<Option<(Timestamp, String)>>>,
}

impl Health {
    /// Sets the state of a part.
    pub fn set(&self, worker: &'static str, state: WorkerState) {
        self.workers.lock().insert(worker, state);
    }

    /// The state of every part.
    #[must_use]
    pub fn workers(&self) -> BTreeMap<&'static str, WorkerState> {
        self.workers.lock().clone()
    }

    /// Whether every part works.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.workers
            .lock()
            .values()
            .all(|state| !matches!(state, WorkerState::Failed(_)))
    }

    /// The store could not write what a client sent. A small write may work all the same, so a probe would not see it.
    pub fn refused(&self, at: Timestamp, reason: String) {
        *self.refusal.lock() = Some((at, reason));
    }

    /// Why a write was refused at or after `since`; `None` when none was.
    #[must_use]
    pub fn refusal(&self, since: Timestamp) -> Option<String> {
        let refusal = self.refusal.lock();
        let (_, reason) = refusal.as_ref().filter(|(at, _)| *at >= since)?;
        Some(reason.clone())
    }
}
