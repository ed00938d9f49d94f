//! Who subscribes to what, in memory.
//!
//! Compiled once from the store's records at start and after each change, so that neither publish nor send reads the
//! store. See [`target::Target`] for what the courier needs.

pub mod target;

use std::sync::Arc;

use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;

use self::target::Target;

/// All destinations, compiled.
#[derive(Debug, Default)]
pub struct Directory {}

impl Directory {
    /// A destination that exists, disabled ones included; `None` once it is deleted.
    #[must_use]
    pub fn target(&self, _key: DestinationKey) -> Option<Arc<Target>> {
        None
    }

    /// Disables a destination on the system's behalf, with the reason in words. Does nothing if it is disabled or gone.
    pub async fn disable(&self, _key: DestinationKey, _reason: String, _now: Timestamp) {}
}
