//! Publishing: bytes, ids, duplicates, the feed.

use bytes::Bytes;
use postrider_core::delivery::{DeadReason, Plan, Progress};
use postrider_core::id::{DestinationKey, IdKind};
use postrider_core::time::Timestamp;
use postrider_store::record::{NewDelivery, NewEvent, Retried};

use super::{Harness, NOW, at, create, due, event, pending, publish, tenant};

pub(crate) async fn bytes_come_back_as_they_went_in<H: Harness>() {
    let bodies: [&[u8]; 6] = [
        br#"{"a":1,"a":2}"#,
        br#"{"n":9007199254740993,"x":1.0,"y":1e2,"z":-0}"#,
        br#"{"s":"\u0000"}"#,
        "{\"s\":\"<\\/script>\u{2028}\"}".as_bytes(),
        b"\xff\xfe\x80\0 { } ",
        b"",
    ];
    let harness = H::start().await;
    let acme = tenant(&*harness.store(), "acme").await;
    let key = create(&*harness.store(), acme, "des_1").await;
    let events = bodies.iter().map(|body| NewEvent {
        data: Bytes::from_static(body),
        time: Some(at(60)),
        metadata: [("k".to_owned(), "v\0\u{1F600}".to_owned())].into(),
        topic: String::new(),
        ..event("acme", &[key])
    });
    harness.store().accept(events.collect(), NOW).await.unwrap();
    let before = due(&*harness.store(), key).await;
    let harness = harness.restart().await;
    let after = due(&*harness.store(), key).await;
    assert_eq!(before, after);
    for (row, body) in after.iter().zip(bodies) {
        let payload = row.payload.as_ref().unwrap();
        assert_eq!(payload.data, body);
        assert_eq!(payload.time, at(60));
        assert_eq!(payload.topic, "");
        assert_eq!(payload.metadata["k"], "v\0\u{1F600}");
        let alone = harness.store().payload(row.delivery.event).await.unwrap();
        assert_eq!(alone.as_ref(), Some(payload));
    }
}

pub(crate) async fn an_id_is_used_once_a_tenant<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let other = tenant(&*store, "other").await;
    let keys = [
        create(&*store, acme, "des_1").await,
        create(&*store, acme, "des_2").await,
    ];
    let theirs = create(&*store, other, "des_3").await;
    let named = |tenant: &str, keys: &[DestinationKey]| NewEvent {
        id: Some("order-1".to_owned()),
        ..event(tenant, keys)
    };
    let batch = vec![
        named("acme", &keys),
        event("acme", &keys[..1]),
        named("acme", &keys[..1]),
        named("other", &[theirs]),
    ];
    let accepted = store.accept(batch, NOW).await.unwrap();
    let duplicates: Vec<bool> = accepted.iter().map(|accepted| accepted.duplicate).collect();
    assert_eq!(
        duplicates,
        [false, false, true, false],
        "once a tenant, also within a batch"
    );
    assert_eq!(accepted[0].id, "order-1");
    assert_eq!(accepted[0].destination_ids, ["des_1", "des_2"]);
    assert_eq!(
        accepted[2].destination_ids,
        ["des_1", "des_2"],
        "the first publish's"
    );
    let harness = harness.restart().await;
    let again = publish(&*harness.store(), named("acme", &[]), at(1)).await;
    assert!(again.duplicate);
    assert_eq!(again.destination_ids, ["des_1", "des_2"]);
    assert_eq!(pending(&*harness.store(), keys[0]).await.len(), 2);
    assert_eq!(pending(&*harness.store(), keys[1]).await.len(), 1);
    assert_eq!(pending(&*harness.store(), theirs).await.len(), 1);
}

pub(crate) async fn an_id_is_free_again_for_a_tenant_that_is_created_again<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let named = |keys: &[DestinationKey]| NewEvent {
        id: Some("order-1".to_owned()),
        ..event("acme", keys)
    };
    assert!(
        !publish(&*store, named(&[]), NOW).await.duplicate,
        "before there is a tenant"
    );
    store.upsert_tenant("acme", None, at(1)).await.unwrap();
    assert!(
        !publish(&*store, named(&[]), at(2)).await.duplicate,
        "the tenant's own first"
    );
    assert!(publish(&*store, named(&[]), at(3)).await.duplicate);
    store.delete_tenant("acme", at(4)).await.unwrap();
    store.upsert_tenant("acme", None, at(5)).await.unwrap();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let fresh = publish(&*store, named(&[key]), at(6)).await;
    assert!(!fresh.duplicate);
    assert_eq!(fresh.destination_ids, ["des_1"]);
    assert_eq!(pending(&*store, key).await.len(), 1);
    assert!(publish(&*store, named(&[key]), at(7)).await.duplicate);
    // The same with an id that was issued to the former tenant.
    let issued = publish(&*store, event("acme", &[]), at(8)).await.id;
    let given_back = || NewEvent {
        id: Some(issued.clone()),
        ..event("acme", &[])
    };
    assert!(publish(&*store, given_back(), at(9)).await.duplicate);
    store.delete_tenant("acme", at(10)).await.unwrap();
    store.upsert_tenant("acme", None, at(11)).await.unwrap();
    assert!(!publish(&*store, given_back(), at(12)).await.duplicate);
    assert!(publish(&*store, given_back(), at(13)).await.duplicate);
}

pub(crate) async fn an_issued_id_given_back_is_a_duplicate<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let issued = publish(&*store, event("acme", &[key]), NOW).await.id;
    let named = |tenant: &str, id: &str| NewEvent {
        id: Some(id.to_owned()),
        ..event(tenant, &[])
    };
    let again = publish(&*store, named("acme", &issued), NOW).await;
    assert!(again.duplicate);
    assert_eq!(
        (again.id, again.destination_ids),
        (issued.clone(), vec!["des_1".to_owned()])
    );
    assert!(
        !publish(&*store, named("other", &issued), NOW).await.duplicate,
        "not that tenant's"
    );
    let never_issued = store.ids().encode(IdKind::Event, 12_345);
    assert!(
        !publish(&*store, named("acme", &never_issued), NOW)
            .await
            .duplicate
    );
    assert!(
        publish(&*store, named("acme", &never_issued), NOW)
            .await
            .duplicate,
        "but it is now"
    );
}

pub(crate) async fn one_id_published_at_once_is_one_event<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let publishes: Vec<_> = (0..64)
        .map(|n| {
            let store = store.clone();
            let event = NewEvent {
                id: Some(format!("order-{}", n % 4)),
                ..event("acme", &[key])
            };
            tokio::spawn(async move { publish(&*store, event, NOW).await.duplicate })
        })
        .collect();
    let mut first = 0;
    for publish in publishes {
        first += usize::from(!publish.await.unwrap());
    }
    assert_eq!(first, 4);
    assert_eq!(pending(&*store, key).await.len(), 4);
}

pub(crate) async fn unknown_tenants_and_destinations_get_no_delivery<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let gone = create(&*store, acme, "des_2").await;
    store.delete_destination(acme, gone, NOW).await.unwrap();
    let accepted = publish(&*store, event("acme", &[gone, key, DestinationKey(9_999)]), NOW).await;
    assert_eq!(accepted.destination_ids, ["des_1"]);
    assert!(!publish(&*store, event("nobody", &[]), NOW).await.duplicate);
    assert_eq!(
        store.tenant("nobody").await.unwrap(),
        None,
        "a publish makes no tenant"
    );
    assert_eq!(store.stats(NOW).await.unwrap().pending, 1);
}

pub(crate) async fn a_disabled_destination_gets_a_dead_letter<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let keys = [
        create(&*store, acme, "des_1").await,
        create(&*store, acme, "des_2").await,
        create(&*store, acme, "des_3").await,
    ];
    let mut half_disabled = event("acme", &keys);
    half_disabled.destinations[2].discarded = true;
    half_disabled.destinations[0] = NewDelivery {
        destination: keys[0],
        dead: Some(DeadReason::DestinationDisabled),
        context: None,
        discarded: false,
    };
    let accepted = publish(&*store, half_disabled, NOW).await;
    assert_eq!(accepted.destination_ids, ["des_1", "des_2", "des_3"]);
    assert_eq!(pending(&*store, keys[0]).await, []);
    assert_eq!(pending(&*store, keys[1]).await.len(), 1);
    assert_eq!(pending(&*store, keys[2]).await, []);
    let stats = store.stats(NOW).await.unwrap();
    assert_eq!((stats.pending, stats.dead), (1, 1));
    assert_eq!(stats.ended.canceled, 1, "a discarded one is counted");
    let retried = store
        .retry(Some("acme"), &accepted.id, keys[2], NOW)
        .await
        .unwrap();
    assert!(
        matches!(retried, Retried::Scheduled),
        "and can still be sent: {retried:?}"
    );
    assert_eq!(pending(&*store, keys[2]).await.len(), 1);
    let harness = harness.restart().await;
    let stats = harness.store().stats(NOW).await.unwrap();
    assert_eq!(
        (stats.pending, stats.dead),
        (2, 1),
        "counted again after a restart"
    );
}

pub(crate) async fn ten_thousand_and_one_destinations<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let creations: Vec<_> = (0..10_001)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { create(&*store, acme, &format!("des_{n}")).await })
        })
        .collect();
    let mut keys = Vec::new();
    for creation in creations {
        keys.push(creation.await.unwrap());
    }
    let last_id = "des_10000";
    let accepted = publish(&*store, event("acme", &keys), NOW).await;
    assert_eq!(accepted.destination_ids.len(), 10_001);
    let second = publish(&*store, event("acme", &keys[10_000..]), NOW).await;
    assert_eq!(second.destination_ids, [last_id]);
    assert_eq!(store.stats(NOW).await.unwrap().pending, 10_002);
    assert_eq!(store.destinations_with_pending().await.unwrap().len(), 10_001);
    let last = pending(&*store, keys[10_000]).await;
    assert_eq!(last[0].key.0, last[0].event.0 + 10_001, "event e owns e+1..=e+n");
    assert!(last[1].event.0 > last[0].key.0);
}

pub(crate) async fn what_is_accepted_reaches_the_feed<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let keys = [
        create(&*store, acme, "des_1").await,
        create(&*store, acme, "des_2").await,
    ];
    let accepted = publish(&*store, event("acme", &keys), NOW).await;
    let arrivals = store.feed().arrivals().await;
    let mut stored = due(&*store, keys[0]).await;
    stored.extend(due(&*store, keys[1]).await);
    assert_eq!(arrivals.accepted, stored, "the feed and the store say the same");
    let delivery = stored[0].delivery;
    assert_eq!(delivery.plan, Plan::first(NOW));
    assert_eq!(delivery.progress, Progress::new(NOW));
    assert_eq!(
        (delivery.retryable, delivery.replayed, delivery.last_attempt),
        (true, false, None)
    );
    assert_eq!(stored[0].payload.as_ref().unwrap().event_id, accepted.id);
    assert_eq!(
        store.ids().decode(IdKind::Event, &accepted.id),
        Some(delivery.event.0)
    );
    publish(&*store, event("acme", &[]), NOW).await;
    publish(
        &*store,
        NewEvent {
            retryable: false,
            ..event("acme", &keys[..1])
        },
        NOW,
    )
    .await;
    let arrivals = store.feed().arrivals().await;
    assert_eq!(arrivals.accepted.len(), 1);
    assert!(!arrivals.accepted[0].delivery.retryable);
}

pub(crate) async fn keys_grow_when_the_clock_goes_back<H: Harness>() {
    let harness = H::start().await;
    let acme = tenant(&*harness.store(), "acme").await;
    let key = create(&*harness.store(), acme, "des_1").await;
    publish(&*harness.store(), event("acme", &[key]), at(100)).await;
    publish(&*harness.store(), event("acme", &[key]), at(50)).await;
    let harness = harness.restart().await;
    publish(&*harness.store(), event("acme", &[key]), Timestamp::EPOCH).await;
    let mut rows = pending(&*harness.store(), key).await;
    rows.sort_by_key(|row| row.key);
    let due_at: Vec<_> = rows.iter().map(|row| row.plan.due_at).collect();
    assert_eq!(due_at, [at(100), at(50), Timestamp::EPOCH]);
}
