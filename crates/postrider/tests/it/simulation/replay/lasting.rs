//! What a replay has handed over and what is left of it, while it is paused, after a cancel, and over restarts and failed reads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider_core::id::DestinationKey;
use postrider_core::replay::ReplayState;
use postrider_store::letter::DeadLetterFilter;

use super::super::world::{Behaviour, World};
use super::{
    Runner, SECOND, after, change, config, detail, everything, mended, most_in_a_second, replay, runner,
    until_done,
};

#[tokio::test(start_paused = true)]
async fn a_replay_goes_on_after_runner_and_engine_were_started_anew() {
    let mut world = World::new(7, config()).await;
    let key = mended(&world, "one", 400).await;
    let start = world.clock.now();
    let first = runner(&world);
    let id = replay(&world, &first, everything(), 50).await;
    tokio::time::sleep(2 * SECOND).await;
    drop(first);
    world.stop(SECOND).await;
    world.start();
    let _second = runner(&world);
    let done = until_done(&world, &id, 60 * SECOND).await;
    assert_eq!(
        (done.replay.state, done.replay.progress.succeeded),
        (ReplayState::Done, 400)
    );
    let seen = after(world.seen(key), start);
    assert_eq!(seen.len(), 400, "a stop in good order repeats nothing");
    assert!(most_in_a_second(&seen) <= 51);
}

/// A replay of so many at 10 a second to a receiver that is down: everything was handed over, and nothing arrived.
async fn handed_over(
    world: &World,
    runner: &Runner,
    key: DestinationKey,
    filter: DeadLetterFilter,
) -> String {
    world.behave(key, Behaviour::Status(503));
    let id = replay(world, runner, filter, 10).await;
    let end = world.clock.now().plus(20 * SECOND);
    while !detail(world, &id)
        .await
        .destinations
        .iter()
        .all(|part| part.is_walked)
    {
        assert!(world.clock.now() < end, "not walked");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    id
}

/// Long enough for every retry to be due, and for the receiver to be repaired.
async fn repair(world: &World, key: DestinationKey) {
    tokio::time::sleep(3_600 * SECOND).await;
    world.behave(key, Behaviour::Works(Duration::from_millis(20)));
}

#[tokio::test(start_paused = true)]
async fn paused_after_everything_was_handed_over_it_goes_on_when_it_is_resumed() {
    let world = World::new(11, config()).await;
    let key = mended(&world, "one", 80).await;
    let runner = runner(&world);
    let id = handed_over(&world, &runner, key, everything()).await;
    change(&world, &runner, &id, ReplayState::Paused).await;
    let paused = world.clock.now();
    repair(&world, key).await;
    assert_eq!(after(world.seen(key), paused).len(), 0, "nothing in an hour");
    let resumed = world.clock.now();
    change(&world, &runner, &id, ReplayState::Running).await;
    let done = until_done(&world, &id, 10 * SECOND).await;
    assert_eq!(done.replay.progress.succeeded, 80);
    let most = most_in_a_second(&after(world.seen(key), resumed));
    assert!((10..=11).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn a_walked_replay_goes_on_while_another_of_its_destination_is_paused() {
    let world = World::new(12, config()).await;
    let key = mended(&world, "one", 40).await;
    tokio::time::sleep(SECOND).await;
    let between = world.clock.now();
    world.behave(key, Behaviour::Status(401));
    world.publish(&[key], 40).await;
    world.settle(60 * SECOND).await;
    let runner = runner(&world);
    let mut early = everything();
    early.died.lt = Some(between);
    let first = handed_over(&world, &runner, key, early).await;
    let second = replay(&world, &runner, everything(), 20).await;
    change(&world, &runner, &second, ReplayState::Paused).await;
    world.behave(key, Behaviour::Works(Duration::from_millis(20)));
    let done = until_done(&world, &first, 600 * SECOND).await;
    assert_eq!(done.replay.progress.succeeded, 40);
}

#[tokio::test(start_paused = true)]
async fn a_walked_replay_keeps_its_rate_over_a_restart() {
    let mut world = World::new(13, config()).await;
    let key = mended(&world, "one", 80).await;
    let first = runner(&world);
    let id = handed_over(&world, &first, key, everything()).await;
    change(&world, &first, &id, ReplayState::Paused).await;
    repair(&world, key).await;
    drop(first);
    world.stop(SECOND).await;
    world.start();
    let second = runner(&world);
    tokio::time::sleep(SECOND).await;
    let resumed = world.clock.now();
    change(&world, &second, &id, ReplayState::Running).await;
    let done = until_done(&world, &id, 10 * SECOND).await;
    assert_eq!(done.replay.progress.succeeded, 80);
    let most = most_in_a_second(&after(world.seen(key), resumed));
    assert!(most <= 11, "{most}");
}

#[tokio::test(start_paused = true)]
async fn what_a_canceled_replay_handed_over_goes_on_at_its_rate() {
    for restarts in [false, true] {
        let mut world = World::new(14, config()).await;
        let key = mended(&world, "one", 80).await;
        let other = mended(&world, "two", 20).await;
        world.behave(other, Behaviour::Status(503));
        let mut first = runner(&world);
        // Of both destinations; the one whose deliveries are outstanding for long is open all the time.
        let mut filter = everything();
        filter.destination_ids = vec!["two".to_owned()];
        let stays = replay(&world, &first, filter.clone(), 10).await;
        filter.destination_ids = vec!["one".to_owned()];
        let id = handed_over(&world, &first, key, filter).await;
        change(&world, &first, &id, ReplayState::Paused).await;
        change(&world, &first, &stays, ReplayState::Paused).await;
        repair(&world, key).await;
        let canceled = world.clock.now();
        change(&world, &first, &id, ReplayState::Canceled).await;
        if restarts {
            drop(first);
            world.stop(SECOND).await;
            world.start();
            first = runner(&world);
        }
        tokio::time::sleep(12 * SECOND).await;
        let progress = detail(&world, &id).await.replay.progress;
        assert_eq!((progress.succeeded, progress.outstanding()), (80, 0));
        let most = most_in_a_second(&after(world.seen(key), canceled));
        assert!(most <= 12, "{most}");
        assert_eq!(detail(&world, &stays).await.replay.state, ReplayState::Paused);
        drop(first);
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_was_started_anew_is_told_what_is_paused() {
    let world = World::new(17, config()).await;
    let key = mended(&world, "one", 80).await;
    let other = mended(&world, "two", 1).await;
    let runner = runner(&world);
    let mut filter = everything();
    filter.destination_ids = vec!["one".to_owned()];
    let id = handed_over(&world, &runner, key, filter).await;
    change(&world, &runner, &id, ReplayState::Paused).await;
    repair(&world, key).await;
    world.held.dies_once.store(true, Ordering::Relaxed);
    world.publish(&[other], 1).await;
    // Until it is told, a loop sends replays at its own rate.
    tokio::time::sleep(2 * SECOND).await;
    assert!(!world.held.dies_once.load(Ordering::Relaxed));
    let told = world.clock.now();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(after(world.seen(key), told).len(), 0);
    let left = detail(&world, &id).await.replay.progress.outstanding();
    assert!(left >= 70, "{left}");
}

/// Everything of a replay of 80 was handed over and it was paused; now its receiver is repaired, and nothing runs.
async fn paused_and_stopped(world: &mut World, key: DestinationKey) -> String {
    let first = runner(world);
    let mut filter = everything();
    filter.destination_ids = vec!["one".to_owned()];
    let id = handed_over(world, &first, key, filter).await;
    change(world, &first, &id, ReplayState::Paused).await;
    repair(world, key).await;
    drop(first);
    world.stop(SECOND).await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_look_that_failed_is_soon_followed_by_another() {
    let mut world = World::new(18, config()).await;
    let key = mended(&world, "one", 80).await;
    let id = paused_and_stopped(&mut world, key).await;
    world.held.busy_replays.store(1, Ordering::SeqCst);
    world.start();
    let _second = runner(&world);
    tokio::time::sleep(4 * SECOND).await;
    // Until it is told, the engine sends replays at its own rate: 50 a second, for half a second.
    let left = detail(&world, &id).await.replay.progress.outstanding();
    assert!((50..80).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_cannot_be_read_keeps_no_other_from_being_paused() {
    let mut world = World::new(19, config()).await;
    let key = mended(&world, "one", 80).await;
    let other = mended(&world, "two", 1).await;
    world.behave(other, Behaviour::Status(503));
    let first = runner(&world);
    let mut filter = everything();
    filter.destination_ids = vec!["two".to_owned()];
    let unreadable = replay(&world, &first, filter, 10).await;
    change(&world, &first, &unreadable, ReplayState::Paused).await;
    drop(first);
    let id = paused_and_stopped(&mut world, key).await;
    world.held.unreadable_replays.lock().insert(unreadable.clone(), 0);
    world.start();
    let second = runner(&world);
    tokio::time::sleep(4 * SECOND).await;
    let left = detail(&world, &id).await.replay.progress.outstanding();
    assert!(left >= 70, "{left}");
    let reads = world.held.unreadable_replays.lock()[&unreadable];
    assert!(reads > 1, "it may be readable the next time: {reads}");
    world.held.unreadable_replays.lock().clear();
    change(&world, &second, &unreadable, ReplayState::Running).await;
    tokio::time::sleep(4 * SECOND).await;
    let progress = detail(&world, &unreadable).await.replay.progress;
    assert_eq!(progress.outstanding(), 1, "it goes on: {progress:?}");
}
