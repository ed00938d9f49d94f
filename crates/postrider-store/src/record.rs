//! What the store keeps and answers. Plain values; the meaning of their texts is checked where they come in.

mod stats;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::delivery::{DeadReason, DeliveryStatus, PendingDelivery, Plan, Progress, WaitCause};
use postrider_core::id::{AttemptKey, DeliveryKey, DestinationKey, EventKey, TenantKey};
use postrider_core::outcome::{Category, ErrorKind};
use postrider_core::secret::Secret;
use postrider_core::time::Timestamp;

pub use self::stats::{Ended, Stats};
use crate::letter::DeadContext;
use crate::page::{PageRequest, TimeRange};

/// Text to text, in the order of its keys.
pub type Metadata = BTreeMap<String, String>;

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its key.
    pub key: TenantKey,
    /// The id that the application chose.
    pub id: String,
    /// What the application says about it.
    pub metadata: Option<Metadata>,
    /// When it was first put.
    pub created_at: Timestamp,
    /// When it was last put.
    pub updated_at: Timestamp,
}

/// What became of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upserted {
    /// It is new.
    Created(Tenant),
    /// It was there.
    Updated(Tenant),
}

/// Which tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantQuery {
    /// Only these ids; empty means all.
    pub ids: Vec<String>,
    /// The page.
    pub page: PageRequest,
}

/// The secrets of a destination, sealed at rest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Credentials {
    /// Text by name: `secret`, `previous_secret`, `previous_secret_invalid_at`, ...
    pub fields: BTreeMap<String, Secret>,
}

/// Why, and since when, a destination gets nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disabled {
    /// Since when.
    pub at: Timestamp,
    /// In words for its owner, for example `disabled by request` or `410 Gone`.
    pub reason: String,
}

/// Keys of a destination's `config` that may hold secrets: sealed at rest, and `Debug` shows `***`.
pub const SECRET_CONFIG: [&str; 1] = ["custom_headers"];

/// A destination as it is kept. The program compiles it into what the courier needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Destination {
    /// Its key; zero in one that is yet to be created.
    pub key: DestinationKey,
    /// Owner.
    pub tenant: TenantKey,
    /// The id that the application chose or was given, unique within the tenant.
    pub id: String,
    /// `webhook`.
    pub kind: String,
    /// Topics subscribed to; `["*"]` for all.
    pub topics: Vec<String>,
    /// Filter as JSON text.
    pub filter: Option<String>,
    /// `url`, `custom_headers`, ...
    pub config: Metadata,
    /// Secrets.
    pub credentials: Credentials,
    /// Sent with each request as headers.
    pub delivery_metadata: Option<Metadata>,
    /// For the application only.
    pub metadata: Option<Metadata>,
    /// Retry policy as JSON text: a name or an object; the global one when absent.
    pub retry_policy: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Set while it gets nothing.
    pub disabled: Option<Disabled>,
    /// Grows with each change; an update names the one it read.
    pub revision: i64,
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config: BTreeMap<&str, &str> = self
            .config
            .iter()
            .map(|(name, text)| {
                let is_secret = SECRET_CONFIG.contains(&name.as_str());
                (name.as_str(), if is_secret { "***" } else { text.as_str() })
            })
            .collect();
        f.debug_struct("Destination")
            .field("key", &self.key)
            .field("tenant", &self.tenant)
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("topics", &self.topics)
            .field("filter", &self.filter)
            .field("config", &config)
            .field("credentials", &self.credentials)
            .field("delivery_metadata", &self.delivery_metadata)
            .field("metadata", &self.metadata)
            .field("retry_policy", &self.retry_policy)
            .field("created_at", &self.created_at)
            .field("updated_at", &self.updated_at)
            .field("disabled", &self.disabled)
            .field("revision", &self.revision)
            .finish()
    }
}

/// What became of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "rare and short-lived; a box would be in every caller's way"
)]
pub enum Created {
    /// Done; with its key, and revision 1.
    Created(Destination),
    /// The tenant has one with this id.
    Exists,
    /// The tenant has as many as it may.
    LimitReached,
    /// The tenant is not there (any more).
    TenantMissing,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "rare and short-lived; a box would be in every caller's way"
)]
pub enum Changed {
    /// Done; with its new revision.
    Changed(Destination),
    /// Somebody changed it since it was read: read again and repeat.
    Conflict,
    /// It is not there (any more).
    Missing,
}

/// A retry policy that destinations refer to by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPolicy {
    /// Its name, which is also its key.
    pub name: String,
    /// The policy as JSON text.
    pub policy: String,
    /// When it was first put.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// 1 at first; grows with each change.
    pub revision: i64,
}

/// What became of putting a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyPut {
    /// It is new.
    Created(NamedPolicy),
    /// It was there. The same text again changes nothing.
    Updated(NamedPolicy),
    /// There are as many as there may be.
    LimitReached,
}

/// What became of deleting a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDeleted {
    /// It is gone.
    Deleted,
    /// There is none of this name.
    Missing,
    /// So many destinations refer to it; nothing was changed.
    InUse(u64),
}

/// An entry of the log of changes of named policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChange {
    /// When.
    pub at: Timestamp,
    /// Which policy.
    pub name: String,
    /// Its JSON text before; `None` when it was created.
    pub old: Option<String>,
    /// Its JSON text after; `None` when it was deleted.
    pub new: Option<String>,
}

/// An event to accept, already matched against destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The tenant's id; may be one that does not exist (stored without deliveries).
    pub tenant_id: String,
    /// The publisher's idempotency key; a time-ordered id is issued when absent.
    pub id: Option<String>,
    /// Its topic, possibly empty.
    pub topic: String,
    /// When it happened, if the publisher says so.
    pub time: Option<Timestamp>,
    /// Sent along as headers.
    pub metadata: Metadata,
    /// The bytes that will be sent.
    pub data: Bytes,
    /// Whether failures are retried.
    pub retryable: bool,
    /// Where it goes, without repeats. Disabled ones among them become dead letters at once.
    pub destinations: Vec<NewDelivery>,
}

/// A delivery of a new event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    /// Where it goes.
    pub destination: DestinationKey,
    /// Set when it is a dead letter from the beginning (destination disabled).
    pub dead: Option<DeadReason>,
    /// What is in force, for a dead letter.
    pub context: Option<DeadContext>,
    /// It is canceled from the beginning (destination disabled, and its owner wants nothing kept).
    pub discarded: bool,
}

/// What became of a publish. In both cases the event is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its id.
    pub id: String,
    /// True when the tenant had published this id before: then nothing was added.
    pub duplicate: bool,
    /// Public ids of the destinations that it goes to (the first publish's, for a duplicate).
    pub destination_ids: Vec<String>,
}

/// What a delivery sends: shared by all deliveries of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Public id of the event.
    pub event_id: String,
    /// Its topic.
    pub topic: String,
    /// When it happened.
    pub time: Timestamp,
    /// Sent along as headers.
    pub metadata: Metadata,
    /// The bytes to send.
    pub data: Bytes,
}

/// A delivery that the engine should hold in memory, with its payload when that is at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueDelivery {
    /// The delivery.
    pub delivery: PendingDelivery,
    /// Its payload; `None` when the byte budget was used up: ask [`crate::Store::payload`] before sending.
    pub payload: Option<Arc<Payload>>,
}

/// How much waits for one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Pending deliveries, counted up to the bound that was asked for.
    pub pending: u64,
    /// Whether there are more than were counted.
    pub more: bool,
    /// Due time of the one that is due first, past or future.
    pub first_due_at: Option<Timestamp>,
}

/// Which pending deliveries of one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueQuery {
    /// The destination.
    pub destination: DestinationKey,
    /// Deliveries that the caller has already.
    pub skip: std::collections::HashSet<DeliveryKey>,
    /// Whether deliveries of replays are wanted too.
    pub replays: bool,
    /// Rows at most.
    pub limit: usize,
    /// Payload bytes at most; the first row whose payload does not fit, and all after it, have none.
    pub max_payload_bytes: usize,
}

/// The earliest-due pending deliveries of a destination that the caller does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePage {
    /// In order of their due time.
    pub rows: Vec<DueDelivery>,
    /// Whether there are more beyond these.
    pub more: bool,
    /// Whether deliveries of replays were passed over before the last of these, because they were not asked for.
    pub replays_passed: bool,
}

/// One attempt that was judged: an attempt row and the delivery's new state, in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The delivery as it was when the attempt started.
    pub delivery: PendingDelivery,
    /// The attempt; `None` when the delivery ends without one (expired, canceled, destination gone).
    pub attempt: Option<NewAttempt>,
    /// What becomes of the delivery.
    pub next: Next,
    /// What was in force, when it becomes a dead letter. Not asked for when the delivery brings a context of its own.
    pub context: Option<DeadContext>,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It ended well.
    Succeeded,
    /// It stays pending with this plan and progress.
    Retry(Plan, Progress),
    /// It is a dead letter.
    Dead(DeadReason, Category),
    /// It is not to be sent.
    Canceled,
}

/// One HTTP request that was made, as it is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttempt {
    /// Which one: 1 is the first.
    pub number: u32,
    /// When its request began.
    pub started_at: Timestamp,
    /// When it was planned to begin, and why then.
    pub plan: Plan,
    /// What kept it, when it began later than planned for another reason than a busy machine.
    pub waited_for: Option<WaitCause>,
    /// Asked for by somebody, not by policy.
    pub manual: bool,
    /// Status code, when one arrived.
    pub status: Option<u16>,
    /// Error kind, when no status arrived.
    pub error: Option<ErrorKind>,
    /// More about the outcome in words, bounded: the TLS alert, the redirect's target, a body that broke off.
    pub detail: Option<String>,
    /// Time spent.
    pub timings: Timings,
    /// Request headers as sent, secrets masked.
    pub request_headers: Headers,
    /// Response headers, bounded.
    pub response_headers: Headers,
    /// Response body, bounded: any bytes.
    pub response_body: Bytes,
    /// Whether the body was longer than what is kept.
    pub response_truncated: bool,
}

/// Header names and values in order; values are any bytes.
pub type Headers = Vec<(String, Bytes)>;

/// Phases of a request; absent when it did not come to them (a reused connection has no connect).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// From due to the beginning of the request.
    pub queue: Duration,
    /// Name resolution.
    pub dns: Option<Duration>,
    /// TCP connect.
    pub connect: Option<Duration>,
    /// TLS handshake.
    pub tls: Option<Duration>,
    /// From the request's beginning to the final status line.
    pub first_byte: Option<Duration>,
    /// From the request's beginning to the end, body capture included.
    pub total: Duration,
}

/// An event as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its key.
    pub key: EventKey,
    /// Its id.
    pub id: String,
    /// Id of its tenant.
    pub tenant_id: String,
    /// Its topic.
    pub topic: String,
    /// When it happened.
    pub time: Timestamp,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// Metadata.
    pub metadata: Metadata,
    /// The bytes as published.
    pub data: Bytes,
    /// Whether failures are retried.
    pub retryable: bool,
    /// Where it goes, and how far it has come there.
    pub deliveries: Vec<EventDelivery>,
}

/// A delivery in an event's summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDelivery {
    /// Id of the delivery.
    pub id: String,
    /// Public id of the destination.
    pub destination_id: String,
    /// Its status.
    pub status: DeliveryStatus,
}

/// Which events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Only of these tenants; empty means all.
    pub tenant_ids: Vec<String>,
    /// Only these ids.
    pub ids: Vec<String>,
    /// Only with a delivery to one of these destinations (public ids).
    pub destination_ids: Vec<String>,
    /// Only of these topics.
    pub topics: Vec<String>,
    /// Only with a time in this range.
    pub time: TimeRange,
    /// The page, in order of acceptance. It is shorter than its limit when its data would have more than 8 MiB.
    pub page: PageRequest,
    /// Whether their data is read; it is empty otherwise.
    pub with_data: bool,
}

/// A delivery as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its key.
    pub key: DeliveryKey,
    /// Its id.
    pub id: String,
    /// Id of its event.
    pub event_id: String,
    /// Topic of its event.
    pub topic: String,
    /// Id of its tenant.
    pub tenant_id: String,
    /// Key of its destination.
    pub destination: DestinationKey,
    /// Public id of its destination.
    pub destination_id: String,
    /// Its status.
    pub status: DeliveryStatus,
    /// Why it is dead.
    pub reason: Option<DeadReason>,
    /// Category of its last outcome.
    pub category: Option<Category>,
    /// How far it has come; `attempts` are the requests made.
    pub progress: Progress,
    /// The next attempt, while it is pending.
    pub plan: Option<Plan>,
    /// False when the publisher said not to retry.
    pub retryable: bool,
    /// It is pending because a replay sends it again.
    pub replayed: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The last attempt, while that is kept.
    pub last_attempt: Option<Box<Attempt>>,
}

/// Which deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryQuery {
    /// Only of these tenants.
    pub tenant_ids: Vec<String>,
    /// Only of these events.
    pub event_ids: Vec<String>,
    /// Only to these destinations (public ids).
    pub destination_ids: Vec<String>,
    /// Only of these topics.
    pub topics: Vec<String>,
    /// Only with these statuses.
    pub statuses: Vec<DeliveryStatus>,
    /// Only created in this range.
    pub time: TimeRange,
    /// The page, in order of creation.
    pub page: PageRequest,
}

/// An attempt as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its key.
    pub key: AttemptKey,
    /// Its id.
    pub id: String,
    /// Id of its delivery.
    pub delivery_id: String,
    /// Id of its event.
    pub event_id: String,
    /// Topic of its event.
    pub topic: String,
    /// Id of its tenant.
    pub tenant_id: String,
    /// Public id of its destination.
    pub destination_id: String,
    /// Type of its destination.
    pub destination_kind: String,
    /// Everything that was recorded.
    pub recorded: NewAttempt,
    /// Status of the delivery right after it: `pending` means a retry was planned.
    pub left: DeliveryStatus,
    /// The retry that it led to.
    pub retry: Option<Plan>,
}

/// Which attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptQuery {
    /// Only of these tenants.
    pub tenant_ids: Vec<String>,
    /// Only of these events.
    pub event_ids: Vec<String>,
    /// Only of these deliveries.
    pub delivery_ids: Vec<String>,
    /// Only to these destinations (public ids).
    pub destination_ids: Vec<String>,
    /// Only of these topics.
    pub topics: Vec<String>,
    /// `Some(true)`: only with a 2xx; `Some(false)`: only without.
    pub successful: Option<bool>,
    /// Only begun in this range.
    pub time: TimeRange,
    /// The page, in order of settling.
    pub page: PageRequest,
    /// Whether their events' data will be shown with them, and so counts among the page's bytes, at most 8 MiB.
    pub with_event_data: bool,
}

/// What became of a request to attempt a delivery again now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retried {
    /// It is pending and due now; the engine has been told.
    Scheduled,
    /// No such event, or not this tenant's.
    EventMissing,
    /// The event has no delivery to this destination.
    NoDelivery,
}
