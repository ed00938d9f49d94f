//! What can go wrong between the program and its memory.

use std::error::Error;

/// Why a store method did nothing. Whatever the variant, no part of the method has happened, unless `Unknown`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The writer's queue is full, or all connections for reading are in use: more work arrives than the disk takes. Try again
    /// in a moment.
    #[error("queue the work: the store is at its limit")]
    Busy,
    /// The disk is full or a quota is reached.
    #[error("write: the disk is full")]
    Full,
    /// The database cannot be reached now, or cannot be written.
    #[error("reach the database")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke during the commit: the work may or may not have happened. Repeat it by its id.
    #[error("learn whether the commit happened")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
    /// A read took longer than its bound and was stopped.
    #[error("finish the read within its time limit; narrow the filter")]
    TooSlow,
    /// The database holds something that this program cannot read.
    #[error("read the database: {0}")]
    Corrupt(String),
    /// The store is shutting down.
    #[error("use the store: it is closed")]
    Closed,
}

impl StoreError {
    /// Whether the same call may succeed later without anybody changing it.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Full | Self::Unavailable(_) | Self::Unknown(_)
        )
    }
}
