//! Circuit breaker.
use std::time::Duration;

use crate::outcome::Outcome;
use crate::time::Timestamp;

/// Thresholds.
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerConfig {}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {}
    }
}

/// One destination's breaker.
#[derive(Debug, Clone)]
pub struct Breaker {}

/// Whether a request may go out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Yes.
    Closed,
    /// One, as a probe.
    Probe,
    /// Not before this.
    Open(Timestamp),
    /// A probe is out; nothing else may go.
    Probing,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It opened (again).
    Opened {
        /// Why, in words.
        reason: String,
        /// Until.
        until: Timestamp,
    },
    /// It closed: the window starts again from 1.
    Closed,
}

impl Breaker {
    /// Closed. `seed` jitters the open time.
    #[must_use]
    pub fn new(_seed: u64) -> Self {
        Self {}
    }
    /// Asks.
    #[must_use]
    pub fn gate(&self, _now: Timestamp) -> Gate {
        Gate::Closed
    }
    /// A request goes out (after `Gate::Closed` or `Gate::Probe`).
    pub fn started(&mut self, _now: Timestamp) {}
    /// A started request was given up by us before it saw anything.
    pub fn aborted(&mut self, _now: Timestamp) {}
    /// It came back. `permanent`: the policy called the outcome permanent.
    pub fn finished(
        &mut self,
        _outcome: &Outcome,
        _permanent: bool,
        _latency: Duration,
        _now: Timestamp,
        _config: &BreakerConfig,
    ) -> Change {
        Change::None
    }
}
