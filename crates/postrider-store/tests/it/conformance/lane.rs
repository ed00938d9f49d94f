//! What the engine reads, and what deletion leaves of it.

use std::collections::HashSet;

use postrider_core::delivery::Plan;
use postrider_store::record::{DueDelivery, DueQuery, NewEvent, Next};

use super::replays::{everything, start, step};
use super::{Harness, NOW, at, bury, create, event, pending, publish, settle, settlement, tenant};

pub(crate) async fn due_is_in_order_and_skips_what_the_caller_has<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let other = create(&*store, acme, "des_2").await;
    for seconds in [30, 10, 20, 10] {
        publish(&*store, event("acme", &[key]), at(seconds)).await;
    }
    publish(&*store, event("acme", &[other]), at(5)).await;
    let all = pending(&*store, key).await;
    let due_at: Vec<_> = all.iter().map(|row| row.plan.due_at).collect();
    assert_eq!(due_at, [at(10), at(10), at(20), at(30)]);
    assert!(all[0].key < all[1].key, "equal times in order of acceptance");

    let skip = HashSet::from([all[0].key, all[2].key]);
    let query = DueQuery {
        replays: true,
        destination: key,
        skip,
        limit: 1,
        max_payload_bytes: 0,
    };
    let page = store.due(query.clone()).await.unwrap();
    assert_eq!(
        page.rows.iter().map(|row| row.delivery).collect::<Vec<_>>(),
        [all[1]]
    );
    assert!(page.more);
    let page = store.due(DueQuery { limit: 2, ..query }).await.unwrap();
    assert_eq!(
        page.rows.iter().map(|row| row.delivery).collect::<Vec<_>>(),
        [all[1], all[3]]
    );
    assert!(!page.more);
    assert_eq!(store.destinations_with_pending().await.unwrap(), [key, other]);
    assert_eq!(store.stats(at(7)).await.unwrap().oldest_due_at, Some(at(5)));
    assert_eq!(
        store.stats(at(4)).await.unwrap().oldest_due_at,
        None,
        "nothing is due yet"
    );
}

pub(crate) async fn a_page_tells_whether_replays_were_passed_over<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let other = create(&*store, acme, "des_2").await;
    let buried = bury(&*store, "acme", key, 500, at(1)).await;
    let replay = start(&*store, everything()).await;
    step(&*store, replay.key, key, 1).await;
    for destination in [key, other] {
        publish(&*store, event("acme", &[destination]), at(10)).await;
    }
    let table = [
        (key, false, HashSet::new(), true),
        (key, false, HashSet::from([buried.key]), false),
        (key, true, HashSet::new(), false),
        (other, false, HashSet::new(), false),
    ];
    for (destination, replays, skip, passed) in table {
        let query = DueQuery {
            destination,
            skip,
            replays,
            limit: 10,
            max_payload_bytes: 0,
        };
        let page = store.due(query.clone()).await.unwrap();
        assert_eq!(page.replays_passed, passed, "{query:?}");
    }
}

pub(crate) async fn payloads_stop_at_the_budget<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for (seconds, size) in [(0, 10), (1, 10), (2, 10), (3, 5)] {
        let data = bytes::Bytes::from(vec![b'x'; size]);
        let new = NewEvent {
            data,
            ..event("acme", &[key])
        };
        publish(&*store, new, at(seconds)).await;
    }
    let query = |max_payload_bytes| DueQuery {
        replays: true,
        destination: key,
        skip: HashSet::new(),
        limit: 10,
        max_payload_bytes,
    };
    let sizes = async |max_payload_bytes| -> Vec<Option<usize>> {
        let page = store.due(query(max_payload_bytes)).await.unwrap();
        let size = |row: &DueDelivery| row.payload.as_ref().map(|payload| payload.data.len());
        page.rows.iter().map(size).collect()
    };
    assert_eq!(
        sizes(25).await,
        [Some(10), Some(10), None, None],
        "none after the first that does not fit, though 5 would"
    );
    assert_eq!(sizes(30).await, [Some(10), Some(10), Some(10), None]);
    assert_eq!(sizes(35).await, [Some(10), Some(10), Some(10), Some(5)]);
    assert_eq!(sizes(0).await, [None; 4]);
}

pub(crate) async fn a_deleted_destination_has_nothing_due<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let kept = create(&*store, acme, "des_2").await;
    publish(&*store, event("acme", &[key, kept]), NOW).await;
    assert!(store.delete_destination(acme, key, at(1)).await.unwrap());
    assert_eq!(pending(&*store, key).await, []);
    assert_eq!(store.destinations_with_pending().await.unwrap(), [kept]);
    assert_eq!(pending(&*store, kept).await.len(), 1);
}

/// Case 115, and more rows than one step of the deletion moves.
pub(crate) async fn deleting_accounts_for_every_delivery<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let events: Vec<_> = (0..1_200).map(|_| event("acme", &[key])).collect();
    for batch in events.chunks(400) {
        store.accept(batch.to_vec(), NOW).await.unwrap();
    }
    let in_retry: Vec<_> = pending(&*store, key)
        .await
        .into_iter()
        .take(1_000)
        .map(|row| settlement(row, 500, Next::Retry(Plan::first(at(600)), row.progress), NOW))
        .collect();
    settle(&*store, in_retry, NOW).await.unwrap();
    assert!(store.delete_destination(acme, key, at(1)).await.unwrap());
    assert_eq!(pending(&*store, key).await, [], "none is sent afterwards");
    drop(store);
    // Whatever the deletion had not done yet, it goes on with after a restart.
    let harness = harness.restart().await;
    let store = harness.store();
    for _ in 0..10_000 {
        if store.stats(NOW).await.unwrap().pending == 0 {
            break;
        }
        store.ping().await.unwrap();
    }
    let stats = store.stats(NOW).await.unwrap();
    assert_eq!((stats.pending, stats.dead), (0, 0));
}
