//! Where a replay sends: as its destination is now, or as it was when each delivery died.

use postrider_core::replay::ReplayConfig;
use postrider_store::replay::{ReplayScope, ReplaySpec};

use super::super::world::{Behaviour, World};
use super::{SECOND, after, begin, config, everything, mended, move_it, runner, until_done};

/// Everything that is dead.
fn with(config: ReplayConfig, rate_per_second: u32) -> ReplaySpec {
    ReplaySpec {
        scope: ReplayScope::DeadLetters(everything()),
        config,
        rate_per_second,
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_uses_the_configuration_that_it_was_asked_for() {
    let world = World::new(8, config()).await;
    let key = mended(&world, "one", 20).await;
    move_it(&world).await;
    world.behave(key, Behaviour::Status(401));
    let runner = runner(&world);
    let table = [
        (ReplayConfig::Original, "https://one.example.com/"),
        (ReplayConfig::Current, "https://moved.example.com/"),
        // What died again kept the configuration with which it was sent.
        (ReplayConfig::Original, "https://moved.example.com/"),
    ];
    for (config, url) in table {
        let start = world.clock.now();
        let id = begin(&world, &runner, with(config, 50)).await;
        until_done(&world, &id, 60 * SECOND).await;
        let urls: Vec<String> = after(world.seen(key), start)
            .into_iter()
            .map(|seen| seen.url)
            .collect();
        assert_eq!(urls, vec![url.to_owned(); 20], "{config}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_old_address_answers_does_not_touch_the_destination_of_today() {
    let world = World::new(15, config()).await;
    let key = mended(&world, "one", 20).await;
    move_it(&world).await;
    world.control().reset(key).await.unwrap();
    world.behave(key, Behaviour::Status(410));
    let runner = runner(&world);
    let id = begin(&world, &runner, with(ReplayConfig::Original, 50)).await;
    let progress = until_done(&world, &id, 60 * SECOND).await.replay.progress;
    assert_eq!(progress.failed, 20);
    let target = world.directory.target(key).unwrap();
    assert!(!target.disabled);
    let view = world.control().view(key).await.unwrap();
    assert_eq!(view.failures, 0);
}

#[tokio::test(start_paused = true)]
async fn gone_from_the_address_of_today_disables_whatever_the_configuration() {
    let world = World::new(18, config()).await;
    let key = mended(&world, "one", 20).await;
    world.behave(key, Behaviour::Status(410));
    let runner = runner(&world);
    let start = world.clock.now();
    begin(&world, &runner, with(ReplayConfig::Original, 1)).await;
    tokio::time::sleep(10 * SECOND).await;
    assert!(world.directory.target(key).unwrap().disabled);
    assert_eq!(after(world.seen(key), start).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_context_that_cannot_be_read_is_taken_for_none() {
    let world = World::new(16, config()).await;
    let key = mended(&world, "one", 20).await;
    move_it(&world).await;
    world.held.corrupt_contexts();
    let runner = runner(&world);
    let start = world.clock.now();
    let id = begin(&world, &runner, with(ReplayConfig::Original, 50)).await;
    let progress = until_done(&world, &id, 60 * SECOND).await.replay.progress;
    assert_eq!(progress.succeeded, 20);
    let seen = after(world.seen(key), start).into_iter();
    let urls: Vec<String> = seen.map(|seen| seen.url).collect();
    assert_eq!(urls, vec!["https://moved.example.com/"; 20], "as it is today");
}
