//! Replays with the real engine, store and runner: their pace, what they do to live traffic, pause and cancel, and that
//! nothing is in two of them.

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
    let spec = ReplaySpec {
        scope: ReplayScope::DeadLetters(filter),
        config: ReplayConfig::Current,
        rate_per_second,
    };
    begin(world, runner, spec).await
}

async fn begin(world: &World, runner: &Runner, spec: ReplaySpec) -> String {
    let created = world.store.create_replay(spec, world.clock.now()).await.unwrap();
    let ReplayCreated::Created { replay, .. } = created else {
        panic!("{created:?}");
    };
    runner.changed.notify_one();
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
    let runner = runner(&world);
    let start = world.clock.now();
    let mut ids = Vec::new();
    for rate in [50, 20, 100] {
        ids.push(replay(&world, &runner, everything(), rate).await);
    }
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
        let spec = ReplaySpec {
            scope: ReplayScope::DeadLetters(everything()),
            config,
            rate_per_second: 50,
        };
        let id = begin(&world, &runner, spec).await;
        until_done(&world, &id, 60 * SECOND).await;
        let urls: Vec<String> = after(world.seen(key), start)
            .into_iter()
            .map(|seen| seen.url)
            .collect();
        assert_eq!(urls, vec![url.to_owned(); 20], "{config}");
    }
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
async fn what_an_old_address_answers_does_not_touch_the_destination_of_today() {
    let world = World::new(15, config()).await;
    let key = mended(&world, "one", 20).await;
    move_it(&world).await;
    world.control().reset(key).await.unwrap();
    world.behave(key, Behaviour::Status(410));
    let runner = runner(&world);
    let spec = ReplaySpec {
        scope: ReplayScope::DeadLetters(everything()),
        config: ReplayConfig::Original,
        rate_per_second: 50,
    };
    let id = begin(&world, &runner, spec).await;
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
    let spec = ReplaySpec {
        scope: ReplayScope::DeadLetters(everything()),
        config: ReplayConfig::Original,
        rate_per_second: 1,
    };
    begin(&world, &runner, spec).await;
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
    let spec = ReplaySpec {
        scope: ReplayScope::DeadLetters(everything()),
        config: ReplayConfig::Original,
        rate_per_second: 50,
    };
    let id = begin(&world, &runner, spec).await;
    let progress = until_done(&world, &id, 60 * SECOND).await.replay.progress;
    assert_eq!(progress.succeeded, 20);
    let seen = after(world.seen(key), start).into_iter();
    let urls: Vec<String> = seen.map(|seen| seen.url).collect();
    assert_eq!(urls, vec!["https://moved.example.com/"; 20], "as it is today");
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
    world
        .held
        .dies_once
        .store(true, std::sync::atomic::Ordering::Relaxed);
    world.publish(&[other], 1).await;
    // Until it is told, a loop sends replays at its own rate.
    tokio::time::sleep(2 * SECOND).await;
    assert!(!world.held.dies_once.load(std::sync::atomic::Ordering::Relaxed));
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
    world
        .held
        .busy_replays
        .store(1, std::sync::atomic::Ordering::SeqCst);
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
    let _second = runner(&world);
    tokio::time::sleep(4 * SECOND).await;
    let left = detail(&world, &id).await.replay.progress.outstanding();
    assert!(left >= 70, "{left}");
    let reads = world.held.unreadable_replays.lock()[&unreadable];
    assert_eq!(reads, 1, "and is read, and told of, once");
}
