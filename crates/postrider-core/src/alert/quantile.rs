//! A quantile of what a histogram counted lately, from looks at its sums.
//!
//! A histogram only ever counts up, so two looks at it tell what came between them. Within a bucket values are taken to be
//! spread evenly, as Prometheus' `histogram_quantile` does, so that this number and a dashboard's agree.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// How far back it looks.
pub const LOOK_BACK: Duration = Duration::from_secs(600);
/// Fewer values than this say nothing about a quantile.
pub const MIN_VALUES: u64 = 20;
/// Looks that are remembered; more frequent ones than every ten seconds replace the last.
const MAX_LOOKS: usize = 60;

/// A quantile over [`LOOK_BACK`].
#[derive(Debug, Clone)]
pub struct RecentQuantile {
    /// Upper bounds of the buckets in milliseconds, ascending; one more bucket is above the last.
    bounds: Vec<u64>,
    looks: VecDeque<(Timestamp, Vec<u64>)>,
}

impl RecentQuantile {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new(bounds_ms: Vec<u64>) -> Self {
        Self {
            bounds: bounds_ms,
            looks: VecDeque::new(),
        }
    }

    /// Looks at the counts of each bucket (not cumulated, one more than there are bounds) and answers the quantile
    /// (`percent` of the values are at or below it) of what came within [`LOOK_BACK`], in milliseconds; `None` when that is
    /// less than [`MIN_VALUES`]. The first look only tells where counting begins.
    pub fn look(&mut self, counts: Vec<u64>, percent: u64, now: Timestamp) -> Option<u64> {
        // After the clock went back, what was seen "later" would never grow old.
        self.looks.retain(|(at, _)| *at <= now);
        while self.looks.len() > 1 && now.since(self.looks[1].0) >= LOOK_BACK {
            self.looks.pop_front();
        }
        let oldest = self.looks.front().map_or(&counts, |(_, counts)| counts);
        let between: Vec<u64> = counts
            .iter()
            .zip(oldest)
            .map(|(now, then)| now.saturating_sub(*then))
            .collect();
        let found = quantile(&self.bounds, &between, percent);
        if self.looks.len() >= MAX_LOOKS {
            self.looks.pop_back();
        }
        self.looks.push_back((now, counts));
        found
    }
}

fn quantile(bounds: &[u64], counts: &[u64], percent: u64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    if total < MIN_VALUES {
        return None;
    }
    // In hundredths of a value, so that whole numbers suffice.
    let rank = u128::from(total) * u128::from(percent.min(100));
    let mut below = 0_u128;
    let mut lower = 0_u64;
    for (count, bound) in counts.iter().zip(bounds) {
        let within = u128::from(*count) * 100;
        if within > 0 && below + within >= rank {
            let share = (rank - below) * u128::from(bound - lower) / within;
            return Some(lower.saturating_add(u64::try_from(share).unwrap_or(u64::MAX)));
        }
        below += within;
        lower = *bound;
    }
    // Beyond the last bound nothing is known but that.
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn at(seconds: u64) -> Timestamp {
        START.plus(Duration::from_secs(seconds))
    }

    fn recent() -> RecentQuantile {
        RecentQuantile::new(vec![100, 1_000])
    }

    #[test]
    fn values_are_spread_evenly_within_their_bucket() {
        let table: [([u64; 3], u64, Option<u64>); 6] = [
            // The 99th of 100 values, all in 0 to 100 ms.
            ([100, 0, 0], 99, Some(99)),
            // 90 below; the 9th of 10 in 100 to 1,000 ms: 100 + 9/10 * 900.
            ([90, 10, 0], 99, Some(910)),
            ([99, 1, 0], 99, Some(100)),
            // Nothing is known beyond the last bound.
            ([0, 0, 50], 99, Some(1_000)),
            ([0, 40, 0], 50, Some(550)),
            ([10, 9, 0], 99, None),
        ];
        for (counts, percent, right) in table {
            assert_eq!(quantile(&[100, 1_000], &counts, percent), right, "{counts:?}");
        }
    }

    #[test]
    fn only_what_came_lately_counts() {
        let mut recent = recent();
        assert_eq!(recent.look(vec![500, 500, 0], 99, at(0)), None, "from before");
        assert_eq!(recent.look(vec![600, 500, 0], 99, at(10)), Some(99));
        assert_eq!(recent.look(vec![600, 600, 0], 99, at(300)), Some(982));
        // 600 s after the look at 10 s: the 100 slow ones are what came since.
        assert_eq!(recent.look(vec![600, 600, 0], 99, at(610)), Some(991));
        assert_eq!(
            recent.look(vec![600, 600, 0], 99, at(900)),
            None,
            "quiet since 300 s"
        );
    }

    #[test]
    fn memory_is_bounded_and_a_clock_may_go_back() {
        let mut recent = recent();
        for look in 0..10_000 {
            recent.look(vec![look, 0, 0], 99, START.plus(Duration::from_millis(look)));
        }
        assert!(recent.looks.len() <= MAX_LOOKS);
        assert_eq!(recent.look(vec![10_000, 0, 0], 99, Timestamp::EPOCH), None);
        assert_eq!(recent.look(vec![10_100, 0, 0], 99, Timestamp::EPOCH), Some(99));
    }

    #[test]
    fn a_histogram_that_began_again_is_no_negative_count() {
        let mut recent = recent();
        recent.look(vec![500, 0, 0], 99, at(0));
        assert_eq!(recent.look(vec![30, 0, 0], 99, at(10)), None);
    }
}
