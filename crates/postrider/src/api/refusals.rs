//! How often the log tells of answers that say "not now": a full disk refuses every publish, and one line says all of it.
//!
//! The first of a kind is told at once, then one at most every [`PAUSE`], with how many there were in between. One book
//! for the process, because there is one log.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// From one line of a kind to the next.
const PAUSE: Duration = Duration::from_secs(10);
/// Kinds that are told apart; messages and routes are fixed and far fewer.
const MAX_KINDS: usize = 256;

/// What was told in this process.
pub(super) static TOLD: Refusals = Refusals::new();

/// When a kind was told, and how many were not since.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<BTreeMap<String, (Instant, u64)>>);

impl Refusals {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// How many of this kind were not told since the last line; `None` when this one is not to be told either.
    pub(super) fn admit(&self, kind: &str, now: Instant) -> Option<u64> {
        let mut kinds = self.0.lock();
        if let Some((at, untold)) = kinds.get_mut(kind) {
            if now.saturating_duration_since(*at) < PAUSE {
                *untold += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(untold));
        }
        if kinds.len() >= MAX_KINDS {
            kinds.clear();
        }
        kinds.insert(kind.to_owned(), (now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_told_at_once_and_then_counted_for_ten_seconds() {
        let refusals = Refusals::new();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(refusals.admit("full", at(0)), Some(0));
        assert_eq!(refusals.admit("busy", at(0)), Some(0), "another kind");
        assert_eq!(refusals.admit("full", at(1)), None);
        assert_eq!(refusals.admit("full", at(9)), None);
        assert_eq!(refusals.admit("full", at(10)), Some(2));
        assert_eq!(refusals.admit("full", at(11)), None);
        assert_eq!(refusals.admit("full", at(30)), Some(1));
    }
}
