//! Adaptive concurrency.
use std::time::Duration;

use crate::outcome::Outcome;

/// Bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowConfig {
    /// Least, at least 1.
    pub floor: u32,
    /// Most.
    pub ceiling: u32,
    /// At first.
    pub initial: u32,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            floor: 1,
            ceiling: 64,
            initial: 4,
        }
    }
}

/// One destination's window.
#[derive(Debug, Clone)]
pub struct Window {
    size: u32,
}

impl Window {
    /// At its initial size.
    #[must_use]
    pub fn new(config: &WindowConfig) -> Self {
        Self { size: config.initial }
    }
    /// Requests that may be in flight.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }
    /// Back to the floor, in slow start: after a breaker closed or a hold ended.
    pub fn restart(&mut self, config: &WindowConfig) {
        self.size = config.floor;
    }
    /// One request came back. `in_flight` counts it.
    pub fn finished(
        &mut self,
        _outcome: &Outcome,
        _latency: Duration,
        _in_flight: u32,
        _config: &WindowConfig,
    ) {
    }
}
