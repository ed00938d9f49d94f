//! What an open breaker does with deliveries, and what makes it look again, with the real engine and store.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider::engine::EngineConfig;
use postrider_core::delivery::{DeadReason, DeliveryStatus};
use postrider_core::dispatcher::Standing;
use postrider_core::id::DestinationKey;
use postrider_store::record::Destination;

use super::world::{Behaviour, START, TENANT, World};
use super::{HOUR, invariants, tight};

const MINUTE: Duration = Duration::from_secs(60);

async fn reasons(world: &World) -> BTreeMap<Option<DeadReason>, usize> {
    let mut counts = BTreeMap::new();
    for delivery in world.deliveries().await {
        *counts.entry(delivery.reason).or_default() += 1;
    }
    counts
}

async fn until(world: &World, destination: DestinationKey, standing: Standing) {
    for _ in 0..10_000 {
        if world.control().view(destination).await.unwrap().standing == standing {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never {standing}");
}

#[tokio::test(start_paused = true)]
async fn with_dead_letter_a_backlog_ends_while_the_breaker_is_open_and_a_probe_is_left() {
    let world = World::new(1, tight()).await;
    let policy = r#"{"while_open": "dead_letter", "max_attempts": 1}"#;
    let out = Behaviour::Out(500, Duration::from_secs(20));
    let down = world.destination("down", out, Some(policy)).await;
    world.publish(&[down], 300).await;
    until(&world, down, Standing::Open).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let seen = world.seen(down).len();
    assert!(seen <= 8, "what was out when it opened: {seen}");
    assert_eq!(
        world.statuses().await[&DeliveryStatus::Pending],
        1,
        "one is left to probe"
    );
    world.settle(HOUR).await;
    let reasons = reasons(&world).await;
    assert_eq!(reasons[&Some(DeadReason::CircuitOpen)], 300 - seen - 1);
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 1, "the probe");
    until(&world, down, Standing::Idle).await;
    world.publish(&[down], 5).await;
    world.settle(HOUR).await;
    assert_eq!(
        world.statuses().await[&DeliveryStatus::Succeeded],
        6,
        "and it flows again"
    );
    invariants(&world).await;
}

#[tokio::test(start_paused = true)]
async fn after_twenty_minutes_of_failure_what_is_due_ends() {
    let world = World::new(1, EngineConfig::default()).await;
    let policy = r#"{"dead_letter_after": "20m", "max_attempts": 1000}"#;
    let down = world
        .destination("down", Behaviour::Status(503), Some(policy))
        .await;
    world.publish(&[down], 50).await;
    tokio::time::sleep(19 * MINUTE).await;
    assert_eq!(
        world.statuses().await[&DeliveryStatus::Pending],
        50,
        "they are held"
    );
    tokio::time::sleep(2 * MINUTE).await;
    let left = world.statuses().await[&DeliveryStatus::Pending];
    assert!(left < 50, "those that are due end");
    for delivery in world.deliveries().await {
        if let Some(ended) = delivery.ended_at {
            assert_eq!(delivery.reason, Some(DeadReason::CircuitOpen));
            assert!(ended >= START.plus(20 * MINUTE), "{ended}");
        }
    }
    invariants_of_attempts(&world);
}

/// Nothing is sent while it is open: each probe is alone.
fn invariants_of_attempts(world: &World) {
    let seen = world.script.seen.lock();
    let late: Vec<_> = seen.iter().skip(10).map(|one| one.at).collect();
    for pair in late.windows(2) {
        assert!(pair[1].since(pair[0]) >= Duration::from_secs(30), "{pair:?}");
    }
}

/// Fifty expired deliveries behind a half-open breaker are gone in the instant of the probe, not one a second.
#[tokio::test(start_paused = true)]
async fn an_expired_backlog_does_not_take_the_place_of_the_probe() {
    let world = World::new(1, EngineConfig::default()).await;
    let policy = r#"{"max_age": "20s", "immediate": {"retries": 0}, "backoff": {"base": "5s"}}"#;
    let out = Behaviour::Out(500, Duration::from_secs(10));
    let down = world.destination("down", out, Some(policy)).await;
    world.publish(&[down], 50).await;
    until(&world, down, Standing::Open).await;
    let probe_at = world.control().view(down).await.unwrap().until.unwrap();
    // Published when the others are too old, so that it is sent.
    tokio::time::sleep(probe_at.minus(Duration::from_secs(1)).since(world.clock.now())).await;
    world.publish(&[down], 1).await;
    world.settle(HOUR).await;
    let fresh = world.seen(down).last().unwrap().clone();
    let late = fresh.at.since(probe_at);
    assert!(late < Duration::from_millis(500), "{late:?}");
    let reasons = reasons(&world).await;
    assert!(reasons[&Some(DeadReason::Expired)] >= 40, "{reasons:?}");
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 1);
}

#[tokio::test(start_paused = true)]
async fn another_address_is_probed_at_once() {
    let world = World::new(1, EngineConfig::default()).await;
    let out = Behaviour::Out(500, Duration::from_secs(5));
    let moved = world.destination("moved", out, None).await;
    world.publish(&[moved], 20).await;
    until(&world, moved, Standing::Open).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = world.seen(moved).len();
    let edit = |record: &mut Destination| {
        record
            .config
            .insert("url".to_owned(), "https://elsewhere.example.com/".to_owned());
        Vec::new()
    };
    let now = world.clock.now();
    world.directory.change(TENANT, "moved", now, edit).await.unwrap();
    world.control().changed(moved, true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(world.seen(moved).len() > before, "a probe, and it closed");
    world.settle(HOUR).await;
    assert_eq!(world.statuses().await[&DeliveryStatus::Succeeded], 20);
}

#[tokio::test(start_paused = true)]
async fn a_manual_retry_is_probed_at_once() {
    let world = World::new(1, EngineConfig::default()).await;
    let out = Behaviour::Out(500, Duration::from_secs(5));
    let fixed = world.destination("fixed", out, None).await;
    world.publish(&[fixed], 20).await;
    until(&world, fixed, Standing::Open).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let before = world.seen(fixed).len();
    let event = world.deliveries().await[0].event_id.clone();
    let now = world.clock.now();
    world.store.retry(Some(TENANT), &event, fixed, now).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(world.seen(fixed).len() > before, "a probe, and it closed");
}
