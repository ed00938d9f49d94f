//! Attempts by destination and outcome, with a bounded number of `destination` labels.
//!
//! A label for each of a hundred thousand destinations would cost more memory than the deliveries themselves, in this
//! process and in the scraper. So at most [`MetricsConfig::destination_top`] destinations have their own label;
//! the attempts of all others are counted under [`OTHER`]. Who gets one follows recent traffic: places are given in
//! order of arrival, and once a minute the quietest destination yields its place to an unlabelled one that was at least
//! twice as busy (the factor keeps two equals from swapping for ever). The counts of the one that yields are added to
//! `other`, so that the sum over all labels never falls and each single series only starts, grows and ends.

use std::collections::HashMap;
use std::fmt;

use parking_lot::Mutex;
use postrider_core::id::DestinationKey;
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

/// The label of every destination without one of its own.
pub const OTHER: &str = "other";
/// Between two looks at who is busy.
const ROTATION_MILLIS: i64 = 60_000;
/// Unlabelled destinations whose traffic is watched, for each place.
const CANDIDATES_PER_PLACE: usize = 4;

const CATEGORIES: usize = Category::ALL.len();

/// Which destinations have their own label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Off: attempts carry no `destination` label at all.
    pub destination_label: bool,
    /// How many destinations have a label of their own, 1 to 10,000.
    pub destination_top: usize,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            destination_label: true,
            destination_top: 100,
        }
    }
}

#[derive(Debug, Default, Clone)]
struct Counts {
    by_category: [u64; CATEGORIES],
    recent: u64,
    /// Whose they are, when they are one destination's.
    key: Option<DestinationKey>,
}

impl Counts {
    fn count(&mut self, category: Category) {
        self.by_category[position(category)] += 1;
        self.recent += 1;
    }

    fn add(&mut self, other: &Self) {
        for (sum, count) in self.by_category.iter_mut().zip(other.by_category) {
            *sum += count;
        }
    }
}

fn position(category: Category) -> usize {
    usize::from(category.code()).min(CATEGORIES - 1)
}

#[derive(Debug, Default)]
struct Table {
    labelled: HashMap<Box<str>, Counts>,
    candidates: HashMap<Box<str>, u64>,
    rest: Counts,
    rotated_at: Timestamp,
}

/// Counts attempts; one short lock and no allocation for a destination that is known.
#[derive(Debug)]
pub struct AttemptsByDestination {
    config: MetricsConfig,
    table: Mutex<Table>,
}

impl AttemptsByDestination {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(config: MetricsConfig) -> Self {
        Self {
            config,
            table: Mutex::default(),
        }
    }

    /// One attempt of a delivery to this destination ended so.
    pub fn count(&self, key: DestinationKey, destination: &str, category: Category) {
        let mut table = self.table.lock();
        if !self.config.destination_label {
            table.rest.count(category);
        } else if let Some(counts) = table.labelled.get_mut(destination) {
            counts.count(category);
            counts.key = Some(key);
        } else if table.labelled.len() < self.config.destination_top {
            let counts = table.labelled.entry(destination.into()).or_default();
            counts.count(category);
            counts.key = Some(key);
        } else {
            table.rest.count(category);
            let limit = self.config.destination_top * CANDIDATES_PER_PLACE;
            if let Some(recent) = table.candidates.get_mut(destination) {
                *recent += 1;
            } else if table.candidates.len() < limit {
                table.candidates.insert(destination.into(), 1);
            }
        }
    }

    /// Every label of one destination, in order; none when destinations have no labels.
    #[must_use]
    pub fn labels(&self) -> Vec<(String, DestinationKey)> {
        let table = self.table.lock();
        let labelled = table.labelled.iter();
        let mut labels: Vec<_> = labelled
            .filter_map(|(label, counts)| Some((label.to_string(), counts.key?)))
            .collect();
        labels.sort_unstable();
        labels
    }

    /// Gives places to those who were busy, if the last time is a minute ago.
    pub fn rotate(&self, now: Timestamp) {
        let mut table = self.table.lock();
        let elapsed = now.as_millis() - table.rotated_at.as_millis();
        if (0..ROTATION_MILLIS).contains(&elapsed) {
            return;
        }
        table.rotated_at = now;
        table.rotate();
    }
}

impl Table {
    fn rotate(&mut self) {
        let mut candidates: Vec<(Box<str>, u64)> = self.candidates.drain().collect();
        candidates.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut places: Vec<(Box<str>, u64)> = self
            .labelled
            .iter()
            .map(|(label, counts)| (label.clone(), counts.recent))
            .collect();
        places.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
        for ((busy, recent), (quiet, least)) in candidates.into_iter().zip(places) {
            if recent < 2 * least.max(1) {
                break;
            }
            if let Some(counts) = self.labelled.remove(&quiet) {
                self.rest.add(&counts);
            }
            self.labelled.insert(busy, Counts::default());
        }
        for counts in self.labelled.values_mut() {
            counts.recent = 0;
        }
    }

    /// Label and counts of every series, in order of the label, the rest at the end.
    fn series(&self) -> Vec<(&str, &Counts)> {
        let mut series: Vec<(&str, &Counts)> = self
            .labelled
            .iter()
            .map(|(label, counts)| (label.as_ref(), counts))
            .collect();
        series.sort_unstable_by_key(|(label, _)| *label);
        series.push((OTHER, &self.rest));
        series
    }
}

/// Registers the counts as `delivery_attempts_total{destination,outcome}`.
#[derive(Debug, Clone)]
pub struct AttemptsCollector(pub std::sync::Arc<AttemptsByDestination>);

impl Collector for AttemptsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut metric = encoder.encode_descriptor(
            "postrider_delivery_attempts",
            "HTTP requests made for deliveries, by destination and what came of them",
            None,
            MetricType::Counter,
        )?;
        let table = self.0.table.lock();
        for (label, counts) in table.series() {
            for category in Category::ALL {
                let count = counts.by_category[position(*category)];
                if count == 0 {
                    continue;
                }
                let outcome = ("outcome", category.as_str());
                if self.0.config.destination_label {
                    let labels = [("destination", label), outcome];
                    encode_count(&mut metric.encode_family(&labels)?, count)?;
                } else {
                    encode_count(&mut metric.encode_family(&[outcome])?, count)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_count(
    encoder: &mut prometheus_client::encoding::MetricEncoder<'_>,
    count: u64,
) -> Result<(), fmt::Error> {
    encoder.encode_counter::<prometheus_client::encoding::NoLabelSet, _, u64>(&count, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> AttemptsByDestination {
        AttemptsByDestination::new(MetricsConfig {
            destination_label: true,
            destination_top: 2,
        })
    }

    fn shown(attempts: &AttemptsByDestination) -> Vec<(String, u64)> {
        let table = attempts.table.lock();
        table
            .series()
            .iter()
            .map(|(l, c)| ((*l).to_owned(), c.by_category.iter().sum()))
            .collect()
    }

    fn many(attempts: &AttemptsByDestination, destination: &str, times: u32) {
        for _ in 0..times {
            attempts.count(DestinationKey(1), destination, Category::Success);
        }
    }

    fn named(series: &[(&str, u64)]) -> Vec<(String, u64)> {
        series
            .iter()
            .map(|(label, count)| ((*label).to_owned(), *count))
            .collect()
    }

    #[test]
    fn those_beyond_the_limit_are_other() {
        let attempts = small();
        many(&attempts, "a", 3);
        many(&attempts, "b", 1);
        many(&attempts, "c", 5);
        assert_eq!(shown(&attempts), named(&[("a", 3), ("b", 1), ("other", 5)]));
    }

    #[test]
    fn the_busiest_takes_the_place_of_the_quietest_and_the_sum_never_falls() {
        let attempts = small();
        attempts.rotate(Timestamp::from_millis(1_000_000));
        many(&attempts, "a", 3);
        many(&attempts, "b", 1);
        many(&attempts, "c", 5);
        many(&attempts, "d", 4);
        attempts.rotate(Timestamp::from_millis(1_059_999));
        assert_eq!(shown(&attempts).len(), 3, "not before a minute has passed");
        attempts.rotate(Timestamp::from_millis(1_060_000));
        // c (5) takes the place of b (1); d (4) is less than twice a (3), so a stays. 1 + 9 are other now.
        assert_eq!(shown(&attempts), named(&[("a", 3), ("c", 0), ("other", 10)]));
        many(&attempts, "c", 2);
        assert_eq!(shown(&attempts), named(&[("a", 3), ("c", 2), ("other", 10)]));
    }

    #[test]
    fn candidates_are_bounded() {
        let attempts = small();
        for n in 0..1_000 {
            attempts.count(DestinationKey(n), &format!("des_{n}"), Category::Timeout);
        }
        assert_eq!(attempts.table.lock().candidates.len(), 8);
    }

    #[test]
    fn every_category_has_its_place() {
        for (index, category) in Category::ALL.iter().enumerate() {
            assert_eq!(position(*category), index, "{category}");
        }
    }
}
