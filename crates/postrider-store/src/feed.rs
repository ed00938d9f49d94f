//! The way from a commit to the engine: deliveries that were just committed and are due.
//!
//! Bounded. When the engine falls behind, deliveries are not queued here; their destination is marked instead, and
//! the engine reads them from the store when it gets to it. So nothing is lost and memory does not grow, and a
//! publisher that disconnects after its commit changes nothing, since the store itself feeds the engine.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::delivery::PendingDelivery;
use postrider_core::id::{DeliveryKey, DestinationKey};
use tokio::sync::Notify;

use crate::record::DueDelivery;

/// Deliveries and payload bytes that may wait for the engine.
const MAX_WAITING: usize = 16_384;
const MAX_WAITING_BYTES: usize = 32 << 20;

/// What the engine finds when it looks.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Committed and due, with their payloads.
    pub accepted: Vec<DueDelivery>,
    /// Changed behind the engine's back (a manual retry): forget the old plan, use this one.
    pub rescheduled: HashMap<DeliveryKey, PendingDelivery>,
    /// Ended behind the engine's back (made a dead letter or canceled by hand), with their destinations: forget them. None of
    /// them is in `rescheduled`.
    pub withdrawn: HashMap<DeliveryKey, DestinationKey>,
    /// Destinations with pending rows in the store that did not fit here.
    pub spilled: HashSet<DestinationKey>,
}

impl Arrivals {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accepted.is_empty()
            && self.rescheduled.is_empty()
            && self.withdrawn.is_empty()
            && self.spilled.is_empty()
    }
}

#[derive(Debug, Default)]
struct Waiting {
    arrivals: Arrivals,
    bytes: usize,
}

/// Both ends of the feed; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Feed {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

impl Feed {
    /// Called by a store after a commit.
    pub fn accepted(&self, deliveries: impl IntoIterator<Item = DueDelivery>) {
        let mut waiting = self.inner.waiting.lock();
        for due in deliveries {
            let bytes = due.payload.as_ref().map_or(0, |payload| payload.data.len());
            if waiting.arrivals.accepted.len() < MAX_WAITING && waiting.bytes + bytes <= MAX_WAITING_BYTES {
                waiting.bytes += bytes;
                waiting.arrivals.accepted.push(due);
            } else {
                waiting.arrivals.spilled.insert(due.delivery.destination);
            }
        }
        drop(waiting);
        self.inner.arrived.notify_one();
    }

    /// Called by a store after it gave a delivery another plan on request.
    pub fn rescheduled(&self, delivery: PendingDelivery) {
        let mut waiting = self.inner.waiting.lock();
        waiting.arrivals.withdrawn.remove(&delivery.key);
        if waiting.arrivals.rescheduled.len() < MAX_WAITING {
            waiting.arrivals.rescheduled.insert(delivery.key, delivery);
        } else {
            waiting.arrivals.spilled.insert(delivery.destination);
        }
        drop(waiting);
        self.inner.arrived.notify_one();
    }

    /// Called by a store after it ended a pending delivery on request. When the engine is so far behind that it does not fit,
    /// the delivery may be sent once more.
    pub fn withdrawn(&self, delivery: DeliveryKey, destination: DestinationKey) {
        let mut waiting = self.inner.waiting.lock();
        waiting.arrivals.rescheduled.remove(&delivery);
        if waiting.arrivals.withdrawn.len() < MAX_WAITING {
            waiting.arrivals.withdrawn.insert(delivery, destination);
        }
        drop(waiting);
        self.inner.arrived.notify_one();
    }

    /// Called by a store when a destination has rows to be read (a replay, a take-over).
    pub fn spilled(&self, destination: DestinationKey) {
        self.inner.waiting.lock().arrivals.spilled.insert(destination);
        self.inner.arrived.notify_one();
    }

    /// Takes everything that waits, possibly nothing.
    #[must_use]
    pub fn take(&self) -> Arrivals {
        std::mem::take(&mut *self.inner.waiting.lock()).arrivals
    }

    /// Takes everything that waits; waits for the first if there is nothing. Cancel-safe.
    pub async fn arrivals(&self) -> Arrivals {
        loop {
            let taken = self.take();
            if !taken.is_empty() {
                return taken;
            }
            self.inner.arrived.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::delivery::{Plan, Progress};
    use postrider_core::id::{EventKey, TenantKey};
    use postrider_core::time::Timestamp;

    use super::*;

    fn delivery(key: i64) -> DueDelivery {
        let now = Timestamp::from_millis(0);
        let delivery = PendingDelivery {
            key: DeliveryKey(key),
            event: EventKey(0),
            tenant: TenantKey(1),
            destination: DestinationKey(key % 3),
            plan: Plan::first(now),
            progress: Progress::new(now),
            retryable: true,
            replayed: false,
            last_attempt: None,
            context: None,
        };
        DueDelivery {
            delivery,
            payload: None,
        }
    }

    #[tokio::test]
    async fn a_full_feed_names_the_destinations_instead_of_growing() {
        let feed = Feed::default();
        feed.accepted((0..20_000).map(delivery));
        let arrivals = feed.arrivals().await;
        assert_eq!(arrivals.accepted.len(), MAX_WAITING);
        assert_eq!(arrivals.spilled.len(), 3);
    }

    #[test]
    fn the_last_word_on_a_delivery_counts() {
        let feed = Feed::default();
        let DueDelivery { delivery, .. } = delivery(4);
        feed.rescheduled(delivery);
        feed.withdrawn(delivery.key, delivery.destination);
        let arrivals = feed.take();
        assert_eq!(arrivals.rescheduled.len(), 0);
        assert_eq!(
            arrivals.withdrawn,
            HashMap::from([(DeliveryKey(4), DestinationKey(1))])
        );
        feed.withdrawn(delivery.key, delivery.destination);
        feed.rescheduled(delivery);
        let arrivals = feed.take();
        assert_eq!((arrivals.rescheduled.len(), arrivals.withdrawn.len()), (1, 0));
    }

    #[tokio::test]
    async fn what_arrives_between_look_and_wait_is_seen() {
        let feed = Feed::default();
        let waiter = tokio::spawn({
            let feed = feed.clone();
            async move { feed.arrivals().await.accepted.len() }
        });
        tokio::task::yield_now().await;
        feed.accepted([delivery(1)]);
        assert_eq!(waiter.await.ok(), Some(1));
    }
}
