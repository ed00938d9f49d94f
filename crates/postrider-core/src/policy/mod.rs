//! The retry policy: what an outcome means, and when to try again.
//!
//! [`RetryPolicy::judge`] is the one place that decides. It knows nothing of clocks, queues, breakers or stores: it
//! is given what happened and when, and answers with a [`Verdict`]. Because jitter is derived and `now` is a
//! parameter, [`forecast`](RetryPolicy::forecast) is `judge` run ahead, and cannot disagree with it.
//!
//! A policy comes into being only by validation, so every value in it is within bounds and judging cannot fail.

mod backoff;
mod classify;
pub mod duration;
mod jitter;
mod layers;
pub mod limits;
mod preset;
mod preview;
pub mod raw;
mod read;
mod validate;
mod written;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod judge_tests;
#[cfg(test)]
mod layers_tests;
#[cfg(test)]
mod property_tests;

use std::time::Duration;

use backoff::Backoff;
use classify::{Class, Rule};
use jitter::{Memory, Spread, fraction_of};
use serde::{Serialize, Serializer};

pub use backoff::Curve;
pub use classify::{OnDisabled, OnGone, RateLimitFields, Then, WhileOpen};
pub use jitter::Jitter;
pub use layers::{Effective, Layer, Origin, Policies, PolicyChoice, Problem, check_name, resolve};
pub use preset::Preset;
pub use preview::{Forecast, ForecastAttempt, Instants, Preview, PreviewAttempt, Range, assume};
pub use raw::RawPolicy;
pub use read::Unread;

use crate::delivery::{DeadReason, DelayCause, Plan, Progress, Tier};
use crate::id::DeliveryKey;
use crate::outcome::{Answer, Category, ErrorKind, Outcome};
use crate::time::Timestamp;

/// A `Retry-After` below this says "now".
const HURRY: Duration = Duration::from_secs(1);

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
    while_open: WhileOpen,
    dead_letter_after: Duration,
    rate_limit_fields: RateLimitFields,
    on_disabled: OnDisabled,
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

/// A verdict whose delay is still a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ruling {
    Succeeded,
    Retry(Retry),
    Dead(DeadReason),
}

/// A retry whose delay is still a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retry {
    tier: Tier,
    cause: DelayCause,
    spread: Spread,
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
    /// The same policy with another jitter.
    #[must_use]
    pub fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

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
        match self.rule(&case.progress, case.retryable, outcome, now) {
            Ruling::Succeeded => Verdict::Succeeded,
            Ruling::Dead(reason) => dead(reason),
            Ruling::Retry(Retry { tier, cause, spread }) => {
                let delay = spread.at(fraction_of(case.delivery, case.progress.attempts));
                let plan = Plan {
                    due_at: now.plus(delay),
                    delay,
                    tier,
                    cause,
                };
                let in_time = !self.expired(&case.progress, plan.due_at);
                if in_time {
                    Verdict::Retry(plan)
                } else {
                    dead(DeadReason::Expired)
                }
            }
        }
    }

    /// Whether a pending delivery has outlived `max_age` at `now`, so that it must not be attempted any more.
    #[must_use]
    pub fn expired(&self, progress: &Progress, now: Timestamp) -> bool {
        now > progress.window_start.plus(self.max_age)
    }

    /// How long an outcome forbids every request to the destination, capped by `retry_after_max`: 429 and 503 with
    /// `Retry-After`; else, with `rate_limit_fields = "hold"`, any answer that says that nothing remains. Zero forbids
    /// nothing.
    #[must_use]
    pub fn hold(&self, outcome: &Outcome) -> Option<Duration> {
        let Outcome::Answered(answer) = outcome else {
            return None;
        };
        let retry_after = answer.retry_after.filter(|_| matches!(answer.status, 429 | 503));
        let used_up = answer
            .used_up
            .filter(|_| self.rate_limit_fields == RateLimitFields::Hold);
        let asked = retry_after.or(used_up)?;
        Some(asked.min(self.retry_after_max)).filter(|delay| !delay.is_zero())
    }

    /// The longest that [`RetryPolicy::hold`] answers.
    #[must_use]
    pub const fn longest_hold(&self) -> Duration {
        self.retry_after_max
    }

    /// What becomes of an event for the destination while it is disabled.
    #[must_use]
    pub const fn on_disabled(&self) -> OnDisabled {
        self.on_disabled
    }

    /// Whether this outcome (410, unless the policy says `on_gone = "ignore"`) disables the destination.
    #[must_use]
    pub fn disables(&self, outcome: &Outcome) -> bool {
        self.on_gone == OnGone::Disable && outcome.code() == Some(410)
    }

    /// How long a receiver may have failed without a break before deliveries that are due while its circuit breaker is
    /// open become dead letters: zero at once (`while_open = "dead_letter"`), `None` never.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        match self.while_open {
            WhileOpen::DeadLetter => Some(Duration::ZERO),
            WhileOpen::Hold => Some(self.dead_letter_after).filter(|after| !after.is_zero()),
        }
    }

    /// Scheduled attempts, the first one included.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The window since publish in which attempts are planned.
    #[must_use]
    pub const fn max_age(&self) -> Duration {
        self.max_age
    }

    /// The written form, every value set.
    #[must_use]
    pub fn written(&self) -> RawPolicy {
        written::written(self)
    }

    /// All of [`RetryPolicy::judge`] but the draw from the range of the delay.
    fn rule(&self, progress: &Progress, retryable: bool, outcome: &Outcome, now: Timestamp) -> Ruling {
        match outcome {
            answered if answered.is_success() => return Ruling::Succeeded,
            Outcome::Failed(ErrorKind::BlockedAddress) => return Ruling::Dead(DeadReason::BlockedAddress),
            Outcome::Failed(ErrorKind::InvalidRequest) => return Ruling::Dead(DeadReason::InvalidPayload),
            Outcome::Failed(ErrorKind::LocalResources) => return own_fault(progress),
            Outcome::Failed(ErrorKind::Internal) if retryable => return own_fault(progress),
            _ => {}
        }
        let limit = match classify::classify(&self.rules, self.max_attempts, outcome) {
            Class::Permanent => return Ruling::Dead(DeadReason::PermanentFailure),
            Class::Retry(_) if !retryable => return Ruling::Dead(DeadReason::ExhaustedRetries),
            Class::Retry(limit) => limit,
        };
        if progress.immediate < self.immediate.retries && classify::is_momentary(outcome) {
            let spread = Spread {
                earliest: self.immediate.min_delay,
                latest: self.immediate.max_delay,
            };
            return Ruling::Retry(Retry {
                tier: Tier::Immediate,
                cause: DelayCause::Backoff,
                spread,
            });
        }
        if progress.scheduled >= limit {
            return Ruling::Dead(DeadReason::ExhaustedRetries);
        }
        Ruling::Retry(self.scheduled(progress, outcome, now))
    }

    fn scheduled(&self, progress: &Progress, outcome: &Outcome, now: Timestamp) -> Retry {
        let (tier, spread) = self.spread(progress, now.since(progress.window_start));
        // "Now" is not believed twice: after so short a delay the schedule stands.
        let was_hurried = progress.scheduled > 1 && progress.last_delay < HURRY;
        if let Outcome::Answered(Answer {
            retry_after: Some(asked),
            ..
        }) = outcome
            && (!was_hurried || *asked >= HURRY)
        {
            let delay = *asked.min(&self.retry_after_max);
            return Retry {
                tier,
                cause: DelayCause::RetryAfter,
                spread: Spread::exactly(delay),
            };
        }
        if outcome.category() == Category::RateLimited {
            let spread = spread.scaled(self.rate_limited_multiplier);
            return Retry {
                tier,
                cause: DelayCause::RateLimited,
                spread,
            };
        }
        Retry {
            tier,
            cause: DelayCause::Backoff,
            spread,
        }
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
}

impl Serialize for RetryPolicy {
    /// The written form, which resolves to the same policy.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().serialize(serializer)
    }
}

/// The repeat of an attempt that we failed to make. It has tier `immediate`, which is not counted, so the attempt
/// that failed and its repeat are charged as one. A delivery that must not be retried is repeated only when
/// nothing can have been sent.
fn own_fault(progress: &Progress) -> Ruling {
    let doubled = OWN_FAULT_BASE.saturating_mul(1_u32 << progress.immediate.min(16));
    let latest = doubled.min(OWN_FAULT_CAP);
    let spread = Spread {
        earliest: latest / 2,
        latest,
    };
    Ruling::Retry(Retry {
        tier: Tier::Immediate,
        cause: DelayCause::Internal,
        spread,
    })
}
