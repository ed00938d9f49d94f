//! Lists: what they show, what their filters admit, and that their pages are exact.

use std::collections::BTreeMap;

use bytes::Bytes;
use postrider_core::delivery::{DeadReason, DeliveryStatus, Plan, Progress, WaitCause};
use postrider_core::outcome::{Category, ErrorKind};
use postrider_store::Store;
use postrider_store::page::{Cursor, Direction, PageRequest, TimeRange};
use postrider_store::record::{
    Attempt, AttemptQuery, Delivery, DeliveryQuery, Event, EventDelivery, EventQuery, NewAttempt, NewEvent,
    Next, Settlement,
};

use super::{Harness, NOW, at, attempt, create, event, pending, publish, settle, settlement, tenant};

pub(crate) const NEWEST: PageRequest = PageRequest {
    limit: 1_000,
    direction: Direction::Descending,
    cursor: Cursor::Start,
};
pub(crate) const OLDEST: PageRequest = PageRequest {
    limit: 1_000,
    direction: Direction::Ascending,
    cursor: Cursor::Start,
};

pub(crate) fn all_events() -> EventQuery {
    EventQuery {
        tenant_ids: vec![],
        ids: vec![],
        destination_ids: vec![],
        topics: vec![],
        time: TimeRange::default(),
        page: OLDEST,
        with_data: true,
    }
}

pub(crate) fn all_deliveries() -> DeliveryQuery {
    DeliveryQuery {
        tenant_ids: vec![],
        event_ids: vec![],
        destination_ids: vec![],
        topics: vec![],
        statuses: vec![],
        time: TimeRange::default(),
        page: OLDEST,
    }
}

pub(crate) fn all_attempts() -> AttemptQuery {
    AttemptQuery {
        tenant_ids: vec![],
        event_ids: vec![],
        delivery_ids: vec![],
        destination_ids: vec![],
        topics: vec![],
        successful: None,
        time: TimeRange::default(),
        page: OLDEST,
        with_event_data: false,
    }
}

pub(crate) fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

pub(crate) async fn events(store: &dyn Store, query: EventQuery) -> Vec<Event> {
    let page = store.events(query).await.unwrap();
    assert_eq!((page.next, page.prev), (None, None));
    page.rows
}

pub(crate) async fn deliveries(store: &dyn Store, query: DeliveryQuery) -> Vec<Delivery> {
    let page = store.deliveries(query).await.unwrap();
    assert_eq!((page.next, page.prev), (None, None));
    page.rows
}

pub(crate) async fn attempts(store: &dyn Store, query: AttemptQuery) -> Vec<Attempt> {
    let page = store.attempts(query).await.unwrap();
    assert_eq!((page.next, page.prev), (None, None));
    page.rows
}

pub(crate) async fn an_event_shows_everything<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let keys = [
        create(&*store, acme, "des_1").await,
        create(&*store, acme, "des_2").await,
    ];
    let published = NewEvent {
        id: Some("order-1".to_owned()),
        time: Some(at(7)),
        metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        data: Bytes::from_static(b"\xff\0{}"),
        retryable: false,
        ..event("acme", &keys)
    };
    publish(&*store, published, at(100)).await;
    let row = pending(&*store, keys[1]).await[0];
    settle(
        &*store,
        vec![settlement(row, 200, Next::Succeeded, at(101))],
        at(101),
    )
    .await
    .unwrap();
    let mut rows = events(&*store, all_events()).await;
    let shown = rows.remove(0);
    assert!(rows.is_empty());
    let delivery = |index: usize, status| EventDelivery {
        id: shown.deliveries[index].id.clone(),
        destination_id: format!("des_{}", index + 1),
        status,
    };
    let expected = Event {
        key: row.event,
        id: "order-1".to_owned(),
        tenant_id: "acme".to_owned(),
        topic: "order.paid".to_owned(),
        time: at(7),
        accepted_at: at(100),
        metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        data: Bytes::from_static(b"\xff\0{}"),
        retryable: false,
        deliveries: vec![
            delivery(0, DeliveryStatus::Pending),
            delivery(1, DeliveryStatus::Succeeded),
        ],
    };
    assert_eq!(shown, expected);
    let one = store.delivery(&shown.deliveries[1].id).await.unwrap().unwrap();
    assert_eq!(
        (one.key, one.status, one.ended_at),
        (row.key, DeliveryStatus::Succeeded, Some(at(101)))
    );
}

/// Case 43, and everything else that an attempt keeps.
pub(crate) async fn an_attempt_shows_everything<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let event_id = publish(&*store, event("acme", &[key]), NOW).await.id;
    let row = pending(&*store, key).await[0];
    let plan = Plan::first(at(60));
    let seen = NewAttempt {
        response_body: Bytes::from_static(b"\xff\xfe\x80\0\xf0\x9f\x98"),
        response_headers: vec![("x-msg".to_owned(), Bytes::from_static(b"caf\xe9\0"))],
        detail: Some("body broke off".to_owned()),
        response_truncated: true,
        waited_for: Some(WaitCause::Breaker),
        manual: true,
        ..attempt(1, 503, at(1))
    };
    let progress = Progress {
        attempts: 1,
        scheduled: 1,
        ..row.progress
    };
    let first = Settlement {
        context: None,
        delivery: row,
        attempt: Some(seen.clone()),
        next: Next::Retry(plan, progress),
    };
    settle(&*store, vec![first], at(2)).await.unwrap();
    let row = pending(&*store, key).await[0];
    let refused = NewAttempt {
        status: None,
        error: Some(ErrorKind::ConnectRefused),
        ..attempt(2, 0, at(60))
    };
    let dead = Next::Dead(DeadReason::ExhaustedRetries, Category::Connect);
    let second = Settlement {
        context: None,
        delivery: row,
        attempt: Some(refused.clone()),
        next: dead,
    };
    settle(&*store, vec![second], at(61)).await.unwrap();

    let rows = attempts(&*store, all_attempts()).await;
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0].recorded, rows[0].left, rows[0].retry),
        (&seen, DeliveryStatus::Pending, Some(plan))
    );
    assert_eq!(
        (&rows[1].recorded, rows[1].left, rows[1].retry),
        (&refused, DeliveryStatus::Dead, None)
    );
    for row in &rows {
        assert_eq!(row.event_id, event_id);
        assert_eq!(
            (row.tenant_id.as_str(), row.topic.as_str()),
            ("acme", "order.paid")
        );
        assert_eq!(
            (row.destination_id.as_str(), row.destination_kind.as_str()),
            ("des_1", "webhook")
        );
        assert_eq!(store.attempt(&row.id).await.unwrap().as_ref(), Some(row));
    }
    let delivery = store.delivery(&rows[0].delivery_id).await.unwrap().unwrap();
    assert_eq!(delivery.status, DeliveryStatus::Dead);
    assert_eq!(
        (delivery.reason, delivery.category),
        (Some(DeadReason::ExhaustedRetries), Some(Category::Connect))
    );
    assert_eq!(
        (delivery.progress.attempts, delivery.plan, delivery.ended_at),
        (2, None, Some(at(61)))
    );
    assert_eq!(delivery.last_attempt.as_deref(), Some(&rows[1]));
    assert_eq!(store.attempt("att_nothing").await.unwrap(), None);
    assert_eq!(store.delivery("dlv_nothing").await.unwrap(), None);
}

pub(crate) async fn deleted_destinations_keep_their_names<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    publish(&*store, event("acme", &[key]), NOW).await;
    let row = pending(&*store, key).await[0];
    let again = Next::Retry(Plan::first(at(60)), row.progress);
    settle(&*store, vec![settlement(row, 500, again, at(1))], at(1))
        .await
        .unwrap();
    store.delete_tenant("acme", at(2)).await.unwrap();
    let shown = &deliveries(&*store, all_deliveries()).await[0];
    assert_eq!(
        (shown.destination_id.as_str(), shown.tenant_id.as_str()),
        ("des_1", "acme")
    );
    assert_eq!(
        (shown.status, shown.ended_at, shown.plan),
        (DeliveryStatus::Canceled, Some(at(2)), None)
    );
    let query = AttemptQuery {
        destination_ids: texts(&["des_1"]),
        ..all_attempts()
    };
    assert_eq!(attempts(&*store, query).await.len(), 1);
    let canceled = DeliveryQuery {
        statuses: vec![DeliveryStatus::Canceled],
        ..all_deliveries()
    };
    assert_eq!(deliveries(&*store, canceled).await.len(), 1);
}
