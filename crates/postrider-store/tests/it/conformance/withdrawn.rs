//! Pending deliveries that somebody ends by hand.

use std::collections::HashMap;

use postrider_core::delivery::{DeadReason, DeliveryStatus, Plan};
use postrider_core::id::IdKind;
use postrider_core::outcome::Category;
use postrider_store::letter::Withdrawn;
use postrider_store::record::{AttemptQuery, Next};

use super::listing::all_attempts;
use super::{
    Harness, NOW, at, context, create, delivery_id, event, newest_pending, pending, publish, settle,
    settlement, tenant,
};

pub(crate) async fn a_pending_delivery_is_made_a_dead_letter_by_hand<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    publish(&*store, event("acme", &[key]), NOW).await;
    let first = newest_pending(&*store, key).await;
    let retry = Next::Retry(Plan::first(at(900)), first.progress.attempted(&first.plan));
    settle(&*store, vec![settlement(first, 429, retry, at(1))], at(1))
        .await
        .unwrap();
    store.feed().arrivals().await;
    let id = delivery_id(&*store, &first);
    let done = store
        .dead_letter_delivery(&id, Some(context("by hand")), at(5))
        .await
        .unwrap();
    assert_eq!(done, Withdrawn::Done);
    let letter = store.dead_letter(&id).await.unwrap().unwrap();
    assert_eq!(letter.context, Some(context("by hand")));
    let letter = letter.letter;
    assert_eq!(
        (
            letter.reason,
            letter.category,
            letter.code,
            letter.attempts,
            letter.died_at
        ),
        (DeadReason::Manual, Category::RateLimited, Some(429), 1, at(5))
    );
    assert_eq!(letter.error.as_deref(), Some("429: answer"));
    let arrivals = store.feed().arrivals().await;
    assert_eq!(
        arrivals.withdrawn,
        HashMap::from([(first.key, key)]),
        "the engine is told"
    );
    let stats = store.stats(at(5)).await.unwrap();
    assert_eq!(
        (stats.pending, stats.dead, stats.ended.dead(DeadReason::Manual)),
        (0, 1, 1)
    );
    let again = store.dead_letter_delivery(&id, None, at(6)).await.unwrap();
    assert_eq!(again, Withdrawn::NotPending(DeliveryStatus::Dead));
    let unknown = store.ids().encode(IdKind::Delivery, 99);
    for id in ["", "dlv_1", &unknown] {
        assert_eq!(
            store.cancel_delivery(id, at(6)).await.unwrap(),
            Withdrawn::Missing
        );
    }
}

pub(crate) async fn a_pending_delivery_is_canceled<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    publish(&*store, event("acme", &[key]), NOW).await;
    let first = newest_pending(&*store, key).await;
    let id = delivery_id(&*store, &first);
    assert_eq!(store.cancel_delivery(&id, at(5)).await.unwrap(), Withdrawn::Done);
    let shown = store.delivery(&id).await.unwrap().unwrap();
    assert_eq!(
        (shown.status, shown.ended_at),
        (DeliveryStatus::Canceled, Some(at(5)))
    );
    assert_eq!(pending(&*store, key).await, []);
    let arrivals = store.feed().arrivals().await;
    assert_eq!(arrivals.withdrawn, HashMap::from([(first.key, key)]));
    let stats = store.stats(at(5)).await.unwrap();
    assert_eq!((stats.pending, stats.dead, stats.ended.canceled), (0, 0, 1));
    publish(&*store, event("acme", &[key]), NOW).await;
    let left = delivery_id(&*store, &newest_pending(&*store, key).await);
    store.delete_destination(acme, key, at(6)).await.unwrap();
    assert_eq!(
        store.cancel_delivery(&left, at(7)).await.unwrap(),
        Withdrawn::NotPending(DeliveryStatus::Canceled)
    );
}

pub(crate) async fn what_comes_back_after_the_end_is_recorded<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for (status, shown) in [(500, DeliveryStatus::Dead), (200, DeliveryStatus::Succeeded)] {
        publish(&*store, event("acme", &[key]), NOW).await;
        let out = newest_pending(&*store, key).await;
        let id = delivery_id(&*store, &out);
        store.dead_letter_delivery(&id, None, at(1)).await.unwrap();
        let next = match status {
            200 => Next::Succeeded,
            _ => Next::Retry(Plan::first(at(60)), out.progress.attempted(&out.plan)),
        };
        settle(&*store, vec![settlement(out, status, next, at(2))], at(2))
            .await
            .unwrap();
        assert_eq!(pending(&*store, key).await, []);
        let delivery = store.delivery(&id).await.unwrap().unwrap();
        assert_eq!((delivery.status, delivery.progress.attempts), (shown, 1));
        let attempts = AttemptQuery {
            delivery_ids: vec![id],
            ..all_attempts()
        };
        assert_eq!(store.attempts(attempts).await.unwrap().rows.len(), 1);
    }
    assert_eq!(store.stats(at(3)).await.unwrap().dead, 1);
}
