//! How many requests may be in flight to one destination: as many as it takes well.
//!
//! Additive increase, multiplicative decrease with slow start, as TCP does it (RFC 5681 §3.1): the window doubles in
//! each round of successes until it reaches the size that was too much before, then grows by one a round; it halves
//! when the receiver shows strain. Once it knows exactly what is too much, it comes back to nine tenths of that in a few
//! rounds, each half of what is missing (as BIC TCP searches), and stays there long before it tries again. Results of requests that were already out when it
//! halved are of the old window, so they neither halve nor grow it again.
//!
//! Strain is a timeout, any other failure to answer, 5xx, 408, 429, or a latency far above the receiver's own
//! baseline. The baseline follows falling latencies fast and rising ones slowly, and single slow answers are smoothed
//! out. This module knows nothing of time: a round is counted in answers.

use std::time::Duration;

use crate::outcome::{Answer, Outcome};

/// A latency is far above the baseline only if it is above this multiple of it ...
const STRAIN_FACTOR: u64 = 3;
/// ... and by this much longer, so that noise of a fast receiver never counts.
const STRAIN_FLOOR_MICROS: u64 = 100_000;

/// Rounds for one more request just below what was too much: long, since each answer to "is it still too much?" costs
/// the receiver an overload and us half of the window.
const ROUNDS_NEAR_TOO_MUCH: u32 = 8;

/// Bounds, in requests. `floor` is at least 1 and `ceiling` at least `floor`, whatever is written here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowConfig {
    /// Least.
    pub floor: u32,
    /// Most.
    pub ceiling: u32,
    /// At first.
    pub initial: u32,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            floor: 1,
            ceiling: 64,
            initial: 4,
        }
    }
}

impl WindowConfig {
    fn clamp(&self, size: u32) -> u32 {
        let floor = self.floor.max(1);
        size.clamp(floor, self.ceiling.max(floor))
    }
}

/// One destination's window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    size: u32,
    /// Below this it grows by one with each success, from here on by rounds.
    slow_start_until: u32,
    /// Its size when it last halved outside slow start; 0 before that, and once it has grown beyond.
    too_much: u32,
    /// Successes since it last grew, when it grows by rounds.
    credit: u32,
    /// Answers still to come of requests that were out when it halved.
    of_old_window: u32,
    /// Whether an answer was good since it last halved, and between that and the time before.
    is_healthy: bool,
    was_healthy: bool,
    /// Zero before the first success.
    baseline_micros: u64,
    recent_micros: u64,
}

impl Window {
    /// At its initial size, in slow start.
    #[must_use]
    pub fn new(config: &WindowConfig) -> Self {
        Self {
            size: config.clamp(config.initial),
            slow_start_until: u32::MAX,
            too_much: 0,
            credit: 0,
            of_old_window: 0,
            is_healthy: false,
            was_healthy: false,
            baseline_micros: 0,
            recent_micros: 0,
        }
    }

    /// Requests that may be in flight, from `floor` to `ceiling`.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The latency that it takes for normal; `None` before the first success.
    #[must_use]
    pub fn baseline(&self) -> Option<Duration> {
        (self.baseline_micros > 0).then(|| Duration::from_micros(self.baseline_micros))
    }

    /// Whether it still doubles in each round.
    #[must_use]
    pub fn is_in_slow_start(&self) -> bool {
        self.size < self.slow_start_until
    }

    /// Back to the floor, in slow start up to what was too much before: after a breaker closed or a hold ended. Requests that
    /// are still out say nothing about the new size.
    pub fn restart(&mut self, in_flight: u32, config: &WindowConfig) {
        self.size = config.clamp(0);
        self.credit = 0;
        self.of_old_window = in_flight;
        self.recent_micros = self.baseline_micros;
    }

    /// One request came back after `latency`. `in_flight` counts it.
    pub fn finished(
        &mut self,
        outcome: &Outcome,
        latency: Duration,
        in_flight: u32,
        config: &WindowConfig,
    ) -> Strain {
        // Some end without an answer that counts.
        self.of_old_window = self.of_old_window.min(in_flight);
        let is_old = self.of_old_window > 0;
        self.of_old_window = self.of_old_window.saturating_sub(1);
        match Sign::of(outcome) {
            Sign::None => {}
            Sign::Strain if is_old => {
                if (self.is_healthy || self.was_healthy) && is_overload(outcome) {
                    return Strain::ActedOn;
                }
            }
            Sign::Strain => self.halve(in_flight, config),
            Sign::Health => {
                self.is_healthy = true;
                let is_strained = self.observe(latency);
                if is_old {
                } else if is_strained {
                    self.halve(in_flight, config);
                } else if in_flight.saturating_mul(2) >= self.size {
                    // A window that is not used says nothing about a larger one (RFC 7661).
                    self.grow(config);
                }
            }
        }
        Strain::None
    }

    fn grow(&mut self, config: &WindowConfig) {
        if self.is_in_slow_start() {
            self.size = config.clamp(self.size.saturating_add(1));
            return;
        }
        self.credit += 1;
        let (step, rounds) = self.step();
        if self.credit >= self.size.saturating_mul(rounds) {
            self.credit = 0;
            self.size = config.clamp(self.size.saturating_add(step));
            if self.size > self.too_much {
                self.too_much = 0;
            }
        }
    }

    /// By how much it grows next, and after how many rounds.
    fn step(&self) -> (u32, u32) {
        let near = self.too_much - (self.too_much / 10).max(1).min(self.too_much);
        if self.size < near {
            ((near - self.size).div_ceil(2), 1)
        } else if self.size <= self.too_much {
            (1, ROUNDS_NEAR_TOO_MUCH)
        } else {
            (1, 1)
        }
    }

    fn halve(&mut self, in_flight: u32, config: &WindowConfig) {
        // A doubling window is long past the size that was too much when it hears of it.
        self.too_much = if self.is_in_slow_start() { 0 } else { self.size };
        self.size = config.clamp(self.size / 2);
        self.slow_start_until = self.size;
        self.was_healthy = std::mem::replace(&mut self.is_healthy, false);
        self.credit = 0;
        self.of_old_window = in_flight.saturating_sub(1);
        self.recent_micros = self.baseline_micros;
    }

    /// Takes in the latency of an answer, and says whether latencies are far above the baseline now.
    fn observe(&mut self, latency: Duration) -> bool {
        let sample = u64::try_from(latency.as_micros())
            .unwrap_or(u64::MAX / 8)
            .clamp(1, u64::MAX / 8);
        if self.baseline_micros == 0 {
            self.baseline_micros = sample;
            self.recent_micros = sample;
            return false;
        }
        self.recent_micros = moved(self.recent_micros, sample, 8);
        let strength = if sample < self.baseline_micros { 4 } else { 64 };
        self.baseline_micros = moved(self.baseline_micros, sample, strength).max(1);
        self.recent_micros > self.baseline_micros.saturating_mul(STRAIN_FACTOR)
            && self.recent_micros > self.baseline_micros.saturating_add(STRAIN_FLOOR_MICROS)
    }
}

/// What an answer tells of strain beyond what the window does about it by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strain {
    /// Nothing more.
    None,
    /// The receiver refused a request because there were too many, and the window, in which others went well, has
    /// halved for that: no sign that the receiver is broken.
    ActedOn,
}

/// The receiver says that it had too much to do (RFC 9110 §15.6.4).
fn is_overload(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Answered(Answer { status: 503, .. }))
}

/// `from`, moved towards `to` by one part of `parts`.
fn moved(from: u64, to: u64, parts: u64) -> u64 {
    if to >= from {
        from + (to - from) / parts
    } else {
        from - (from - to) / parts
    }
}

/// What an outcome says about how much the receiver can take.
enum Sign {
    Health,
    Strain,
    /// Nothing: a refusal of this one event, or a fault of ours.
    None,
}

impl Sign {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered(Answer {
                status: 200..=299, ..
            }) => Self::Health,
            Outcome::Answered(Answer {
                status: 408 | 429 | 500..,
                ..
            }) => Self::Strain,
            Outcome::Answered(_) => Self::None,
            Outcome::Failed(kind) if kind.blames_receiver() => Self::Strain,
            Outcome::Failed(_) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;
    use crate::outcome::ErrorKind;

    const CONFIG: WindowConfig = WindowConfig {
        floor: 1,
        ceiling: 64,
        initial: 4,
    };

    fn window() -> Window {
        Window::new(&CONFIG)
    }

    /// A full window comes back, each answer after `latency`; others go out as soon as it allows.
    fn round(window: &mut Window, outcome: &Outcome, latency: Duration) {
        let mut in_flight = window.size();
        for _ in 0..window.size() {
            window.finished(outcome, latency, in_flight, &CONFIG);
            in_flight = (in_flight - 1).max(window.size());
        }
    }

    fn ok(window: &mut Window, millis: u64) {
        round(window, &Outcome::status(200), Duration::from_millis(millis));
    }

    fn strain(window: &mut Window, outcome: &Outcome) {
        window.finished(outcome, Duration::from_millis(10), 1, &CONFIG);
    }

    #[test]
    fn slow_start_doubles_to_the_ceiling() {
        let mut window = window();
        let mut sizes = vec![window.size()];
        for _ in 0..5 {
            ok(&mut window, 10);
            sizes.push(window.size());
        }
        assert_eq!(sizes, [4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn a_healthy_receiver_gets_the_ceiling_within_a_hundred_requests() {
        let mut window = window();
        for n in 0..100 {
            let latency = Duration::from_micros(150 + hash::mix(1, n) % 700);
            window.finished(&Outcome::status(200), latency, window.size(), &CONFIG);
        }
        assert_eq!(window.size(), 64);
    }

    #[test]
    fn strain_halves_and_then_it_grows_by_one_a_round() {
        for outcome in [
            Outcome::status(500),
            Outcome::status(503),
            Outcome::status(429),
            Outcome::status(408),
            Outcome::Failed(ErrorKind::Timeout),
            Outcome::Failed(ErrorKind::ConnectRefused),
        ] {
            let mut window = window();
            for _ in 0..3 {
                ok(&mut window, 10);
            }
            assert_eq!(window.size(), 32);
            strain(&mut window, &outcome);
            let mut sizes = vec![window.size()];
            for _ in 0..3 {
                ok(&mut window, 10);
                sizes.push(window.size());
            }
            assert_eq!(sizes, [16, 17, 18, 19], "{outcome:?}");
        }
    }

    #[test]
    fn one_overload_halves_once_however_many_answers_tell_of_it() {
        let mut window = window();
        for _ in 0..4 {
            ok(&mut window, 10);
        }
        let busy = Outcome::status(503);
        for in_flight in (1..=64).rev() {
            window.finished(&busy, Duration::from_millis(10), in_flight, &CONFIG);
        }
        assert_eq!(window.size(), 32);
        window.finished(&busy, Duration::from_millis(10), 32, &CONFIG);
        assert_eq!(window.size(), 16, "the next round is judged anew");
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut window = window();
        for _ in 0..20 {
            strain(&mut window, &Outcome::status(500));
        }
        assert_eq!(window.size(), 1);
        let odd = WindowConfig {
            floor: 0,
            ceiling: 0,
            initial: 100,
        };
        let mut window = Window::new(&odd);
        window.finished(&Outcome::status(200), Duration::ZERO, 1, &odd);
        assert_eq!(window.size(), 1);
        window.restart(0, &odd);
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn refusals_and_faults_of_ours_change_nothing() {
        let mut window = window();
        for outcome in [
            Outcome::status(404),
            Outcome::status(301),
            Outcome::status(422),
            Outcome::Failed(ErrorKind::LocalResources),
            Outcome::Failed(ErrorKind::BlockedAddress),
        ] {
            strain(&mut window, &outcome);
        }
        assert_eq!(window, self::window());
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = window();
        for _ in 0..1_000 {
            window.finished(&Outcome::status(200), Duration::from_millis(10), 1, &CONFIG);
        }
        assert_eq!(window.size(), 4);
        window.finished(&Outcome::status(200), Duration::from_millis(10), 2, &CONFIG);
        assert_eq!(window.size(), 5);
    }

    #[test]
    fn after_a_restart_it_doubles_from_one_to_what_was_too_much() {
        let mut window = window();
        for _ in 0..4 {
            ok(&mut window, 10);
        }
        strain(&mut window, &Outcome::status(503));
        assert_eq!(window.size(), 32);
        window.restart(0, &CONFIG);
        let mut sizes = vec![window.size()];
        for _ in 0..7 {
            ok(&mut window, 10);
            sizes.push(window.size());
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 33, 34]);
    }

    #[test]
    fn what_was_out_when_it_restarted_neither_grows_nor_halves_it() {
        for late in [Outcome::status(200), Outcome::Failed(ErrorKind::Timeout)] {
            let mut window = window();
            window.restart(31, &CONFIG);
            for in_flight in (1..=31).rev() {
                window.finished(&late, Duration::from_millis(10), in_flight, &CONFIG);
            }
            assert_eq!((window.size(), window.is_in_slow_start()), (1, true), "{late:?}");
            ok(&mut window, 10);
            assert_eq!(window.size(), 2);
        }
    }

    #[test]
    fn old_requests_that_end_without_an_answer_are_not_waited_for() {
        let mut window = window();
        window.restart(31, &CONFIG);
        window.finished(&Outcome::status(200), Duration::from_millis(10), 31, &CONFIG);
        // The other 30 ended otherwise; this is the only one.
        window.finished(&Outcome::status(200), Duration::from_millis(10), 1, &CONFIG);
        assert_eq!(window.size(), 1, "it may have been one of them");
        window.finished(&Outcome::status(200), Duration::from_millis(10), 1, &CONFIG);
        assert_eq!(window.size(), 2);
    }

    #[test]
    fn latency_far_above_the_baseline_halves() {
        let mut window = window();
        for _ in 0..4 {
            ok(&mut window, 40);
        }
        assert_eq!(window.baseline(), Some(Duration::from_millis(40)));
        for _ in 0..20 {
            window.finished(&Outcome::status(200), Duration::from_millis(400), 64, &CONFIG);
        }
        assert_eq!(window.size(), 32);
    }

    #[test]
    fn a_single_slow_answer_does_not() {
        let mut window = window();
        for _ in 0..4 {
            ok(&mut window, 40);
        }
        for _ in 0..50 {
            window.finished(&Outcome::status(200), Duration::from_millis(500), 64, &CONFIG);
            ok(&mut window, 40);
        }
        assert_eq!(window.size(), 64);
    }

    #[test]
    fn noise_below_a_tenth_of_a_second_never_counts() {
        for seed in 0..50 {
            let mut window = window();
            for n in 0..2_000 {
                let latency = Duration::from_micros(100 + hash::mix(seed, n) % 99_000);
                window.finished(&Outcome::status(200), latency, window.size(), &CONFIG);
            }
            assert_eq!(window.size(), 64, "seed {seed}");
        }
    }

    #[test]
    fn a_receiver_that_became_slower_for_good_is_accepted_in_the_end() {
        let mut window = window();
        for _ in 0..4 {
            ok(&mut window, 40);
        }
        let sizes: Vec<_> = (0..40)
            .map(|_| {
                ok(&mut window, 400);
                window.size()
            })
            .collect();
        // It halves once, at the fourth answer. The 63 others that were out teach it the new baseline, the last three
        // of them in the second round, and then it grows back by one a round.
        assert_eq!(
            (sizes[0], sizes[1], sizes[2], sizes[33]),
            (32, 32, 33, 64),
            "{sizes:?}"
        );
        assert!(
            window.baseline() > Some(Duration::from_millis(350)),
            "{:?}",
            window.baseline()
        );
    }

    #[test]
    fn it_comes_back_fast_to_what_was_nearly_too_much_and_stays_there() {
        let mut window = window();
        for _ in 0..3 {
            ok(&mut window, 10);
        }
        strain(&mut window, &Outcome::status(503));
        for _ in 0..4 {
            ok(&mut window, 10);
        }
        assert_eq!(window.size(), 20);
        strain(&mut window, &Outcome::status(503));
        let sizes: Vec<_> = (0..22)
            .map(|_| {
                let before = window.size();
                ok(&mut window, 10);
                before
            })
            .collect();
        let near = [10, 14, 16, 17]
            .into_iter()
            .chain([18; 8])
            .chain([19; 8])
            .chain([20; 2]);
        assert_eq!(sizes, near.collect::<Vec<_>>());
    }

    #[test]
    fn refusals_for_too_much_are_no_news_in_a_window_in_which_others_went_well() {
        use Strain::{ActedOn, None};
        let [good, full, broken] = [200, 503, 500].map(Outcome::status);
        let told = |outcomes: &[(&Outcome, u32)]| {
            let mut window = window();
            let tell = |(outcome, in_flight): &(&Outcome, u32)| {
                window.finished(outcome, Duration::from_millis(10), *in_flight, &CONFIG)
            };
            outcomes.iter().map(tell).collect::<Vec<_>>()
        };
        let one_is_good = [(&good, 5), (&full, 4), (&full, 3), (&broken, 2), (&full, 1)];
        assert_eq!(told(&one_is_good), [None, None, ActedOn, None, ActedOn]);
        let none_is_good = [(&full, 4), (&full, 3), (&full, 2), (&full, 1), (&full, 1)];
        assert_eq!(told(&none_is_good), [None; 5], "it refuses everything");
        let then_nothing = [&one_is_good[..], &[(&full, 2), (&full, 1), (&full, 1)]].concat();
        assert_eq!(
            told(&then_nothing)[5..],
            [None; 3],
            "a smaller window did not help"
        );
    }

    /// A receiver that takes `capacity` at once and refuses the rest: after the first overload it is never sent more
    /// than one too many, and it is kept busy.
    #[test]
    fn it_finds_the_capacity_of_a_receiver() {
        for capacity in [1, 2, 7, 50] {
            let mut window = window();
            let mut served = 0;
            let mut overloads = Vec::new();
            for _ in 0..400 {
                let size = window.size();
                for n in 0..size {
                    let outcome = Outcome::status(if n < capacity { 200 } else { 503 });
                    window.finished(&outcome, Duration::from_millis(20), size - n, &CONFIG);
                }
                served += size.min(capacity);
                overloads.push(size.saturating_sub(capacity));
            }
            assert!(
                overloads[10..].iter().all(|&beyond| beyond <= 1),
                "{capacity}: {overloads:?}"
            );
            assert!(
                served * 10 >= 400 * capacity * if capacity < 10 { 8 } else { 9 },
                "{capacity}: served {served} of {}",
                400 * capacity
            );
        }
    }
}
