//! Dead letters as the store keeps and answers them.
//!
//! A dead letter is a delivery with status `dead`; its id is the delivery's. Its *serial* is given when it dies, so lists
//! in order of serials are in order of deaths, and a range of deaths is a range of serials. A delivery that is replayed and
//! dies again is a dead letter with another serial.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::delivery::{DeadReason, DeliveryStatus};
use postrider_core::id::{ContextKey, DeliveryKey, DestinationKey};
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::page::{PageRequest, TimeRange};
use crate::record::{Event, Metadata, NewAttempt};

/// What was in force when a delivery died, as JSON text: its destination's configuration, and the retry policy. It holds
/// custom headers, which may be secret: sealed at rest, and `Debug` shows `***`. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct DeadContext(Arc<str>);

impl DeadContext {
    /// Wraps the text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DeadContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A dead letter as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its place in the order of deaths; the key of cursors.
    pub serial: i64,
    /// Key of the delivery.
    pub key: DeliveryKey,
    /// Id of the delivery.
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
    /// Why it is dead.
    pub reason: DeadReason,
    /// Category of its last outcome.
    pub category: Category,
    /// Status code of its last outcome, when one arrived.
    pub code: Option<u16>,
    /// Its last outcome in one line of at most 300 characters; absent without an attempt.
    pub error: Option<String>,
    /// Requests made.
    pub attempts: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it died, or was imported.
    pub died_at: Timestamp,
    /// Key of what was in force; absent for one that died before that was kept.
    pub context: Option<ContextKey>,
}

/// Which dead letters. Every field that is given must hold; an empty one admits all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadLetterFilter {
    /// Only of these tenants.
    pub tenant_ids: Vec<String>,
    /// Only to these destinations (public ids), deleted ones included.
    pub destination_ids: Vec<String>,
    /// Only of these topics.
    pub topics: Vec<String>,
    /// Only dead for one of these reasons.
    pub reasons: Vec<DeadReason>,
    /// Only with a last outcome of one of these categories.
    pub categories: Vec<Category>,
    /// Only with one of these status codes.
    pub codes: Vec<u16>,
    /// Only dead since a time in this range.
    pub died: TimeRange,
    /// Only with this text in the last error, in any case of letters.
    pub text: Option<String>,
    /// Only these (ids of deliveries).
    pub ids: Vec<String>,
}

impl DeadLetterFilter {
    /// Whether it admits every dead letter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A page of dead letters wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// Which.
    pub filter: DeadLetterFilter,
    /// The page, in order of deaths. Cursor keys are serials.
    pub page: PageRequest,
}

/// Dead letters of one destination that ended in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterGroup {
    /// Id of the tenant.
    pub tenant_id: String,
    /// Key of the destination.
    pub destination: DestinationKey,
    /// Public id of the destination.
    pub destination_id: String,
    /// Category of the last outcome.
    pub category: Category,
    /// Its status code, when one arrived.
    pub code: Option<u16>,
    /// How many.
    pub count: u64,
    /// When the first of them died.
    pub first_died_at: Timestamp,
    /// When the last of them died.
    pub last_died_at: Timestamp,
    /// How many of them died within the last hour.
    pub last_hour: u64,
}

/// Everything about one dead letter but its attempts, which [`crate::Store::attempts`] lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterDetail {
    /// The dead letter.
    pub letter: DeadLetter,
    /// Its event, with the bytes as published.
    pub event: Event,
    /// What was in force; absent for one that died before that was kept.
    pub context: Option<DeadContext>,
}

/// What a step of a purge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Dead letters removed.
    pub removed: u64,
    /// Where the next step begins; `None` when everything up to the bound was looked at.
    pub next: Option<i64>,
}

/// What became of a request to end a pending delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// It has ended as asked, and the engine has been told.
    Done,
    /// It is not pending.
    NotPending(DeliveryStatus),
    /// There is none of this id.
    Missing,
}

/// What retention removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionKind {
    /// Events with everything that belongs to them, unless a delivery of theirs is pending or dead.
    Events,
    /// Attempts, unless their delivery is pending or dead.
    Attempts,
    /// Dead letters with their attempts.
    DeadLetters,
}

impl RetentionKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Events, Self::Attempts, Self::DeadLetters];

    /// In metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Attempts => "attempts",
            Self::DeadLetters => "dead_letters",
        }
    }
}

/// What a step of retention did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// Events, attempts or dead letters removed.
    pub removed: u64,
    /// Whether another step may find more to do.
    pub more: bool,
}

/// A dead letter from an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedLetter {
    /// Id of the tenant, which must exist.
    pub tenant_id: String,
    /// Public id of the destination, which must exist.
    pub destination_id: String,
    /// Id of the event. One that the tenant has is not changed, and must be the same.
    pub event_id: String,
    /// Topic of the event.
    pub topic: String,
    /// When the event happened.
    pub time: Timestamp,
    /// Metadata of the event.
    pub metadata: Metadata,
    /// The bytes of the event.
    pub data: Bytes,
    /// Whether failures are retried.
    pub retryable: bool,
    /// Why it is dead.
    pub reason: DeadReason,
    /// Category of its last outcome.
    pub category: Category,
    /// Its attempts, the first one first.
    pub attempts: Vec<NewAttempt>,
    /// What was in force when it died.
    pub context: Option<DeadContext>,
}

/// What became of a dead letter from an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Imported {
    /// It is a dead letter again, with this delivery id.
    Imported(String),
    /// The event has a delivery to this destination already, whatever its status.
    Duplicate,
    /// There is no such tenant.
    TenantMissing,
    /// The tenant has no such destination.
    DestinationMissing,
    /// The tenant has an event of this id with another topic, other metadata or other bytes.
    EventDiffers,
    /// The tenant has this event, without a place for another delivery.
    NoPlace,
}
