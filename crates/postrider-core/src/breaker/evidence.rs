//! What a closed breaker remembers of the latest attempts: the last 64 one by one, and a minute in buckets of time.

use std::time::Duration;

use super::config::{BreakerConfig, LastTrigger};
use super::reason::{OpenKind, Reason};
use super::seen::{Seen, detail};
use crate::outcome::Outcome;
use crate::time::Timestamp;

const BUCKETS: usize = 12;

/// Counts of one slice of the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bucket {
    /// All attempts.
    attempts: u32,
    /// Slower than the trigger.
    slow: u32,
    /// Successes and failures: what is neither must not thin the failures out.
    judged: u32,
    failures: u32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// Newest in the lowest bit; one is a failure.
    last: u64,
    /// How many bits of `last` are in use.
    known: u32,
    permanent_run: u32,
    /// A ring: the slice of time with number n is in place n modulo its length.
    buckets: [Bucket; BUCKETS],
    /// Number of the newest slice of time.
    newest: u64,
}

impl Evidence {
    /// Adds one attempt, and says whether that is enough to open.
    pub(super) fn add(
        &mut self,
        seen: Seen,
        outcome: &Outcome,
        latency: Duration,
        now: Timestamp,
        config: &BreakerConfig,
    ) -> Option<Reason> {
        let is_slow = config.slow.is_some_and(|slow| latency > slow.p95);
        let bucket = self.bucket(now, config.window);
        bucket.attempts = bucket.attempts.saturating_add(1);
        bucket.slow = bucket.slow.saturating_add(u32::from(is_slow));
        match seen {
            Seen::Success => {
                self.judge(false, now, config.window);
                self.permanent_run = 0;
            }
            Seen::Failure => self.judge(true, now, config.window),
            Seen::Permanent => self.permanent_run = self.permanent_run.saturating_add(1),
            Seen::Limited => {}
        }
        self.verdict(seen, outcome, config)
    }

    fn judge(&mut self, failed: bool, now: Timestamp, window: Duration) {
        self.last = (self.last << 1) | u64::from(failed);
        self.known = (self.known + 1).min(LastTrigger::MAX_ATTEMPTS);
        let bucket = self.bucket(now, window);
        bucket.judged = bucket.judged.saturating_add(1);
        bucket.failures = bucket.failures.saturating_add(u32::from(failed));
    }

    /// The bucket for `now`, after forgetting what is older than the window. A clock that goes back a little adds to
    /// the newest bucket; one that goes back by more than the window starts afresh.
    fn bucket(&mut self, now: Timestamp, window: Duration) -> &mut Bucket {
        let slice = (window.as_millis() / BUCKETS as u128).max(1);
        let number = u64::try_from(u128::from(now.as_millis().unsigned_abs()) / slice).unwrap_or(u64::MAX);
        let ahead = number.saturating_sub(self.newest);
        let behind = self.newest.saturating_sub(number);
        let length = BUCKETS as u64;
        if ahead >= length || behind >= length {
            self.buckets = [Bucket::default(); BUCKETS];
            self.newest = number;
        } else if ahead > 0 {
            for step in 1..=ahead {
                self.buckets[place(self.newest + step)] = Bucket::default();
            }
            self.newest = number;
        }
        &mut self.buckets[place(self.newest)]
    }

    fn verdict(&self, seen: Seen, outcome: &Outcome, config: &BreakerConfig) -> Option<Reason> {
        let total = self.total();
        if seen == Seen::Permanent
            && let Some(run) = config
                .permanent_run
                .filter(|&run| run > 0 && self.permanent_run >= run)
        {
            let text = format!("{run} permanent failures in a row, the last: {}", detail(outcome));
            return Some(Reason {
                kind: OpenKind::Misconfigured,
                text,
            });
        }
        if seen == Seen::Failure
            && let Some(last) = config.last
        {
            let looked_at = last.attempts.clamp(1, LastTrigger::MAX_ATTEMPTS);
            let failures = (self.last & (u64::MAX >> (u64::BITS - looked_at))).count_ones();
            let in_a_row = last.in_a_row.min(last.failures);
            if failures >= last.failures.max(1) && self.last.trailing_ones() >= in_a_row {
                let looked_at = looked_at.min(self.known);
                let text = format!(
                    "{failures} of the last {looked_at} attempts failed, the last: {}",
                    detail(outcome)
                );
                return Some(Reason {
                    kind: OpenKind::Failures,
                    text,
                });
            }
        }
        if seen == Seen::Failure
            && let Some(rate) = config.rate
            && total.judged >= rate.min_attempts.max(1)
            && u64::from(total.failures) * 100 > u64::from(total.judged) * u64::from(rate.percent)
        {
            let Bucket { failures, judged, .. } = total;
            let seconds = config.window.as_secs();
            let text = format!(
                "{failures} of {judged} attempts within {seconds} s failed, the last: {}",
                detail(outcome)
            );
            return Some(Reason {
                kind: OpenKind::FailureRate,
                text,
            });
        }
        let slow = config
            .slow
            .filter(|slow| total.attempts >= slow.min_attempts.max(1))?;
        // Nearest rank: the 95th percentile of n is number ⌈0.95 n⌉ from below, so it is slow if more than these are.
        let tolerated = total.attempts
            - (u64::from(total.attempts) * 95)
                .div_ceil(100)
                .try_into()
                .unwrap_or(0_u32);
        (total.slow > tolerated).then(|| {
            let (limit, attempts) = (slow.p95.as_millis(), total.attempts);
            let text = format!("{} of {attempts} attempts took more than {limit} ms", total.slow);
            Reason {
                kind: OpenKind::Slow,
                text,
            }
        })
    }

    fn total(&self) -> Bucket {
        self.buckets.iter().fold(Bucket::default(), |sum, bucket| Bucket {
            attempts: sum.attempts.saturating_add(bucket.attempts),
            slow: sum.slow.saturating_add(bucket.slow),
            judged: sum.judged.saturating_add(bucket.judged),
            failures: sum.failures.saturating_add(bucket.failures),
        })
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number % BUCKETS as u64).unwrap_or(0)
}
