//! Properties that hold for every policy that validates, over seeds; a failure names its seed.

use super::backoff::Shape;
use super::jitter::{millis, millis_of};
use super::raw::{MatchText, RawBackoff, RawImmediate, RawLongTerm, RawRule};
use super::*;
use crate::hash;
use crate::id::first_key_at;

const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const SEEDS: u64 = 1_000;

/// Numbers that follow from a seed.
struct Draw {
    seed: u64,
    next: u64,
}

impl Draw {
    const fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next += 1;
        hash::mix(self.seed, self.next) % bound
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("an index")]
    }

    /// A duration of any order of magnitude from 1 ms to `most`.
    fn duration(&mut self, most: Duration) -> Duration {
        let bits = 64 - millis_of(most).leading_zeros();
        let bound = 1 << (1 + self.below(u64::from(bits)));
        millis((1 + self.below(bound)).min(millis_of(most)))
    }

    fn factor(&mut self) -> f64 {
        1.0 + self.below(9_900) as f64 / self.one_of(&[100.0, 10_000.0])
    }

    fn backoff(&mut self) -> RawBackoff {
        let (one, two) = (self.duration(limits::MAX_DELAY), self.duration(limits::MAX_DELAY));
        let (least, most) = (one.min(two), one.max(two));
        match self.below(3) {
            0 => RawBackoff {
                base: Some(least.into()),
                multiplier: Some(self.factor()),
                max_delay: Some(most.into()),
                ..RawBackoff::default()
            },
            1 => {
                let count = 1 + self.below(100);
                let delays = (0..count).map(|_| self.duration(limits::MAX_DELAY).into());
                RawBackoff {
                    schedule: Some(delays.collect()),
                    ..RawBackoff::default()
                }
            }
            _ => RawBackoff {
                curve: Some(self.one_of(Curve::ALL).as_str().into()),
                min_delay: Some(least.into()),
                max_delay: Some(most.into()),
                retries: Some(1 + i64::try_from(self.below(100)).expect("small")),
                ..RawBackoff::default()
            },
        }
    }

    fn policy(&mut self) -> RawPolicy {
        let most_attempts = self.one_of(&[3, 30, 1_000]);
        let delay = self.duration(limits::MAX_IMMEDIATE_DELAY);
        RawPolicy {
            immediate: Some(RawImmediate {
                retries: Some(i64::try_from(self.below(11)).expect("small")),
                min_delay: Some((delay / 2).into()),
                max_delay: Some(delay.into()),
            }),
            backoff: Some(self.backoff()),
            long_term: Some(RawLongTerm {
                enabled: Some(self.below(2) == 0),
                after: Some(self.duration(limits::MAX_AGE).into()),
                interval: Some(self.duration(limits::MAX_DELAY).into()),
            }),
            jitter: Some(self.one_of(Jitter::ALL).as_str().into()),
            max_attempts: Some(1 + i64::try_from(self.below(most_attempts)).expect("small")),
            max_age: Some(self.duration(limits::MAX_AGE).into()),
            retry_after_max: Some(self.duration(limits::MAX_DELAY).into()),
            rate_limited_multiplier: Some(self.factor()),
            rules: Some(vec![RawRule {
                matches: vec![MatchText(
                    self.one_of(&["404", "4xx", "503", "timeout", "redirect"]).into(),
                )],
                then: "retry".into(),
                max_attempts: Some(1 + i64::try_from(self.below(20)).expect("small")),
            }]),
            ..RawPolicy::default()
        }
    }

    fn outcome(&mut self) -> Outcome {
        let code = u16::try_from(200 + self.below(800)).expect("a code");
        match self.below(4) {
            0 => Outcome::Failed(self.one_of(ErrorKind::ALL)),
            1 => Outcome::status(self.one_of(&[404, 408, 429, 500, 502, 503])),
            2 => Outcome::status(code),
            _ => Outcome::Answered(Answer {
                status: self.one_of(&[429, 503, 500, code]),
                retry_after: Some(self.one_of(&[Duration::ZERO, Duration::MAX, millis(1), millis(90_000)])),
                used_up: None,
                location: None,
            }),
        }
    }
}

/// Policies that validate; of those that are drawn, most do.
fn policies() -> impl Iterator<Item = (u64, RetryPolicy, Draw)> {
    (0..SEEDS).filter_map(|seed| {
        let mut draw = Draw::new(seed);
        let written = draw.policy();
        let resolved = resolve(&[Layer {
            origin: Origin::Inline,
            policy: &written,
        }]);
        resolved.ok().map(|effective| (seed, effective.policy, draw))
    })
}

#[test]
fn enough_of_what_is_drawn_validates() {
    let count = policies().count();
    assert!(count > 230, "{count}");
}

#[test]
fn nothing_overflows_or_panics_for_what_validates() {
    for (seed, policy, mut draw) in policies() {
        for _ in 0..50 {
            let extreme = [0, 1, 2, 19, 1_000, u32::MAX];
            let progress = Progress {
                attempts: draw.one_of(&extreme),
                scheduled: draw.one_of(&extreme),
                immediate: draw.one_of(&extreme),
                last_delay: draw.one_of(&[Duration::ZERO, millis(1), Duration::MAX]),
                window_start: draw.one_of(&[Timestamp::EPOCH, START, Timestamp::MAX]),
            };
            let key = draw.one_of(&[0, 1, -1, i64::MAX, i64::MIN, first_key_at(START)]);
            let case = Case {
                delivery: DeliveryKey(key),
                progress,
                retryable: draw.below(4) > 0,
            };
            let now = draw.one_of(&[
                Timestamp::EPOCH,
                START,
                START.plus(limits::MAX_AGE),
                Timestamp::MAX,
            ]);
            let outcome = draw.outcome();
            let verdict = policy.judge(&case, &outcome, now);
            if let Verdict::Retry(plan) = verdict {
                assert_eq!(plan.due_at, now.plus(plan.delay), "seed {seed}");
                assert!(!policy.expired(&progress, plan.due_at), "seed {seed}: {plan:?}");
            }
            assert_eq!(verdict == Verdict::Succeeded, outcome.is_success(), "seed {seed}");
            assert!(
                policy.hold(&outcome).is_none_or(|hold| hold <= limits::MAX_DELAY),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn delays_before_jitter_never_shrink_and_stay_below_the_cap() {
    for (seed, policy, _) in policies() {
        if matches!(policy.backoff.shape(), Shape::Schedule(_)) {
            continue;
        }
        let mut last = policy.backoff.base();
        for n in 0..1_100 {
            let delay = policy.backoff.delay(n);
            assert!(
                last <= delay && delay <= policy.backoff.cap(),
                "seed {seed}, retry {n}"
            );
            last = delay;
        }
    }
}

#[test]
fn a_receiver_that_always_fails_gets_max_attempts_or_the_window() {
    for (seed, policy, _) in policies() {
        let delivery = DeliveryKey(first_key_at(START) + i64::try_from(seed).expect("small"));
        let (new, first) = (Progress::new(START), Plan::first(START));
        let forecast = policy.forecast(delivery, &new, &first, true, &Outcome::status(500), START);
        let made = u32::try_from(forecast.attempts.len()).expect("bounded");
        match forecast.dead {
            Some(DeadReason::ExhaustedRetries) => assert_eq!(made, policy.max_attempts(), "seed {seed}"),
            Some(DeadReason::Expired) => assert!(made < policy.max_attempts(), "seed {seed}"),
            other => panic!("seed {seed}: {other:?}"),
        }
        for attempt in &forecast.attempts {
            assert!(
                attempt.due_at <= START.plus(policy.max_age()),
                "seed {seed}: {attempt:?}"
            );
        }
    }
}

#[test]
fn jitter_stays_within_its_bounds() {
    let (base, cap) = (millis(1_000), millis(60_000));
    for seed in 0..20_000 {
        let mut draw = Draw::new(seed);
        let (delay, last) = (draw.duration(cap), draw.duration(cap));
        let fraction = hash::fraction(seed, 7);
        let drawn = |jitter: Jitter| jitter.spread(delay, Memory { base, cap, last }).at(fraction);
        assert_eq!(drawn(Jitter::None), delay, "seed {seed}");
        let half = millis(millis_of(delay) / 2);
        assert!((half..=delay).contains(&drawn(Jitter::Equal)), "seed {seed}");
        let most = cap.min(last.max(base) * 3);
        assert!(
            (base..=most).contains(&drawn(Jitter::Decorrelated)),
            "seed {seed}"
        );
    }
}

/// Delays of 10,000 deliveries that were accepted in one millisecond and fail together at their `attempt`-th.
fn delays_together(policy: &RetryPolicy, attempt: u32) -> Vec<Duration> {
    let progress = Progress {
        attempts: attempt,
        scheduled: attempt,
        ..Progress::new(START)
    };
    (0..10_000)
        .map(|n| {
            let delivery = DeliveryKey(first_key_at(START) + n);
            match policy.judge(
                &Case {
                    delivery,
                    progress,
                    retryable: true,
                },
                &Outcome::status(500),
                START,
            ) {
                Verdict::Retry(plan) => plan.delay,
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

/// Kolmogorov-Smirnov distance of a sample to the uniform distribution over `0..most`.
fn distance_to_uniform(sample: &[Duration], most: Duration) -> f64 {
    let mut shares: Vec<f64> = sample
        .iter()
        .map(|delay| delay.as_secs_f64() / most.as_secs_f64())
        .collect();
    shares.sort_by(f64::total_cmp);
    let count = shares.len() as f64;
    let distances = shares.iter().enumerate().map(|(n, share)| {
        let (below, above) = (n as f64 / count, (n + 1) as f64 / count);
        (share - below).abs().max((above - share).abs())
    });
    distances.fold(0.0, f64::max)
}

#[test]
fn deliveries_that_fail_together_come_back_evenly() {
    // The fifth retry follows the sixth attempt: 1 s * 2^5 = 32 s.
    let policy = Preset::Standard.policy();
    assert_eq!(policy.backoff.delay(5), millis(32_000));
    for attempt in [2, 6, 12, 19] {
        let most = policy.backoff.delay(attempt - 1);
        let distance = distance_to_uniform(&delays_together(&policy, attempt), most);
        assert!(distance < 0.02, "attempt {attempt}: {distance}");
    }
}

#[test]
fn successive_attempts_are_not_correlated() {
    let policy = Preset::Standard.policy();
    let (one, two) = (delays_together(&policy, 6), delays_together(&policy, 7));
    let both_early = one
        .iter()
        .zip(&two)
        .filter(|(one, two)| **one < millis(16_000) && **two < millis(32_000));
    let share = both_early.count() as f64 / 10_000.0;
    assert!(
        (0.23..0.27).contains(&share),
        "a quarter when independent, {share}"
    );
}

#[test]
fn no_second_holds_more_than_three_times_its_fair_share() {
    // Fields case 14: all of them fail within one second.
    for (preset, attempt) in [(Preset::Standard, 4), (Preset::Standard, 6), (Preset::Batch, 1)] {
        let policy = preset.policy();
        let most = policy.backoff.delay(attempt - 1);
        let seconds = usize::try_from(most.as_secs()).expect("small");
        let mut counts = vec![0_usize; seconds + 2];
        for (n, delay) in delays_together(&policy, attempt).into_iter().enumerate() {
            let failed_at = millis(n as u64 % 1_000);
            counts[usize::try_from((failed_at + delay).as_secs()).expect("small")] += 1;
        }
        let fair = 10_000 / seconds;
        assert!(
            counts.iter().all(|count| *count <= 3 * fair),
            "{preset} {attempt}: {counts:?}"
        );
    }
}

#[test]
fn the_forecast_is_what_judging_one_by_one_gives() {
    let policy = Preset::Standard.policy();
    let outcome = Outcome::status(503);
    for n in 0..200 {
        let delivery = DeliveryKey(first_key_at(START) + n);
        let (mut progress, mut plan) = (Progress::new(START), Plan::first(START));
        let forecast = policy.forecast(delivery, &progress, &plan, true, &outcome, START);
        for predicted in &forecast.attempts {
            assert_eq!(
                (predicted.due_at, predicted.tier),
                (plan.due_at, plan.tier),
                "delivery {n}"
            );
            progress = progress.attempted(&plan);
            let remaining = policy.forecast(delivery, &progress, &plan, true, &outcome, plan.due_at);
            assert!(remaining.attempts.len() <= forecast.attempts.len());
            match policy.judge(
                &Case {
                    delivery,
                    progress,
                    retryable: true,
                },
                &outcome,
                plan.due_at,
            ) {
                Verdict::Retry(next) => plan = next,
                verdict => {
                    let dead = Verdict::Dead(DeadReason::ExhaustedRetries, Category::Http5xx);
                    assert_eq!(
                        (verdict, forecast.dead),
                        (dead, Some(DeadReason::ExhaustedRetries))
                    );
                    assert_eq!(forecast.ends_at, plan.due_at);
                    assert_eq!(
                        progress.attempts, 60,
                        "20 scheduled attempts with two immediate retries each"
                    );
                }
            }
        }
    }
}

#[test]
fn the_preview_bounds_every_forecast() {
    let outcomes = [
        Outcome::status(500),
        Outcome::status(503),
        Outcome::status(429),
        Outcome::Answered(Answer {
            status: 429,
            retry_after: Some(millis(90_000)),
            used_up: None,
            location: None,
        }),
    ];
    for (seed, policy, _) in policies().step_by(9) {
        for outcome in &outcomes {
            let preview = policy.preview(outcome);
            let certain = preview.attempts.iter().filter(|attempt| attempt.certain).count();
            let delivery = DeliveryKey(first_key_at(START) + i64::try_from(seed).expect("small"));
            let (new, first) = (Progress::new(START), Plan::first(START));
            let forecast = policy.forecast(delivery, &new, &first, true, outcome, START);
            let made = forecast.attempts.len();
            assert!(
                (certain..=preview.attempts.len()).contains(&made),
                "seed {seed} {outcome:?}"
            );
            for (attempt, planned) in forecast.attempts.iter().zip(&preview.attempts) {
                let (delay, offset) = (attempt.delay_ms, millis_of(attempt.due_at.since(START)));
                assert_eq!(
                    (attempt.number, attempt.cause),
                    (planned.number, planned.cause),
                    "seed {seed}"
                );
                assert!(
                    (planned.delay.earliest_ms..=planned.delay.latest_ms).contains(&delay),
                    "seed {seed}"
                );
                assert!(
                    (planned.offset.earliest_ms..=planned.offset.latest_ms).contains(&offset),
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn a_forecast_begins_with_the_attempt_that_is_planned() {
    let policy = Preset::Outpost.policy();
    let progress = Progress {
        attempts: 3,
        scheduled: 3,
        ..Progress::new(START)
    };
    let due_at = START.plus(millis(210_000));
    let plan = Plan {
        due_at,
        delay: millis(120_000),
        tier: Tier::Backoff,
        cause: DelayCause::Backoff,
    };
    let overdue = due_at.plus(millis(5_000));
    let forecast = policy.forecast(
        DeliveryKey(1),
        &progress,
        &plan,
        true,
        &Outcome::status(500),
        overdue,
    );
    let numbers: Vec<_> = forecast.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, (4..=11).collect::<Vec<_>>());
    assert_eq!(forecast.attempts[0].due_at, due_at);
    assert_eq!(
        forecast.attempts[1].due_at,
        overdue.plus(millis(240_000)),
        "counted from when it can be made"
    );
    let success = policy.forecast(
        DeliveryKey(1),
        &progress,
        &plan,
        true,
        &Outcome::status(200),
        START,
    );
    assert_eq!(
        (success.attempts.len(), success.dead, success.ends_at),
        (1, None, due_at)
    );
    let late = START.plus(policy.max_age()).plus(millis(1));
    let expired = policy.forecast(
        DeliveryKey(1),
        &progress,
        &plan,
        true,
        &Outcome::status(500),
        late,
    );
    assert_eq!(
        (expired.attempts.len(), expired.dead),
        (0, Some(DeadReason::Expired))
    );
}
