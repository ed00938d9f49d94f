//! Metrics in the terms of Prometheus, at `GET /metrics`.
//!
//! Counting is cheap enough for the hot path: handles are made once, nothing is formatted before a scrape, and the
//! number of series is bounded (see [`super::destination_label`]). What the store knows is read at the scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::alert::AlertKind;
use postrider_core::delivery::DeadReason;
use postrider_core::id::DestinationKey;
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use postrider_store::letter::RetentionKind;
use postrider_store::record::{Ended, Stats};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub use super::destination_label::MetricsConfig;
use super::destination_label::{AttemptsByDestination, AttemptsCollector};
use super::process::ProcessCollector;
use super::protection::ProtectionMetrics;

/// `Content-Type` of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Retry delays reach from tens of milliseconds to days.
const DELAY_BUCKETS: [f64; 14] = [
    0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0,
];
/// Time to success reaches from a millisecond on the same machine to the end of the retry window.
const SUCCESS_BUCKETS: [f64; 17] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0,
    86_400.0,
];

/// The same in milliseconds.
pub const SUCCESS_BOUNDS_MS: [u64; 17] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 300_000, 900_000, 3_600_000,
    14_400_000, 86_400_000,
];

type FloatGauge = Gauge<f64, AtomicU64>;
type ByLabel = [(&'static str, &'static str); 1];

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    attempts: Arc<AttemptsByDestination>,
    retry_delay: Histogram,
    time_to_success: Histogram,
    /// What the histogram holds, which does not let itself be read.
    success_counts: [AtomicU64; SUCCESS_BOUNDS_MS.len() + 1],
    alerts: Family<ByLabel, Gauge>,
    dead_by_destination: Family<[(&'static str, String); 1], Gauge>,
    dead_by_destination_shown: parking_lot::Mutex<BTreeSet<String>>,
    dead_by_destination_top: usize,
    final_status: Family<ByLabel, Counter>,
    publishes: Family<ByLabel, Counter>,
    restarts: Family<ByLabel, Counter>,
    forgotten: Family<ByLabel, Counter>,
    /// What protects receivers.
    pub protection: ProtectionMetrics,
    engine: EngineHandles,
    store: StoreHandles,
}

/// What the engine holds at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineGauges {
    /// Requests in flight.
    pub in_flight: usize,
    /// Deliveries held in memory, not in flight.
    pub queued: usize,
    /// Results that are not committed yet.
    pub unsettled: usize,
    /// Lanes in memory.
    pub lanes: usize,
}

/// What became of a publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Stored.
    Accepted,
    /// Its id was there already; nothing was added.
    Duplicate,
    /// Not stored: bad input, or the store did not take it.
    Refused,
}

#[derive(Debug, Default)]
struct EngineHandles {
    in_flight: Gauge,
    queued: Gauge,
    unsettled: Gauge,
    lanes: Gauge,
}

#[derive(Debug, Default)]
struct StoreHandles {
    pending: Gauge,
    dead: Gauge,
    queued: Gauge,
    oldest_due_age: FloatGauge,
    commits: Arc<CommitSums>,
    /// What the store said at the last scrape that it has ended.
    ended: parking_lot::Mutex<Ended>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(MetricsConfig::default())
    }
}

impl Metrics {
    /// All at zero.
    #[must_use]
    pub fn new(config: MetricsConfig) -> Self {
        let dead_by_destination_top = if config.destination_label {
            config.destination_top
        } else {
            0
        };
        let mut metrics = Self {
            registry: Registry::default(),
            success_counts: std::array::from_fn(|_| AtomicU64::new(0)),
            alerts: Family::default(),
            dead_by_destination: Family::default(),
            dead_by_destination_shown: parking_lot::Mutex::default(),
            dead_by_destination_top,
            attempts: Arc::new(AttemptsByDestination::new(config)),
            retry_delay: Histogram::new(DELAY_BUCKETS),
            time_to_success: Histogram::new(SUCCESS_BUCKETS),
            final_status: Family::default(),
            publishes: Family::default(),
            restarts: Family::default(),
            forgotten: Family::default(),
            protection: ProtectionMetrics::default(),
            engine: EngineHandles::default(),
            store: StoreHandles::default(),
        };
        // Series that exist from the start let a rate over them see the first increase.
        let ends = DeadReason::ALL.iter().map(|reason| reason.as_str());
        for status in ["succeeded", "canceled"].into_iter().chain(ends) {
            drop(metrics.final_status.get_or_create(&[("status", status)]));
        }
        for published in [Published::Accepted, Published::Duplicate, Published::Refused] {
            drop(metrics.publishes.get_or_create(&[("result", published.as_str())]));
        }
        for kind in RetentionKind::ALL {
            metrics.forgotten(kind, 0);
        }
        for kind in AlertKind::ALL {
            metrics.alerts_firing(*kind, 0);
        }
        metrics.protection.register(&mut metrics.registry);
        metrics.register_deliveries();
        metrics.register_gauges();
        metrics
    }

    fn register_deliveries(&mut self) {
        self.registry
            .register_collector(Box::new(AttemptsCollector(Arc::clone(&self.attempts))));
        self.add(
            "delivery_retry_delay_seconds",
            "Delay that the policy planned before a retry",
            self.retry_delay.clone(),
        );
        self.add(
            "delivery_final_status",
            "Deliveries that ended, by succeeded, canceled or the reason of the dead letter",
            self.final_status.clone(),
        );
        self.add(
            "delivery_time_to_success_seconds",
            "From publish to the 2xx of a delivery",
            self.time_to_success.clone(),
        );
        self.add(
            "publishes",
            "Events published, by what became of them",
            self.publishes.clone(),
        );
    }

    fn register_gauges(&mut self) {
        self.add(
            "worker_restarts",
            "Parts of the process that died and were started again",
            self.restarts.clone(),
        );
        self.add(
            "retention_removed",
            "Events, attempts and dead letters that retention removed because of their age",
            self.forgotten.clone(),
        );
        self.add(
            "oldest_due_age_seconds",
            "How long the longest overdue delivery has been due; 0 when none is",
            self.store.oldest_due_age.clone(),
        );
        self.add(
            "deliveries_pending",
            "Deliveries that are neither ended nor dead",
            self.store.pending.clone(),
        );
        self.add(
            "dead_letters",
            "Deliveries in the dead-letter queue",
            self.store.dead.clone(),
        );
        self.add(
            "destination_dead_letters",
            "Deliveries in the dead-letter queue, of the destinations that have most",
            self.dead_by_destination.clone(),
        );
        self.add(
            "alerts_firing",
            "Alerts of Postrider's own that fire, by kind",
            self.alerts.clone(),
        );
        self.add(
            "deliveries_in_flight",
            "Requests being made now",
            self.engine.in_flight.clone(),
        );
        self.add(
            "engine_queued",
            "Deliveries held in memory, not in flight",
            self.engine.queued.clone(),
        );
        self.add(
            "engine_unsettled",
            "Results of attempts not committed yet",
            self.engine.unsettled.clone(),
        );
        self.add(
            "engine_lanes",
            "Destinations with a lane in memory",
            self.engine.lanes.clone(),
        );
        self.add(
            "store_queue",
            "Operations waiting for the writer",
            self.store.queued.clone(),
        );
        self.registry
            .register_collector(Box::new(CommitCollector(Arc::clone(&self.store.commits))));
        self.registry.register_collector(Box::new(ProcessCollector));
    }

    fn add(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.registry.register(format!("postrider_{name}"), help, metric);
    }

    /// An attempt of a delivery to this destination (`tenant/destination`) ended.
    pub fn attempt_finished(&self, key: DestinationKey, label: &str, outcome: Category) {
        self.attempts.count(key, label, outcome);
    }

    /// The destinations that have a label of their own.
    #[must_use]
    pub fn labelled(&self) -> Vec<(String, DestinationKey)> {
        self.attempts.labels()
    }

    /// The policy planned another attempt after this delay.
    pub fn retry_planned(&self, delay: Duration) {
        self.retry_delay.observe(delay.as_secs_f64());
    }

    /// A delivery ended: `succeeded`, `canceled`, or the word of its [`postrider_core::delivery::DeadReason`].
    pub fn delivery_ended(&self, status: &'static str, since_publish: Duration) {
        self.final_status.get_or_create(&[("status", status)]).inc();
        if status == "succeeded" {
            self.time_to_success.observe(since_publish.as_secs_f64());
            let millis = u64::try_from(since_publish.as_millis()).unwrap_or(u64::MAX);
            let bucket = SUCCESS_BOUNDS_MS.partition_point(|bound| *bound < millis);
            self.success_counts[bucket].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many deliveries succeeded within each of [`SUCCESS_BOUNDS_MS`] and above the bound before, and beyond the last.
    #[must_use]
    pub fn times_to_success(&self) -> Vec<u64> {
        let counts = self.success_counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// So many alerts of this kind fire.
    pub fn alerts_firing(&self, kind: AlertKind, firing: usize) {
        self.alerts
            .get_or_create(&[("kind", kind.as_str())])
            .set(gauge(firing));
    }

    /// The destinations (`tenant/destination`) with most dead letters, and how many; the first of them get a series.
    pub fn dead_letters_by_destination(&self, worst: impl Iterator<Item = (String, u64)>) {
        let news: BTreeMap<_, _> = worst.take(self.dead_by_destination_top).collect();
        let mut shown = self.dead_by_destination_shown.lock();
        for gone in shown
            .iter()
            .filter(|destination| !news.contains_key(*destination))
        {
            self.dead_by_destination.remove(&[("destination", gone.clone())]);
        }
        for (destination, dead) in &news {
            self.dead_by_destination
                .get_or_create(&[("destination", destination.clone())])
                .set(gauge(*dead));
        }
        *shown = news.into_keys().collect();
    }

    /// So many publishes ended so.
    pub fn published(&self, published: Published, count: u64) {
        self.publishes
            .get_or_create(&[("result", published.as_str())])
            .inc_by(count);
    }

    /// A part of the process died and is started again.
    pub fn worker_restarted(&self, worker: &'static str) {
        self.restarts.get_or_create(&[("worker", worker)]).inc();
    }

    /// Retention removed so many because of their age.
    pub fn forgotten(&self, kind: RetentionKind, count: u64) {
        self.forgotten
            .get_or_create(&[("kind", kind.as_str())])
            .inc_by(count);
    }

    /// What the engine holds now.
    pub fn engine(&self, gauges: EngineGauges) {
        self.engine.in_flight.set(gauge(gauges.in_flight));
        self.engine.queued.set(gauge(gauges.queued));
        self.engine.unsettled.set(gauge(gauges.unsettled));
        self.engine.lanes.set(gauge(gauges.lanes));
    }

    /// Adds what the store has ended since the last scrape: nobody else counts these.
    fn count_ended(&self, ended: &Ended) {
        let mut counted = self.store.ended.lock();
        let add = |status, now: u64, before: u64| {
            self.final_status
                .get_or_create(&[("status", status)])
                .inc_by(now.saturating_sub(before));
        };
        add("canceled", ended.canceled, counted.canceled);
        for reason in DeadReason::ALL {
            add(reason.as_str(), ended.dead(*reason), counted.dead(*reason));
        }
        // A scrape that was overtaken by another brings older sums.
        counted.raise_to(ended);
    }

    /// The text for a scrape, with the store's counters of this moment.
    #[must_use]
    pub fn encode(&self, stats: &Stats, now: Timestamp) -> String {
        self.attempts.rotate(now);
        self.store.pending.set(gauge(stats.pending));
        self.store.dead.set(gauge(stats.dead));
        self.store.queued.set(gauge(stats.queued));
        let age = stats.oldest_due_at.map_or(Duration::ZERO, |due| now.since(due));
        self.store.oldest_due_age.set(age.as_secs_f64());
        self.store.commits.set(stats);
        self.count_ended(&stats.ended);
        let mut text = String::with_capacity(16 * 1024);
        if prometheus_text::encode(&mut text, &self.registry).is_err() {
            tracing::error!("failed to format the metrics");
            text.clear();
        }
        text
    }
}

impl Published {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Refused => "refused",
        }
    }
}

fn gauge(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// Sums over all commits. The store keeps sums, not a distribution, so each histogram has only its `+Inf` bucket:
/// `rate(.._sum) / rate(.._count)` gives the mean.
#[derive(Debug, Default)]
struct CommitSums(parking_lot::Mutex<(u64, u64, Duration)>);

impl CommitSums {
    fn set(&self, stats: &Stats) {
        *self.0.lock() = (stats.commits, stats.committed_operations, stats.commit_time);
    }
}

#[derive(Debug)]
struct CommitCollector(Arc<CommitSums>);

impl Collector for CommitCollector {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum of operations; 53 bits are exact for centuries"
    )]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (commits, operations, time) = *self.0.0.lock();
        let sums = [
            (
                "postrider_store_commit_seconds",
                "Duration of commits, the flush to disk included",
                time.as_secs_f64(),
            ),
            (
                "postrider_store_batch_size",
                "Operations that shared one commit",
                operations as f64,
            ),
        ];
        for (name, help, sum) in sums {
            encoder
                .encode_descriptor(name, help, None, MetricType::Histogram)?
                .encode_histogram::<NoLabelSet>(sum, commits, &[], None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
