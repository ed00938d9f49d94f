//! A store that holds paused time while it works.
//!
//! Paused time jumps ahead when the runtime is idle, and a store's writer thread looks idle to it. The runtime waits for
//! `spawn_blocking` tasks, though, so every call is made from one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postrider_core::dispatcher::Protection;
use postrider_core::id::{AlertKey, ContextKey, DestinationKey, EventKey, IdCodec, TenantKey};
use postrider_core::replay::ReplayState;
use postrider_core::time::Timestamp;
use postrider_store::alerts::{Alert, AlertQuery, Alerts, DeadLetterLevel};
use postrider_store::feed::Feed;
use postrider_store::letter::{
    DeadContext, DeadLetter, DeadLetterDetail, DeadLetterFilter, DeadLetterGroup, DeadLetterQuery, Expired,
    Imported, ImportedLetter, Purged, RetentionKind, Withdrawn,
};
use postrider_store::page::Page;
use postrider_store::record::{
    Accepted, Attempt, AttemptQuery, Backlog, Changed, Created, Delivery, DeliveryQuery, Destination,
    DuePage, DueQuery, Event, EventQuery, Metadata, NamedPolicy, NewEvent, Payload, PolicyChange,
    PolicyDeleted, PolicyPut, Retried, Settlement, Stats, Tenant, TenantQuery, Upserted,
};
use postrider_store::replay::{
    Replay, ReplayChanged, ReplayCreated, ReplayDetail, ReplayPreview, ReplayQuery, ReplayScope, ReplaySpec,
    ReplayStep, ReplayStepped,
};
use postrider_store::{DeadLetters, Store, StoreError};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// Also a store that can be told to fail.
pub(super) struct Held {
    store: Arc<dyn Store>,
    /// Destinations whose results can never be recorded.
    pub(super) poisoned: Mutex<HashSet<DestinationKey>>,
    /// Whether nothing at all can be settled now, and no alert kept.
    pub(super) is_full: AtomicBool,
    /// A destination of which there is news whenever the feed is looked at.
    pub(super) noisy: Mutex<Option<DestinationKey>>,
    /// Whether the answer to a change of a destination comes a second after its commit.
    pub(super) changes_slowly: AtomicBool,
    /// Whether the next settling panics.
    pub(super) dies_once: AtomicBool,
    /// Whether the store says that its writer is dead, and cannot start it again.
    pub(super) writer_is_dead: AtomicBool,
    /// Whether the next write of protection panics.
    pub(super) keeper_dies_once: AtomicBool,
    /// States of protection that were written or forgotten.
    pub(super) protections_written: AtomicUsize,
    /// Whether no earlier configuration can be read.
    corrupts_contexts: AtomicBool,
    /// Unless 0: one less than this of the next reads of dead letters, pages and single ones, are refused as busy, then every
    /// other one.
    pub(super) busy_letters: AtomicUsize,
    /// So many of the next lists of replays are refused as busy.
    pub(super) busy_replays: AtomicUsize,
    /// Replays that cannot be read, but are listed; and how often that was tried.
    pub(super) unreadable_replays: Mutex<HashMap<String, usize>>,
}

impl Held {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            poisoned: Mutex::default(),
            is_full: AtomicBool::new(false),
            noisy: Mutex::default(),
            changes_slowly: AtomicBool::new(false),
            dies_once: AtomicBool::new(false),
            writer_is_dead: AtomicBool::new(false),
            keeper_dies_once: AtomicBool::new(false),
            protections_written: AtomicUsize::new(0),
            corrupts_contexts: AtomicBool::new(false),
            busy_letters: AtomicUsize::new(0),
            busy_replays: AtomicUsize::new(0),
            unreadable_replays: Mutex::default(),
        }
    }

    /// Refuses this read, or lets it through and refuses the next.
    fn is_busy(&self) -> bool {
        let left = self.busy_letters.load(Ordering::SeqCst);
        if left == 0 {
            return false;
        }
        let refuses = left > 1;
        self.busy_letters
            .store(if refuses { left - 1 } else { 2 }, Ordering::SeqCst);
        refuses
    }

    /// From now on no earlier configuration can be read.
    pub(super) fn corrupt_contexts(&self) {
        self.corrupts_contexts.store(true, Ordering::Relaxed);
    }
}

/// Awaits `$call` on the inner store from a blocking thread.
macro_rules! hold {
    ($self:ident, $store:ident => $call:expr) => {{
        let $store = Arc::clone(&$self.store);
        let handle = Handle::current();
        spawn_blocking(move || handle.block_on(async move { $call.await }))
            .await
            .unwrap()
    }};
}

#[async_trait]
impl DeadLetters for Held {
    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter>, StoreError> {
        if self.is_busy() {
            return Err(StoreError::Busy);
        }
        hold!(self, store => store.dead_letters(query))
    }

    async fn count_dead_letters(&self, filter: DeadLetterFilter, upper: i64) -> Result<u64, StoreError> {
        hold!(self, store => store.count_dead_letters(filter, upper))
    }

    async fn last_dead_letter(&self) -> Result<i64, StoreError> {
        hold!(self, store => store.last_dead_letter())
    }

    async fn dead_letter_summary(
        &self,
        filter: DeadLetterFilter,
        now: Timestamp,
    ) -> Result<Vec<DeadLetterGroup>, StoreError> {
        hold!(self, store => store.dead_letter_summary(filter, now))
    }

    async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetterDetail>, StoreError> {
        if self.is_busy() {
            return Err(StoreError::Busy);
        }
        let id = id.to_owned();
        hold!(self, store => store.dead_letter(&id))
    }

    async fn dead_context(&self, key: ContextKey) -> Result<Option<DeadContext>, StoreError> {
        if self.corrupts_contexts.load(Ordering::Relaxed) {
            return Err(StoreError::Corrupt("sealed with another key".to_owned()));
        }
        hold!(self, store => store.dead_context(key))
    }

    async fn purge_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: i64,
        upper: i64,
        limit: u32,
    ) -> Result<Purged, StoreError> {
        hold!(self, store => store.purge_dead_letters(filter, after, upper, limit))
    }

    async fn dead_letter_delivery(
        &self,
        id: &str,
        context: Option<DeadContext>,
        now: Timestamp,
    ) -> Result<Withdrawn, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.dead_letter_delivery(&id, context, now))
    }

    async fn cancel_delivery(&self, id: &str, now: Timestamp) -> Result<Withdrawn, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.cancel_delivery(&id, now))
    }

    async fn preview_replay(&self, scope: ReplayScope) -> Result<ReplayPreview, StoreError> {
        hold!(self, store => store.preview_replay(scope))
    }

    async fn create_replay(&self, spec: ReplaySpec, now: Timestamp) -> Result<ReplayCreated, StoreError> {
        hold!(self, store => store.create_replay(spec, now))
    }

    async fn replays(&self, query: ReplayQuery) -> Result<Page<Replay>, StoreError> {
        let take_one = |left: usize| left.checked_sub(1);
        let taken = self
            .busy_replays
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one);
        if taken.is_ok() {
            return Err(StoreError::Busy);
        }
        hold!(self, store => store.replays(query))
    }

    async fn replay(&self, id: &str) -> Result<Option<ReplayDetail>, StoreError> {
        if let Some(reads) = self.unreadable_replays.lock().get_mut(id) {
            *reads += 1;
            return Err(StoreError::Corrupt("a scripted fault".to_owned()));
        }
        let id = id.to_owned();
        hold!(self, store => store.replay(&id))
    }

    async fn change_replay(
        &self,
        id: &str,
        state: ReplayState,
        now: Timestamp,
    ) -> Result<ReplayChanged, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.change_replay(&id, state, now))
    }

    async fn replay_step(
        &self,
        step: ReplayStep,
        now: Timestamp,
    ) -> Result<Option<ReplayStepped>, StoreError> {
        hold!(self, store => store.replay_step(step, now))
    }

    async fn expire(
        &self,
        kind: RetentionKind,
        before: Timestamp,
        limit: u32,
    ) -> Result<Expired, StoreError> {
        hold!(self, store => store.expire(kind, before, limit))
    }

    async fn import_dead_letters(
        &self,
        letters: Vec<ImportedLetter>,
        now: Timestamp,
    ) -> Result<Vec<Imported>, StoreError> {
        hold!(self, store => store.import_dead_letters(letters, now))
    }
}

#[async_trait]
impl Store for Held {
    fn ids(&self) -> &IdCodec {
        self.store.ids()
    }

    fn feed(&self) -> &Feed {
        if let Some(noisy) = *self.noisy.lock() {
            self.store.feed().spilled(noisy);
        }
        self.store.feed()
    }

    async fn upsert_tenant(
        &self,
        id: &str,
        metadata: Option<Metadata>,
        now: Timestamp,
    ) -> Result<Upserted, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.upsert_tenant(&id, metadata, now))
    }

    async fn tenant(&self, id: &str) -> Result<Option<Tenant>, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.tenant(&id))
    }

    async fn tenants(&self, query: TenantQuery) -> Result<(Page<Tenant>, u64), StoreError> {
        hold!(self, store => store.tenants(query))
    }

    async fn delete_tenant(
        &self,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<Vec<DestinationKey>>, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.delete_tenant(&id, now))
    }

    async fn directory(&self) -> Result<(Vec<Tenant>, Vec<Destination>), StoreError> {
        hold!(self, store => store.directory())
    }

    async fn create_destination(&self, new: Destination, max_per_tenant: u32) -> Result<Created, StoreError> {
        hold!(self, store => store.create_destination(new, max_per_tenant))
    }

    async fn change_destination(&self, destination: Destination) -> Result<Changed, StoreError> {
        let changed = hold!(self, store => store.change_destination(destination));
        if self.changes_slowly.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        changed
    }

    async fn delete_destination(
        &self,
        tenant: TenantKey,
        key: DestinationKey,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        hold!(self, store => store.delete_destination(tenant, key, now))
    }

    async fn retry_policies(&self) -> Result<Vec<NamedPolicy>, StoreError> {
        hold!(self, store => store.retry_policies())
    }

    async fn put_retry_policy(
        &self,
        name: &str,
        policy: &str,
        max: u32,
        now: Timestamp,
    ) -> Result<PolicyPut, StoreError> {
        let (name, policy) = (name.to_owned(), policy.to_owned());
        hold!(self, store => store.put_retry_policy(&name, &policy, max, now))
    }

    async fn delete_retry_policy(&self, name: &str, now: Timestamp) -> Result<PolicyDeleted, StoreError> {
        let name = name.to_owned();
        hold!(self, store => store.delete_retry_policy(&name, now))
    }

    async fn retry_policy_changes(&self, name: &str, limit: usize) -> Result<Vec<PolicyChange>, StoreError> {
        let name = name.to_owned();
        hold!(self, store => store.retry_policy_changes(&name, limit))
    }

    async fn accept(&self, events: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Accepted>, StoreError> {
        hold!(self, store => store.accept(events, now))
    }

    async fn destinations_with_pending(&self) -> Result<Vec<DestinationKey>, StoreError> {
        hold!(self, store => store.destinations_with_pending())
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        hold!(self, store => store.due(query))
    }

    async fn payload(&self, event: EventKey) -> Result<Option<Arc<Payload>>, StoreError> {
        hold!(self, store => store.payload(event))
    }

    async fn settle(&self, batch: Arc<Vec<Settlement>>, now: Timestamp) -> Result<(), StoreError> {
        assert!(!self.dies_once.swap(false, Ordering::SeqCst), "a scripted death");
        if self.is_full.load(Ordering::SeqCst) {
            return Err(StoreError::Full);
        }
        let is_poisoned = |settlement: &Settlement| {
            let destination = settlement.delivery.destination;
            self.poisoned.lock().contains(&destination)
        };
        if batch.iter().any(is_poisoned) {
            return Err(StoreError::Corrupt("a scripted fault".to_owned()));
        }
        hold!(self, store => store.settle(batch, now))
    }

    async fn retry(
        &self,
        tenant: Option<&str>,
        event_id: &str,
        destination: DestinationKey,
        now: Timestamp,
    ) -> Result<Retried, StoreError> {
        let (tenant, event_id) = (tenant.map(ToOwned::to_owned), event_id.to_owned());
        hold!(self, store => store.retry(tenant.as_deref(), &event_id, destination, now))
    }

    async fn keep_protection(
        &self,
        changes: Vec<(DestinationKey, Option<Protection>)>,
    ) -> Result<(), StoreError> {
        let dies = self.keeper_dies_once.swap(false, Ordering::SeqCst);
        assert!(!dies, "a scripted death of the keeper");
        self.protections_written
            .fetch_add(changes.len(), Ordering::SeqCst);
        hold!(self, store => store.keep_protection(changes))
    }

    async fn protections(&self) -> Result<Vec<(DestinationKey, Protection)>, StoreError> {
        hold!(self, store => store.protections())
    }

    async fn backlog(&self, destination: DestinationKey, at_most: u32) -> Result<Backlog, StoreError> {
        hold!(self, store => store.backlog(destination, at_most))
    }

    async fn events(&self, query: EventQuery) -> Result<Page<Event>, StoreError> {
        hold!(self, store => store.events(query))
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Page<Delivery>, StoreError> {
        hold!(self, store => store.deliveries(query))
    }

    async fn delivery(&self, id: &str) -> Result<Option<Delivery>, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.delivery(&id))
    }

    async fn attempts(&self, query: AttemptQuery) -> Result<Page<Attempt>, StoreError> {
        hold!(self, store => store.attempts(query))
    }

    async fn attempt(&self, id: &str) -> Result<Option<Attempt>, StoreError> {
        let id = id.to_owned();
        hold!(self, store => store.attempt(&id))
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats, StoreError> {
        hold!(self, store => store.stats(now))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        hold!(self, store => store.ping())
    }

    async fn death(&self) -> String {
        if self.writer_is_dead.load(Ordering::SeqCst) {
            return "a scripted death of the writer".to_owned();
        }
        self.store.death().await
    }

    async fn revive(&self) -> bool {
        let is_dead = self.writer_is_dead.load(Ordering::SeqCst);
        !is_dead && hold!(self, store => store.revive())
    }

    async fn close(&self) {
        hold!(self, store => store.close());
    }
}

#[async_trait]
impl Alerts for Held {
    async fn keep_alerts(&self, batch: Vec<Alert>, now: Timestamp) -> Result<Vec<AlertKey>, StoreError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(StoreError::Full);
        }
        hold!(self, store => store.keep_alerts(batch, now))
    }

    async fn note_published(&self, versions: Vec<(AlertKey, u32)>) -> Result<(), StoreError> {
        hold!(self, store => store.note_published(versions))
    }

    async fn alerts(&self, query: AlertQuery) -> Result<Page<Alert>, StoreError> {
        hold!(self, store => store.alerts(query))
    }

    async fn open_alerts(&self) -> Result<Vec<Alert>, StoreError> {
        hold!(self, store => store.open_alerts())
    }

    async fn dead_letter_levels(&self, since: Timestamp) -> Result<Vec<DeadLetterLevel>, StoreError> {
        hold!(self, store => store.dead_letter_levels(since))
    }
}
