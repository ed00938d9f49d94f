//! Which parts of the process work, for `/healthz` and `/readyz`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

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
}
