//! The retry policy: classification, tiers, jitter, caps.
use std::time::Duration;

use crate::delivery::{DeadReason, Plan, Progress};
use crate::id::DeliveryKey;
use crate::outcome::{Category, Outcome};
use crate::time::Timestamp;

/// A validated policy.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    max_attempts: u32,
}

/// What a policy makes of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It arrived.
    Succeeded,
    /// Try again.
    Retry(Plan),
    /// Give up.
    Dead(DeadReason, Category),
}

/// What besides the outcome the policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Seed of the jitter.
    pub delivery: DeliveryKey,
    /// The past, the attempt just judged included.
    pub progress: Progress,
    /// False: no retry, whatever the policy says.
    pub retryable: bool,
}

impl RetryPolicy {
    /// Judges the attempt whose answer arrived at `now`.
    #[must_use]
    pub fn judge(&self, _case: &Case, _outcome: &Outcome, _now: Timestamp) -> Verdict {
        todo!()
    }

    /// Whether a pending delivery has outlived `max_age` at `now`, so that it must not be attempted any more.
    #[must_use]
    pub fn expired(&self, _progress: &Progress, _now: Timestamp) -> bool {
        todo!()
    }

    /// How long an outcome forbids every request to the destination (429 and 503 with Retry-After), capped.
    #[must_use]
    pub fn hold(&self, _outcome: &Outcome) -> Option<Duration> {
        todo!()
    }

    /// Whether this outcome (410) disables the destination.
    #[must_use]
    pub fn disables(&self, _outcome: &Outcome) -> bool {
        todo!()
    }
}

impl Default for RetryPolicy {
    /// Preset `standard`.
    fn default() -> Self {
        Self { max_attempts: 20 }
    }
}
