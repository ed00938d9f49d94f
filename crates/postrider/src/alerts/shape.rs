//! An alert as people and programs read it: the same in the API and in what the webhook gets.

use postrider_core::alert::{AlertKind, AlertState, Severity, Told};
use postrider_core::id::{IdCodec, IdKind};
use postrider_core::time::Timestamp;
use postrider_store::alerts::Alert;
use serde::Serialize;

/// An alert as JSON.
#[derive(Debug, Serialize)]
pub struct AlertShape<'a> {
    id: String,
    kind: AlertKind,
    state: AlertState,
    severity: Severity,
    tenant_id: Option<&'a str>,
    destination_id: Option<&'a str>,
    since: Timestamp,
    updated_at: Timestamp,
    cleared_at: Option<Timestamp>,
    value: u64,
    threshold: u64,
    unit: &'static str,
    text: &'a str,
    todo: &'a str,
}

impl<'a> AlertShape<'a> {
    /// Of an alert.
    #[must_use]
    pub fn of(alert: &'a Alert, ids: &IdCodec) -> Self {
        let subject = alert.subject.as_ref();
        Self {
            id: id(alert, ids),
            kind: alert.kind,
            state: alert.state(),
            severity: alert.severity,
            tenant_id: subject.map(|subject| subject.tenant_id.as_str()),
            destination_id: subject.map(|subject| subject.destination_id.as_str()),
            since: alert.since,
            updated_at: alert.updated_at,
            cleared_at: alert.cleared_at,
            value: alert.value,
            threshold: alert.threshold,
            unit: alert.kind.unit(),
            text: &alert.text,
            todo: &alert.todo,
        }
    }
}

/// Its public id.
pub(super) fn id(alert: &Alert, ids: &IdCodec) -> String {
    ids.encode(IdKind::Alert, alert.key.0)
}

/// What its last version tells.
pub(super) const fn told(alert: &Alert) -> Told {
    match (alert.cleared_at, alert.version) {
        (Some(_), _) => Told::Cleared,
        (None, 0 | 1) => Told::Raised,
        (None, _) => Told::Worsened,
    }
}
