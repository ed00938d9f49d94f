//! The part of the trait that is about alerts: what fires must survive a restart, and what was can be read.

use async_trait::async_trait;
use postrider_core::alert::{AlertKind, AlertState, Severity};
use postrider_core::id::{AlertKey, DestinationKey};
use postrider_core::time::Timestamp;

use crate::error::StoreError;
use crate::page::{Page, PageRequest};

/// Alerts that are kept for reading. The oldest that are cleared go first; one that fires never does.
pub const MAX_ALERTS: usize = 10_000;

/// An alert as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Its key; zero in one that is yet to be kept.
    pub key: AlertKey,
    /// What it is about.
    pub kind: AlertKind,
    /// Whose; `None` when it is about all destinations together.
    pub subject: Option<AlertSubject>,
    /// How bad.
    pub severity: Severity,
    /// Since when.
    pub since: Timestamp,
    /// When it was last told.
    pub updated_at: Timestamp,
    /// When it was over; `None` while it fires.
    pub cleared_at: Option<Timestamp>,
    /// The value that was last told, in the kind's unit.
    pub value: u64,
    /// From which value on it fires.
    pub threshold: u64,
    /// What is so, in words.
    pub text: String,
    /// What to do, in words.
    pub todo: String,
    /// How often it was told: 1 when it was raised.
    pub version: u32,
    /// Up to which version the operator's webhook has it.
    pub published: u32,
}

impl Alert {
    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> AlertState {
        match self.cleared_at {
            None => AlertState::Firing,
            Some(_) => AlertState::Cleared,
        }
    }
}

/// The destination that an alert is about, with its names as they were then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertSubject {
    /// Its key.
    pub destination: DestinationKey,
    /// Its tenant's id.
    pub tenant_id: String,
    /// Its public id.
    pub destination_id: String,
}

/// Which alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertQuery {
    /// Only of these kinds; empty means all.
    pub kinds: Vec<AlertKind>,
    /// Only those that stand so.
    pub state: Option<AlertState>,
    /// Only about destinations of these tenants.
    pub tenant_ids: Vec<String>,
    /// Only about destinations with these public ids.
    pub destination_ids: Vec<String>,
    /// The page. Descending: those that fire first, then by when they were raised, the newest first.
    pub page: PageRequest,
}

/// Dead letters of one destination, as the levels of alerts need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterLevel {
    /// Whose.
    pub destination: DestinationKey,
    /// In the queue.
    pub depth: u64,
    /// Of them, those that came since the instant that was asked for.
    pub recent: u64,
}

/// What the product does with alerts.
#[async_trait]
pub trait Alerts: Send + Sync + 'static {
    /// Creates alerts (key zero) or replaces what is kept of them; answers their keys in the same order. All in one
    /// transaction, which also removes cleared ones beyond [`MAX_ALERTS`].
    async fn keep_alerts(&self, batch: Vec<Alert>, now: Timestamp) -> Result<Vec<AlertKey>, StoreError>;
    /// Up to these versions the operator's webhook has them.
    async fn note_published(&self, versions: Vec<(AlertKey, u32)>) -> Result<(), StoreError>;
    /// A page of alerts. An alert that clears between two pages may be seen on both.
    async fn alerts(&self, query: AlertQuery) -> Result<Page<Alert>, StoreError>;
    /// Every alert that fires, and every one whose last version is not published; for the start.
    async fn open_alerts(&self) -> Result<Vec<Alert>, StoreError>;
    /// The dead letters of each destination that has any, those with the most first; of them `recent` since the given time.
    async fn dead_letter_levels(&self, since: Timestamp) -> Result<Vec<DeadLetterLevel>, StoreError>;
}
