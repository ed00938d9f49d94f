//! Replays with the real engine, store and runner: their pace, what they do to live traffic, pause and cancel, and that
//! nothing is in two of them.

mod configuration;
mod lasting;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::engine::EngineConfig;
use postrider::letters::replayer::Replayer;
use postrider_core::breaker::BreakerConfig;
use postrider_core::delivery::DeliveryStatus;
use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::id::DestinationKey;
use postrider_core::replay::{ReplayConfig, ReplayState};
use postrider_core::time::Timestamp;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::record::Destination;
use postrider_store::replay::{ReplayCreated, ReplayDetail, ReplayScope, ReplaySpec};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::world::{Behaviour, Seen, TENANT, World};

const SECOND: Duration = Duration::from_secs(1);

/// Without a breaker, so that everything that is refused becomes a dead letter.
fn config() -> EngineConfig {
    EngineConfig {
        dispatcher: DispatcherConfig {
            breaker: BreakerConfig::off(),
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    }
}

/// A runner that works until it is dropped.
struct Runner {
    changed: Arc<Notify>,
    task: JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn runner(world: &World) -> Runner {
    let (stop, stopped) = watch::channel(false);
    let changed = Arc::new(Notify::new());
    let replayer = Replayer {
        store: Arc::clone(&world.store),
        engine: world.control(),
        clock: Arc::clone(&world.clock),
        changed: Arc::clone(&changed),
        stop: stopped,
    };
    Runner {
        changed,
        task: tokio::spawn(replayer.run()),
        _stop: stop,
    }
}

/// A destination with so many dead letters, which works from now on.
async fn mended(world: &World, id: &str, dead: usize) -> DestinationKey {
    let key = world.destination(id, Behaviour::Status(401), None).await;
    for chunk in 0..dead.div_ceil(500) {
        world.publish(&[key], (dead - chunk * 500).min(500)).await;
    }
    world.settle(600 * SECOND).await;
    let works = Behaviour::Works(Duration::from_millis(20));
    world.behave(key, works);
    key
}

async fn replay(world: &World, runner: &Runner, filter: DeadLetterFilter, rate_per_second: u32) -> String {
    begin(world, runner, of_dead_letters(filter, rate_per_second)).await
}

fn of_dead_letters(filter: DeadLetterFilter, rate_per_second: u32) -> ReplaySpec {
    ReplaySpec {
        scope: ReplayScope::DeadLetters(filter),
        config: ReplayConfig::Current,
        rate_per_second,
    }
}

async fn begin(world: &World, runner: &Runner, spec: ReplaySpec) -> String {
    let id = created(world, spec).await;
    runner.changed.notify_one();
    id
}

/// A replay of which no runner has been told.
async fn created(world: &World, spec: ReplaySpec) -> String {
    let created = world.store.create_replay(spec, world.clock.now()).await.unwrap();
    let ReplayCreated::Created { replay, .. } = created else {
        panic!("{created:?}");
    };
    replay.id
}

/// From now on destination `one` is at `https://moved.example.com/`.
async fn move_it(world: &World) {
    let moved = |record: &mut Destination| {
        let url = "https://moved.example.com/".to_owned();
        record.config.insert("url".to_owned(), url);
        Vec::new()
    };
    let now = world.clock.now();
    world.directory.change(TENANT, "one", now, moved).await.unwrap();
}

async fn detail(world: &World, id: &str) -> ReplayDetail {
    world.store.replay(id).await.unwrap().unwrap()
}

async fn until_done(world: &World, id: &str, at_most: Duration) -> ReplayDetail {
    let end = world.clock.now().plus(at_most);
    loop {
        let found = detail(world, id).await;
        if !found.replay.state.is_open() {
            return found;
        }
        assert!(world.clock.now() < end, "not done after {at_most:?}: {found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The most requests within any second.
fn most_in_a_second(seen: &[Seen]) -> usize {
    let mut at: Vec<Timestamp> = seen.iter().map(|seen| seen.at).collect();
    at.sort_unstable();
    let within = |first: usize| at[first..].partition_point(|at_| at_.since(at[first]) < SECOND);
    (0..at.len()).map(within).max().unwrap_or_default()
}

fn after(seen: Vec<Seen>, start: Timestamp) -> Vec<Seen> {
    seen.into_iter().filter(|seen| seen.at >= start).collect()
}

fn everything() -> DeadLetterFilter {
    DeadLetterFilter::default()
}

#[tokio::test(start_paused = true)]
async fn at_fifty_a_second_there_are_never_more_than_fifty_one_in_any_second() {
    let world = World::new(1, config()).await;
    let keys = [mended(&world, "one", 700).await, mended(&world, "two", 300).await];
    let runner = runner(&world);
    let start = world.clock.now();
    let id = replay(&world, &runner, everything(), 50).await;
    let done = until_done(&world, &id, 30 * SECOND).await;
    assert_eq!(
        (done.replay.progress.succeeded, done.replay.progress.failed),
        (1_000, 0)
    );
    for (key, count) in keys.into_iter().zip([700, 300]) {
        let seen = after(world.seen(key), start);
        assert_eq!(seen.len(), count, "each once");
        let most = most_in_a_second(&seen);
        assert!(most <= 51, "{most}");
    }
    let took = world.clock.now().since(start);
    assert!(
        took <= Duration::from_millis(17_500),
        "700 at 50 a second, side by side with the other: {took:?}"
    );
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_a_second_are_reached() {
    let world = World::new(10, config()).await;
    let key = mended(&world, "one", 3_000).await;
    let runner = runner(&world);
    let start = world.clock.now();
    let id = replay(&world, &runner, everything(), 1_000).await;
    let done = until_done(&world, &id, 30 * SECOND).await;
    assert_eq!(done.replay.progress.succeeded, 3_000);
    let most = most_in_a_second(&after(world.seen(key), start));
    // A hundredth of a second's worth may be made up for, as `RateLimit` says.
    assert!((950..=1_010).contains(&most), "{most}");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_stood_still_is_not_flooded_when_it_comes_back() {
    let world = World::new(2, config()).await;
    let key = mended(&world, "one", 200).await;
    let outage = world.clock.now().since(super::world::START) + 20 * SECOND;
    world.behave(key, Behaviour::Out(503, outage));
    let runner = runner(&world);
    let start = world.clock.now();
    let id = replay(&world, &runner, everything(), 10).await;
    let done = until_done(&world, &id, 600 * SECOND).await;
    assert_eq!(done.replay.progress.succeeded, 200);
    // Retries by policy are no replays' starts of their own: they, too, are behind the rate.
    let most = most_in_a_second(&after(world.seen(key), start));
    assert!(most <= 11, "{most}");
}

#[tokio::test(start_paused = true)]
async fn live_traffic_is_not_delayed_by_a_replay() {
    let world = World::new(3, config()).await;
    let key = mended(&world, "one", 600).await;
    let runner = runner(&world);
    let start = world.clock.now();
    let id = replay(&world, &runner, everything(), 50).await;
    for _ in 0..100 {
        world.publish(&[key], 2).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until_done(&world, &id, 60 * SECOND).await;
    world.settle(60 * SECOND).await;
    let seen = after(world.seen(key), start);
    assert_eq!(seen.len(), 800);
    let replayed: HashMap<i64, u32> = seen.iter().map(|seen| (seen.delivery.0, seen.number)).collect();
    let live: Vec<_> = seen
        .iter()
        .filter(|seen| replayed[&seen.delivery.0] == 1)
        .collect();
    assert_eq!(live.len(), 200);
    let latest = live.iter().map(|seen| seen.at.since(seen.planned)).max().unwrap();
    assert!(latest <= Duration::from_millis(40), "{latest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_at_once_and_a_cancel_leaves_the_rest_dead() {
    let world = World::new(4, config()).await;
    let key = mended(&world, "one", 500).await;
    let runner = runner(&world);
    let start = world.clock.now();
    let id = replay(&world, &runner, everything(), 50).await;
    tokio::time::sleep(3 * SECOND).await;
    world
        .store
        .change_replay(&id, ReplayState::Paused, world.clock.now())
        .await
        .unwrap();
    runner.changed.notify_one();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let sent = after(world.seen(key), start).len();
    assert!((140..=160).contains(&sent), "three seconds' worth: {sent}");
    tokio::time::sleep(3_600 * SECOND).await;
    assert_eq!(after(world.seen(key), start).len(), sent, "nothing in an hour");
    world
        .store
        .change_replay(&id, ReplayState::Running, world.clock.now())
        .await
        .unwrap();
    runner.changed.notify_one();
    tokio::time::sleep(2 * SECOND).await;
    let resumed = after(world.seen(key), start).len();
    assert!((sent + 90..=sent + 110).contains(&resumed), "{resumed}");
    world
        .store
        .change_replay(&id, ReplayState::Canceled, world.clock.now())
        .await
        .unwrap();
    runner.changed.notify_one();
    world.settle(60 * SECOND).await;
    let statuses = world.statuses().await;
    let (succeeded, dead) = (
        statuses[&DeliveryStatus::Succeeded],
        statuses[&DeliveryStatus::Dead],
    );
    assert_eq!(succeeded + dead, 500);
    assert!(dead >= 200, "{statuses:?}");
    assert_eq!(after(world.seen(key), start).len(), succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_never_in_two_replays() {
    let world = World::new(5, config()).await;
    let key = mended(&world, "one", 400).await;
    let start = world.clock.now();
    let mut ids = Vec::new();
    for rate in [50, 20, 100] {
        ids.push(created(&world, of_dead_letters(everything(), rate)).await);
    }
    // Not before: what the first has delivered is no dead letter for those after it.
    let _runner = runner(&world);
    let mut succeeded = 0;
    for id in &ids {
        let progress = until_done(&world, id, 120 * SECOND).await.replay.progress;
        assert_eq!(progress.succeeded + progress.skipped, 400, "{progress:?}");
        succeeded += progress.succeeded;
    }
    assert_eq!(succeeded, 400);
    assert_eq!(after(world.seen(key), start).len(), 400, "each once");
}

#[tokio::test(start_paused = true)]
async fn what_dies_again_is_counted_and_not_sent_again_by_the_same_replay() {
    let world = World::new(6, config()).await;
    let key = mended(&world, "one", 120).await;
    world.behave(key, Behaviour::Status(401));
    let runner = runner(&world);
    let start = world.clock.now();
    let id = replay(&world, &runner, everything(), 50).await;
    let progress = until_done(&world, &id, 60 * SECOND).await.replay.progress;
    assert_eq!(
        (progress.total, progress.failed, progress.succeeded),
        (120, 120, 0)
    );
    assert_eq!(after(world.seen(key), start).len(), 120);
    assert_eq!(world.statuses().await[&DeliveryStatus::Dead], 120);
}

#[tokio::test(start_paused = true)]
async fn everything_since_a_time_is_sent_again_what_was_delivered_too() {
    let world = World::new(9, config()).await;
    let key = mended(&world, "one", 30).await;
    tokio::time::sleep(SECOND).await;
    let since = world.clock.now();
    world.publish(&[key], 40).await;
    world.settle(60 * SECOND).await;
    let runner = runner(&world);
    let start = world.clock.now();
    let spec = ReplaySpec {
        scope: ReplayScope::EverythingSince {
            destination: key,
            since,
        },
        config: ReplayConfig::Current,
        rate_per_second: 50,
    };
    let id = begin(&world, &runner, spec).await;
    let progress = until_done(&world, &id, 60 * SECOND).await.replay.progress;
    assert_eq!((progress.total, progress.succeeded), (40, 40));
    let seen = after(world.seen(key), start);
    assert_eq!(seen.len(), 40);
    assert!(most_in_a_second(&seen) <= 51);
    assert_eq!(
        world.statuses().await[&DeliveryStatus::Dead],
        30,
        "what died before stays"
    );
}

async fn change(world: &World, runner: &Runner, id: &str, state: ReplayState) {
    let now = world.clock.now();
    world.store.change_replay(id, state, now).await.unwrap();
    runner.changed.notify_one();
    tokio::time::sleep(Duration::from_millis(100)).await;
}
