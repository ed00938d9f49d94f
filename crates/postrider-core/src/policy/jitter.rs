//! Jitter: the spread that keeps deliveries which failed together from coming back together.
//!
//! It is derived from the delivery's key and the number of attempts it has made, never drawn: so a forecast, a
//! restart and a test agree to the millisecond, and still 10,000 deliveries spread evenly. The four kinds are
//! those of Marc Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).

use std::time::Duration;

use crate::hash;
use crate::words::words;

words! {
    /// How a delay is spread.
    pub enum Jitter {
        /// Exactly the delay.
        None = 0 => "none",
        /// Uniform from zero to the delay.
        Full = 1 => "full",
        /// Half the delay, plus uniform up to the other half.
        Equal = 2 => "equal",
        /// Uniform from the base to three times the delay before, capped. It takes the place of the multiplier.
        Decorrelated = 3 => "decorrelated",
    }
}

/// A delay that is still to be drawn: uniform from `earliest` to `latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) earliest: Duration,
    pub(super) latest: Duration,
}

/// What `decorrelated` needs besides the delay itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// The first delay of the schedule.
    pub(super) base: Duration,
    /// The longest delay of the tier.
    pub(super) cap: Duration,
    /// The delay before the attempt just judged; zero for the first attempt.
    pub(super) last: Duration,
}

impl Jitter {
    /// The range from which a delay of `delay` before jitter is drawn.
    pub(super) fn spread(self, delay: Duration, memory: Memory) -> Spread {
        match self {
            Self::None => Spread {
                earliest: delay,
                latest: delay,
            },
            Self::Full => Spread {
                earliest: Duration::ZERO,
                latest: delay,
            },
            Self::Equal => Spread {
                earliest: millis(millis_of(delay) / 2),
                latest: delay,
            },
            Self::Decorrelated => {
                let earliest = memory.base.min(memory.cap);
                let grown = memory.last.max(memory.base).saturating_mul(3);
                Spread {
                    earliest,
                    latest: grown.min(memory.cap),
                }
            }
        }
    }
}

impl Spread {
    /// No range at all.
    pub(super) const fn exactly(delay: Duration) -> Self {
        Self {
            earliest: delay,
            latest: delay,
        }
    }

    /// The delay at `fraction` (`0.0..1.0`) of the range, in whole milliseconds.
    pub(super) fn at(self, fraction: f64) -> Duration {
        let width = self.latest.saturating_sub(self.earliest);
        self.earliest.saturating_add(scaled(width, fraction))
    }

    /// Both ends multiplied by `factor`.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self {
            earliest: scaled(self.earliest, factor),
            latest: scaled(self.latest, factor),
        }
    }
}

/// The fraction that belongs to a delivery after its `attempts`-th attempt.
pub(super) fn fraction_of(delivery: crate::id::DeliveryKey, attempts: u32) -> f64 {
    hash::fraction(delivery.0.cast_unsigned(), u64::from(attempts))
}

/// `duration * factor`, rounded to the millisecond, saturating.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and delays are positive"
)]
pub(super) fn scaled(duration: Duration, factor: f64) -> Duration {
    millis((millis_of(duration) as f64 * factor).round() as u64)
}

/// Whole milliseconds, saturating.
pub(super) fn millis_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
