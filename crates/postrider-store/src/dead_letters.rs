//! The part of the trait that is about dead letters.

use async_trait::async_trait;
use postrider_core::id::ContextKey;
use postrider_core::time::Timestamp;

use crate::error::StoreError;
use crate::letter::{
    DeadContext, DeadLetter, DeadLetterCount, DeadLetterDetail, DeadLetterFilter, DeadLetterGroup,
    DeadLetterQuery,
};
use crate::page::Page;

/// What the product does with deliveries that ended undelivered.
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// A page of dead letters.
    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter>, StoreError>;
    /// How many there are, and up to which serial.
    async fn count_dead_letters(&self, filter: DeadLetterFilter) -> Result<DeadLetterCount, StoreError>;
    /// Counts by destination, category and code; the largest first. `now` is the end of the last hour.
    async fn dead_letter_summary(
        &self,
        filter: DeadLetterFilter,
        now: Timestamp,
    ) -> Result<Vec<DeadLetterGroup>, StoreError>;
    /// One dead letter by the id of its delivery; `None` when that is not dead.
    async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetterDetail>, StoreError>;
    /// What was in force when a delivery died; `None` when it is no longer kept.
    async fn dead_context(&self, key: ContextKey) -> Result<Option<DeadContext>, StoreError>;
}
