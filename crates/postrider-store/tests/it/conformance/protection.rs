//! What outlives a restart of the protection of receivers, and how much waits for one.

use std::time::Duration;

use postrider_core::breaker::{Breaker, BreakerConfig};
use postrider_core::dispatcher::Protection;
use postrider_core::outcome::Outcome;
use postrider_core::streak::{Streak, StreakConfig};
use postrider_store::record::Backlog;

use super::{Harness, NOW, at, create, event, publish, tenant};

/// After this many failures.
fn failed(times: u64) -> Protection {
    let mut breaker = Breaker::new(1);
    let mut streak = Streak::default();
    let outcome = Outcome::status(503);
    for n in 0..times {
        streak.finished(&outcome, at(n), &StreakConfig::default());
        breaker.finished(&outcome, false, Duration::ZERO, at(n), &BreakerConfig::default());
    }
    Protection {
        breaker: breaker.snapshot(),
        streak,
        hold_until: None,
    }
}

pub(crate) async fn a_state_is_kept_until_it_is_replaced_or_forgotten<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let one = create(&*store, acme, "des_1").await;
    let two = create(&*store, acme, "des_2").await;
    assert_eq!(store.protections().await.unwrap(), vec![]);
    let open = Protection {
        hold_until: Some(at(3_600)),
        ..failed(5)
    };
    assert!(open.breaker.is_some());
    let both = vec![(one, Some(failed(4))), (two, Some(failed(3)))];
    store.keep_protection(both).await.unwrap();
    let later = vec![(one, Some(open.clone())), (two, None)];
    store.keep_protection(later).await.unwrap();
    drop(store);
    let harness = harness.restart().await;
    let store = harness.store();
    assert_eq!(store.protections().await.unwrap(), [(one, open)]);
}

pub(crate) async fn a_hold_is_kept_without_anything_else<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let held = Protection {
        breaker: None,
        streak: Streak::default(),
        hold_until: Some(at(600)),
    };
    store
        .keep_protection(vec![(key, Some(held.clone()))])
        .await
        .unwrap();
    drop(store);
    let harness = harness.restart().await;
    assert_eq!(harness.store().protections().await.unwrap(), [(key, held)]);
}

pub(crate) async fn a_deleted_destination_leaves_no_state<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    store.keep_protection(vec![(key, Some(failed(5)))]).await.unwrap();
    store.delete_destination(acme, key, NOW).await.unwrap();
    assert_eq!(store.protections().await.unwrap(), vec![]);
    store.keep_protection(vec![(key, Some(failed(5)))]).await.unwrap();
    assert_eq!(
        store.protections().await.unwrap(),
        vec![],
        "also what came too late"
    );
}

pub(crate) async fn a_backlog_is_counted_up_to_a_bound<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    assert_eq!(store.backlog(key, 10).await.unwrap(), Backlog::default());
    for seconds in [30, 10, 20] {
        publish(&*store, event("acme", &[key]), at(seconds)).await;
    }
    let counted = |pending, more| Backlog {
        pending,
        more,
        first_due_at: Some(at(10)),
    };
    assert_eq!(store.backlog(key, 2).await.unwrap(), counted(2, true));
    assert_eq!(store.backlog(key, 3).await.unwrap(), counted(3, false));
}
