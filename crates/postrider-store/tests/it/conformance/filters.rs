//! What the filters of lists admit.

use std::sync::Arc;

use postrider_core::delivery::{DeadReason, DeliveryStatus, Plan, Progress};
use postrider_core::id::DestinationKey;
use postrider_core::outcome::Category;
use postrider_store::page::TimeRange;
use postrider_store::record::{AttemptQuery, DeliveryQuery, EventQuery, NewEvent, Next};

use super::listing::{NEWEST, all_attempts, all_deliveries, all_events, attempts, deliveries, events, texts};
use super::{Harness, at, create, event, pending, publish, settle, settlement, tenant};

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
