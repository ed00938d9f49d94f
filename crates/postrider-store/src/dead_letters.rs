//! The part of the trait that is about dead letters.

use async_trait::async_trait;
use postrider_core::id::ContextKey;
use postrider_core::replay::ReplayState;
use postrider_core::time::Timestamp;

use crate::error::StoreError;
use crate::letter::{
    DeadContext, DeadLetter, DeadLetterDetail, DeadLetterFilter, DeadLetterGroup, DeadLetterQuery, Expired,
    Imported, ImportedLetter, Purged, RetentionKind, Withdrawn,
};
use crate::page::Page;
use crate::replay::{
    Replay, ReplayChanged, ReplayCreated, ReplayDetail, ReplayPreview, ReplayQuery, ReplayScope, ReplaySpec,
    ReplayStep, ReplayStepped,
};

/// What the product does with deliveries that ended undelivered.
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// A page of dead letters.
    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter>, StoreError>;
    /// How many there are with a serial up to `upper` ([`i64::MAX`] for all). Without another filter than tenants and
    /// destinations it reads an index only, however many there are; with one it looks at each, and may be
    /// [`StoreError::TooSlow`].
    async fn count_dead_letters(&self, filter: DeadLetterFilter, upper: i64) -> Result<u64, StoreError>;
    /// The highest serial of all dead letters, 0 when there are none: what dies later has a higher one. At once, however
    /// many there are.
    async fn last_dead_letter(&self) -> Result<i64, StoreError>;
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
    /// Removes dead letters that a filter admits, with their deliveries and attempts: at most `limit` of those with a serial
    /// after `after` and up to `upper` (see [`Self::last_dead_letter`]). Repeated from [`Purged::next`], it removes what
    /// there was when it began. Their events stay until retention takes them.
    async fn purge_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: i64,
        upper: i64,
        limit: u32,
    ) -> Result<Purged, StoreError>;
    /// Makes a pending delivery a dead letter with the reason `manual`. A request that is out is recorded when it comes back; if
    /// it succeeded, the delivery has.
    async fn dead_letter_delivery(
        &self,
        id: &str,
        context: Option<DeadContext>,
        now: Timestamp,
    ) -> Result<Withdrawn, StoreError>;
    /// Cancels a pending delivery, otherwise the same.
    async fn cancel_delivery(&self, id: &str, now: Timestamp) -> Result<Withdrawn, StoreError>;

    // Replays.

    /// What a replay of this scope would hold.
    async fn preview_replay(&self, scope: ReplayScope) -> Result<ReplayPreview, StoreError>;
    /// Creates a replay of what its scope holds now. At most 100 are running or paused; the newest 1,000 that have ended are
    /// kept.
    async fn create_replay(&self, spec: ReplaySpec, now: Timestamp) -> Result<ReplayCreated, StoreError>;
    /// A page of replays, without those that cannot be read.
    async fn replays(&self, query: ReplayQuery) -> Result<Page<Replay>, StoreError>;
    /// One replay with its destinations.
    async fn replay(&self, id: &str) -> Result<Option<ReplayDetail>, StoreError>;
    /// Pauses, resumes or cancels a replay.
    async fn change_replay(
        &self,
        id: &str,
        state: ReplayState,
        now: Timestamp,
    ) -> Result<ReplayChanged, StoreError>;
    /// Makes the next deliveries of a replay pending for one destination, due now, with a fresh window, and tells the engine.
    /// A delivery that is in a replay is pending, so it is never in two. `None` when the replay has no such part.
    async fn replay_step(
        &self,
        step: ReplayStep,
        now: Timestamp,
    ) -> Result<Option<ReplayStepped>, StoreError>;

    // Retention and archives.

    /// One small step of removing what was accepted (events), settled (attempts) or died (dead letters) before a time: at most
    /// about `limit` rows. What a pending delivery or a dead letter needs stays as long as that. Room in the file is used again.
    async fn expire(&self, kind: RetentionKind, before: Timestamp, limit: u32)
    -> Result<Expired, StoreError>;
    /// Takes dead letters back from an archive; each answer is in the place of its letter. Importing again adds nothing. They
    /// count as dead since `now`, so that retention does not take them at once.
    async fn import_dead_letters(
        &self,
        letters: Vec<ImportedLetter>,
        now: Timestamp,
    ) -> Result<Vec<Imported>, StoreError>;
}
