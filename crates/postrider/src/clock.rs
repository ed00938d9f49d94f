//! The one place that reads the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use postrider_core::time::Timestamp;

/// Where the present time comes from: the system in production, paused runtime time in the simulation.
pub trait Clock: Send + Sync + 'static {
    /// Now, UTC, milliseconds.
    fn now(&self) -> Timestamp;
}

/// The system's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    fn now(&self) -> Timestamp {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }
}
