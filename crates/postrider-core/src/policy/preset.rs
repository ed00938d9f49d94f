//! Presets: complete policies to start from.
//!
//! Each is written in the same form that users write, and passes the same validation.

use std::time::Duration;

use super::RetryPolicy;
use super::duration::DurationText;
use super::layers::{Layer, Origin, Problem, resolve};
use super::limits::{MAX_AGE, MAX_DELAY};
use super::raw::{RawBackoff, RawImmediate, RawLongTerm, RawPolicy};
use crate::words::words;

/// Interval of Outpost when nothing is configured.
const OUTPOST_INTERVAL: Duration = Duration::from_secs(30);
/// Retries of Outpost when nothing is configured.
const OUTPOST_RETRIES: u32 = 10;

words! {
    /// A complete policy by name.
    pub enum Preset {
        /// The default: quick at first, doubling to an hour, about eight hours at most.
        Standard = 0 => "standard",
        /// For events that are worth much only when they are fresh: more attempts in the first minute.
        LatencySensitive = 1 => "latency_sensitive",
        /// For bulk that is in no hurry: slower, and no immediate retries.
        Batch = 2 => "batch",
        /// A schedule that people can say by heart, then every hour for three days.
        ThreeTier = 3 => "three_tier",
        /// The delays of Outpost: 30 s, doubling, ten retries, no jitter.
        Outpost = 4 => "outpost",
    }
}

impl Preset {
    /// The preset, written out in full.
    #[must_use]
    pub fn raw(self) -> RawPolicy {
        match self {
            Self::Standard => standard(),
            Self::LatencySensitive => RawPolicy {
                backoff: Some(exponential("250ms", 1.5, "1h")),
                max_attempts: Some(30),
                ..standard()
            },
            Self::Batch => RawPolicy {
                immediate: Some(immediate(0)),
                backoff: Some(exponential("5s", 2.0, "1h")),
                ..standard()
            },
            Self::ThreeTier => RawPolicy {
                backoff: Some(schedule(
                    ["1m", "5m", "15m", "30m", "1h"].map(DurationText::from).to_vec(),
                )),
                long_term: Some(long_term("2h", "1h")),
                jitter: Some("equal".into()),
                max_attempts: Some(150),
                ..standard()
            },
            Self::Outpost => RawPolicy {
                immediate: Some(immediate(0)),
                backoff: Some(RawBackoff {
                    base: Some(OUTPOST_INTERVAL.into()),
                    multiplier: Some(2.0),
                    max_delay: Some(MAX_DELAY.into()),
                    ..RawBackoff::default()
                }),
                long_term: Some(RawLongTerm {
                    enabled: Some(false),
                    ..long_term("4h", "1h")
                }),
                jitter: Some("none".into()),
                max_attempts: Some(i64::from(OUTPOST_RETRIES) + 1),
                rate_limited_multiplier: Some(1.0),
                ..standard()
            },
        }
    }

    /// The preset as a policy.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "a test resolves every preset")]
    pub fn policy(self) -> RetryPolicy {
        let written = self.raw();
        let resolved = resolve(&[Layer {
            origin: Origin::Preset(self),
            policy: &written,
        }]);
        resolved.expect("every preset is valid").policy
    }
}

impl RawPolicy {
    /// The layer that Outpost's settings mean.
    ///
    /// `RETRY_INTERVAL_SECONDS` (30 when absent) is the first delay, and doubles. `MAX_RETRY_LIMIT` (10 when absent)
    /// counts retries, so one attempt more is made. A `RETRY_SCHEDULE` (delays in seconds) takes the place of both:
    /// there are as many retries as it has entries. Outpost knows no age limit; here the window is as long as
    /// the delays add up to, and a day more, but between 72 hours and the longest that a policy may have.
    #[must_use]
    pub fn from_outpost(
        interval_seconds: Option<u64>,
        max_retries: Option<u32>,
        schedule_seconds: &[u64],
    ) -> Self {
        let interval = interval_seconds.map_or(OUTPOST_INTERVAL, Duration::from_secs);
        let limit = max_retries.unwrap_or(OUTPOST_RETRIES);
        let delays = schedule_seconds.iter().copied().map(Duration::from_secs);
        let (backoff, retries, total) = if schedule_seconds.is_empty() {
            let doublings = 1_u32.checked_shl(limit).map_or(u32::MAX, |power| power - 1);
            let written = RawBackoff {
                base: Some(interval.into()),
                ..RawBackoff::default()
            };
            (written, i64::from(limit), interval.saturating_mul(doublings))
        } else {
            let total = delays.clone().fold(Duration::ZERO, Duration::saturating_add);
            let count = i64::try_from(schedule_seconds.len()).unwrap_or(i64::MAX);
            (schedule(delays.map(DurationText::from).collect()), count, total)
        };
        let day = Duration::from_secs(86_400);
        Self {
            preset: Some(Preset::Outpost.as_str().into()),
            backoff: Some(backoff),
            max_attempts: Some(retries.saturating_add(1)),
            max_age: Some(total.saturating_add(day).clamp(3 * day, MAX_AGE).into()),
            ..Self::default()
        }
    }
}

impl RetryPolicy {
    /// The policy that Outpost's settings mean; see [`RawPolicy::from_outpost`].
    ///
    /// # Errors
    /// Everything that is out of bounds, such as an interval of zero or a schedule of more than 100 entries.
    pub fn from_outpost(
        interval_seconds: Option<u64>,
        max_retries: Option<u32>,
        schedule_seconds: &[u64],
    ) -> Result<Self, Vec<Problem>> {
        let written = RawPolicy::from_outpost(interval_seconds, max_retries, schedule_seconds);
        resolve(&[Layer {
            origin: Origin::Global,
            policy: &written,
        }])
        .map(|effective| effective.policy)
    }
}

impl Default for RetryPolicy {
    /// Preset `standard`.
    fn default() -> Self {
        Preset::Standard.policy()
    }
}

fn standard() -> RawPolicy {
    RawPolicy {
        preset: None,
        immediate: Some(immediate(2)),
        backoff: Some(exponential("1s", 2.0, "1h")),
        long_term: Some(long_term("4h", "1h")),
        jitter: Some("full".into()),
        max_attempts: Some(20),
        max_age: Some("72h".into()),
        retry_after_max: Some("1h".into()),
        rate_limited_multiplier: Some(3.0),
        on_gone: Some("disable".into()),
        while_open: Some("hold".into()),
        dead_letter_after: Some("0s".into()),
        rate_limit_fields: Some("ignore".into()),
        on_disabled: Some("dead_letter".into()),
        rules: Some(Vec::new()),
    }
}

fn immediate(retries: i64) -> RawImmediate {
    RawImmediate {
        retries: Some(retries),
        min_delay: Some("100ms".into()),
        max_delay: Some("500ms".into()),
    }
}

fn exponential(base: &str, multiplier: f64, max_delay: &str) -> RawBackoff {
    RawBackoff {
        base: Some(base.into()),
        multiplier: Some(multiplier),
        max_delay: Some(max_delay.into()),
        ..RawBackoff::default()
    }
}

fn schedule(delays: Vec<DurationText>) -> RawBackoff {
    RawBackoff {
        schedule: Some(delays),
        ..RawBackoff::default()
    }
}

fn long_term(after: &str, interval: &str) -> RawLongTerm {
    RawLongTerm {
        enabled: Some(true),
        after: Some(after.into()),
        interval: Some(interval.into()),
    }
}
