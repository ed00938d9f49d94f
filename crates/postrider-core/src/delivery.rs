//! A delivery: one event for one destination, the unit that is retried and that has a status.
//!
//! `docs/states.md` draws these enums; a test keeps the drawing true.

use std::time::Duration;

use crate::id::{AttemptKey, ContextKey, DeliveryKey, DestinationKey, EventKey, TenantKey};
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// Where a delivery stands. An attempt in flight is not a status: it lives in the memory of the owning node.
    pub enum DeliveryStatus {
        /// Will be attempted at its due time.
        Pending = 0 => "pending",
        /// A receiver answered 2xx.
        Succeeded = 1 => "succeeded",
        /// In the dead-letter queue, with a reason.
        Dead = 2 => "dead",
        /// Somebody asked for it not to be sent.
        Canceled = 3 => "canceled",
    }
}

words! {
    /// Why a delivery is a dead letter.
    pub enum DeadReason {
        /// The policy calls the outcome permanent (most 4xx, redirects).
        PermanentFailure = 1 => "permanent_failure",
        /// Every attempt that the policy allows was made.
        ExhaustedRetries = 2 => "exhausted_retries",
        /// The policy's `max_age` passed.
        Expired = 3 => "expired",
        /// The circuit breaker stayed open and the policy says not to wait for it.
        CircuitOpen = 4 => "circuit_open",
        /// The destination is disabled.
        DestinationDisabled = 5 => "destination_disabled",
        /// The address guard refused the destination's address.
        BlockedAddress = 6 => "blocked_address",
        /// No request could be built from event and destination.
        InvalidPayload = 7 => "invalid_payload",
        /// Somebody asked for it.
        Manual = 8 => "manual",
    }
}

words! {
    /// Which part of the retry policy scheduled an attempt.
    pub enum Tier {
        /// A repeat of the same scheduled attempt, not counted: for what a second try cures (a connection error,
        /// 502, 503 or 504), and after a failure of our own.
        Immediate = 0 => "immediate",
        /// The exponential schedule. First attempts belong here too.
        Backoff = 1 => "backoff",
        /// The slow schedule at the end, served after everything else.
        LongTerm = 2 => "long_term",
    }
}

words! {
    /// Why an attempt was planned for its time.
    pub enum DelayCause {
        /// The first attempt: as soon as possible.
        First = 0 => "first",
        /// The policy's schedule.
        Backoff = 1 => "backoff",
        /// The receiver said so by `Retry-After`.
        RetryAfter = 2 => "retry_after",
        /// 429 without `Retry-After`: the schedule, multiplied.
        RateLimited = 3 => "rate_limited",
        /// Somebody asked for an attempt now.
        Manual = 4 => "manual",
        /// We failed to make the attempt before (no file descriptor, a bug): it is repeated without charge.
        Internal = 5 => "internal",
    }
}

words! {
    /// What kept a delivery that was due from starting on time.
    pub enum WaitCause {
        /// `Retry-After` forbade requests to its destination.
        Hold = 1 => "hold",
        /// Its destination's circuit breaker was open, or a probe was out.
        Breaker = 2 => "breaker",
        /// As many requests to its destination were out as its window, or its share of all, allows.
        Window = 3 => "window",
        /// Its destination was disabled.
        Disabled = 4 => "disabled",
        /// Its destination's limit of requests per second, or its tenant's.
        RateLimit = 5 => "rate_limit",
        /// It is part of a replay, and all replays of its destination were paused.
        ReplayPaused = 6 => "replay_paused",
    }
}

/// How far a delivery has come: all that the policy needs to know of its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Requests made so far, of any tier. The next attempt has this number plus one.
    pub attempts: u32,
    /// Scheduled attempts made in this window: all but immediate retries. `max_attempts` limits them.
    pub scheduled: u32,
    /// Immediate retries made since the last scheduled attempt.
    pub immediate: u32,
    /// Delay before the last scheduled attempt (zero before the first); decorrelated jitter grows from it.
    pub last_delay: Duration,
    /// Start of the window that `max_age` limits: when it was published, or when it was last replayed.
    pub window_start: Timestamp,
}

impl Progress {
    /// A delivery that has not been tried.
    #[must_use]
    pub const fn new(window_start: Timestamp) -> Self {
        Self {
            attempts: 0,
            scheduled: 0,
            immediate: 0,
            last_delay: Duration::ZERO,
            window_start,
        }
    }

    /// This, after one more attempt that `plan` had scheduled.
    #[must_use]
    pub fn attempted(self, plan: &Plan) -> Self {
        let attempts = self.attempts.saturating_add(1);
        match plan.tier {
            Tier::Immediate => Self {
                attempts,
                immediate: self.immediate.saturating_add(1),
                ..self
            },
            Tier::Backoff | Tier::LongTerm => Self {
                attempts,
                scheduled: self.scheduled.saturating_add(1),
                immediate: 0,
                last_delay: plan.delay,
                ..self
            },
        }
    }
}

/// When the next attempt is planned, and why then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Not before this.
    pub due_at: Timestamp,
    /// From the verdict to `due_at`, as the policy computed it.
    pub delay: Duration,
    /// The tier that planned it.
    pub tier: Tier,
    /// Why this delay.
    pub cause: DelayCause,
}

impl Plan {
    /// The first attempt of a delivery accepted at `now`.
    #[must_use]
    pub const fn first(now: Timestamp) -> Self {
        Self {
            due_at: now,
            delay: Duration::ZERO,
            tier: Tier::Backoff,
            cause: DelayCause::First,
        }
    }

    /// An attempt that somebody asked for.
    #[must_use]
    pub const fn manual(now: Timestamp) -> Self {
        Self {
            due_at: now,
            delay: Duration::ZERO,
            tier: Tier::Backoff,
            cause: DelayCause::Manual,
        }
    }
}

/// A delivery with status `pending`, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingDelivery {
    /// Its key, which is also the seed of its jitter.
    pub key: DeliveryKey,
    /// The event it sends.
    pub event: EventKey,
    /// Who owns the destination.
    pub tenant: TenantKey,
    /// Where it goes.
    pub destination: DestinationKey,
    /// The next attempt.
    pub plan: Plan,
    /// The past.
    pub progress: Progress,
    /// False when the publisher said `eligible_for_retry: false`: one attempt, no retry.
    pub retryable: bool,
    /// Part of a replay: served behind live traffic.
    pub replayed: bool,
    /// The last attempt that was settled; each attempt names the one before it.
    pub last_attempt: Option<AttemptKey>,
    /// Sent with the configuration of this context instead of its destination's current one: a replay asked for it.
    pub context: Option<ContextKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_retries_are_not_charged() {
        let now = Timestamp::from_millis(1_000);
        let first = Progress::new(now).attempted(&Plan::first(now));
        assert_eq!((first.attempts, first.scheduled, first.immediate), (1, 1, 0));
        let plan = Plan {
            tier: Tier::Immediate,
            delay: Duration::from_millis(200),
            ..Plan::first(now)
        };
        let second = first.attempted(&plan);
        assert_eq!((second.attempts, second.scheduled, second.immediate), (2, 1, 1));
        assert_eq!(
            second.last_delay,
            Duration::ZERO,
            "decorrelated jitter ignores them"
        );
        let plan = Plan {
            delay: Duration::from_secs(2),
            ..Plan::first(now)
        };
        let third = second.attempted(&plan);
        assert_eq!((third.attempts, third.scheduled, third.immediate), (3, 2, 0));
        assert_eq!(third.last_delay, Duration::from_secs(2));
    }

    #[test]
    fn words_and_codes_are_their_own_inverse() {
        for &status in DeliveryStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(DeliveryStatus::from_code(status.code()), Some(status));
        }
        let refused = "delivered".parse::<DeliveryStatus>();
        assert_eq!(
            refused.map_err(|e| e.to_string()),
            Err("must be one of: pending, succeeded, dead, canceled".into())
        );
    }
}
