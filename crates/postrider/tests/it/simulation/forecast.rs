//! What preview and forecast say, the engine does: attempt by attempt, to the millisecond.

use std::time::Duration;

use postrider::engine::EngineConfig;
use postrider_core::breaker::BreakerConfig;
use postrider_core::delivery::{DeadReason, DeliveryStatus, Plan, Progress};
use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::outcome::Outcome;

use super::HOUR;
use super::world::{Behaviour, START, World};

/// Nothing but the policy makes a delivery wait.
fn unprotected() -> EngineConfig {
    EngineConfig {
        dispatcher: DispatcherConfig {
            breaker: BreakerConfig::off(),
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_keeps_to_preview_and_forecast() {
    let policies = [
        r#""standard""#,
        r#""latency_sensitive""#,
        r#""batch""#,
        r#""three_tier""#,
        r#""outpost""#,
        r#"{"jitter":"decorrelated","max_age":"3h","long_term":{"enabled":false}}"#,
        r#"{"backoff":{"curve":"geometric","min_delay":"10s","max_delay":"100s","retries":10},"jitter":"equal","long_term":{"after":"10m","interval":"5m"}}"#,
        r#"{"backoff":{"schedule":["5m","30m","2h"]},"jitter":"none","max_attempts":4,"long_term":{"enabled":false}}"#,
        r#"{"rules":[{"match":["5xx","429"],"then":"retry","max_attempts":3}]}"#,
    ];
    let world = World::new(1, unprotected()).await;
    let mut runs = Vec::new();
    for (at, policy) in policies.iter().enumerate() {
        for status in [500, 503, 429, 404] {
            let id = format!("policy{at}-{status}");
            let key = world
                .destination(&id, Behaviour::Status(status), Some(policy))
                .await;
            runs.push((key, status));
        }
    }
    let keys: Vec<_> = runs.iter().map(|(key, _)| *key).collect();
    let published = world.clock.now();
    assert_eq!(published, START);
    world.publish(&keys, 1).await;
    world.settle(80 * HOUR).await;

    let deliveries = world.deliveries().await;
    for (key, status) in runs {
        let policy = &world.directory.target(key).unwrap().policy;
        let seen = world.seen(key);
        let outcome = Outcome::status(status);
        let forecast = policy.forecast(
            seen[0].delivery,
            &Progress::new(START),
            &Plan::first(START),
            true,
            &outcome,
            START,
        );
        let expected: Vec<_> = forecast
            .attempts
            .iter()
            .map(|it| (it.number, it.due_at))
            .collect();
        let happened: Vec<_> = seen.iter().map(|it| (it.number, it.at)).collect();
        assert_eq!(happened, expected, "{status} with {policy:?}");
        let delivery = deliveries.iter().find(|it| it.destination == key).unwrap();
        assert_eq!(delivery.status, DeliveryStatus::Dead);
        assert_eq!(delivery.reason, forecast.dead);

        let preview = policy.preview(&outcome);
        assert!(seen.len() <= preview.attempts.len());
        for (seen, previewed) in seen.iter().zip(&preview.attempts) {
            let offset = u64::try_from(seen.at.since(START).as_millis()).unwrap();
            let range = previewed.offset;
            assert!(
                (range.earliest_ms..=range.latest_ms).contains(&offset),
                "{offset} is not within {previewed:?}"
            );
        }
        let certain = preview.attempts.iter().filter(|it| it.certain).count();
        assert!(seen.len() >= certain, "every attempt that is certain is made");
    }
}

#[tokio::test(start_paused = true)]
async fn a_forecast_from_the_middle_is_what_is_left() {
    let world = World::new(1, unprotected()).await;
    let fails = world.destination("fails", Behaviour::Status(500), None).await;
    world.publish(&[fails], 1).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let delivery = world.deliveries().await.remove(0);
    let policy = world.directory.target(fails).unwrap().policy.clone();
    let forecast = policy.forecast(
        delivery.key,
        &delivery.progress,
        &delivery.plan.expect("it is pending"),
        true,
        &Outcome::status(500),
        world.clock.now(),
    );
    let before = world.seen(fails).len();
    world.settle(80 * HOUR).await;
    let seen = world.seen(fails);
    assert_eq!(seen.len(), 20, "max_attempts");
    let happened: Vec<_> = seen[before..].iter().map(|it| (it.number, it.at)).collect();
    let expected: Vec<_> = forecast
        .attempts
        .iter()
        .map(|it| (it.number, it.due_at))
        .collect();
    assert_eq!(happened, expected);
    assert_eq!(forecast.dead, Some(DeadReason::ExhaustedRetries));
}
