//! How the latest attempts at a destination went: how many, how many failed, and how long they took.
//!
//! For people: it decides nothing, and unlike the breaker's evidence it survives an opening. Latencies are counted in steps of
//! a quarter of a power of two, so a percentile is at most a fifth too high; only steps that occur take memory. A span of
//! time is forgotten in slices, so it looks back between five sixths of the span and the whole of it.

use std::time::Duration;

use crate::outcome::{Answer, Outcome};
use crate::time::Timestamp;

const SLICES: usize = 6;
/// The first step: up to 1 ms.
const FIRST_MICROS: u64 = 1_000;
/// Steps to the last, which has everything from 76 s on.
const LAST_STEP: u8 = 66;

type Counts = [u32; SLICES];

/// The latest attempts at one destination.
#[derive(Debug, Clone, Default)]
pub struct Pulse {
    /// In order of the step.
    latencies: Vec<(u8, Counts)>,
    failures: Counts,
    /// Number of the newest slice of time.
    newest: u64,
}

/// What a [`Pulse`] adds up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Attempts that say something about the receiver.
    pub attempts: u32,
    /// How many of them failed: anything but 2xx and 429.
    pub failures: u32,
    /// Half of them took at most so long; `None` without attempts.
    pub p50: Option<Duration>,
    /// 95 of 100.
    pub p95: Option<Duration>,
    /// 99 of 100.
    pub p99: Option<Duration>,
}

impl Pulse {
    /// Takes in an attempt; `span` is how far it looks back. Faults of ours count for nothing.
    pub fn finished(&mut self, outcome: &Outcome, latency: Duration, now: Timestamp, span: Duration) {
        let failed = match outcome {
            Outcome::Failed(kind) if !kind.blames_receiver() => return,
            Outcome::Answered(Answer {
                status: 200..=299 | 429,
                ..
            }) => false,
            Outcome::Answered(_) | Outcome::Failed(_) => true,
        };
        let slice = self.turn(now, span);
        self.failures[slice] = self.failures[slice].saturating_add(u32::from(failed));
        let step = step(latency);
        let place = match self.latencies.binary_search_by_key(&step, |(step, _)| *step) {
            Ok(place) => place,
            Err(place) => {
                self.latencies.insert(place, (step, Counts::default()));
                place
            }
        };
        let count = &mut self.latencies[place].1[slice];
        *count = count.saturating_add(1);
    }

    /// How they went, as of `now`.
    #[must_use]
    pub fn vitals(&self, now: Timestamp, span: Duration) -> Vitals {
        let newest = number(now, span);
        let is_fresh = |slice: usize| {
            let at = newest_with_place(self.newest, slice);
            at.abs_diff(newest) < SLICES as u64
        };
        let sum = |counts: &Counts| -> u64 {
            let fresh = counts.iter().enumerate().filter(|(slice, _)| is_fresh(*slice));
            fresh.map(|(_, count)| u64::from(*count)).sum()
        };
        let attempts: u64 = self.latencies.iter().map(|(_, counts)| sum(counts)).sum();
        let percentile = |percent: u64| {
            // Nearest rank.
            let rank = (attempts * percent).div_ceil(100);
            let mut seen = 0;
            let found = self.latencies.iter().find(|(_, counts)| {
                seen += sum(counts);
                seen >= rank
            });
            found.filter(|_| attempts > 0).map(|(step, _)| upper(*step))
        };
        Vitals {
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            failures: u32::try_from(sum(&self.failures)).unwrap_or(u32::MAX),
            p50: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
        }
    }

    /// The slice for `now`, after forgetting what is too old. A clock that goes back a little adds to the newest slice; one
    /// that goes back by more than the span starts afresh.
    fn turn(&mut self, now: Timestamp, span: Duration) -> usize {
        let number = number(now, span);
        let length = SLICES as u64;
        if number.abs_diff(self.newest) >= length {
            self.latencies.clear();
            self.failures = Counts::default();
            self.newest = number;
        } else if number > self.newest {
            for passed in self.newest + 1..=number {
                let slice = place(passed);
                self.failures[slice] = 0;
                for (_, counts) in &mut self.latencies {
                    counts[slice] = 0;
                }
            }
            self.latencies.retain(|(_, counts)| *counts != Counts::default());
            self.newest = number;
        }
        place(self.newest)
    }
}

fn number(now: Timestamp, span: Duration) -> u64 {
    let slice = (span.as_millis() / SLICES as u128).max(1);
    u64::try_from(u128::from(now.as_millis().unsigned_abs()) / slice).unwrap_or(u64::MAX)
}

fn place(number: u64) -> usize {
    usize::try_from(number % SLICES as u64).unwrap_or(0)
}

/// The latest slice up to `newest` that has this place.
fn newest_with_place(newest: u64, slice: usize) -> u64 {
    let behind = (place(newest) + SLICES - slice) % SLICES;
    newest.saturating_sub(behind as u64)
}

/// Step n ends at 2^(n/4) ms.
fn step(latency: Duration) -> u8 {
    (0..LAST_STEP)
        .find(|step| latency <= upper(*step))
        .unwrap_or(LAST_STEP)
}

fn upper(step: u8) -> Duration {
    /// 2^(0/4) to 2^(3/4), in millionths.
    const QUARTERS: [u64; 4] = [1_000_000, 1_189_207, 1_414_214, 1_681_793];
    let quarter = QUARTERS[usize::from(step % 4)];
    Duration::from_micros(((FIRST_MICROS << (step / 4)) * quarter).div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::ErrorKind;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_767_225_600_000 + seconds * 1_000)
    }

    fn ok(pulse: &mut Pulse, millis: u64, now: Timestamp) {
        pulse.finished(&Outcome::status(200), Duration::from_millis(millis), now, MINUTE);
    }

    fn millis(vitals: Vitals) -> [u128; 3] {
        [vitals.p50, vitals.p95, vitals.p99].map(|span| span.unwrap().as_millis())
    }

    #[test]
    fn percentiles_are_at_most_a_fifth_too_high() {
        let mut pulse = Pulse::default();
        for n in 1..=1_000 {
            ok(&mut pulse, n, at(0));
        }
        // The exact ones are 500, 950 and 990 ms; steps end at 2^(36/4) = 512, 2^(40/4) = 1024.
        assert_eq!(millis(pulse.vitals(at(0), MINUTE)), [512, 1_024, 1_024]);
        for exact in [1_u64, 3, 17, 250, 5_000, 15_000, 60_000] {
            let mut pulse = Pulse::default();
            ok(&mut pulse, exact, at(0));
            let [told, ..] = millis(pulse.vitals(at(0), MINUTE));
            assert!(
                told >= exact.into() && told * 5 <= u128::from(exact) * 6 + 5,
                "{exact}: {told}"
            );
        }
    }

    #[test]
    fn failures_are_what_is_neither_well_nor_asks_for_less() {
        let mut pulse = Pulse::default();
        for status in [200, 204, 429, 404, 500] {
            pulse.finished(&Outcome::status(status), MINUTE, at(0), MINUTE);
        }
        for kind in [ErrorKind::Timeout, ErrorKind::Internal, ErrorKind::BlockedAddress] {
            pulse.finished(&Outcome::Failed(kind), MINUTE, at(0), MINUTE);
        }
        let vitals = pulse.vitals(at(0), MINUTE);
        assert_eq!((vitals.attempts, vitals.failures), (6, 3));
    }

    #[test]
    fn a_minute_later_it_knows_nothing() {
        let mut pulse = Pulse::default();
        ok(&mut pulse, 10, at(0));
        assert_eq!(pulse.vitals(at(50), MINUTE).attempts, 1);
        assert_eq!(pulse.vitals(at(60), MINUTE), Vitals::default());
        ok(&mut pulse, 500, at(55));
        ok(&mut pulse, 500, at(62));
        let vitals = pulse.vitals(at(62), MINUTE);
        assert_eq!(vitals.attempts, 2);
        assert_eq!(millis(vitals), [512; 3]);
        assert_eq!(pulse.latencies.len(), 1, "what does not occur takes no memory");
    }

    #[test]
    fn a_clock_that_goes_back_loses_nothing_or_starts_afresh() {
        let mut pulse = Pulse::default();
        ok(&mut pulse, 10, at(30));
        ok(&mut pulse, 10, at(10));
        assert_eq!(pulse.vitals(at(10), MINUTE).attempts, 2);
        ok(&mut pulse, 10, at(-86_400));
        assert_eq!(pulse.vitals(at(-86_400), MINUTE).attempts, 1);
    }

    #[test]
    fn it_is_small_however_much_it_sees() {
        let mut pulse = Pulse::default();
        for n in 0..100_000_u64 {
            let latency = Duration::from_micros(crate::hash::mix(1, n) % 200_000_000);
            pulse.finished(&Outcome::status(200), latency, at(0), MINUTE);
        }
        assert!(pulse.latencies.len() <= usize::from(LAST_STEP) + 1);
        assert_eq!(pulse.vitals(at(0), MINUTE).attempts, 100_000);
    }
}
