//! Writes down what protects receivers, so that a restart does not let traffic loose on one that is down, or that asked for a
//! pause.
//!
//! Only changes come here, not deliveries: a breaker that opened or closed, a hold that began, a number of failures that is
//! alarming, failures that have gone on for an hour; and before an ordered end all failures in a row. Of several states of one
//! destination only the latest waits and is written, so a store that cannot write now makes no queue: what waits is bounded by the
//! number of destinations.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::dispatcher::Protection;
use postrider_core::id::DestinationKey;
use tokio::sync::Notify;

use super::Parts;

/// States in one transaction.
const MAX_BATCH: usize = 1_024;
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// What to keep of each destination; `None` to forget it.
type States = HashMap<DestinationKey, Option<Protection>>;

#[derive(Debug, Default)]
struct Waiting {
    states: Mutex<(States, bool)>,
    changed: Notify,
}

/// The loop's end. Dropping it lets the keeper end, once everything is written.
#[derive(Debug)]
pub(super) struct Keeping(Arc<Waiting>);

/// The keeper's end.
#[derive(Debug)]
pub(super) struct ToKeep(Arc<Waiting>);

/// Both ends.
pub(super) fn channel() -> (Keeping, ToKeep) {
    let waiting = Arc::new(Waiting::default());
    (Keeping(Arc::clone(&waiting)), ToKeep(waiting))
}

impl Keeping {
    /// Has the state written; `None` has it forgotten. What waited for this destination is replaced.
    pub(super) fn put(&self, destination: DestinationKey, protection: Option<Protection>) {
        self.0.states.lock().0.insert(destination, protection);
        self.0.changed.notify_one();
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.0.states.lock().1 = true;
        self.0.changed.notify_one();
    }
}

impl ToKeep {
    /// Some of what waits; `None` when there is nothing and never will be.
    async fn next(&self) -> Option<States> {
        loop {
            {
                let mut waiting = self.0.states.lock();
                let (states, is_closed) = &mut *waiting;
                if !states.is_empty() {
                    let keys: Vec<_> = states.keys().copied().take(MAX_BATCH).collect();
                    let taken = keys.into_iter().filter_map(|key| states.remove_entry(&key));
                    return Some(taken.collect());
                }
                if *is_closed {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// Puts back what could not be written, unless there is news.
    fn put_back(&self, states: States) {
        let mut waiting = self.0.states.lock();
        for (destination, protection) in states {
            waiting.0.entry(destination).or_insert(protection);
        }
    }
}

/// Runs until the other end is dropped and everything is written.
pub(super) async fn keep(parts: Parts, waiting: ToKeep) {
    while let Some(states) = waiting.next().await {
        let batch = states.iter().map(|(key, state)| (*key, state.clone())).collect();
        if let Err(error) = parts.store.keep_protection(batch).await {
            tracing::warn!(%error, destinations = states.len(), "failed to keep the state of circuit breakers and holds; trying again");
            waiting.put_back(states);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::streak::Streak;

    use super::*;

    #[tokio::test]
    async fn only_the_latest_state_of_a_destination_waits() {
        let (keeping, waiting) = channel();
        for _ in 0..10_000 {
            keeping.put(
                DestinationKey(1),
                Some(Protection {
                    breaker: None,
                    streak: Streak::default(),
                    hold_until: None,
                }),
            );
        }
        keeping.put(DestinationKey(2), None);
        let first = waiting.next().await.unwrap();
        assert_eq!(first.len(), 2);
        keeping.put(DestinationKey(1), None);
        waiting.put_back(first);
        drop(keeping);
        let again = waiting.next().await.unwrap();
        assert_eq!(again.get(&DestinationKey(1)), Some(&None), "news are kept");
        assert_eq!(waiting.next().await, None);
    }
}
