//! Lists: what they show, what their filters admit, and that their pages are exact.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::delivery::{DeadReason, DeliveryStatus, Plan, Progress};
use postrider_core::id::DestinationKey;
use postrider_core::outcome::{Category, ErrorKind};
use postrider_store::Store;
use postrider_store::page::{Cursor, Direction, PageRequest, TimeRange};
use postrider_store::record::{
    Attempt, AttemptQuery, Delivery, DeliveryQuery, Event, EventDelivery, EventQuery, NewAttempt, NewEvent,
    Next, Settlement,
};

use super::{Harness, NOW, at, attempt, create, event, pending, publish, settle, settlement, tenant};

const NEWEST: PageRequest = PageRequest {
    limit: 1_000,
    direction: Direction::Descending,
    cursor: Cursor::Start,
};
const OLDEST: PageRequest = PageRequest {
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
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

async fn events(store: &dyn Store, query: EventQuery) -> Vec<Event> {
    let page = store.events(query).await.unwrap();
    assert_eq!((page.next, page.prev), (None, None));
    page.rows
}

async fn deliveries(store: &dyn Store, query: DeliveryQuery) -> Vec<Delivery> {
    let page = store.deliveries(query).await.unwrap();
    assert_eq!((page.next, page.prev), (None, None));
    page.rows
}

async fn attempts(store: &dyn Store, query: AttemptQuery) -> Vec<Attempt> {
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

pub(crate) async fn filters_of_events<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let other = tenant(&*store, "other").await;
    let first = create(&*store, acme, "des_1").await;
    let second = create(&*store, acme, "des_2").await;
    let theirs = create(&*store, other, "des_1").await;
    let named = |id: &str, tenant: &str, topic: &str, keys: &[DestinationKey]| NewEvent {
        id: Some(id.to_owned()),
        topic: topic.to_owned(),
        ..event(tenant, keys)
    };
    let all = vec![
        named("a", "acme", "order.paid", &[first]),
        named("b", "acme", "user.created", &[first, second]),
        named("c", "other", "order.paid", &[theirs]),
        named("d", "nobody", "order.paid", &[]),
        named("a", "other", "user.created", &[]),
    ];
    for (n, event) in (0..).zip(all) {
        publish(&*store, event, at(n)).await;
    }
    // The same answers before and after the listing tables have caught up with the rows.
    let harness = harness.restart().await;
    let store = harness.store();
    let ids = |query: EventQuery| {
        let store = Arc::clone(&store);
        async move {
            events(&*store, query)
                .await
                .into_iter()
                .map(|event| event.id)
                .collect::<String>()
        }
    };
    for _ in 0..2 {
        assert_eq!(ids(all_events()).await, "abcda");
        assert_eq!(
            ids(EventQuery {
                page: NEWEST,
                ..all_events()
            })
            .await,
            "adcba"
        );
        assert_eq!(
            ids(EventQuery {
                tenant_ids: texts(&["acme"]),
                ..all_events()
            })
            .await,
            "ab"
        );
        assert_eq!(
            ids(EventQuery {
                tenant_ids: texts(&["nobody", "acme"]),
                ..all_events()
            })
            .await,
            "abd"
        );
        assert_eq!(
            ids(EventQuery {
                tenant_ids: texts(&["absent"]),
                ..all_events()
            })
            .await,
            ""
        );
        assert_eq!(
            ids(EventQuery {
                ids: texts(&["a"]),
                ..all_events()
            })
            .await,
            "aa"
        );
        let mine = EventQuery {
            ids: texts(&["a", "b"]),
            tenant_ids: texts(&["acme"]),
            ..all_events()
        };
        assert_eq!(ids(mine).await, "ab");
        assert_eq!(
            ids(EventQuery {
                topics: texts(&["order.paid"]),
                ..all_events()
            })
            .await,
            "acd"
        );
        assert_eq!(
            ids(EventQuery {
                destination_ids: texts(&["des_1"]),
                ..all_events()
            })
            .await,
            "abc"
        );
        assert_eq!(
            ids(EventQuery {
                destination_ids: texts(&["des_1", "des_2"]),
                ..all_events()
            })
            .await,
            "abc"
        );
        let both = EventQuery {
            destination_ids: texts(&["des_1"]),
            tenant_ids: texts(&["acme"]),
            topics: texts(&["user.created"]),
            page: NEWEST,
            ..all_events()
        };
        assert_eq!(ids(both).await, "b");
        let time = TimeRange {
            gte: Some(at(1)),
            lt: Some(at(3)),
            ..TimeRange::default()
        };
        assert_eq!(ids(EventQuery { time, ..all_events() }).await, "bc");
        store.ping().await.unwrap();
    }
}

/// A publisher may say any time; the range is over that, whatever the order of acceptance.
pub(crate) async fn a_time_range_finds_times_far_from_acceptance<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let timed = |id: &str, time| NewEvent {
        id: Some(id.to_owned()),
        time,
        ..event("acme", &[])
    };
    publish(&*store, timed("early", Some(at(0))), at(1_000_000)).await;
    publish(&*store, timed("late", Some(at(2_000_000))), at(1_000_001)).await;
    publish(&*store, timed("now", None), at(1_000_002)).await;
    let ids = |gte, lte| {
        let store = Arc::clone(&store);
        async move {
            let time = TimeRange {
                gte: Some(at(gte)),
                lte: Some(at(lte)),
                ..TimeRange::default()
            };
            let rows = events(&*store, EventQuery { time, ..all_events() }).await;
            rows.into_iter()
                .map(|event| event.id)
                .collect::<Vec<_>>()
                .join(" ")
        }
    };
    assert_eq!(ids(0, 10).await, "early");
    assert_eq!(ids(1_999_999, 2_000_000).await, "late");
    assert_eq!(ids(1_000_002, 1_000_002).await, "now");
    assert_eq!(ids(0, 2_000_000).await, "early late now");
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
        manual: true,
        ..attempt(1, 503, at(1))
    };
    let progress = Progress {
        attempts: 1,
        scheduled: 1,
        ..row.progress
    };
    let first = Settlement {
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

pub(crate) async fn filters_of_deliveries_and_attempts<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let other = tenant(&*store, "other").await;
    let one = create(&*store, acme, "des_1").await;
    let two = create(&*store, acme, "des_2").await;
    let theirs = create(&*store, other, "des_3").await;
    let named = |id: &str, tenant: &str, topic: &str, keys: &[DestinationKey]| NewEvent {
        id: Some(id.to_owned()),
        topic: topic.to_owned(),
        ..event(tenant, keys)
    };
    publish(&*store, named("a", "acme", "order.paid", &[one, two]), at(0)).await;
    publish(&*store, named("b", "other", "order.paid", &[theirs]), at(1)).await;
    publish(&*store, named("c", "acme", "user.created", &[two]), at(2)).await;
    let failed = pending(&*store, one).await[0];
    let dead = Next::Dead(DeadReason::PermanentFailure, Category::Http4xx);
    let arrived = pending(&*store, theirs).await[0];
    let retried = pending(&*store, two).await[0];
    let again = Next::Retry(
        Plan::first(at(60)),
        Progress {
            attempts: 1,
            scheduled: 1,
            ..retried.progress
        },
    );
    let batch = vec![
        settlement(failed, 404, dead, at(10)),
        settlement(arrived, 204, Next::Succeeded, at(11)),
        settlement(retried, 500, again, at(12)),
    ];
    settle(&*store, batch, at(12)).await.unwrap();
    let harness = harness.restart().await;
    let store = harness.store();

    let shown = |query: DeliveryQuery| {
        let store = Arc::clone(&store);
        async move {
            let rows = deliveries(&*store, query).await;
            rows.iter()
                .map(|row| format!("{}{}", row.event_id, &row.destination_id[4..]))
                .collect::<Vec<_>>()
                .join(" ")
        }
    };
    let status = |status| DeliveryQuery {
        statuses: vec![status],
        ..all_deliveries()
    };
    let (dead, pending) = (DeliveryStatus::Dead, DeliveryStatus::Pending);
    assert_eq!(shown(all_deliveries()).await, "a1 a2 b3 c2");
    assert_eq!(
        shown(DeliveryQuery {
            page: NEWEST,
            ..all_deliveries()
        })
        .await,
        "c2 b3 a2 a1"
    );
    assert_eq!(
        shown(DeliveryQuery {
            tenant_ids: texts(&["acme"]),
            ..all_deliveries()
        })
        .await,
        "a1 a2 c2"
    );
    let newest = DeliveryQuery {
        tenant_ids: texts(&["acme"]),
        page: NEWEST,
        ..all_deliveries()
    };
    assert_eq!(shown(newest).await, "c2 a2 a1");
    assert_eq!(
        shown(DeliveryQuery {
            event_ids: texts(&["a", "b"]),
            ..all_deliveries()
        })
        .await,
        "a1 a2 b3"
    );
    assert_eq!(
        shown(DeliveryQuery {
            destination_ids: texts(&["des_2"]),
            ..all_deliveries()
        })
        .await,
        "a2 c2"
    );
    assert_eq!(
        shown(DeliveryQuery {
            topics: texts(&["user.created"]),
            ..all_deliveries()
        })
        .await,
        "c2"
    );
    assert_eq!(shown(status(dead)).await, "a1");
    assert_eq!(shown(status(pending)).await, "a2 c2");
    assert_eq!(shown(status(DeliveryStatus::Succeeded)).await, "b3");
    assert_eq!(shown(status(DeliveryStatus::Canceled)).await, "");
    assert_eq!(
        shown(DeliveryQuery {
            tenant_ids: texts(&["acme"]),
            ..status(dead)
        })
        .await,
        "a1"
    );
    assert_eq!(
        shown(DeliveryQuery {
            tenant_ids: texts(&["acme"]),
            ..status(pending)
        })
        .await,
        "a2 c2"
    );
    assert_eq!(
        shown(DeliveryQuery {
            destination_ids: texts(&["des_1"]),
            ..status(dead)
        })
        .await,
        "a1"
    );
    assert_eq!(
        shown(DeliveryQuery {
            destination_ids: texts(&["des_2"]),
            ..status(pending)
        })
        .await,
        "a2 c2"
    );
    let either = DeliveryQuery {
        statuses: vec![dead, pending],
        ..all_deliveries()
    };
    assert_eq!(shown(either).await, "a1 a2 c2");
    let time = TimeRange {
        gt: Some(at(0)),
        lte: Some(at(1)),
        ..TimeRange::default()
    };
    assert_eq!(
        shown(DeliveryQuery {
            time,
            ..all_deliveries()
        })
        .await,
        "b3"
    );
    let waiting = &deliveries(
        &*store,
        DeliveryQuery {
            event_ids: texts(&["a"]),
            ..status(pending)
        },
    )
    .await[0];
    assert_eq!(waiting.plan, Some(Plan::first(at(60))));
    assert_eq!(waiting.category, Some(Category::Http5xx), "of its last attempt");
    let waiting_id = waiting.id.clone();

    let seen = |query: AttemptQuery| {
        let store = Arc::clone(&store);
        async move {
            let rows = attempts(&*store, query).await;
            rows.iter()
                .map(|row| row.recorded.status.unwrap().to_string())
                .collect::<Vec<_>>()
                .join(" ")
        }
    };
    assert_eq!(seen(all_attempts()).await, "404 204 500");
    assert_eq!(
        seen(AttemptQuery {
            page: NEWEST,
            ..all_attempts()
        })
        .await,
        "500 204 404"
    );
    assert_eq!(
        seen(AttemptQuery {
            tenant_ids: texts(&["acme"]),
            ..all_attempts()
        })
        .await,
        "404 500"
    );
    assert_eq!(
        seen(AttemptQuery {
            destination_ids: texts(&["des_2"]),
            ..all_attempts()
        })
        .await,
        "500"
    );
    assert_eq!(
        seen(AttemptQuery {
            event_ids: texts(&["a"]),
            ..all_attempts()
        })
        .await,
        "404 500"
    );
    assert_eq!(
        seen(AttemptQuery {
            delivery_ids: vec![waiting_id],
            ..all_attempts()
        })
        .await,
        "500"
    );
    assert_eq!(
        seen(AttemptQuery {
            successful: Some(true),
            ..all_attempts()
        })
        .await,
        "204"
    );
    assert_eq!(
        seen(AttemptQuery {
            successful: Some(false),
            ..all_attempts()
        })
        .await,
        "404 500"
    );
    assert_eq!(
        seen(AttemptQuery {
            topics: texts(&["user.created"]),
            ..all_attempts()
        })
        .await,
        ""
    );
    let time = TimeRange {
        gte: Some(at(10)),
        lt: Some(at(12)),
        ..TimeRange::default()
    };
    assert_eq!(
        seen(AttemptQuery {
            time,
            ..all_attempts()
        })
        .await,
        "404 204"
    );
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

/// Pages in both directions, with filters, while rows arrive: each row that was there is seen once.
pub(crate) async fn pages_are_exact_while_rows_arrive<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let other = tenant(&*store, "other").await;
    let mine = create(&*store, acme, "des_1").await;
    let theirs = create(&*store, other, "des_2").await;
    let batch = |from: usize| -> Vec<NewEvent> {
        (from..from + 200)
            .map(|n| {
                let (tenant, key) = if n % 3 == 0 {
                    ("acme", mine)
                } else {
                    ("other", theirs)
                };
                NewEvent {
                    id: Some(n.to_string()),
                    ..event(tenant, &[key])
                }
            })
            .collect()
    };
    for n in 0..8 {
        store.accept(batch(n * 200), at(n as u64)).await.unwrap();
    }
    let query = EventQuery {
        tenant_ids: texts(&["acme"]),
        page: PageRequest { limit: 37, ..NEWEST },
        ..all_events()
    };
    let by_destination = EventQuery {
        tenant_ids: vec![],
        destination_ids: texts(&["des_1"]),
        ..query.clone()
    };
    let mut arrived = 1_600;
    for query in [query, by_destination] {
        let before = arrived;
        let mut seen = Vec::new();
        let mut cursor = Cursor::Start;
        let mut last_prev = None;
        loop {
            let page = PageRequest { cursor, ..query.page };
            let page = store
                .events(EventQuery {
                    page,
                    ..query.clone()
                })
                .await
                .unwrap();
            seen.extend(page.rows.into_iter().map(|event| event.id));
            store.accept(batch(arrived), at(100)).await.unwrap();
            arrived += 200;
            last_prev = page.prev.or(last_prev);
            let Some(next) = page.next else { break };
            cursor = Cursor::After(next);
        }
        let expected: Vec<String> = (0..before)
            .filter(|n| n % 3 == 0)
            .rev()
            .map(|n| n.to_string())
            .collect();
        assert_eq!(seen, expected);

        let mut back = Vec::new();
        let mut before_key = last_prev;
        while let Some(key) = before_key {
            let page = PageRequest {
                cursor: Cursor::Before(key),
                ..query.page
            };
            let page = store
                .events(EventQuery {
                    page,
                    ..query.clone()
                })
                .await
                .unwrap();
            back.splice(0..0, page.rows.into_iter().map(|event| event.id));
            before_key = page.prev;
        }
        let last_page = expected.len() % 37;
        let now_there: Vec<String> = (0..arrived)
            .filter(|n| n % 3 == 0)
            .rev()
            .map(|n| n.to_string())
            .collect();
        assert_eq!(
            back,
            now_there[..now_there.len() - last_page],
            "backwards, what arrived is there too"
        );
    }
    let all = DeliveryQuery {
        tenant_ids: texts(&["other"]),
        page: PageRequest { limit: 301, ..OLDEST },
        ..all_deliveries()
    };
    let mut count = 0;
    let mut cursor = Cursor::Start;
    loop {
        let page = store
            .deliveries(DeliveryQuery {
                page: PageRequest { cursor, ..all.page },
                ..all.clone()
            })
            .await
            .unwrap();
        count += page.rows.len();
        let Some(next) = page.next else { break };
        cursor = Cursor::After(next);
    }
    assert_eq!(count, (0..arrived).filter(|n| n % 3 != 0).count());
}
