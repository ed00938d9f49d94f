//! Numbers about the store as a whole.

use std::time::Duration;

use postrider_core::delivery::DeadReason;
use postrider_core::time::Timestamp;

/// Counters for health and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Deliveries pending.
    pub pending: u64,
    /// Deliveries dead.
    pub dead: u64,
    /// Due time of the pending delivery that is due first, if it is due.
    pub oldest_due_at: Option<Timestamp>,
    /// Operations waiting for the writer.
    pub queued: u64,
    /// Commits since the start.
    pub commits: u64,
    /// Operations in these commits.
    pub committed_operations: u64,
    /// Time spent in these commits.
    pub commit_time: Duration,
    /// Deliveries that the store itself has ended since the start.
    pub ended: Ended,
}

/// How many deliveries ended inside the store, where nobody else counts them: dead when their event came, by hand, or
/// canceled with their destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    /// Canceled.
    pub canceled: u64,
    dead: [u64; DeadReason::ALL.len()],
}

impl Ended {
    /// Dead for this reason.
    #[must_use]
    pub fn dead(&self, reason: DeadReason) -> u64 {
        self.dead.get(Self::place(reason)).copied().unwrap_or(0)
    }

    /// Counts `count` more.
    pub fn add_dead(&mut self, reason: DeadReason, count: u64) {
        if let Some(dead) = self.dead.get_mut(Self::place(reason)) {
            *dead += count;
        }
    }

    /// The higher of both for each.
    pub fn raise_to(&mut self, other: &Self) {
        self.canceled = self.canceled.max(other.canceled);
        for (mine, theirs) in self.dead.iter_mut().zip(other.dead) {
            *mine = theirs.max(*mine);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.canceled += other.canceled;
        for (mine, theirs) in self.dead.iter_mut().zip(other.dead) {
            *mine += theirs;
        }
    }

    fn place(reason: DeadReason) -> usize {
        DeadReason::ALL
            .iter()
            .position(|known| *known == reason)
            .unwrap_or(usize::MAX)
    }
}
