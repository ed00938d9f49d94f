//! Looking ahead: what a policy would do (preview), and what it will do with one delivery (forecast).
//!
//! Neither has rules of its own. The preview asks the policy for the *range* of each delay, at the earliest, the
//! expected and the latest age at which it can be planned; the forecast runs [`RetryPolicy::judge`] on the real
//! delivery. So they cannot promise what the engine does not do. Both take a receiver that answers at once and is
//! never waited for: the time that requests take comes on top, and so does that of a breaker, a hold or a full
//! window.

use std::time::Duration;

use serde::Serialize;

use super::jitter::millis_of;
use super::{Case, Problem, RetryPolicy, Ruling, Verdict};
use crate::delivery::{DeadReason, DelayCause, Plan, Progress, Tier};
use crate::id::DeliveryKey;
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// Most attempts that are listed: more than any policy allows a receiver to cause.
const MAX_LISTED: usize = 12_000;

/// A duration that jitter leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Range {
    /// No sooner.
    pub earliest_ms: u64,
    /// The middle of what is possible; the mean, but for decorrelated jitter, where it is close to it.
    pub expected_ms: u64,
    /// No later.
    pub latest_ms: u64,
}

/// A [`Range`] of offsets, counted from a real instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Instants {
    /// No sooner.
    pub earliest: Timestamp,
    /// The middle of what is possible.
    pub expected: Timestamp,
    /// No later.
    pub latest: Timestamp,
}

/// One attempt of a preview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PreviewAttempt {
    /// Counted from 1, immediate retries included.
    pub number: u32,
    /// The tier that plans it, when all goes as expected.
    pub tier: Tier,
    /// Why this delay.
    pub cause: DelayCause,
    /// From the attempt before.
    pub delay: Range,
    /// From the first attempt.
    pub offset: Range,
    /// Whether it fits into `max_age` when all goes as expected.
    pub likely: bool,
    /// Whether it fits into `max_age` in any case.
    pub certain: bool,
}

/// All attempts that a policy makes of a receiver that always answers the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// In order; the last ones may be uncertain.
    pub attempts: Vec<PreviewAttempt>,
    /// Why there are no more; `None` when there is no end within what is listed, or when the first one succeeds.
    pub ends: Option<DeadReason>,
    /// From the first attempt to the last one: the last that is likely, and the last that is possible.
    pub window: Range,
}

/// One attempt of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ForecastAttempt {
    /// Counted from 1 over the delivery's whole life.
    pub number: u32,
    /// When it is due.
    pub due_at: Timestamp,
    /// The delay before it.
    pub delay_ms: u64,
    /// The tier that plans it.
    pub tier: Tier,
    /// Why then.
    pub cause: DelayCause,
}

/// The rest of a delivery's life, under an assumption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// In order, first the one that is planned.
    pub attempts: Vec<ForecastAttempt>,
    /// When the verdict is final.
    pub ends_at: Timestamp,
    /// Why it would be a dead letter; `None` when it would succeed.
    pub dead: Option<DeadReason>,
}

/// A path through a policy: how old the delivery is, and what it has done.
#[derive(Debug, Clone, Copy)]
struct Path {
    age: Duration,
    progress: Progress,
}

impl Path {
    fn start() -> Self {
        let progress = Progress::new(Timestamp::EPOCH).attempted(&Plan::first(Timestamp::EPOCH));
        Self {
            age: Duration::ZERO,
            progress,
        }
    }

    fn rule(&self, policy: &RetryPolicy, outcome: &Outcome) -> Ruling {
        policy.rule(&self.progress, true, outcome, Timestamp::EPOCH.plus(self.age))
    }

    fn advance(&mut self, tier: Tier, delay: Duration) {
        self.age = self.age.saturating_add(delay);
        let plan = Plan {
            tier,
            delay,
            ..Plan::first(Timestamp::EPOCH)
        };
        self.progress = self.progress.attempted(&plan);
    }
}

impl RetryPolicy {
    /// Every attempt that this policy would make, if each had `outcome`.
    #[must_use]
    pub fn preview(&self, outcome: &Outcome) -> Preview {
        let (mut early, mut middle, mut late) = (Path::start(), Path::start(), Path::start());
        let nothing = Range::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let mut attempts = vec![PreviewAttempt {
            number: 1,
            tier: Tier::Backoff,
            cause: DelayCause::First,
            delay: nothing,
            offset: nothing,
            likely: true,
            certain: true,
        }];
        let mut ends = None;
        while attempts.len() < MAX_LISTED {
            let rulings = [early, middle, late].map(|path| path.rule(self, outcome));
            let [
                Ruling::Retry(at_earliest),
                Ruling::Retry(expected),
                Ruling::Retry(at_latest),
            ] = rulings
            else {
                if let Ruling::Dead(reason) = rulings[1] {
                    ends = Some(reason);
                }
                break;
            };
            let delay = Range::new(
                at_earliest.spread.earliest.min(at_latest.spread.earliest),
                expected.spread.at(0.5),
                at_earliest.spread.latest.max(at_latest.spread.latest),
            );
            early.advance(at_earliest.tier, Duration::from_millis(delay.earliest_ms));
            middle.advance(expected.tier, Duration::from_millis(delay.expected_ms));
            late.advance(at_latest.tier, Duration::from_millis(delay.latest_ms));
            if early.age > self.max_age {
                ends = Some(DeadReason::Expired);
                break;
            }
            let capped = |path: &Path| path.age.min(self.max_age);
            attempts.push(PreviewAttempt {
                number: middle.progress.attempts,
                tier: expected.tier,
                cause: expected.cause,
                delay,
                offset: Range::new(early.age, capped(&middle), capped(&late)),
                likely: middle.age <= self.max_age,
                certain: late.age <= self.max_age,
            });
        }
        let window = window(&attempts).unwrap_or(nothing);
        Preview {
            attempts,
            ends,
            window,
        }
    }

    /// The remaining attempts of a pending delivery, to the millisecond, if each had `outcome` and was answered at
    /// once; `plan` is the attempt that is planned, and nothing happens before `from`.
    #[must_use]
    pub fn forecast(
        &self,
        delivery: DeliveryKey,
        progress: &Progress,
        plan: &Plan,
        retryable: bool,
        outcome: &Outcome,
        from: Timestamp,
    ) -> Forecast {
        let (mut progress, mut plan) = (*progress, *plan);
        let mut now = from;
        let mut attempts = Vec::new();
        while attempts.len() < MAX_LISTED {
            now = now.max(plan.due_at);
            if self.expired(&progress, now) {
                return Forecast {
                    attempts,
                    ends_at: now,
                    dead: Some(DeadReason::Expired),
                };
            }
            progress = progress.attempted(&plan);
            attempts.push(ForecastAttempt {
                number: progress.attempts,
                due_at: plan.due_at,
                delay_ms: millis_of(plan.delay),
                tier: plan.tier,
                cause: plan.cause,
            });
            let dead = match self.judge(
                &Case {
                    delivery,
                    progress,
                    retryable,
                },
                outcome,
                now,
            ) {
                Verdict::Retry(next) => {
                    plan = next;
                    continue;
                }
                Verdict::Succeeded => None,
                Verdict::Dead(reason, _) => Some(reason),
            };
            return Forecast {
                attempts,
                ends_at: now,
                dead,
            };
        }
        Forecast {
            attempts,
            ends_at: now,
            dead: None,
        }
    }

    /// The latest age, by schedule alone, at which a retry of a plain failure is planned.
    pub(super) fn latest_planning(&self) -> Duration {
        let failure = Outcome::status(500);
        let unruled = Self {
            rules: Vec::new(),
            long_term: None,
            ..self.clone()
        };
        let mut late = Path::start();
        let mut latest = Duration::ZERO;
        while let Ruling::Retry(retry) = late.rule(&unruled, &failure) {
            latest = late.age;
            late.advance(retry.tier, retry.spread.latest);
        }
        latest
    }
}

fn window(attempts: &[PreviewAttempt]) -> Option<Range> {
    let possible = attempts.last()?.offset;
    let likely = attempts.iter().rfind(|attempt| attempt.likely)?.offset;
    Some(Range {
        earliest_ms: possible.earliest_ms.min(likely.expected_ms),
        expected_ms: likely.expected_ms,
        latest_ms: possible.latest_ms,
    })
}

/// The outcome that a word stands for, to look ahead with: a status code (`500`) or an error kind (`timeout`).
///
/// # Errors
/// When it is neither.
pub fn assume(word: &str) -> Result<Outcome, Problem> {
    let code = word
        .parse::<u16>()
        .ok()
        .filter(|code| word.len() == 3 && (200..=999).contains(code));
    if let Some(code) = code {
        return Ok(Outcome::status(code));
    }
    word.parse().map(Outcome::Failed).map_err(|unknown| {
        Problem::new(
            "outcome",
            format!("is {word:?}; use a status code from 200 to 999, or an error kind, which {unknown}"),
        )
    })
}

impl Range {
    /// These offsets as instants.
    #[must_use]
    pub fn instants(self, start: Timestamp) -> Instants {
        let at = |offset| start.plus(Duration::from_millis(offset));
        Instants {
            earliest: at(self.earliest_ms),
            expected: at(self.expected_ms),
            latest: at(self.latest_ms),
        }
    }

    fn new(earliest: Duration, expected: Duration, latest: Duration) -> Self {
        Self {
            earliest_ms: millis_of(earliest),
            expected_ms: millis_of(expected),
            latest_ms: millis_of(latest),
        }
    }
}
