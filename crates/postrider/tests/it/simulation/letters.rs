//! Dead letters through the real engine: ended by hand, kept with what was in force, and replayed beside live traffic.

use std::collections::HashSet;
use std::time::Duration;

use postrider::engine::EngineConfig;
use postrider_core::breaker::BreakerConfig;
use postrider_core::delivery::{DeadReason, DeliveryStatus};
use postrider_core::id::{DestinationKey, ReplayKey};
use postrider_core::replay::{ReplayConfig, ReplayState};
use postrider_store::letter::{DeadLetterFilter, Withdrawn};
use postrider_store::replay::{Replay, ReplayCreated, ReplayScope, ReplaySpec, ReplayStep};

use super::world::{Behaviour, World};
use super::{HOUR, tight};

const QUICK: Duration = Duration::from_millis(20);

#[tokio::test(start_paused = true)]
async fn what_is_ended_by_hand_is_not_sent_any_more() {
    let world = World::new(1, EngineConfig::default()).await;
    let policy = r#"{"jitter": "none", "immediate": {"retries": 0}}"#;
    let fails = world
        .destination("fails", Behaviour::Status(500), Some(policy))
        .await;
    let hangs = world.destination("hangs", Behaviour::Hangs, Some(policy)).await;
    world.publish(&[fails, hangs], 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let now = world.clock.now();
    let mut by_hand = 0;
    for delivery in world.deliveries().await {
        let ended = if by_hand % 2 == 0 {
            world.store.cancel_delivery(&delivery.id, now).await
        } else {
            world.store.dead_letter_delivery(&delivery.id, None, now).await
        };
        assert_eq!(ended.unwrap(), Withdrawn::Done);
        by_hand += 1;
    }
    assert_eq!(by_hand, 4);
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.seen(fails).len(), 2, "each once, before");
    assert_eq!(
        world.seen(hangs).len(),
        2,
        "those that were out came back and were not repeated"
    );
    assert_eq!(world.attempts().await.len(), 4, "and all are recorded");
    let statuses = world.statuses().await;
    assert_eq!(
        (
            statuses[&DeliveryStatus::Canceled],
            statuses[&DeliveryStatus::Dead]
        ),
        (2, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_knows_what_was_in_force() {
    let world = World::new(1, EngineConfig::default()).await;
    let policy = r#"{"max_attempts": 7}"#;
    let gone = world
        .destination("gone", Behaviour::Status(404), Some(policy))
        .await;
    world.publish(&[gone], 1).await;
    world.settle(HOUR).await;
    let delivery = world.deliveries().await.remove(0);
    assert_eq!(delivery.reason, Some(DeadReason::PermanentFailure));
    let letter = world.store.dead_letter(&delivery.id).await.unwrap().unwrap();
    let text = letter.context.unwrap().as_str().to_owned();
    let context: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(context["destination"]["id"], "gone");
    assert_eq!(
        context["destination"]["config"]["url"],
        "https://gone.example.com/"
    );
    assert_eq!(context["destination"]["retry_policy"]["max_attempts"], 7);
    assert_eq!(context["retry_policy"]["max_attempts"], 7);
    assert_eq!(
        context["retry_policy"]["max_age"], "3d",
        "every value is written out"
    );
    assert!(!text.contains("whsec_"), "no credentials");
}

/// A breaker would hold back deliveries that are to die.
fn without_breaker() -> EngineConfig {
    let mut config = tight();
    config.dispatcher.breaker = BreakerConfig {
        last: None,
        rate: None,
        slow: None,
        permanent_run: None,
        ..BreakerConfig::default()
    };
    config
}

async fn replay_all(world: &World) -> Replay {
    let spec = ReplaySpec {
        scope: ReplayScope::DeadLetters(DeadLetterFilter::default()),
        config: ReplayConfig::Current,
        rate_per_second: 50,
    };
    match world.store.create_replay(spec, world.clock.now()).await.unwrap() {
        ReplayCreated::Created { replay, .. } => replay,
        ReplayCreated::LimitReached => panic!("the first one"),
    }
}

/// Steps at ten deliveries each 200 ms until everything was looked at.
async fn walk(world: &mut World, replay: ReplayKey, destination: DestinationKey, restarts: bool) {
    for n in 0..1_000 {
        let step = ReplayStep {
            replay,
            destination,
            limit: 10,
            max_outstanding: 100,
        };
        let stepped = world
            .store
            .replay_step(step, world.clock.now())
            .await
            .unwrap()
            .unwrap();
        if stepped.is_walked {
            return;
        }
        if restarts && n % 7 == 3 {
            world.stop(Duration::ZERO).await;
            world.start();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the walk does not come to an end");
}

#[tokio::test(start_paused = true)]
async fn a_replay_delivers_each_dead_letter_once_beside_live_traffic() {
    for (seed, restarts) in [(1, false), (2, true)] {
        let mut world = World::new(seed, without_breaker()).await;
        let key = world.destination("expired", Behaviour::Status(401), None).await;
        let beside = world.destination("beside", Behaviour::Works(QUICK), None).await;
        for _ in 0..30 {
            world.publish(&[key], 10).await;
            world.settle(HOUR).await;
        }
        assert_eq!(world.statuses().await[&DeliveryStatus::Dead], 300, "seed {seed}");
        let failed: HashSet<_> = world.seen(key).iter().map(|seen| seen.delivery).collect();
        world.behave(key, Behaviour::Works(QUICK));
        let before = world.seen(key).len();
        let replay = replay_all(&world).await;
        world.publish(&[key, beside], 50).await;
        walk(&mut world, replay.key, key, restarts).await;
        world.settle(HOUR).await;
        let stats = world.store.stats(world.clock.now()).await.unwrap();
        assert_eq!((stats.pending, stats.dead), (0, 0), "seed {seed}");
        let after = world.seen(key);
        let again: Vec<_> = after[before..]
            .iter()
            .filter(|seen| failed.contains(&seen.delivery))
            .collect();
        let distinct: HashSet<_> = again.iter().map(|seen| seen.delivery).collect();
        assert_eq!(distinct, failed, "seed {seed}: each is sent again");
        if !restarts {
            assert_eq!(again.len(), 300, "seed {seed}: once");
        }
        assert_eq!(world.seen(beside).len(), 50);
        let detail = world.store.replay(&replay.id).await.unwrap().unwrap().replay;
        let progress = detail.progress;
        assert_eq!(detail.state, ReplayState::Done, "seed {seed}");
        assert_eq!(
            (progress.total, progress.queued, progress.succeeded),
            (300, 300, 300)
        );
    }
}
