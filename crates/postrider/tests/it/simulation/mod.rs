//! The real engine and the real store on paused time: hours pass in moments, and every run is named by its seed.

mod alerts;
mod breaker;
mod forecast;
mod held;
mod letters;
mod lifecycle;
mod protection;
mod replay;
mod retention;
mod world;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postrider::engine::EngineConfig;
use postrider_core::delivery::{DeliveryStatus, WaitCause};
use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::hash;
use postrider_store::record::Destination;

use self::world::{Behaviour, World};

const HOUR: Duration = Duration::from_secs(3_600);

/// Lanes so small that the store is read all the time.
fn tight() -> EngineConfig {
    EngineConfig {
        dispatcher: DispatcherConfig {
            max_in_flight: 24,
            max_unsettled: 32,
            max_queued: 60,
            max_lane: 12,
            ..DispatcherConfig::default()
        },
        max_read_bytes: 64,
    }
}

#[tokio::test(start_paused = true)]
async fn everything_that_was_accepted_comes_to_its_end() {
    for seed in 0..3 {
        println!("seed {seed}");
        let world = World::new(seed, tight()).await;
        let works = world
            .destination("works", Behaviour::Works(Duration::from_millis(30)), None)
            .await;
        let flaky = world.destination("flaky", Behaviour::Flaky(20), None).await;
        let out = world
            .destination("out", Behaviour::Out(503, Duration::from_secs(90)), None)
            .await;
        let refuses = world.destination("refuses", Behaviour::Status(400), None).await;
        let all = [works, flaky, out, refuses];
        for round in 0..20 {
            let events = usize::try_from(hash::mix(seed, round) % 12).unwrap();
            world.publish(&all, events).await;
            tokio::time::sleep(Duration::from_millis(hash::mix(round, seed) % 900)).await;
        }
        world.settle(80 * HOUR).await;
        invariants(&world).await;
    }
}

/// What holds after every run.
async fn invariants(world: &World) {
    let deliveries = world.deliveries().await;
    let mut attempts: HashMap<i64, u32> = HashMap::new();
    for seen in world.script.seen.lock().iter() {
        assert!(
            seen.at >= seen.planned,
            "nothing is sent before its time: {seen:?}"
        );
        let made = attempts.entry(seen.delivery.0).or_default();
        *made += 1;
        assert_eq!(
            seen.number, *made,
            "attempt numbers have no gaps and no repeats: {seen:?}"
        );
    }
    for delivery in deliveries {
        assert_ne!(delivery.status, DeliveryStatus::Pending);
        assert_eq!(
            delivery.progress.attempts,
            attempts.get(&delivery.key.0).copied().unwrap_or(0)
        );
        assert_eq!(delivery.status == DeliveryStatus::Dead, delivery.reason.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_of_three_days_runs_to_its_end() {
    let world = World::new(1, EngineConfig::default()).await;
    let dead = world
        .destination("dead", Behaviour::Status(500), Some("\"three_tier\""))
        .await;
    world.publish(&[dead], 1).await;
    world.settle(80 * HOUR).await;
    let delivery = world.deliveries().await.remove(0);
    assert_eq!(delivery.status, DeliveryStatus::Dead);
    let seen = world.seen(dead);
    assert!(
        seen.len() > 60,
        "1m 5m 15m 30m 1h, then hourly for three days: {}",
        seen.len()
    );
    assert!(
        seen.iter().all(|s| s.at == s.planned),
        "an idle engine is on time to the millisecond"
    );
    assert!(
        seen.last().unwrap().at <= world::START.plus(72 * HOUR),
        "nothing after max_age"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_destination_does_not_slow_the_others() {
    let world = World::new(1, EngineConfig::default()).await;
    let mut hanging = Vec::new();
    for n in 0..40 {
        hanging.push(
            world
                .destination(&format!("hangs{n}"), Behaviour::Hangs, None)
                .await,
        );
    }
    let healthy = world
        .destination("healthy", Behaviour::Works(Duration::from_millis(10)), None)
        .await;
    world.publish(&hanging, 20).await;
    for _ in 0..50 {
        world.publish(&[healthy], 4).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let seen = world.seen(healthy);
    assert_eq!(seen.len(), 200);
    assert!(
        world.most_in_flight(hanging[0]) <= 4,
        "no more than the first window while nothing answers"
    );
    let late = seen
        .iter()
        .filter(|s| s.at.since(s.planned) > Duration::from_millis(50))
        .count();
    assert_eq!(late, 0, "every one within 50 ms of its acceptance");
}

/// Case 1.
#[tokio::test(start_paused = true)]
async fn retry_after_holds_the_whole_destination() {
    let world = World::new(1, EngineConfig::default()).await;
    let wait = Duration::from_secs(30);
    let limited = world
        .destination("limited", Behaviour::LimitsOnce(0, wait), None)
        .await;
    world.publish(&[limited], 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.publish(&[limited], 5).await;
    world.settle(HOUR).await;
    let seen = world.seen(limited);
    assert_eq!(seen.len(), 7);
    let answered = seen[0].at.plus(Duration::from_millis(20));
    assert!(seen[1..].iter().all(|s| s.at >= answered.plus(wait)), "{seen:?}");
    assert_eq!(
        seen.iter().filter(|s| s.at == answered.plus(wait)).count(),
        1,
        "one at first"
    );
    let causes: Vec<_> = world
        .attempts()
        .await
        .iter()
        .map(|a| a.recorded.waited_for)
        .collect();
    let held = causes.iter().filter(|cause| **cause == Some(WaitCause::Hold));
    assert_eq!(held.count(), 5, "{causes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_repeats_only_what_was_out_and_moves_no_schedule() {
    let mut world = World::new(3, EngineConfig::default()).await;
    let out = world
        .destination("out", Behaviour::Out(500, Duration::from_secs(40)), None)
        .await;
    let slow = world
        .destination("slow", Behaviour::Works(Duration::from_secs(5)), None)
        .await;
    world.publish(&[out, slow], 3).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let planned: HashSet<_> = world
        .deliveries()
        .await
        .iter()
        .filter_map(|d| d.plan.map(|p| (d.key, p.due_at)))
        .collect();
    world.stop(Duration::ZERO).await;
    let before = world.script.seen.lock().len();
    world.start();
    world.settle(HOUR).await;
    let seen = world.script.seen.lock().clone();
    let repeated = seen[before..].iter().filter(|s| s.destination == slow).count();
    assert_eq!(repeated, 3, "what was given up is sent again");
    let kept = seen[before..]
        .iter()
        .filter(|s| planned.contains(&(s.delivery, s.planned)))
        .count();
    assert_eq!(kept, 6, "every delivery goes on with the plan that it had");
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 6);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_courier_is_retried_and_not_lost() {
    let world = World::new(1, EngineConfig::default()).await;
    let odd = world.destination("odd", Behaviour::Panics, None).await;
    world.publish(&[odd], 1).await;
    world.settle(HOUR).await;
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 1);
    assert_eq!(world.seen(odd).len(), 2);
}

/// Cases 145 and 147.
#[tokio::test(start_paused = true)]
async fn gone_disables_the_destination_and_keeps_its_queue() {
    let world = World::new(1, EngineConfig::default()).await;
    let gone = world.destination("gone", Behaviour::Status(410), None).await;
    let missing = world.destination("missing", Behaviour::Status(404), None).await;
    world.publish(&[gone, missing], 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.directory.target(gone).unwrap().disabled);
    let entry = world.directory.destination(world::TENANT, "gone").unwrap();
    let disabled = entry.record.disabled.clone().unwrap();
    assert_eq!(disabled.reason, "the receiver answered 410 Gone \"out of order\"");
    assert_eq!(disabled.at, world::START, "since when");
    assert!(
        !world.directory.target(missing).unwrap().disabled,
        "404 does not disable"
    );
    world.publish(&[gone], 3).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.seen(gone).len(), 1, "nothing is sent while it is disabled");
    assert_eq!(
        world.statuses().await[&DeliveryStatus::Pending],
        3,
        "and nothing is dropped"
    );
}

#[tokio::test(start_paused = true)]
async fn enabling_a_destination_sends_what_was_pending() {
    let world = World::new(1, EngineConfig::default()).await;
    let out = world
        .destination("out", Behaviour::Out(500, Duration::from_secs(2)), None)
        .await;
    world.publish(&[out], 4).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world
        .directory
        .disable(out, "by hand".to_owned(), world.clock.now())
        .await;
    tokio::time::sleep(HOUR).await;
    let before = world.seen(out).len();
    assert_eq!(world.statuses().await[&DeliveryStatus::Pending], 4);
    let enable = |record: &mut Destination| {
        record.disabled = None;
        Vec::new()
    };
    world
        .directory
        .change(world::TENANT, "out", world.clock.now(), enable)
        .await
        .unwrap();
    world.settle(HOUR).await;
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 4);
    assert_eq!(world.seen(out).len(), before + 4);
}

#[tokio::test(start_paused = true)]
async fn a_destination_enabled_while_an_attempt_finds_it_disabled_is_not_paused_for_ever() {
    let world = World::new(1, EngineConfig::default()).await;
    let quick = Duration::from_millis(20);
    let busy = world.destination("busy", Behaviour::Works(quick), None).await;
    for _ in 0..20 {
        world.publish(&[busy], 5).await;
        world
            .directory
            .disable(busy, "by hand".to_owned(), world.clock.now())
            .await;
        let enable = |record: &mut Destination| {
            record.disabled = None;
            Vec::new()
        };
        world
            .directory
            .change(world::TENANT, "busy", world.clock.now(), enable)
            .await
            .unwrap();
    }
    world.settle(HOUR).await;
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 100);
}
