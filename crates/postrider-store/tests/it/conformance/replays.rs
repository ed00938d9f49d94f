//! Replays: dead letters made pending again, a few at a time, each once.

use postrider_core::delivery::{Plan, Progress};
use postrider_core::id::{DestinationKey, ReplayKey};
use postrider_core::replay::{ReplayConfig, ReplayState};
use postrider_store::Store;
use postrider_store::letter::{DeadLetterFilter, Withdrawn};
use postrider_store::record::{DueQuery, Next};
use postrider_store::replay::{
    Replay, ReplayChanged, ReplayCreated, ReplayPreview, ReplayProgress, ReplayQuery, ReplayScope,
    ReplaySpec, ReplayStep, ReplayStepped,
};

use super::listing::{NEWEST, all_deliveries};
use super::{
    Harness, at, bury, create, death, delivery_id, event, letters, newest_pending, pending, publish, settle,
    settlement, tenant,
};

pub(super) fn everything() -> ReplaySpec {
    ReplaySpec {
        scope: ReplayScope::DeadLetters(DeadLetterFilter::default()),
        config: ReplayConfig::Current,
        rate_per_second: 50,
    }
}

pub(super) async fn start(store: &dyn Store, spec: ReplaySpec) -> Replay {
    match store.create_replay(spec, at(100)).await.unwrap() {
        ReplayCreated::Created { replay, .. } => replay,
        ReplayCreated::LimitReached => panic!("too many"),
    }
}

pub(super) async fn step(
    store: &dyn Store,
    replay: ReplayKey,
    destination: DestinationKey,
    limit: u32,
) -> ReplayStepped {
    let step = ReplayStep {
        replay,
        destination,
        limit,
        max_outstanding: 100,
    };
    store.replay_step(step, at(200)).await.unwrap().unwrap()
}

/// Where a replay is behind.
async fn rest(store: &dyn Store, replay: &Replay) -> (u64, u64) {
    let rest = store.replay(&replay.id).await.unwrap().unwrap().replay.rest;
    (rest.most, rest.most_per_thousand_done)
}

pub(super) async fn shown(store: &dyn Store, replay: &Replay) -> (ReplayState, ReplayProgress) {
    let detail = store.replay(&replay.id).await.unwrap().unwrap();
    (detail.replay.state, detail.replay.progress)
}

pub(crate) async fn a_replay_moves_dead_letters_step_by_step<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let keys = [
        create(&*store, acme, "des_1").await,
        create(&*store, acme, "des_2").await,
    ];
    let mut buried = Vec::new();
    for n in 0..3 {
        buried.push(bury(&*store, "acme", keys[0], 401, at(n)).await);
    }
    bury(&*store, "acme", keys[0], 500, at(4)).await;
    bury(&*store, "acme", keys[1], 401, at(5)).await;
    let scope = ReplayScope::DeadLetters(DeadLetterFilter {
        codes: vec![401],
        ..DeadLetterFilter::default()
    });
    let preview = ReplayPreview {
        total: 4,
        destinations: vec![(keys[0], 3), (keys[1], 1)],
        unreachable: 0,
    };
    assert_eq!(store.preview_replay(scope.clone()).await.unwrap(), preview);
    let spec = ReplaySpec {
        scope,
        ..everything()
    };
    let replay = start(&*store, spec.clone()).await;
    assert_eq!(
        (replay.state, replay.progress.total, replay.created_at),
        (ReplayState::Running, 4, at(100))
    );
    assert_eq!(replay.spec, spec);
    assert_eq!(rest(&*store, &replay).await, (3, 0), "3 and 1 are left");
    bury(&*store, "acme", keys[0], 401, at(101)).await;
    store.feed().arrivals().await;

    let first = step(&*store, replay.key, keys[0], 2).await;
    assert_eq!(
        (first.moved, first.is_walked, first.progress.queued),
        (2, false, 2)
    );
    let mut moved = pending(&*store, keys[0]).await;
    moved.sort_by_key(|row| row.key);
    let live = DueQuery {
        replays: false,
        destination: keys[0],
        skip: Default::default(),
        limit: 10,
        max_payload_bytes: 0,
    };
    let page = store.due(live).await.unwrap();
    assert_eq!(page.rows, [], "replays were not asked for");
    assert!(page.replays_passed, "there are some");
    let queued: Vec<_> = moved.iter().map(|row| row.key).collect();
    assert_eq!(
        queued,
        [buried[0].key, buried[1].key],
        "the first that died first"
    );
    for row in &moved {
        assert!(row.replayed);
        assert_eq!((row.plan, row.context), (Plan::manual(at(200)), None));
        assert_eq!(
            row.progress,
            Progress {
                attempts: 1,
                ..Progress::new(at(200))
            }
        );
    }
    let arrivals = store.feed().arrivals().await;
    let mut told: Vec<_> = arrivals.rescheduled.into_values().collect();
    told.sort_by_key(|row| row.key);
    assert_eq!(told, moved, "the engine is told");
    assert_eq!(letters(&*store, DeadLetterFilter::default()).await.len(), 4);

    drop(store);
    let harness = harness.restart().await;
    let store = harness.store();
    settle(
        &*store,
        vec![settlement(moved[0], 200, Next::Succeeded, at(201))],
        at(201),
    )
    .await
    .unwrap();
    settle(&*store, vec![death(moved[1], 401, "still", at(202))], at(202))
        .await
        .unwrap();
    let last = step(&*store, replay.key, keys[0], 5).await;
    assert_eq!(
        (last.moved, last.is_walked),
        (1, true),
        "what died since the beginning is not in it"
    );
    let (state, progress) = shown(&*store, &replay).await;
    assert_eq!(state, ReplayState::Running);
    let expected = ReplayProgress {
        total: 4,
        queued: 3,
        succeeded: 1,
        failed: 1,
        canceled: 0,
        skipped: 0,
    };
    assert_eq!((progress, progress.outstanding()), (expected, 1));
    // 1 and 1 are left; 2 and none are done.
    assert_eq!(rest(&*store, &replay).await, (1, 500));
    let nothing = step(&*store, replay.key, keys[0], 5).await;
    assert_eq!((nothing.moved, nothing.is_walked), (0, true));

    let other = step(&*store, replay.key, keys[1], 5).await;
    assert_eq!((other.moved, other.is_walked), (1, true));
    let left = [
        newest_pending(&*store, keys[0]).await,
        newest_pending(&*store, keys[1]).await,
    ];
    let canceled = store
        .cancel_delivery(&delivery_id(&*store, &left[0]), at(203))
        .await
        .unwrap();
    assert_eq!(canceled, Withdrawn::Done);
    assert_eq!(shown(&*store, &replay).await.0, ReplayState::Running);
    settle(
        &*store,
        vec![settlement(left[1], 204, Next::Succeeded, at(204))],
        at(204),
    )
    .await
    .unwrap();
    let detail = store.replay(&replay.id).await.unwrap().unwrap();
    assert_eq!(
        (detail.replay.state, detail.replay.ended_at),
        (ReplayState::Done, Some(at(204)))
    );
    let expected = ReplayProgress {
        queued: 4,
        succeeded: 2,
        canceled: 1,
        ..expected
    };
    assert_eq!(detail.replay.progress, expected);
    let parts: Vec<_> = detail
        .destinations
        .iter()
        .map(|part| {
            (
                part.destination_id.as_str(),
                part.tenant_id.as_str(),
                part.progress.total,
            )
        })
        .collect();
    assert_eq!(parts, [("des_1", "acme", 3), ("des_2", "acme", 1)]);
}

pub(crate) async fn a_replay_stops_at_what_is_outstanding<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for n in 0..5 {
        bury(&*store, "acme", key, 500, at(n)).await;
    }
    let replay = start(&*store, everything()).await;
    let narrow = ReplayStep {
        replay: replay.key,
        destination: key,
        limit: 10,
        max_outstanding: 2,
    };
    let mut moved = Vec::new();
    for _ in 0..2 {
        moved.push(store.replay_step(narrow, at(200)).await.unwrap().unwrap().moved);
    }
    assert_eq!(moved, [2, 0]);
    let row = newest_pending(&*store, key).await;
    settle(
        &*store,
        vec![settlement(row, 200, Next::Succeeded, at(201))],
        at(201),
    )
    .await
    .unwrap();
    let stepped = store.replay_step(narrow, at(202)).await.unwrap().unwrap();
    assert_eq!((stepped.moved, stepped.progress.outstanding()), (1, 2));
    let nowhere = ReplayStep {
        destination: DestinationKey(99),
        ..narrow
    };
    assert_eq!(store.replay_step(nowhere, at(202)).await.unwrap(), None);
}

pub(crate) async fn a_replay_is_paused_resumed_and_canceled<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for n in 0..3 {
        bury(&*store, "acme", key, 500, at(n)).await;
    }
    let replay = start(&*store, everything()).await;
    step(&*store, replay.key, key, 1).await;
    let to = async |state| match store.change_replay(&replay.id, state, at(300)).await.unwrap() {
        ReplayChanged::Changed(replay) => Ok(replay.state),
        ReplayChanged::Refused(replay) => Err(replay.state),
        ReplayChanged::Missing => panic!("it is there"),
    };
    assert_eq!(to(ReplayState::Paused).await, Ok(ReplayState::Paused));
    let stopped = step(&*store, replay.key, key, 5).await;
    assert_eq!((stopped.state, stopped.moved), (ReplayState::Paused, 0));
    assert_eq!(to(ReplayState::Paused).await, Ok(ReplayState::Paused), "again");
    assert_eq!(
        to(ReplayState::Done).await,
        Err(ReplayState::Paused),
        "nobody says so"
    );
    assert_eq!(to(ReplayState::Running).await, Ok(ReplayState::Running));
    assert_eq!(step(&*store, replay.key, key, 1).await.moved, 1);
    assert_eq!(to(ReplayState::Canceled).await, Ok(ReplayState::Canceled));
    assert_eq!(step(&*store, replay.key, key, 5).await.moved, 0);
    assert_eq!(to(ReplayState::Running).await, Err(ReplayState::Canceled));
    assert_eq!(pending(&*store, key).await.len(), 2, "what is pending goes on");
    for row in pending(&*store, key).await {
        settle(
            &*store,
            vec![settlement(row, 200, Next::Succeeded, at(301))],
            at(301),
        )
        .await
        .unwrap();
    }
    let (state, progress) = shown(&*store, &replay).await;
    assert_eq!(
        (state, progress.succeeded),
        (ReplayState::Canceled, 2),
        "and is counted"
    );
    let missing = store
        .change_replay("rpl_x", ReplayState::Paused, at(300))
        .await
        .unwrap();
    assert_eq!(missing, ReplayChanged::Missing);
    let second = start(&*store, everything()).await;
    let query = |states: Vec<ReplayState>| ReplayQuery { states, page: NEWEST };
    let listed = async |states| -> Vec<String> {
        let page = store.replays(query(states)).await.unwrap();
        page.rows.into_iter().map(|replay| replay.id).collect()
    };
    assert_eq!(listed(vec![]).await, [second.id.clone(), replay.id.clone()]);
    assert_eq!(
        listed(vec![ReplayState::Running, ReplayState::Paused]).await,
        [second.id]
    );
    assert_eq!(listed(vec![ReplayState::Canceled]).await, [replay.id]);
}

pub(crate) async fn a_delivery_is_in_one_replay_at_a_time<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for n in 0..4 {
        bury(&*store, "acme", key, 500, at(n)).await;
    }
    let first = start(&*store, everything()).await;
    let second = start(&*store, everything()).await;
    assert_eq!(step(&*store, first.key, key, 1).await.moved, 1);
    let rest = step(&*store, second.key, key, 10).await;
    assert_eq!((rest.moved, rest.is_walked), (3, true));
    assert_eq!((rest.progress.queued, rest.progress.skipped), (3, 1));
    let nothing = step(&*store, first.key, key, 10).await;
    assert_eq!(
        (nothing.moved, nothing.is_walked, nothing.progress.skipped),
        (0, true, 3)
    );
    let rows = pending(&*store, key).await;
    assert_eq!(rows.len(), 4);
    for row in rows {
        settle(
            &*store,
            vec![settlement(row, 200, Next::Succeeded, at(201))],
            at(201),
        )
        .await
        .unwrap();
    }
    for (replay, succeeded) in [(&first, 1), (&second, 3)] {
        let (state, progress) = shown(&*store, replay).await;
        assert_eq!((state, progress.succeeded), (ReplayState::Done, succeeded));
    }
}

/// Two runners, or a step that was repeated because its answer was late; and a purge of the same at the same time.
pub(crate) async fn steps_at_once_move_each_delivery_once<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for n in 0..40 {
        bury(&*store, "acme", key, 500, at(n)).await;
    }
    let replay = start(&*store, everything()).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (store, replay) = (store.clone(), replay.key);
            tokio::spawn(async move { step(&*store, replay, key, 3).await.moved })
        })
        .collect();
    let mut moved = 0;
    for task in tasks {
        moved += task.await.unwrap();
    }
    let (_, progress) = shown(&*store, &replay).await;
    assert_eq!((progress.queued, progress.skipped), (u64::from(moved), 0));
    assert_eq!(pending(&*store, key).await.len() as u64, progress.queued);
    let upper = store.last_dead_letter().await.unwrap();
    let purge = {
        let store = store.clone();
        tokio::spawn(async move {
            let filter = DeadLetterFilter::default();
            store
                .purge_dead_letters(filter, 0, upper, 100)
                .await
                .unwrap()
                .removed
        })
    };
    let mut stepped = step(&*store, replay.key, key, 100).await;
    while !stepped.is_walked {
        stepped = step(&*store, replay.key, key, 100).await;
    }
    let removed = purge.await.unwrap();
    let progress = stepped.progress;
    assert_eq!(progress.queued + removed, 40, "each was moved or removed");
    assert_eq!((progress.total, progress.skipped), (40, removed));
    assert_eq!(pending(&*store, key).await.len() as u64, progress.queued);
    // The rest goes with its destination.
    store.delete_destination(acme, key, at(300)).await.unwrap();
    let (state, progress) = shown(&*store, &replay).await;
    assert_eq!((state, progress.canceled), (ReplayState::Done, progress.queued));
}

pub(crate) async fn a_new_replay_says_what_it_leaves_out<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let deleted = create(&*store, acme, "des_2").await;
    for (destination, seconds) in [(key, 1), (deleted, 2), (key, 3), (deleted, 4), (deleted, 5)] {
        bury(&*store, "acme", destination, 500, at(seconds)).await;
    }
    store.delete_destination(acme, deleted, at(50)).await.unwrap();
    let created = store.create_replay(everything(), at(100)).await.unwrap();
    let ReplayCreated::Created { replay, unreachable } = created else {
        panic!("{created:?}");
    };
    assert_eq!((replay.progress.total, unreachable), (2, 3));
}

pub(crate) async fn a_delivery_says_whether_a_replay_sends_it<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let buried = bury(&*store, "acme", key, 500, at(1)).await;
    publish(&*store, event("acme", &[key]), at(2)).await;
    let live = newest_pending(&*store, key).await;
    let said = async || {
        let mut said = Vec::new();
        for row in [&buried, &live] {
            let id = delivery_id(&*store, row);
            said.push(store.delivery(&id).await.unwrap().unwrap().replayed);
        }
        said
    };
    assert_eq!(
        said().await,
        [false, false],
        "a dead letter, and one that was published"
    );
    let replay = start(&*store, everything()).await;
    step(&*store, replay.key, key, 1).await;
    assert_eq!(said().await, [true, false]);
    let listed = store.deliveries(all_deliveries()).await.unwrap().rows;
    let listed: Vec<_> = listed.iter().map(|row| row.replayed).collect();
    assert_eq!(listed, [true, false]);
    let row = pending(&*store, key).await.remove(1);
    assert_eq!(row.key, buried.key, "due since it was replayed");
    let ended = settlement(row, 200, Next::Succeeded, at(201));
    settle(&*store, vec![ended], at(201)).await.unwrap();
    assert_eq!(said().await, [false, false], "it has ended");
}

pub(crate) async fn so_many_replays_are_open_at_most<H: Harness>() {
    let harness = H::start().await;
    let store = harness.store();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    bury(&*store, "acme", key, 500, at(1)).await;
    let mut last = None;
    for _ in 0..100 {
        last = Some(start(&*store, everything()).await);
    }
    let refused = store.create_replay(everything(), at(100)).await.unwrap();
    assert_eq!(refused, ReplayCreated::LimitReached);
    let last = last.unwrap();
    store
        .change_replay(&last.id, ReplayState::Canceled, at(101))
        .await
        .unwrap();
    start(&*store, everything()).await;
}
