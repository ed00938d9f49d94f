//! How many requests the sink can work on at once, and how much more it was given.
//!
//! One lock a request: only with `--capacity`, where the point is what a sender does to a slow receiver.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A bound, and what went beyond it.
pub(super) struct Capacity {
    requests: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_flight: u64,
    refused: u64,
    /// Since when more are in flight than it can take.
    since: Option<Instant>,
    longest: Duration,
    total: Duration,
}

/// A request's part of the capacity, or of what is beyond it, until it is dropped.
pub(super) struct Place<'a> {
    capacity: &'a Capacity,
    /// Whether it is beyond.
    pub(super) is_too_many: bool,
}

impl Capacity {
    pub(super) fn new(requests: u64) -> Self {
        Self {
            requests,
            state: Mutex::default(),
        }
    }

    /// A request has begun.
    pub(super) fn take(&self) -> Place<'_> {
        let mut state = self.state.lock();
        state.in_flight += 1;
        let is_too_many = state.in_flight > self.requests;
        if is_too_many {
            state.refused += 1;
            state.since.get_or_insert_with(Instant::now);
        }
        Place {
            capacity: self,
            is_too_many,
        }
    }

    /// Refused requests, and for how long more were in flight than it can take: at the longest without a break, and
    /// together.
    pub(super) fn stats(&self) -> Value {
        let state = self.state.lock();
        let now = state.since.map_or(Duration::ZERO, |since| since.elapsed());
        json!({
            "refused": state.refused,
            "longest_ms": millis(state.longest.max(now)),
            "total_ms": millis(state.total + now),
        })
    }

    /// Forgets all but what is in flight now.
    pub(super) fn reset(&self) {
        let mut state = self.state.lock();
        *state = State {
            in_flight: state.in_flight,
            since: state.since.map(|_| Instant::now()),
            ..State::default()
        };
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.capacity.state.lock();
        state.in_flight -= 1;
        if state.in_flight == self.capacity.requests
            && let Some(since) = state.since.take()
        {
            let took = since.elapsed();
            state.longest = state.longest.max(took);
            state.total += took;
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_beyond_the_capacity_is_counted_and_timed() {
        let capacity = Capacity::new(2);
        let kept = (capacity.take(), capacity.take());
        assert!(!kept.0.is_too_many && !kept.1.is_too_many);
        let third = capacity.take();
        assert!(third.is_too_many);
        tokio::time::advance(Duration::from_millis(30)).await;
        let fourth = capacity.take();
        tokio::time::advance(Duration::from_millis(10)).await;
        drop(third);
        assert_eq!(
            capacity.stats(),
            json!({"refused": 2, "longest_ms": 40, "total_ms": 40}),
            "still three"
        );
        drop(fourth);
        tokio::time::advance(Duration::from_millis(100)).await;
        drop(capacity.take());
        assert_eq!(
            capacity.stats(),
            json!({"refused": 3, "longest_ms": 40, "total_ms": 40})
        );
        drop(kept);
        assert!(!capacity.take().is_too_many);
        capacity.reset();
        assert_eq!(
            capacity.stats(),
            json!({"refused": 0, "longest_ms": 0, "total_ms": 0})
        );
    }
}
