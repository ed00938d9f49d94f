//! A limit of requests per second for one destination or tenant, evenly spread.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A): one instant is remembered, the earliest at which the next
//! request is on time, and each request moves it on by one interval. Nothing is saved up while there is no traffic,
//! so a pause is followed by no burst.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::time::Timestamp;

/// How early a request may be, so that the waking up of whoever waits, which is always a little late, costs no
/// throughput. In any second this adds one request to a limit below 100 a second, and one in a hundred above.
const SLACK_MICROS: u64 = 10_000;

/// A limit and its state. Instants are milliseconds; the spacing is kept in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    interval_micros: u64,
    /// Microseconds since the epoch at which the next request is on time.
    on_time_micros: u64,
}

impl RateLimit {
    /// At most so many a second; more than a million are not told from a million.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        Self::of(1_000_000_u64.div_ceil(per_second.get().into()))
    }

    /// At most one in each `interval`, for limits below one a second.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self::of(u64::try_from(interval.as_micros()).unwrap_or(u64::MAX / 4))
    }

    fn of(interval_micros: u64) -> Self {
        Self {
            interval_micros: interval_micros.clamp(1, u64::MAX / 4),
            on_time_micros: 0,
        }
    }

    /// Another rate from now on. The part of an interval that is left stays left, so that no change brings a request more.
    pub fn change(&mut self, per_second: NonZeroU32, now: Timestamp) {
        let left = self.on_time(now).saturating_sub(micros(now));
        let before = std::mem::replace(&mut self.interval_micros, Self::new(per_second).interval_micros);
        let left = u128::from(left) * u128::from(self.interval_micros) / u128::from(before);
        let on_time = micros(now).saturating_add(u64::try_from(left).unwrap_or(u64::MAX));
        self.on_time_micros = on_time.min(self.furthest(now));
    }

    /// The earliest instant from `now` on at which [`RateLimit::take`] succeeds.
    #[must_use]
    pub fn next_at(&self, now: Timestamp) -> Timestamp {
        let earliest = self.on_time(now).saturating_sub(SLACK_MICROS).div_ceil(1_000);
        Timestamp::from_millis(i64::try_from(earliest).unwrap_or(i64::MAX)).max(now)
    }

    /// Takes one request, if one may go at `now`.
    pub fn take(&mut self, now: Timestamp) -> bool {
        let on_time = self.on_time(now);
        let allowed = on_time <= micros(now).saturating_add(SLACK_MICROS);
        if allowed {
            self.on_time_micros = on_time.max(micros(now)).saturating_add(self.interval_micros);
        }
        allowed
    }

    /// Gives back a request that was taken and not made.
    pub fn give_back(&mut self) {
        self.on_time_micros = self.on_time_micros.saturating_sub(self.interval_micros);
    }

    /// No request moves it further ahead than this, so if it is, the clock was set back: it starts afresh.
    fn on_time(&self, now: Timestamp) -> u64 {
        if self.on_time_micros > self.furthest(now) {
            micros(now)
        } else {
            self.on_time_micros
        }
    }

    fn furthest(&self, now: Timestamp) -> u64 {
        micros(now)
            .saturating_add(SLACK_MICROS)
            .saturating_add(self.interval_micros)
    }
}

fn micros(instant: Timestamp) -> u64 {
    instant.as_millis().unsigned_abs().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_767_225_600_000 + millis)
    }

    fn limit(per_second: u32) -> RateLimit {
        RateLimit::new(NonZeroU32::new(per_second).unwrap())
    }

    /// Sends `count` as early as allowed, each `late(n)` milliseconds after its time.
    fn send(limit: &mut RateLimit, count: u64, late: impl Fn(u64) -> i64) -> Vec<i64> {
        let mut now = at(0);
        let mut sent = Vec::new();
        for n in 0..count {
            now = limit
                .next_at(now)
                .plus(Duration::from_millis(late(n).unsigned_abs()));
            assert!(limit.take(now), "next_at must be kept");
            sent.push(now.as_millis());
        }
        sent
    }

    fn most_in_a_second(sent: &[i64]) -> usize {
        let within = |first: usize| {
            let end = sent[first] + 1_000;
            sent[first..].partition_point(|&at| at < end)
        };
        (0..sent.len()).map(within).max().unwrap_or(0)
    }

    #[test]
    fn changing_the_rate_brings_no_request_more() {
        let mut limit = limit(10);
        let mut sent = Vec::new();
        for milli in 0..2_000 {
            let per_second = 10 + u32::try_from(milli % 2).unwrap();
            limit.change(NonZeroU32::new(per_second).unwrap(), at(milli));
            if limit.take(at(milli)) {
                sent.push(at(milli).as_millis());
            }
        }
        assert!(most_in_a_second(&sent) <= 12, "{sent:?}");
        assert!(sent.len() >= 20, "{sent:?}");
    }

    #[test]
    fn going_to_a_far_higher_rate_and_back_brings_no_request_more() {
        let mut limit = limit(1);
        assert!(limit.take(at(0)));
        for milli in 1..=10 {
            limit.change(NonZeroU32::new(1_000).unwrap(), at(milli));
            limit.change(NonZeroU32::MIN, at(milli));
        }
        assert!(!limit.take(at(980)), "a hundredth early at most");
        assert!(limit.take(at(1_000)));
    }

    #[test]
    fn ten_a_second_are_evenly_spread() {
        let sent = send(&mut limit(10), 1_000, |_| 0);
        // The first may be 10 ms early for the second; from then on they are 100 ms apart.
        assert_eq!(sent[1] - sent[0], 90);
        assert!(sent[1..].windows(2).all(|pair| pair[1] - pair[0] == 100));
    }

    #[test]
    fn a_thousand_events_at_ten_a_second_are_never_more_than_eleven_in_any_second() {
        for seed in 0..50 {
            let sent = send(&mut limit(10), 1_000, |n| {
                i64::try_from(hash::mix(seed, n) % 15).unwrap()
            });
            assert!(most_in_a_second(&sent) <= 11, "seed {seed}");
        }
    }

    #[test]
    fn waking_up_late_costs_no_throughput() {
        let sent = send(&mut limit(10), 1_001, |n| i64::try_from(n % 8).unwrap());
        let took = sent[1_000] - sent[0];
        assert!((99_000..=100_100).contains(&took), "{took}");
    }

    #[test]
    fn high_limits_are_reached_with_a_clock_of_milliseconds() {
        let sent = send(&mut limit(5_000), 50_001, |_| 0);
        let took = sent[50_000] - sent[0];
        assert!((9_980..=10_010).contains(&took), "{took}");
        assert!(most_in_a_second(&sent) <= 5_051);
    }

    #[test]
    fn a_pause_saves_nothing_up() {
        let mut limit = limit(10);
        assert!(limit.take(at(0)));
        let later = at(3_600_000);
        assert!(limit.take(later));
        assert!(!limit.take(later), "no burst");
        assert_eq!(limit.next_at(later), at(3_600_090));
    }

    #[test]
    fn a_refused_request_changes_nothing() {
        let mut limit = limit(1);
        assert!(limit.take(at(0)));
        let before = limit;
        assert!(!limit.take(at(500)));
        assert_eq!((limit, limit.next_at(at(500))), (before, at(990)));
    }

    #[test]
    fn what_is_given_back_may_go_at_once() {
        let mut limit = limit(1);
        assert!(limit.take(at(0)));
        limit.give_back();
        assert!(limit.take(at(10)), "nothing was sent at 0");
        assert_eq!(limit.next_at(at(10)), at(1_000));
    }

    #[test]
    fn slow_limits() {
        let mut limit = RateLimit::every(Duration::from_secs(60));
        assert!(limit.take(at(0)));
        assert_eq!(limit.next_at(at(1)), at(59_990));
        assert!(RateLimit::every(Duration::MAX).take(at(0)));
        assert!(RateLimit::every(Duration::ZERO).take(at(0)));
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let mut limit = limit(1);
        assert!(limit.take(at(86_400_000)));
        assert_eq!(limit.next_at(at(0)), at(0));
        assert!(limit.take(at(0)));
        assert_eq!(limit.next_at(at(0)), at(990));
    }
}
