//! Latencies as a histogram that can be printed, read back and added to another.

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that is told apart: two minutes.
const MAX_MICROS: u64 = 120_000_000;

/// Microseconds to numbers of samples, in order, to three digits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Samples(Vec<(u64, u64)>);

/// Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// Takes samples in.
#[derive(Debug)]
pub(super) struct Recorder(Histogram<u64>);

impl Recorder {
    pub(super) fn new() -> Result<Self> {
        Histogram::new_with_bounds(1, MAX_MICROS, 3)
            .map(Self)
            .context("failed to make a histogram")
    }

    /// One latency, from a microsecond to two minutes.
    pub(super) fn record(&mut self, latency: Duration) -> Result<()> {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(MAX_MICROS);
        Ok(self.0.record(micros.clamp(1, MAX_MICROS))?)
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    pub(super) fn samples(&self) -> Samples {
        let recorded = self.0.iter_recorded();
        Samples(
            recorded
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        )
    }
}

impl Samples {
    /// These and those.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
        self.0.sort_unstable();
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Zeros when there are none.
    pub(crate) fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50: self.at(500),
            p90: self.at(900),
            p99: self.at(990),
            p999: self.at(999),
            max: self.at(1_000),
        }
    }

    /// The smallest latency that this many thousandths of the samples do not exceed.
    fn at(&self, thousandths: u64) -> f64 {
        let wanted = (self.count() * thousandths).div_ceil(1_000);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0.0, |(micros, _)| millis(*micros))
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most two minutes of microseconds")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_two_runs_together() {
        let mut fast = Recorder::new().unwrap();
        for _ in 0..990 {
            fast.record(Duration::from_millis(1)).unwrap();
        }
        let mut slow = Recorder::new().unwrap();
        for _ in 0..10 {
            slow.record(Duration::from_millis(50)).unwrap();
        }
        let mut all = fast.samples();
        all.extend(&slow.samples());
        assert_eq!(all.count(), 1_000);
        let percentiles = all.percentiles();
        assert!((percentiles.p50 - 1.0).abs() < 0.01, "{percentiles:?}");
        assert!(
            (percentiles.p99 - 1.0).abs() < 0.01,
            "990 of 1,000 took no longer: {percentiles:?}"
        );
        assert!((percentiles.p999 - 50.0).abs() < 0.1, "{percentiles:?}");
        assert_eq!(Samples::default().percentiles().max, 0.0);
    }
}
