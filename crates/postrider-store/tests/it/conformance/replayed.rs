//! What a replay covers, what it is sent with, and how its deliveries end.

use postrider_core::delivery::{DeadReason, DeliveryStatus, Plan};
use postrider_core::outcome::Category;
use postrider_core::replay::{ReplayConfig, ReplayState};
use postrider_core::time::Timestamp;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::record::{Next, Retried};
use postrider_store::replay::{ReplayScope, ReplaySpec};

use super::listing::texts;
use super::replays::{everything, shown, start, step};
use super::{
    Harness, NOW, at, bury, context, create, death, delivery_id, event, newest_pending, pending, publish,
    settle, settlement, tenant,
};

pub(crate) async fn everything_since_covers_what_was_delivered<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let other = create(&*store, acme, "des_2").await;
    let mut delivered = Vec::new();
    for n in [1, 10, 11] {
        publish(&*store, event("acme", &[key, other]), at(n)).await;
        for destination in [key, other] {
            let row = newest_pending(&*store, destination).await;
            settle(&*store, vec![settlement(row, 200, Next::Succeeded, at(n))], at(n))
                .await
                .unwrap();
            delivered.push(row.key);
        }
    }
    let dead = bury(&*store, "acme", key, 500, at(12)).await;
    publish(&*store, event("acme", &[key]), at(13)).await;
    let canceled = newest_pending(&*store, key).await;
    store
        .cancel_delivery(&delivery_id(&*store, &canceled), at(13))
        .await
        .unwrap();
    publish(&*store, event("acme", &[key]), at(14)).await;
    let waiting = newest_pending(&*store, key).await;
    let scope = ReplayScope::EverythingSince {
        destination: key,
        since: at(10),
    };
    let preview = store.preview_replay(scope.clone()).await.unwrap();
    assert_eq!((preview.total, preview.destinations), (5, vec![(key, 5)]));
    for year in ["2105", "2248", "2249", "2300", "2555", "2600", "2999", "9999"] {
        let scope = ReplayScope::EverythingSince {
            destination: key,
            since: Timestamp::parse(&format!("{year}-12-31")).unwrap(),
        };
        let preview = store.preview_replay(scope).await.unwrap();
        assert_eq!(preview.total, 0, "{year}");
    }
    let spec = ReplaySpec {
        scope,
        ..everything()
    };
    let replay = start(&*store, spec.clone()).await;
    assert_eq!(replay.spec, spec);
    let stepped = step(&*store, replay.key, key, 2).await;
    assert_eq!((stepped.moved, stepped.is_walked), (2, false));
    let stepped = step(&*store, replay.key, key, 10).await;
    assert_eq!((stepped.moved, stepped.is_walked), (1, true));
    assert_eq!((stepped.progress.queued, stepped.progress.skipped), (3, 2));
    let mut keys: Vec<_> = pending(&*store, key).await.iter().map(|row| row.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, [delivered[2], delivered[4], dead.key, waiting.key]);
    assert_eq!(store.stats(at(200)).await.unwrap().dead, 0);
    let row = store
        .delivery(&delivery_id(&*store, &canceled))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.status, DeliveryStatus::Canceled);
}

pub(crate) async fn the_original_configuration_stays_with_the_delivery<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let buried = bury(&*store, "acme", key, 500, at(1)).await;
    let in_force = context(&format!("in force at {}", at(1).as_seconds()));
    let id = delivery_id(&*store, &buried);
    let original = || ReplaySpec {
        config: ReplayConfig::Original,
        ..everything()
    };
    let replay = start(&*store, original()).await;
    step(&*store, replay.key, key, 1).await;
    let row = newest_pending(&*store, key).await;
    let kept = row.context.unwrap();
    assert_eq!(store.dead_context(kept).await.unwrap(), Some(in_force.clone()));
    let retry = Next::Retry(Plan::first(at(210)), row.progress.attempted(&row.plan));
    settle(&*store, vec![settlement(row, 503, retry, at(201))], at(201))
        .await
        .unwrap();
    drop(store);
    let harness = harness.restart().await;
    let store = harness.store();
    let row = newest_pending(&*store, key).await;
    assert_eq!(row.context, Some(kept));
    settle(&*store, vec![death(row, 500, "again", at(211))], at(211))
        .await
        .unwrap();
    let detail = store.dead_letter(&id).await.unwrap().unwrap();
    assert_eq!(
        detail.context,
        Some(in_force),
        "what it was sent with, not what is in force now"
    );
    let retried = store
        .retry(None, &detail.letter.event_id, key, at(300))
        .await
        .unwrap();
    assert_eq!(retried, Retried::Scheduled);
    let row = newest_pending(&*store, key).await;
    assert_eq!(
        (row.context, row.replayed),
        (None, false),
        "a retry by hand is none of that"
    );
}

pub(crate) async fn what_vanished_before_its_turn_is_skipped<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let keys = [
        create(&*store, acme, "des_1").await,
        create(&*store, acme, "des_2").await,
        create(&*store, acme, "des_3").await,
    ];
    let mut buried = Vec::new();
    for n in 0..9 {
        buried.push(bury(&*store, "acme", keys[n % 3], 500, at(n as u64)).await);
    }
    store.delete_destination(acme, keys[2], at(50)).await.unwrap();
    let preview = store.preview_replay(everything().scope).await.unwrap();
    assert_eq!(
        (preview.total, preview.unreachable),
        (6, 3),
        "not to a deleted destination"
    );
    let replay = start(&*store, everything()).await;
    let gone = DeadLetterFilter {
        ids: vec![delivery_id(&*store, &buried[0])],
        ..DeadLetterFilter::default()
    };
    let upper = store.last_dead_letter().await.unwrap();
    let purged = store.purge_dead_letters(gone, 0, upper, 10).await.unwrap();
    assert_eq!((purged.removed, purged.next), (1, None));
    let stepped = step(&*store, replay.key, keys[0], 10).await;
    assert_eq!((stepped.moved, stepped.progress.skipped), (2, 1));
    store.delete_destination(acme, keys[1], at(201)).await.unwrap();
    let stepped = step(&*store, replay.key, keys[1], 2).await;
    assert_eq!(
        (stepped.moved, stepped.is_walked, stepped.progress.skipped),
        (0, true, 3)
    );
    for row in pending(&*store, keys[0]).await {
        settle(
            &*store,
            vec![settlement(row, 200, Next::Succeeded, at(202))],
            at(202),
        )
        .await
        .unwrap();
    }
    assert_eq!(shown(&*store, &replay).await.0, ReplayState::Done);
    let none = ReplayScope::DeadLetters(DeadLetterFilter {
        tenant_ids: texts(&["nobody"]),
        ..DeadLetterFilter::default()
    });
    let empty = start(
        &*store,
        ReplaySpec {
            scope: none,
            ..everything()
        },
    )
    .await;
    assert_eq!((empty.state, empty.ended_at), (ReplayState::Done, Some(at(100))));
}

/// It was made a dead letter while its request was out, and then replayed; now the answer of that request comes.
pub(crate) async fn a_result_from_before_the_replay_counts_if_it_is_a_success<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for (status, counted) in [(404, (0, 0)), (200, (1, 0))] {
        publish(&*store, event("acme", &[key]), NOW).await;
        let out = newest_pending(&*store, key).await;
        let id = delivery_id(&*store, &out);
        store.dead_letter_delivery(&id, None, at(1)).await.unwrap();
        let filter = DeadLetterFilter {
            ids: vec![id],
            ..DeadLetterFilter::default()
        };
        let scope = ReplayScope::DeadLetters(filter);
        let replay = start(
            &*store,
            ReplaySpec {
                scope,
                ..everything()
            },
        )
        .await;
        assert_eq!(step(&*store, replay.key, key, 5).await.moved, 1);
        let next = match status {
            200 => Next::Succeeded,
            _ => Next::Dead(DeadReason::PermanentFailure, Category::Http4xx),
        };
        settle(&*store, vec![settlement(out, status, next, at(201))], at(201))
            .await
            .unwrap();
        let (_, progress) = shown(&*store, &replay).await;
        assert_eq!((progress.succeeded, progress.failed), counted, "{status}");
        if status == 404 {
            let row = newest_pending(&*store, key).await;
            settle(
                &*store,
                vec![settlement(row, 200, Next::Succeeded, at(202))],
                at(202),
            )
            .await
            .unwrap();
        }
        assert_eq!(shown(&*store, &replay).await.0, ReplayState::Done);
    }
}
