//! The retry policy: what an outcome means, and when to try again.
//!
//! [`RetryPolicy::judge`] is the one place that decides. It knows nothing of clocks, queues, breakers or stores: it
//! is given what happened and when, and answers with a [`Verdict`]. Because jitter is derived and `now` is a
//! parameter, [`forecast`](RetryPolicy::forecast) is `judge` run ahead, and cannot disagree with it.
//!
//! A policy comes into being only by validation, so every value in it is within bounds and judging cannot fail.

#[expect(dead_code, reason = "read by the parser of policies")]
mod backoff;
#[expect(dead_code, reason = "read by the parser of policies")]
mod classify;
mod jitter;
pub mod limits;

#[cfg(test)]
mod judge_tests;

use std::time::Duration;

use backoff::{Backoff, Shape};
use classify::{Class, Rule};
use jitter::{Memory, Spread, fraction_of, millis};

pub use backoff::Curve;
pub use classify::{OnGone, Then};
pub use jitter::Jitter;

use crate::delivery::{DeadReason, DelayCause, Plan, Progress, Tier};
use crate::id::DeliveryKey;
use crate::outcome::{Answer, Category, ErrorKind, Outcome};
use crate::time::Timestamp;

/// A failure of our own is repeated first after up to this long, then twice as long, and so on.
const OWN_FAULT_BASE: Duration = Duration::from_secs(1);
/// The longest delay after a failure of our own.
const OWN_FAULT_CAP: Duration = Duration::from_secs(60);

/// A validated policy.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    immediate: Immediate,
    backoff: Backoff,
    long_term: Option<LongTerm>,
    jitter: Jitter,
    max_attempts: u32,
    max_age: Duration,
    retry_after_max: Duration,
    rate_limited_multiplier: f64,
    on_gone: OnGone,
    rules: Vec<Rule>,
}

/// The tier for what a second try cures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Immediate {
    retries: u32,
    min_delay: Duration,
    max_delay: Duration,
}

/// The slow tier at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LongTerm {
    after: Duration,
    interval: Duration,
}

/// What a policy makes of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It arrived.
    Succeeded,
    /// Try again.
    Retry(Plan),
    /// Give up.
    Dead(DeadReason, Category),
}

/// What besides the outcome the policy needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Seed of the jitter.
    pub delivery: DeliveryKey,
    /// The past, the attempt just judged included.
    pub progress: Progress,
    /// False: no retry, whatever the policy says.
    pub retryable: bool,
}

impl RetryPolicy {
    /// Judges the attempt whose answer arrived at `now`.
    ///
    /// In this order: any 2xx is a success. What the guard or the request builder refused is dead, with its own
    /// reason. A failure of our own is repeated without charge (see [`DelayCause::Internal`]). Rules and defaults
    /// then say whether the failure is permanent. A retryable one gets, if it is momentary and did not come with a
    /// `Retry-After`, its immediate retries; else, while attempts are left, a delay by `Retry-After` (capped) or by
    /// backoff and jitter (multiplied for 429). No retry is planned for later than `max_age` after the start of
    /// the window.
    #[must_use]
    pub fn judge(&self, case: &Case, outcome: &Outcome, now: Timestamp) -> Verdict {
        let dead = |reason| Verdict::Dead(reason, outcome.category());
        match outcome {
            answered if answered.is_success() => return Verdict::Succeeded,
            Outcome::Failed(ErrorKind::BlockedAddress) => return dead(DeadReason::BlockedAddress),
            Outcome::Failed(ErrorKind::InvalidRequest) => return dead(DeadReason::InvalidPayload),
            _ => {}
        }
        if let Some(plan) = own_fault(case, outcome, now) {
            return self
                .within_age(case, plan)
                .map_or(dead(DeadReason::Expired), Verdict::Retry);
        }
        let limit = match classify::classify(&self.rules, self.max_attempts, outcome) {
            Class::Permanent => return dead(DeadReason::PermanentFailure),
            Class::Retry(_) if !case.retryable => return dead(DeadReason::ExhaustedRetries),
            Class::Retry(limit) => limit,
        };
        let momentary = self
            .immediate(case, outcome, now)
            .and_then(|plan| self.within_age(case, plan));
        if let Some(plan) = momentary {
            return Verdict::Retry(plan);
        }
        if case.progress.scheduled >= limit {
            return dead(DeadReason::ExhaustedRetries);
        }
        let plan = self.scheduled(case, outcome, now);
        self.within_age(case, plan)
            .map_or(dead(DeadReason::Expired), Verdict::Retry)
    }

    /// Whether a pending delivery has outlived `max_age` at `now`, so that it must not be attempted any more.
    #[must_use]
    pub fn expired(&self, progress: &Progress, now: Timestamp) -> bool {
        now > self.deadline(progress)
    }

    /// How long an outcome forbids every request to the destination (429 and 503 with Retry-After), capped by
    /// `retry_after_max`. A `Retry-After` of zero forbids nothing.
    #[must_use]
    pub fn hold(&self, outcome: &Outcome) -> Option<Duration> {
        match outcome {
            Outcome::Answered(Answer {
                status: 429 | 503,
                retry_after: Some(delay),
                ..
            }) => Some(delay.min(&self.retry_after_max))
                .filter(|delay| !delay.is_zero())
                .copied(),
            _ => None,
        }
    }

    /// Whether this outcome (410, unless the policy says `on_gone = "ignore"`) disables the destination.
    #[must_use]
    pub fn disables(&self, outcome: &Outcome) -> bool {
        self.on_gone == OnGone::Disable && outcome.code() == Some(410)
    }

    fn immediate(&self, case: &Case, outcome: &Outcome, now: Timestamp) -> Option<Plan> {
        let left = case.progress.immediate < self.immediate.retries;
        if !left || !classify::is_momentary(outcome) {
            return None;
        }
        let spread = Spread {
            earliest: self.immediate.min_delay,
            latest: self.immediate.max_delay,
        };
        let delay = spread.at(fraction_of(case.delivery, case.progress.attempts));
        Some(plan(now, delay, Tier::Immediate, DelayCause::Backoff))
    }

    fn scheduled(&self, case: &Case, outcome: &Outcome, now: Timestamp) -> Plan {
        let (tier, spread) = self.spread(&case.progress, now.since(case.progress.window_start));
        if let Outcome::Answered(Answer {
            retry_after: Some(asked),
            ..
        }) = outcome
        {
            return plan(
                now,
                *asked.min(&self.retry_after_max),
                tier,
                DelayCause::RetryAfter,
            );
        }
        let fraction = fraction_of(case.delivery, case.progress.attempts);
        if outcome.category() == Category::RateLimited {
            let delay = spread.scaled(self.rate_limited_multiplier).at(fraction);
            return plan(now, delay, tier, DelayCause::RateLimited);
        }
        plan(now, spread.at(fraction), tier, DelayCause::Backoff)
    }

    /// Tier and range of the next scheduled delay, when it is planned at `age`.
    fn spread(&self, progress: &Progress, age: Duration) -> (Tier, Spread) {
        let (tier, delay, cap) = match self.long_term {
            Some(slow) if age >= slow.after => (Tier::LongTerm, slow.interval, slow.interval),
            _ => {
                let retry = progress.scheduled.saturating_sub(1);
                (Tier::Backoff, self.backoff.delay(retry), self.backoff.cap())
            }
        };
        let memory = Memory {
            base: self.backoff.base(),
            cap,
            last: progress.last_delay,
        };
        (tier, self.jitter.spread(delay, memory))
    }

    fn within_age(&self, case: &Case, plan: Plan) -> Option<Plan> {
        (plan.due_at <= self.deadline(&case.progress)).then_some(plan)
    }

    fn deadline(&self, progress: &Progress) -> Timestamp {
        progress.window_start.plus(self.max_age)
    }
}

impl Default for RetryPolicy {
    /// Preset `standard`.
    fn default() -> Self {
        Self {
            immediate: Immediate {
                retries: 2,
                min_delay: millis(100),
                max_delay: millis(500),
            },
            backoff: Backoff::new(Shape::Exponential {
                base: millis(1_000),
                multiplier: 2.0,
                max_delay: millis(3_600_000),
            }),
            long_term: Some(LongTerm {
                after: millis(4 * 3_600_000),
                interval: millis(3_600_000),
            }),
            jitter: Jitter::Full,
            max_attempts: 20,
            max_age: millis(72 * 3_600_000),
            retry_after_max: millis(3_600_000),
            rate_limited_multiplier: 3.0,
            on_gone: OnGone::Disable,
            rules: Vec::new(),
        }
    }
}

/// The repeat of an attempt that we failed to make. It has tier `immediate`, which is not counted, so the attempt
/// that failed and its repeat are charged as one. A delivery that must not be retried is repeated only when
/// nothing can have been sent.
fn own_fault(case: &Case, outcome: &Outcome, now: Timestamp) -> Option<Plan> {
    let ours = match outcome {
        Outcome::Failed(ErrorKind::LocalResources) => true,
        Outcome::Failed(ErrorKind::Internal) => case.retryable,
        _ => false,
    };
    if !ours {
        return None;
    }
    let doubled =
        OWN_FAULT_BASE.saturating_mul(1_u32.checked_shl(case.progress.immediate.min(16)).unwrap_or(1));
    let memory = Memory {
        base: OWN_FAULT_BASE,
        cap: OWN_FAULT_CAP,
        last: Duration::ZERO,
    };
    let spread = Jitter::Equal.spread(doubled.min(OWN_FAULT_CAP), memory);
    let delay = spread.at(fraction_of(case.delivery, case.progress.attempts));
    Some(plan(now, delay, Tier::Immediate, DelayCause::Internal))
}

fn plan(now: Timestamp, delay: Duration, tier: Tier, cause: DelayCause) -> Plan {
    Plan {
        due_at: now.plus(delay),
        delay,
        tier,
        cause,
    }
}
