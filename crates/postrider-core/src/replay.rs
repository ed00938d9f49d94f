//! A replay: many dead letters sent again on request, as a job that outlives restarts.

use crate::words::words;

/// The most that a replay may ask for: deliveries per second at each destination. More is not reached, because no more than
/// half a lane's worth is handed over before it has ended.
pub const MAX_RATE_PER_SECOND: u32 = 1_000;

words! {
    /// Where a replay stands.
    pub enum ReplayState {
        /// Its deliveries are made pending at its rate.
        Running = 0 => "running",
        /// Somebody stopped it for a while: no more are made pending, and those that are wait, unless another replay of the
        /// destination runs, or a canceled one has deliveries left.
        Paused = 1 => "paused",
        /// Somebody ended it before it was done.
        Canceled = 2 => "canceled",
        /// Every delivery of it has ended.
        Done = 3 => "done",
    }
}

words! {
    /// With which configuration of its destination a delivery is replayed.
    pub enum ReplayConfig {
        /// The one that the destination has when the request is made.
        Current = 0 => "current",
        /// The one that was in force when the delivery died. Credentials are the current ones.
        Original = 1 => "original",
    }
}

impl ReplayState {
    /// Whether it may still make deliveries pending.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}
