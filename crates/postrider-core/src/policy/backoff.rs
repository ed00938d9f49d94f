//! Backoff: the delay before each scheduled retry, before jitter.
//!
//! Every shape is computed once, when a policy is validated, into a list of delays whose last one repeats. So
//! judging is a look-up, and no arithmetic that could overflow is left for the moment of a failure.

use std::time::Duration;

use super::jitter::{millis, millis_of, scaled};
use super::limits::MAX_ATTEMPTS;
use crate::words::words;

words! {
    /// How a curve climbs from its least to its greatest delay.
    ///
    /// The names, the two ends and the number of retries are those of the backoff phase in the HTTP/S delivery
    /// policy of Amazon SNS ("Amazon SNS message delivery retries", Amazon SNS Developer Guide), which publishes
    /// the functions as a graph, not as formulas. The formulas here are Postrider's, chosen so that each curve
    /// starts and ends where the guide says and is what its name means in mathematics.
    pub enum Curve {
        /// Equal steps.
        Linear = 0 => "linear",
        /// Steps that grow evenly: once, twice, three times the first.
        Arithmetic = 1 => "arithmetic",
        /// Equal ratios.
        Geometric = 2 => "geometric",
        /// Steps that double.
        Exponential = 3 => "exponential",
    }
}

/// What the delays follow.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// `base * multiplier^n`, at most `max_delay`.
    Exponential {
        base: Duration,
        multiplier: f64,
        max_delay: Duration,
    },
    /// These delays, the last of them from then on.
    Schedule(Vec<Duration>),
    /// From `min_delay` to `max_delay` over `retries` retries, `max_delay` from then on.
    Curve {
        curve: Curve,
        min_delay: Duration,
        max_delay: Duration,
        retries: u32,
    },
}

/// A shape with its delays.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Backoff {
    shape: Shape,
    delays: Vec<Duration>,
    cap: Duration,
}

impl Backoff {
    /// Computes the delays of a valid shape.
    pub(super) fn new(shape: Shape) -> Self {
        let delays = match &shape {
            Shape::Exponential {
                base,
                multiplier,
                max_delay,
            } => exponential(*base, *multiplier, *max_delay),
            Shape::Schedule(delays) => delays.clone(),
            Shape::Curve {
                curve,
                min_delay,
                max_delay,
                retries,
            } => (0..*retries)
                .map(|n| curve.delay(n, *retries, *min_delay, *max_delay))
                .collect(),
        };
        let cap = match &shape {
            Shape::Exponential { max_delay, .. } | Shape::Curve { max_delay, .. } => *max_delay,
            Shape::Schedule(delays) => delays.iter().copied().max().unwrap_or_default(),
        };
        Self { shape, delays, cap }
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The delay of retry `n`, counted from 0.
    pub(super) fn delay(&self, n: u32) -> Duration {
        let index = usize::try_from(n).unwrap_or(usize::MAX);
        self.delays
            .get(index)
            .or(self.delays.last())
            .copied()
            .unwrap_or_default()
    }

    /// The delay of the first retry.
    pub(super) fn base(&self) -> Duration {
        self.delay(0)
    }

    /// No delay is longer.
    pub(super) fn cap(&self) -> Duration {
        self.cap
    }
}

fn exponential(base: Duration, multiplier: f64, max_delay: Duration) -> Vec<Duration> {
    let mut factor = 1.0_f64;
    let mut delays = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        let delay = scaled(base, factor).min(max_delay);
        delays.push(delay);
        let grown = factor * multiplier;
        if delay == max_delay || grown <= factor {
            break;
        }
        factor = grown;
    }
    delays
}

impl Curve {
    /// The delay of retry `n` of `retries`, between `min` and `max`; a curve of one retry is its least delay.
    fn delay(self, n: u32, retries: u32, min: Duration, max: Duration) -> Duration {
        let last = retries.saturating_sub(1);
        if n >= last {
            return if last == 0 { min } else { max };
        }
        let (step, steps) = (f64::from(n), f64::from(last));
        let (least, width) = (millis_of(min), max.saturating_sub(min));
        match self {
            Self::Linear => min + scaled(width, step / steps),
            Self::Arithmetic => min + scaled(width, step * (step + 1.0) / (steps * (steps + 1.0))),
            Self::Geometric => {
                let ratio = millis_of(max) as f64 / least as f64;
                scaled(min, ratio.powf(step / steps)).clamp(min, max)
            }
            Self::Exponential => {
                // (2^n - 1) / (2^last - 1), written so that it cannot overflow for long curves.
                let part = ((step - steps).exp2() - (-steps).exp2()) / (1.0 - (-steps).exp2());
                min + scaled(width, part)
            }
        }
        .max(millis(least))
    }
}
