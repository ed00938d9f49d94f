//! Values that the tests start from.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::delivery::{DeadReason, PendingDelivery, Plan};
use postrider_core::id::{DestinationKey, IdKind, TenantKey};
use postrider_core::outcome::Outcome;
use postrider_core::secret::Secret;
use postrider_core::time::Timestamp;
use postrider_store::letter::{DeadContext, DeadLetter, DeadLetterFilter, DeadLetterQuery};
use postrider_store::record::{
    Accepted, Created, Credentials, Destination, DueDelivery, DueQuery, NewAttempt, NewDelivery, NewEvent,
    Next, Settlement, Timings, Upserted,
};
use postrider_store::{Store, StoreError};

use super::listing::OLDEST;

/// 2026-01-01T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// `NOW` and so many seconds.
pub(crate) fn at(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

/// A tenant's key, after creating it.
pub(crate) async fn tenant(store: &dyn Store, id: &str) -> TenantKey {
    match store.upsert_tenant(id, None, NOW).await.unwrap() {
        Upserted::Created(tenant) | Upserted::Updated(tenant) => tenant.key,
    }
}

/// A destination that is yet to be created.
pub(crate) fn destination(tenant: TenantKey, id: &str) -> Destination {
    let secret = Secret::new(format!("whsec_canary_{id}"));
    Destination {
        key: DestinationKey(0),
        tenant,
        id: id.to_owned(),
        kind: "webhook".to_owned(),
        topics: vec!["*".to_owned()],
        filter: None,
        config: BTreeMap::from([("url".to_owned(), "https://example.com/hook".to_owned())]),
        credentials: Credentials {
            fields: BTreeMap::from([("secret".to_owned(), secret)]),
        },
        delivery_metadata: None,
        metadata: None,
        retry_policy: None,
        created_at: NOW,
        updated_at: NOW,
        disabled: None,
        revision: 0,
    }
}

/// A destination's key, after creating it.
pub(crate) async fn create(store: &dyn Store, tenant: TenantKey, id: &str) -> DestinationKey {
    match store
        .create_destination(destination(tenant, id), 100_000)
        .await
        .unwrap()
    {
        Created::Created(destination) => destination.key,
        other => panic!("{other:?}"),
    }
}

/// An event for these destinations.
pub(crate) fn event(tenant: &str, destinations: &[DestinationKey]) -> NewEvent {
    NewEvent {
        tenant_id: tenant.to_owned(),
        id: None,
        topic: "order.paid".to_owned(),
        time: None,
        metadata: BTreeMap::new(),
        data: Bytes::from_static(br#"{"order":1}"#),
        retryable: true,
        destinations: destinations
            .iter()
            .map(|&destination| NewDelivery {
                destination,
                dead: None,
                context: None,
                discarded: false,
            })
            .collect(),
    }
}

/// Accepts one event.
pub(crate) async fn publish(store: &dyn Store, event: NewEvent, now: Timestamp) -> Accepted {
    let mut accepted = store.accept(vec![event], now).await.unwrap();
    assert_eq!(accepted.len(), 1);
    accepted.remove(0)
}

/// All that is due for a destination.
pub(crate) async fn due(store: &dyn Store, destination: DestinationKey) -> Vec<DueDelivery> {
    let query = DueQuery {
        replays: true,
        destination,
        skip: HashSet::new(),
        limit: 100_000,
        max_payload_bytes: usize::MAX,
    };
    let page = store.due(query).await.unwrap();
    assert!(!page.more);
    page.rows
}

/// The same without payloads.
pub(crate) async fn pending(store: &dyn Store, destination: DestinationKey) -> Vec<PendingDelivery> {
    due(store, destination)
        .await
        .into_iter()
        .map(|due| due.delivery)
        .collect()
}

/// An attempt that saw `status`.
pub(crate) fn attempt(number: u32, status: u16, started_at: Timestamp) -> NewAttempt {
    NewAttempt {
        number,
        started_at,
        plan: Plan::first(started_at),
        waited_for: None,
        manual: false,
        status: Some(status),
        error: None,
        detail: None,
        timings: Timings {
            total: Duration::from_millis(12),
            ..Timings::default()
        },
        request_headers: vec![("webhook-id".to_owned(), Bytes::from_static(b"evt"))],
        response_headers: vec![("content-type".to_owned(), Bytes::from_static(b"text/plain"))],
        response_body: Bytes::from_static(b"answer"),
        response_truncated: false,
    }
}

/// A settlement of `delivery` after an attempt that saw `status`.
pub(crate) fn settlement(delivery: PendingDelivery, status: u16, next: Next, now: Timestamp) -> Settlement {
    Settlement {
        context: None,
        delivery,
        attempt: Some(attempt(delivery.progress.attempts + 1, status, now)),
        next,
    }
}

/// Settles a batch.
pub(crate) async fn settle(
    store: &dyn Store,
    batch: Vec<Settlement>,
    now: Timestamp,
) -> Result<(), StoreError> {
    store.settle(Arc::new(batch), now).await
}

/// The attempts that a dead letter of this status ended with, and its settlement.
pub(crate) fn death(delivery: PendingDelivery, status: u16, body: &str, now: Timestamp) -> Settlement {
    let mut dead = settlement(
        delivery,
        status,
        Next::Dead(DeadReason::PermanentFailure, Outcome::status(status).category()),
        now,
    );
    dead.context = Some(context(&format!("in force at {}", now.as_seconds())));
    if let Some(attempt) = &mut dead.attempt {
        attempt.response_body = Bytes::copy_from_slice(body.as_bytes());
    }
    dead
}

/// A context.
pub(crate) fn context(text: &str) -> DeadContext {
    DeadContext::new(format!(r#"{{"canary":"{text}"}}"#))
}

/// Publishes one event for a destination and lets its delivery die of this status; answers the delivery as it was.
pub(crate) async fn bury(
    store: &dyn Store,
    tenant: &str,
    destination: DestinationKey,
    status: u16,
    now: Timestamp,
) -> PendingDelivery {
    publish(store, event(tenant, &[destination]), now).await;
    let delivery = newest_pending(store, destination).await;
    settle(store, vec![death(delivery, status, "no", now)], now)
        .await
        .unwrap();
    delivery
}

/// The pending delivery of a destination that was created last.
pub(crate) async fn newest_pending(store: &dyn Store, destination: DestinationKey) -> PendingDelivery {
    let rows = pending(store, destination).await;
    *rows.iter().max_by_key(|row| row.key).unwrap()
}

/// Everything that a query without filters lists, oldest first.
pub(crate) async fn letters(store: &dyn Store, filter: DeadLetterFilter) -> Vec<DeadLetter> {
    let page = store
        .dead_letters(DeadLetterQuery { filter, page: OLDEST })
        .await
        .unwrap();
    assert_eq!((page.next, page.prev), (None, None));
    page.rows
}

/// The public id of a delivery.
pub(crate) fn delivery_id(store: &dyn Store, delivery: &PendingDelivery) -> String {
    store.ids().encode(IdKind::Delivery, delivery.key.0)
}
