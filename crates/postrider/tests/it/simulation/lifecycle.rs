//! What happens when a part fails: a result that can never be recorded, a store that hangs during a shutdown, a loop that
//! dies, and a source that is never quiet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider::engine::EngineConfig;
use postrider::telemetry::health::WorkerState;
use postrider::telemetry::supervisor::Supervisor;
use postrider_core::delivery::DeliveryStatus;
use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::id::DestinationKey;
use postrider_store::record::{Destination, Retried, Upserted};
use tokio::sync::watch;
use tokio::time::Instant;

use super::HOUR;
use super::world::{Behaviour, TENANT, World};

#[tokio::test(start_paused = true)]
async fn a_result_that_can_never_be_recorded_does_not_keep_the_others_waiting() {
    let world = World::new(1, EngineConfig::default()).await;
    let quick = Duration::from_millis(20);
    let good = world.destination("good", Behaviour::Works(quick), None).await;
    let bad = world.destination("bad", Behaviour::Works(quick), None).await;
    world.held.poisoned.lock().insert(bad);
    world.publish(&[good, bad], 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.publish(&[good], 3).await;
    tokio::time::sleep(HOUR).await;
    let statuses = world.statuses().await;
    assert_eq!(statuses[&DeliveryStatus::Succeeded], 5, "{statuses:?}");
    assert_eq!(statuses[&DeliveryStatus::Pending], 2);
    assert_eq!(world.seen(bad).len(), 2, "what was delivered is not sent again");
    let settler = world.health.workers().remove("settler");
    let text = "2 results can never be recorded: the log names their deliveries";
    assert_eq!(settler, Some(WorkerState::Degraded(text.to_owned())));
    assert!(world.health.is_healthy(), "the process goes on working");
}

#[tokio::test(start_paused = true)]
async fn a_settler_that_waits_for_the_disk_is_degraded_and_the_process_healthy() {
    let world = World::new(1, EngineConfig::default()).await;
    let quick = Duration::from_millis(20);
    let works = world.destination("works", Behaviour::Works(quick), None).await;
    world.held.is_full.store(true, Ordering::SeqCst);
    world.publish(&[works], 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let settler = world.health.workers().remove("settler");
    assert!(
        matches!(&settler, Some(WorkerState::Degraded(reason)) if reason.contains("results wait")),
        "{settler:?}"
    );
    assert!(world.health.is_healthy(), "a restart would not help");
    world.held.is_full.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let settler = world.health.workers().remove("settler");
    assert_eq!(settler, Some(WorkerState::Healthy));
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_keeps_its_deadline_although_nothing_can_be_recorded() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let hangs = world.destination("hangs", Behaviour::Hangs, None).await;
    let quick = Duration::from_millis(20);
    let works = world.destination("works", Behaviour::Works(quick), None).await;
    world.held.is_full.store(true, Ordering::SeqCst);
    world.publish(&[hangs, works], 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    world.stop(Duration::from_secs(3)).await;
    assert_eq!(
        began.elapsed().as_secs(),
        8,
        "3 s for the request that hangs, 5 s for the results"
    );
    world.held.is_full.store(false, Ordering::SeqCst);
    world.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 1);
    assert_eq!(
        world.seen(works).len(),
        2,
        "its result was lost, so it is sent again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_dies_says_why_and_is_started_again_from_the_store() {
    let world = World::new(1, EngineConfig::default()).await;
    let quick = Duration::from_millis(20);
    let works = world.destination("works", Behaviour::Works(quick), None).await;
    world.held.dies_once.store(true, Ordering::SeqCst);
    world.publish(&[works], 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let engine = world.health.workers().remove("engine");
    let reason = "panicked: a scripted death".to_owned();
    assert_eq!(engine, Some(WorkerState::Failed(reason)));
    world.settle(HOUR).await;
    assert_eq!(world.seen(works).len(), 2, "its result died with the loop");
    assert!(world.health.is_healthy());
}

/// Or no breaker would ever be written down again, and nobody would know.
#[tokio::test(start_paused = true)]
async fn a_keeper_that_dies_takes_the_loop_with_it_and_both_are_started_again() {
    let world = World::new(1, EngineConfig::default()).await;
    let down = world.destination("down", Behaviour::Status(500), None).await;
    world.held.keeper_dies_once.store(true, Ordering::SeqCst);
    world.publish(&[down], 20).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let engine = world.health.workers().remove("engine");
    let reason = "panicked: a scripted death of the keeper".to_owned();
    assert_eq!(engine, Some(WorkerState::Failed(reason)));
    tokio::time::sleep(HOUR).await;
    assert!(world.health.is_healthy());
    let kept = world.store.protections().await.unwrap();
    let kept: Vec<_> = kept
        .iter()
        .map(|(key, kept)| (*key, kept.breaker.is_some()))
        .collect();
    assert_eq!(kept, [(down, true)], "what opened again is written down");
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_writer_died_is_seen_as_failed_until_it_works_again() {
    let world = World::new(1, EngineConfig::default()).await;
    let (stop, stopped) = watch::channel(false);
    let supervisor = Supervisor {
        health: world.health.clone(),
        metrics: Arc::default(),
        stop: stopped,
    };
    world.held.writer_is_dead.store(true, Ordering::SeqCst);
    let attending = supervisor.attend(&world.store);
    // It is tried after 0, 1, 3 and 7 s.
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let store = world.health.workers().remove("store");
        let reason = "a scripted death of the writer".to_owned();
        assert_eq!(store, Some(WorkerState::Failed(reason)));
        assert!(!world.health.is_healthy(), "and /healthz says so");
    }
    world.held.writer_is_dead.store(false, Ordering::SeqCst);
    // And after 15 s.
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    assert!(world.health.is_healthy());
    assert!(!attending.is_finished());
    stop.send_replace(true);
    attending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn arrivals_without_end_do_not_keep_results_waiting() {
    let config = EngineConfig {
        dispatcher: DispatcherConfig {
            max_in_flight: 1,
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    };
    let world = World::new(1, config).await;
    let works = world.destination("works", Behaviour::Status(200), None).await;
    let noisy = world.destination("noisy", Behaviour::Status(200), None).await;
    *world.held.noisy.lock() = Some(noisy);
    world.publish(&[works], 3).await;
    // Each next request needs the slot of the one before, which is free once the loop has taken its result.
    for _ in 0..100_000 {
        if world.seen(works).len() == 3 {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("only {} of 3 were sent", world.seen(works).len());
}

async fn retry_by_hand(world: &World, destination: DestinationKey) {
    let event = &world.deliveries().await[0].event_id;
    let retried = world
        .store
        .retry(Some(TENANT), event, destination, world.clock.now())
        .await;
    assert_eq!(retried.unwrap(), Retried::Scheduled);
}

#[tokio::test(start_paused = true)]
async fn a_retry_by_hand_of_what_is_on_its_way_sends_once_more_only_if_that_fails() {
    let slow = Duration::from_secs(5);
    for (behaviour, sent) in [
        (Behaviour::Works(slow), vec![1]),
        (Behaviour::FailsOnce(500, slow), vec![1, 2]),
    ] {
        let world = World::new(1, EngineConfig::default()).await;
        let key = world.destination("d", behaviour, None).await;
        world.publish(&[key], 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        retry_by_hand(&world, key).await;
        world.settle(HOUR).await;
        tokio::time::sleep(HOUR).await;
        let numbers: Vec<u32> = world.seen(key).iter().map(|seen| seen.number).collect();
        assert_eq!(numbers, sent);
        let delivery = world.deliveries().await.remove(0);
        assert_eq!(delivery.status, DeliveryStatus::Succeeded);
        assert_eq!(delivery.progress.attempts as usize, sent.len());
        // What has ended is sent again when somebody asks for it.
        retry_by_hand(&world, key).await;
        world.settle(HOUR).await;
        assert_eq!(world.seen(key).len(), sent.len() + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_does_not_outlive_a_tenant_that_is_made_anew_while_it_is_changed() {
    let world = World::new(1, EngineConfig::default()).await;
    world.destination("d", Behaviour::Status(200), None).await;
    world.held.changes_slowly.store(true, Ordering::SeqCst);
    let directory = Arc::clone(&world.directory);
    let now = world.clock.now();
    let change = tokio::spawn(async move {
        let edit = |record: &mut Destination| {
            record.topics = vec!["order.paid".to_owned()];
            Vec::new()
        };
        directory.change(TENANT, "d", now, edit).await.map(drop)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    world
        .directory
        .delete_tenant(TENANT.to_owned(), now)
        .await
        .unwrap();
    let created = world.directory.upsert_tenant(TENANT.to_owned(), None, now).await;
    assert!(matches!(created.unwrap(), Upserted::Created(_)));
    change.await.unwrap().unwrap();
    let left = world.directory.destinations(TENANT).unwrap();
    assert!(left.is_empty(), "{left:?}");
}
