//! Metrics in the terms of Prometheus.
use std::time::Duration;

use postrider_core::outcome::Category;
use postrider_store::record::Stats;

/// All metrics of the process.
#[derive(Debug, Default)]
pub struct Metrics {}

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

impl Metrics {
    /// An attempt of a delivery to this destination (public id) ended.
    pub fn attempt_finished(&self, _destination_id: &str, _outcome: Category) {}
    /// The policy planned another attempt after this delay.
    pub fn retry_planned(&self, _delay: Duration) {}
    /// A delivery ended: `succeeded`, `canceled`, or the word of its [`postrider_core::delivery::DeadReason`].
    pub fn delivery_ended(&self, _status: &'static str, _since_publish: Duration) {}
    /// What the engine holds now.
    pub fn engine(&self, _gauges: EngineGauges) {}
    /// The text for a scrape, with the store's counters of this moment.
    #[must_use]
    pub fn encode(&self, _stats: &Stats, _now: postrider_core::time::Timestamp) -> String {
        String::new()
    }
}
