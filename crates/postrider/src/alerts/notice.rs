//! What the engine's loop notices, on its way to the alerts.
//!
//! The loop must not wait for anybody: when nobody takes notices, the oldest is dropped and counted. What they were about
//! is seen again at the next look at all destinations, but for [`Notice::Exhausted`], which is a count.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::id::DestinationKey;
use tokio::sync::Notify;

/// Notices that wait at most.
const MAX_WAITING: usize = 1_024;

/// Something about a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whose.
    pub destination: DestinationKey,
    /// What.
    pub what: What,
}

/// What was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Its circuit breaker opened, or stayed open after a probe; why, in words.
    BreakerOpened(String),
    /// Its circuit breaker closed.
    BreakerClosed,
    /// Failures in a row reached a share of the alarming number; the last of them in words.
    Failing(u32, Option<String>),
    /// A delivery used up all its attempts; the last of them in words.
    Exhausted(Option<String>),
}

/// Both ends; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    notices: VecDeque<Notice>,
    dropped: u64,
}

impl Notices {
    /// Hands one over. Never waits.
    pub fn send(&self, destination: DestinationKey, what: What) {
        let mut waiting = self.0.waiting.lock();
        if waiting.notices.len() >= MAX_WAITING {
            waiting.notices.pop_front();
            waiting.dropped += 1;
        }
        waiting.notices.push_back(Notice { destination, what });
        drop(waiting);
        self.0.wake.notify_one();
    }

    /// Returns when there may be some. Cancel-safe.
    pub(super) async fn arrived(&self) {
        self.0.wake.notified().await;
    }

    /// All that wait, the oldest first, and how many were dropped since the last time.
    pub(super) fn take(&self) -> (VecDeque<Notice>, u64) {
        let mut waiting = self.0.waiting.lock();
        (take(&mut waiting.notices), take(&mut waiting.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_are_dropped_and_counted() {
        let notices = Notices::default();
        let total = i64::try_from(MAX_WAITING).unwrap() + 3;
        for key in 0..total {
            notices.send(DestinationKey(key), What::BreakerClosed);
        }
        notices.arrived().await;
        let (taken, dropped) = notices.take();
        assert_eq!((taken.len(), dropped), (MAX_WAITING, 3));
        assert_eq!(taken[0].destination, DestinationKey(3));
        assert_eq!(notices.take(), (VecDeque::new(), 0));
    }
}
