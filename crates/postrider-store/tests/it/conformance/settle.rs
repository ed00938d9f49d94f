//! Judged attempts, and attempts asked for by hand.

use std::time::Duration;

use postrider_core::delivery::{DeadReason, DelayCause, Plan, Progress, Tier};
use postrider_core::outcome::Category;
use postrider_store::record::{Next, Retried, Settlement};

use super::{Harness, NOW, at, create, event, pending, publish, settle, settlement, tenant};

pub(crate) async fn a_success_ends_the_delivery<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    publish(&*store, event("acme", &[key]), NOW).await;
    let row = pending(&*store, key).await[0];
    settle(&*store, vec![settlement(row, 200, Next::Succeeded, at(1))], at(1))
        .await
        .unwrap();
    assert_eq!(pending(&*store, key).await, []);
    assert_eq!(store.destinations_with_pending().await.unwrap(), []);
    let stats = store.stats(at(1)).await.unwrap();
    assert_eq!((stats.pending, stats.dead), (0, 0));
    assert!(
        store.payload(row.event).await.unwrap().is_some(),
        "the event stays"
    );
}

pub(crate) async fn a_retry_keeps_plan_and_progress_over_a_restart<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    publish(&*store, event("acme", &[key]), NOW).await;
    let row = pending(&*store, key).await[0];
    let plan = Plan {
        due_at: at(3_600),
        delay: Duration::from_nanos(3_600_000_000_001),
        tier: Tier::LongTerm,
        cause: DelayCause::RetryAfter,
    };
    let progress = Progress {
        attempts: 7,
        scheduled: 5,
        immediate: 2,
        last_delay: Duration::from_nanos(1_234_567_891),
        window_start: at(9),
    };
    settle(
        &*store,
        vec![settlement(row, 503, Next::Retry(plan, progress), at(1))],
        at(1),
    )
    .await
    .unwrap();
    drop(store);
    let harness = harness.restart().await;
    let after = pending(&*harness.store(), key).await[0];
    assert!(after.last_attempt.is_some());
    assert_eq!(
        after,
        postrider_core::delivery::PendingDelivery {
            plan,
            progress,
            last_attempt: after.last_attempt,
            ..row
        }
    );
}

pub(crate) async fn a_deleted_delivery_keeps_its_state_unless_it_arrived<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let other = create(&*store, acme, "des_2").await;
    publish(&*store, event("acme", &[key, other]), NOW).await;
    let in_flight = pending(&*store, key).await[0];
    let dead = pending(&*store, other).await[0];
    let reason = Next::Dead(DeadReason::PermanentFailure, Category::Http4xx);
    settle(&*store, vec![settlement(dead, 404, reason, at(1))], at(1))
        .await
        .unwrap();
    assert_eq!(store.stats(at(1)).await.unwrap().dead, 1);
    store.delete_destination(acme, key, at(1)).await.unwrap();
    let retry = Next::Retry(Plan::first(at(60)), in_flight.progress);
    settle(&*store, vec![settlement(in_flight, 500, retry, at(2))], at(2))
        .await
        .unwrap();
    assert_eq!(
        store.stats(at(2)).await.unwrap().pending,
        0,
        "no retry for what was deleted"
    );
    settle(
        &*store,
        vec![settlement(dead, 200, Next::Succeeded, at(3))],
        at(3),
    )
    .await
    .unwrap();
    let stats = store.stats(at(3)).await.unwrap();
    assert_eq!((stats.pending, stats.dead), (0, 0), "a success is the truth");
}

pub(crate) async fn a_manual_retry_starts_afresh_whatever_the_status<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    tenant(&*store, "other").await;
    let key = create(&*store, acme, "des_1").await;
    let unrelated = create(&*store, acme, "des_2").await;
    let id = publish(&*store, event("acme", &[key]), NOW).await.id;
    store.feed().arrivals().await;
    let nexts = [
        Next::Retry(
            Plan::first(at(900)),
            Progress {
                attempts: 1,
                scheduled: 1,
                ..Progress::new(NOW)
            },
        ),
        Next::Succeeded,
        Next::Dead(DeadReason::ExhaustedRetries, Category::Timeout),
        Next::Canceled,
    ];
    for (next, attempts) in nexts.into_iter().zip(1..) {
        let row = pending(&*store, key).await[0];
        settle(&*store, vec![settlement(row, 500, next, at(1))], at(1))
            .await
            .unwrap();
        assert_eq!(
            store.retry(Some("acme"), &id, key, at(10)).await.unwrap(),
            Retried::Scheduled
        );
        let row = pending(&*store, key).await[0];
        assert_eq!(row.plan, Plan::manual(at(10)));
        assert_eq!(
            row.progress,
            Progress {
                attempts,
                ..Progress::new(at(10))
            },
            "attempts stay counted"
        );
        let arrivals = store.feed().arrivals().await;
        assert_eq!(
            arrivals.rescheduled.get(&row.key),
            Some(&row),
            "the engine is told"
        );
        let stats = store.stats(at(10)).await.unwrap();
        assert_eq!((stats.pending, stats.dead), (1, 0));
    }
    assert_eq!(
        store.retry(None, &id, key, at(20)).await.unwrap(),
        Retried::Scheduled,
        "the destination's tenant"
    );
    assert_eq!(
        store.retry(Some("other"), &id, key, at(20)).await.unwrap(),
        Retried::EventMissing
    );
    assert_eq!(
        store
            .retry(Some("acme"), "evt_nothing", key, at(20))
            .await
            .unwrap(),
        Retried::EventMissing
    );
    assert_eq!(
        store.retry(Some("acme"), &id, unrelated, at(20)).await.unwrap(),
        Retried::NoDelivery
    );
    let row = pending(&*store, key).await[0];
    let expired = Settlement {
        context: None,
        delivery: row,
        attempt: None,
        next: Next::Dead(DeadReason::Expired, Category::NotAttempted),
    };
    settle(&*store, vec![expired], at(30)).await.unwrap();
    assert_eq!(
        store.stats(at(30)).await.unwrap().dead,
        1,
        "an end without an attempt"
    );
}

pub(crate) async fn a_verdict_older_than_a_manual_retry_does_not_undo_it<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let id = publish(&*store, event("acme", &[key]), NOW).await.id;
    let in_flight = pending(&*store, key).await[0];
    let asked = store.retry(Some("acme"), &id, key, at(10)).await.unwrap();
    assert_eq!(asked, Retried::Scheduled);
    let planned = pending(&*store, key).await[0];
    let verdicts = [
        Next::Dead(DeadReason::PermanentFailure, Category::Http4xx),
        Next::Retry(
            Plan::first(at(900)),
            in_flight.progress.attempted(&in_flight.plan),
        ),
    ];
    let mut last_attempt = None;
    for (next, attempts) in verdicts.into_iter().zip(1..) {
        settle(&*store, vec![settlement(in_flight, 500, next, at(11))], at(11))
            .await
            .unwrap();
        let row = pending(&*store, key).await[0];
        assert_eq!(row.plan, Plan::manual(at(10)));
        let progress = Progress {
            attempts,
            ..Progress::new(at(10))
        };
        assert_eq!(row.progress, progress, "the attempt is counted");
        assert!(row.last_attempt > last_attempt, "and chained");
        last_attempt = row.last_attempt;
        let stats = store.stats(at(11)).await.unwrap();
        assert_eq!((stats.pending, stats.dead), (1, 0));
    }
    let plan = Plan::first(at(60));
    let next = Next::Retry(plan, planned.progress.attempted(&planned.plan));
    settle(&*store, vec![settlement(planned, 500, next, at(12))], at(12))
        .await
        .unwrap();
    let row = pending(&*store, key).await[0];
    assert_eq!(row.plan, plan, "a verdict on the attempt asked for counts");
    assert_eq!(row.progress.attempts, 3, "with those that it did not know of");
    settle(
        &*store,
        vec![settlement(in_flight, 200, Next::Succeeded, at(13))],
        at(13),
    )
    .await
    .unwrap();
    assert_eq!(pending(&*store, key).await, []);
    let stats = store.stats(at(13)).await.unwrap();
    assert_eq!((stats.pending, stats.dead), (0, 0), "a success is the truth");
}
