//! Retention: what is old goes with everything that belongs to it, and what is pending or dead stays.

use postrider_core::delivery::{DeadReason, Plan};
use postrider_core::hash;
use postrider_core::id::DestinationKey;
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use postrider_store::Store;
use postrider_store::letter::{DeadLetterFilter, Expired, RetentionKind};
use postrider_store::record::{AttemptQuery, NewDelivery, NewEvent, Next};

use super::listing::{all_attempts, all_deliveries, all_events};
use super::{
    Harness, NOW, at, bury, context, create, death, delivery_id, event, letters, newest_pending, pending,
    publish, settle, settlement, tenant,
};

/// Steps until nothing is left to do; answers how much was removed.
pub(crate) async fn expire(store: &dyn Store, kind: RetentionKind, before: Timestamp, limit: u32) -> u64 {
    let mut removed = 0;
    for _ in 0..10_000 {
        let step = store.expire(kind, before, limit).await.unwrap();
        removed += step.removed;
        if !step.more {
            return removed;
        }
    }
    panic!("retention does not come to an end");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Succeeds,
    SucceedsLater,
    Dies,
    Waits,
    WaitsAfterAFailure,
    IsCanceled,
}

const FATES: [Fate; 6] = [
    Fate::Succeeds,
    Fate::SucceedsLater,
    Fate::Dies,
    Fate::Waits,
    Fate::WaitsAfterAFailure,
    Fate::IsCanceled,
];

impl Fate {
    const fn is_needed(self) -> bool {
        matches!(self, Self::Dies | Self::Waits | Self::WaitsAfterAFailure)
    }

    const fn attempts(self) -> usize {
        match self {
            Self::Waits | Self::IsCanceled => 0,
            Self::Succeeds | Self::Dies | Self::WaitsAfterAFailure => 1,
            Self::SucceedsLater => 2,
        }
    }
}

/// Gives the newest pending delivery of a destination its fate.
async fn fulfil(store: &dyn Store, destination: DestinationKey, fate: Fate, now: Timestamp) {
    let first = newest_pending(store, destination).await;
    let retry = Next::Retry(Plan::first(now), first.progress.attempted(&first.plan));
    match fate {
        Fate::Succeeds => settle(store, vec![settlement(first, 200, Next::Succeeded, now)], now)
            .await
            .unwrap(),
        Fate::Dies => settle(store, vec![death(first, 410, "gone", now)], now)
            .await
            .unwrap(),
        Fate::Waits => {}
        Fate::WaitsAfterAFailure => settle(store, vec![settlement(first, 500, retry, now)], now)
            .await
            .unwrap(),
        Fate::SucceedsLater => {
            settle(store, vec![settlement(first, 500, retry, now)], now)
                .await
                .unwrap();
            let second = newest_pending(store, destination).await;
            settle(store, vec![settlement(second, 200, Next::Succeeded, now)], now)
                .await
                .unwrap();
        }
        Fate::IsCanceled => {
            store
                .cancel_delivery(&delivery_id(store, &first), now)
                .await
                .unwrap();
        }
    }
}

/// Ids of all events, and how many deliveries and attempts there are.
async fn left(store: &dyn Store) -> (Vec<String>, usize, usize) {
    let events = store.events(all_events()).await.unwrap();
    let deliveries = store.deliveries(all_deliveries()).await.unwrap();
    let attempts = store.attempts(all_attempts()).await.unwrap();
    assert_eq!((events.next, deliveries.next, attempts.next), (None, None, None));
    let ids = events.rows.into_iter().map(|event| event.id).collect();
    (ids, deliveries.rows.len(), attempts.rows.len())
}

pub(crate) async fn what_is_pending_or_dead_is_never_lost<H: Harness>() {
    for seed in 0..3 {
        let harness = H::start().await;
        let store = harness.store();
        let acme = tenant(&*store, "acme").await;
        let other = tenant(&*store, "other").await;
        let keys = [
            create(&*store, acme, "des_1").await,
            create(&*store, acme, "des_2").await,
            create(&*store, other, "des_3").await,
        ];
        let mut published: Vec<(String, Vec<Fate>)> = Vec::new();
        for n in 0..60_u64 {
            let drawn = hash::mix(seed, n);
            let tenant = if drawn % 3 == 2 { "other" } else { "acme" };
            let to: &[DestinationKey] = match drawn % 4 {
                _ if tenant == "other" => &keys[2..],
                0 => &[],
                1 => &keys[..1],
                _ => &keys[..2],
            };
            let fresh = NewEvent {
                id: drawn.is_multiple_of(2).then(|| format!("order-{n}")),
                ..event(tenant, to)
            };
            let id = publish(&*store, fresh, at(n)).await.id;
            let mut fates = Vec::new();
            for (place, destination) in to.iter().enumerate() {
                let fate = FATES[usize::try_from((drawn >> (8 * (place + 1))) % 6).unwrap()];
                fulfil(&*store, *destination, fate, at(n)).await;
                fates.push(fate);
            }
            published.push((id, fates));
        }
        let before = store.stats(NOW).await.unwrap();
        let limit = [1, 7, 1_000][usize::try_from(seed).unwrap()];
        let removed = expire(&*store, RetentionKind::Events, at(40), limit).await;
        let stays = |n: usize, fates: &[Fate]| n >= 40 || fates.iter().any(|fate| fate.is_needed());
        let kept: Vec<_> = published
            .iter()
            .enumerate()
            .filter(|(n, (_, fates))| stays(*n, fates))
            .map(|(_, published)| published)
            .collect();
        let all_of = |kept: &[&(String, Vec<Fate>)]| {
            let fates = || kept.iter().flat_map(|(_, fates)| fates);
            let attempts = fates().map(|fate| fate.attempts()).sum::<usize>();
            let ids: Vec<_> = kept.iter().map(|(id, _)| id.clone()).collect();
            (ids, fates().count(), attempts)
        };
        assert_eq!(left(&*store).await, all_of(&kept), "seed {seed}");
        assert_eq!(removed, (60 - kept.len()) as u64);
        let after = store.stats(NOW).await.unwrap();
        assert_eq!((after.pending, after.dead), (before.pending, before.dead));
        assert_eq!(
            expire(&*store, RetentionKind::Events, at(40), limit).await,
            0,
            "again"
        );

        drop(store);
        let harness = harness.restart().await;
        let store = harness.store();
        for letter in letters(&*store, DeadLetterFilter::default()).await {
            store
                .retry(None, &letter.event_id, letter.destination, at(100))
                .await
                .unwrap();
        }
        for key in keys {
            for row in pending(&*store, key).await {
                settle(
                    &*store,
                    vec![settlement(row, 200, Next::Succeeded, at(101))],
                    at(101),
                )
                .await
                .unwrap();
            }
        }
        expire(&*store, RetentionKind::Events, at(40), limit).await;
        let (ids, ..) = left(&*store).await;
        let late: Vec<_> = published.iter().skip(40).map(|(id, _)| id.clone()).collect();
        assert_eq!(ids, late, "seed {seed}: what had to stay goes when it has ended");
        expire(&*store, RetentionKind::Events, at(60), limit).await;
        assert_eq!(left(&*store).await, (vec![], 0, 0), "seed {seed}");
    }
}

pub(crate) async fn an_id_is_free_again_when_its_event_is_gone<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let named = || NewEvent {
        id: Some("order-1".to_owned()),
        ..event("acme", &[key])
    };
    publish(&*store, named(), at(1)).await;
    fulfil(&*store, key, Fate::Succeeds, at(1)).await;
    let early = store.expire(RetentionKind::Events, at(1), 10).await.unwrap();
    assert_eq!(
        early.removed, 0,
        "what was accepted at that time is not before it"
    );
    assert!(publish(&*store, named(), at(2)).await.duplicate);
    assert_eq!(expire(&*store, RetentionKind::Events, at(2), 10).await, 1);
    assert!(!publish(&*store, named(), at(3)).await.duplicate);
    assert_eq!(pending(&*store, key).await.len(), 1);
    let nothing = store.expire(RetentionKind::Events, at(2), 10).await.unwrap();
    assert_eq!(nothing, Expired::default());
}

/// A restart at which the clock has gone back finds nothing that tells which keys there were, but must not give them again.
pub(crate) async fn keys_of_what_is_gone_are_not_given_again<H: Harness>() {
    let mut harness = H::start().await;
    let acme = tenant(&*harness.store(), "acme").await;
    let key = create(&*harness.store(), acme, "des_1").await;
    let mut last = 0;
    for fate in [Fate::Succeeds, Fate::Dies] {
        let store = harness.store();
        publish(&*store, event("acme", &[key]), at(100)).await;
        let first = newest_pending(&*store, key).await;
        assert!(first.event.0 > last);
        fulfil(&*store, key, fate, at(100)).await;
        expire(&*store, RetentionKind::DeadLetters, at(200), 10).await;
        expire(&*store, RetentionKind::Events, at(200), 10).await;
        assert_eq!(left(&*store).await, (vec![], 0, 0));
        drop(store);
        harness = harness.restart().await;
        let store = harness.store();
        publish(&*store, event("acme", &[key]), NOW).await;
        let second = newest_pending(&*store, key).await;
        // The event, its delivery, its attempt; and the serial and the context of the one that died.
        let given = if fate == Fate::Dies { 4 } else { 2 };
        assert!(second.event.0 > first.event.0 + given, "{fate:?}");
        fulfil(&*store, key, Fate::Succeeds, at(100)).await;
        last = second.key.0;
    }
}

pub(crate) async fn attempts_of_pending_and_dead_deliveries_stay<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let mut shown = Vec::new();
    for (n, fate) in FATES.into_iter().enumerate() {
        let key = create(&*store, acme, &format!("des_{n}")).await;
        publish(&*store, event("acme", &[key]), at(1)).await;
        let id = delivery_id(&*store, &newest_pending(&*store, key).await);
        fulfil(&*store, key, fate, at(1)).await;
        shown.push((key, id, fate));
    }
    let of = async |id: &str| {
        let attempts = AttemptQuery {
            delivery_ids: vec![id.to_owned()],
            ..all_attempts()
        };
        store.attempts(attempts).await.unwrap().rows.len()
    };
    assert_eq!(expire(&*store, RetentionKind::Attempts, at(10), 2).await, 3);
    for (_, id, fate) in &shown {
        let expected = if fate.is_needed() { fate.attempts() } else { 0 };
        assert_eq!(of(id).await, expected, "{fate:?}");
        let delivery = store.delivery(id).await.unwrap().unwrap();
        assert_eq!(delivery.last_attempt.is_some(), expected > 0, "{fate:?}");
        assert_eq!(
            delivery.progress.attempts as usize,
            fate.attempts(),
            "still counted"
        );
    }
    // A later attempt takes those along that had to stay.
    let (key, id, _) = &shown[4];
    let row = newest_pending(&*store, *key).await;
    settle(
        &*store,
        vec![settlement(row, 200, Next::Succeeded, at(20))],
        at(20),
    )
    .await
    .unwrap();
    assert_eq!(of(id).await, 2);
    assert_eq!(expire(&*store, RetentionKind::Attempts, at(30), 2).await, 2);
    assert_eq!(of(id).await, 0);
    let attempts = store.attempts(all_attempts()).await.unwrap();
    assert_eq!(attempts.rows.len(), 1, "the dead one's");
    expire(&*store, RetentionKind::DeadLetters, at(30), 2).await;
    let attempts = store.attempts(all_attempts()).await.unwrap();
    assert_eq!(attempts.rows.len(), 0);
}

pub(crate) async fn an_event_with_many_deliveries_goes_in_pieces<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let mut keys = Vec::new();
    for n in 0..25 {
        keys.push(create(&*store, acme, &format!("des_{n}")).await);
    }
    publish(&*store, event("acme", &keys), at(1)).await;
    for key in &keys {
        fulfil(&*store, *key, Fate::Succeeds, at(1)).await;
    }
    let first = store.expire(RetentionKind::Events, at(10), 10).await.unwrap();
    assert_eq!((first.removed, first.more), (0, true));
    assert_eq!(left(&*store).await.0.len(), 1, "the event stays to the last");
    assert_eq!(expire(&*store, RetentionKind::Events, at(10), 10).await, 1);
    assert_eq!(left(&*store).await, (vec![], 0, 0));
}

pub(crate) async fn dead_letters_expire_with_what_was_in_force<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for n in 1..=6 {
        bury(&*store, "acme", key, 500, at(n)).await;
    }
    let shared = NewEvent {
        destinations: vec![NewDelivery {
            destination: key,
            dead: Some(DeadReason::DestinationDisabled),
            discarded: false,
            context: Some(context(&format!("in force at {}", at(1).as_seconds()))),
        }],
        ..event("acme", &[])
    };
    publish(&*store, shared, at(20)).await;
    let there = letters(&*store, DeadLetterFilter::default()).await;
    assert_eq!(there[0].context, there[6].context, "the same text is kept once");
    assert_eq!(expire(&*store, RetentionKind::DeadLetters, at(5), 3).await, 4);
    let kept = letters(&*store, DeadLetterFilter::default()).await;
    assert_eq!(kept, there[4..]);
    for (letter, is_kept) in there.iter().zip([true, false, false, false, true, true, true]) {
        let context = store.dead_context(letter.context.unwrap()).await.unwrap();
        assert_eq!(context.is_some(), is_kept, "{:?}", letter.died_at);
    }
    assert_eq!(store.delivery(&there[1].id).await.unwrap(), None);
    assert_eq!(store.stats(NOW).await.unwrap().dead, 3);
    assert_eq!(there[6].category, Category::NotAttempted);
    assert_eq!(
        expire(&*store, RetentionKind::Events, at(5), 3).await,
        4,
        "now their events may go"
    );
}
