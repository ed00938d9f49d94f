//! A breaker that is not closed, as it is stored: a restart must not let traffic loose on a receiver that is down.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Breaker;
use super::reason::Reason;
use super::state::{Opening, State};
use crate::time::Timestamp;

/// No breaker is open for longer, whatever was stored.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What outlives a restart. A closed breaker has nothing of it: its evidence is a minute old at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerSnapshot {
    /// Why it opened.
    pub reason: Reason,
    /// When it first opened without having closed since.
    pub failing_since: Timestamp,
    /// When it last opened.
    pub opened_at: Timestamp,
    /// From when a probe may go.
    pub until: Timestamp,
    /// Probes that failed since it first opened.
    pub failed_probes: u32,
}

impl Breaker {
    /// What to store; `None` when it is closed. Worth storing after each change.
    #[must_use]
    pub fn snapshot(&self) -> Option<BreakerSnapshot> {
        let opening = self.opening()?;
        Some(BreakerSnapshot {
            reason: (*opening.reason).clone(),
            failing_since: opening.failing_since,
            opened_at: opening.opened_at,
            until: opening.until,
            failed_probes: opening.failed_probes,
        })
    }

    /// As it was stored. A probe that was out then is forgotten, and one may go once the time is over.
    #[must_use]
    pub fn restore(seed: u64, snapshot: BreakerSnapshot) -> Self {
        let BreakerSnapshot {
            reason,
            failing_since,
            opened_at,
            until,
            failed_probes,
        } = snapshot;
        let until = until.min(opened_at.plus(LONGEST));
        let opening = Opening {
            reason: Box::new(reason),
            failing_since,
            opened_at,
            until,
            failed_probes,
            hurried: false,
        };
        Self {
            state: State::Open(opening),
            ..Self::new(seed)
        }
    }
}
