//! What happened in one simulated run.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::delivery::DeadReason;
use postrider_core::time::Timestamp;

/// Counts of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Requests that the receiver saw, by the second of the run in which they began.
    pub requests: BTreeMap<u64, u32>,
    /// Deliveries that succeeded, by the second of the run.
    pub successes: BTreeMap<u64, u32>,
    /// Requests in all.
    pub attempts: u64,
    /// Requests that a working receiver turned away because it was at its capacity.
    pub turned_away: u64,
    /// Deliveries that succeeded.
    pub succeeded: u32,
    /// Deliveries that ended as dead letters, by reason.
    pub dead: BTreeMap<DeadReason, u32>,
    /// From the end of the outage to the last success; `None` when nothing succeeded after it.
    pub drained_after: Option<Duration>,
    /// Times from publish to success, in order.
    pub time_to_success: Vec<Duration>,
    /// Each request's beginning, in order, with its attempt number; only kept for runs of few deliveries.
    pub starts: Vec<(Timestamp, u32)>,
}

impl Tally {
    /// The most requests in one second at or after the second `from`.
    #[must_use]
    pub fn peak_from(&self, from: u64) -> u32 {
        self.requests.range(from..).map(|(_, n)| *n).max().unwrap_or(0)
    }

    /// The time within which `percent` (0 to 100) of the successes came; zero without any.
    #[must_use]
    pub fn success_percentile(&self, percent: usize) -> Duration {
        let rank = (self.time_to_success.len() * percent).div_ceil(100);
        self.time_to_success
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }

    /// Dead letters in all.
    #[must_use]
    pub fn dead_letters(&self) -> u32 {
        self.dead.values().sum()
    }

    /// The last second in which something happened.
    #[must_use]
    pub fn last_second(&self) -> u64 {
        let last = |counts: &BTreeMap<u64, u32>| counts.last_key_value().map_or(0, |(second, _)| *second);
        last(&self.requests).max(last(&self.successes))
    }

    /// A count by second, gathered into `buckets` equal spans of the seconds `0..until`; the most in one second of each.
    #[must_use]
    pub fn peaks(counts: &BTreeMap<u64, u32>, until: u64, buckets: usize) -> Vec<u32> {
        let mut peaks = vec![0; buckets.max(1)];
        let span = until.max(1);
        for (&second, &count) in counts.range(..until) {
            let index =
                usize::try_from(second.saturating_mul(peaks.len() as u64) / span).unwrap_or(usize::MAX);
            if let Some(peak) = peaks.get_mut(index) {
                *peak = count.max(*peak);
            }
        }
        peaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let time_to_success = (1..=10).map(Duration::from_secs).collect();
        let tally = Tally {
            time_to_success,
            ..Tally::default()
        };
        assert_eq!(tally.success_percentile(50), Duration::from_secs(5));
        assert_eq!(tally.success_percentile(99), Duration::from_secs(10));
        assert_eq!(Tally::default().success_percentile(50), Duration::ZERO);
    }

    #[test]
    fn buckets_keep_the_highest_second() {
        let counts = BTreeMap::from([(0, 3), (1, 9), (2, 4), (7, 1)]);
        assert_eq!(Tally::peaks(&counts, 8, 4), [9, 4, 0, 1]);
        assert_eq!(Tally::peaks(&counts, 0, 4), [0; 4]);
    }
}
