//! The trait: one method for each thing that the product does, each one transaction.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::dispatcher::Protection;
use postrider_core::id::{DestinationKey, EventKey, IdCodec, TenantKey};
use postrider_core::time::Timestamp;

use crate::alerts::Alerts;
use crate::dead_letters::DeadLetters;
use crate::error::StoreError;
use crate::feed::Feed;
use crate::page::Page;
use crate::record::{
    Accepted, Attempt, AttemptQuery, Backlog, Changed, Created, Delivery, DeliveryQuery, Destination,
    DuePage, DueQuery, Event, EventQuery, NamedPolicy, NewEvent, Payload, PolicyChange, PolicyDeleted,
    PolicyPut, Retried, Settlement, Stats, Tenant, TenantQuery, Upserted,
};

/// Postrider's memory. See the crate's page for the rules that all methods share.
#[async_trait]
pub trait Store: Alerts + DeadLetters {
    /// Turns the keys of this installation into public ids and back.
    fn ids(&self) -> &IdCodec;

    /// Where commits announce deliveries that are due.
    fn feed(&self) -> &Feed;

    // Tenants and destinations: rare, small.

    /// Creates the tenant or replaces its metadata (`None` clears them). An id that was deleted may come again.
    async fn upsert_tenant(
        &self,
        id: &str,
        metadata: Option<crate::record::Metadata>,
        now: Timestamp,
    ) -> Result<Upserted, StoreError>;
    /// One tenant by id.
    async fn tenant(&self, id: &str) -> Result<Option<Tenant>, StoreError>;
    /// A page of tenants in order of creation, and how many match in all. Cursor keys are tenant keys.
    async fn tenants(&self, query: TenantQuery) -> Result<(Page<Tenant>, u64), StoreError>;
    /// Deletes the tenant and its destinations; their pending deliveries become `canceled`. Answers the keys of the
    /// destinations that went, or `None` when there is no such tenant.
    async fn delete_tenant(
        &self,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<Vec<DestinationKey>>, StoreError>;
    /// Every tenant and destination that is not deleted, for the directory in memory at start.
    async fn directory(&self) -> Result<(Vec<Tenant>, Vec<Destination>), StoreError>;
    /// Creates a destination. `max_per_tenant` is checked in the same transaction.
    async fn create_destination(&self, new: Destination, max_per_tenant: u32) -> Result<Created, StoreError>;
    /// Replaces a destination's content if its revision is still the given one.
    async fn change_destination(&self, destination: Destination) -> Result<Changed, StoreError>;
    /// Deletes a destination; its pending deliveries become `canceled`. Answers whether it was there.
    async fn delete_destination(
        &self,
        tenant: TenantKey,
        key: DestinationKey,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    // Named retry policies: rare, small, few.

    /// Every named policy, in order of their names.
    async fn retry_policies(&self) -> Result<Vec<NamedPolicy>, StoreError>;
    /// Creates the policy, unless there are `max` of them, or replaces its text; the change is logged in the same transaction.
    async fn put_retry_policy(
        &self,
        name: &str,
        policy: &str,
        max: u32,
        now: Timestamp,
    ) -> Result<PolicyPut, StoreError>;
    /// Deletes the policy and logs that, unless a destination has its name, as a JSON string, for its `retry_policy`.
    async fn delete_retry_policy(&self, name: &str, now: Timestamp) -> Result<PolicyDeleted, StoreError>;
    /// The newest `limit` changes of a policy, newest first, also after it was deleted. The log keeps the last 10,000
    /// changes of all policies together.
    async fn retry_policy_changes(&self, name: &str, limit: usize) -> Result<Vec<PolicyChange>, StoreError>;

    // The way of an event: the hot path.

    /// Stores events with their deliveries; each answer is in the place of its event. Durable when it returns: the disk
    /// is flushed. An id that the tenant has used before (also within this batch) is a duplicate, and adds nothing.
    /// All or nothing: an error means that none was stored.
    async fn accept(&self, events: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Accepted>, StoreError>;
    /// Destinations that have pending deliveries.
    async fn destinations_with_pending(&self) -> Result<Vec<DestinationKey>, StoreError>;
    /// The earliest-due pending deliveries of a destination, except those named.
    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError>;
    /// What an event sends; `None` when it is gone.
    async fn payload(&self, event: EventKey) -> Result<Option<Arc<Payload>>, StoreError>;
    /// Records judged attempts and their deliveries' new states, all in one transaction. A delivery that is no longer
    /// pending (deleted meanwhile) keeps its state; its attempt is recorded all the same. A success is recorded even then.
    /// A verdict older than a [`retry`](Self::retry) by hand, which its delivery's `window_start` tells, does not undo that
    /// plan, unless it is a success: the delivery stays pending, with the attempt counted.
    async fn settle(&self, batch: Arc<Vec<Settlement>>, now: Timestamp) -> Result<(), StoreError>;
    /// Makes a delivery due now, whatever its status, with a fresh window, and tells the engine.
    async fn retry(
        &self,
        tenant: Option<&str>,
        event_id: &str,
        destination: DestinationKey,
        now: Timestamp,
    ) -> Result<Retried, StoreError>;

    // Protection of receivers: rare, small.

    /// Replaces what is kept about these destinations; `None` forgets it. A destination that is deleted is passed over.
    async fn keep_protection(
        &self,
        changes: Vec<(DestinationKey, Option<Protection>)>,
    ) -> Result<(), StoreError>;
    /// Everything that is kept about destinations that are not deleted.
    async fn protections(&self) -> Result<Vec<(DestinationKey, Protection)>, StoreError>;

    // Looking.

    /// How much waits for a destination, counted up to `at_most`.
    async fn backlog(&self, destination: DestinationKey, at_most: u32) -> Result<Backlog, StoreError>;

    /// A page of events.
    async fn events(&self, query: EventQuery) -> Result<Page<Event>, StoreError>;
    /// A page of deliveries.
    async fn deliveries(&self, query: DeliveryQuery) -> Result<Page<Delivery>, StoreError>;
    /// One delivery by id.
    async fn delivery(&self, id: &str) -> Result<Option<Delivery>, StoreError>;
    /// A page of attempts.
    async fn attempts(&self, query: AttemptQuery) -> Result<Page<Attempt>, StoreError>;
    /// One attempt by id.
    async fn attempt(&self, id: &str) -> Result<Option<Attempt>, StoreError>;
    /// Counters, cheap enough for every scrape.
    async fn stats(&self, now: Timestamp) -> Result<Stats, StoreError>;
    /// Whether a write can be committed now.
    async fn ping(&self) -> Result<(), StoreError>;
    /// Waits until a part of the store that works by itself has died, and answers why; at once while it is dead. Until
    /// [`Store::revive`] everything that needs it is refused as [`StoreError::Unavailable`]. Cancel-safe.
    async fn death(&self) -> String;
    /// Starts again what died, if anything did, and answers whether it works; if it does not, [`Store::death`] says why. Whoever
    /// calls this decides how often it is tried. Cancel-safe.
    async fn revive(&self) -> bool;
    /// Commits what is queued, then refuses further work. Returns when everything is on disk.
    async fn close(&self);
}
