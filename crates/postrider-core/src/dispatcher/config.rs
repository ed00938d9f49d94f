//! Bounds of the dispatcher, and what all destinations have in common.

use crate::breaker::BreakerConfig;
use crate::streak::StreakConfig;
use crate::window::WindowConfig;

/// Bounds of the dispatcher.
#[derive(Debug, Clone)]
pub struct DispatcherConfig {
    /// Requests out at a time, over all destinations. At least 1.
    pub max_in_flight: usize,
    /// Results not yet committed at a time. With `max_in_flight`, what a crash can repeat.
    pub max_unsettled: usize,
    /// Deliveries that wait in memory, over all lanes.
    pub max_queued: usize,
    /// Deliveries that wait in one lane.
    pub max_lane: usize,
    /// Payload bytes that wait in memory; beyond, deliveries wait without theirs.
    pub max_payload_bytes: usize,
    /// Reads of the store at a time.
    pub max_refills: usize,
    /// Concurrency of a destination.
    pub window: WindowConfig,
    /// Circuit breaker of a destination.
    pub breaker: BreakerConfig,
    /// Who is told of failures in a row, and when a destination is given up.
    pub streak: StreakConfig,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            max_in_flight: 1_024,
            max_unsettled: 4_096,
            max_queued: 200_000,
            max_lane: 1_024,
            max_payload_bytes: 64 << 20,
            max_refills: 4,
            window: WindowConfig::default(),
            breaker: BreakerConfig::default(),
            streak: StreakConfig::default(),
        }
    }
}
