//! Alerts on paused time, with the real engine: raised once, cleared by themselves, the same after a restart.

mod webhook;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider::alerts::{self, AlertsConfig, Thresholds};
use postrider::engine::EngineConfig;
use postrider::telemetry::health::Health;
use postrider::telemetry::supervisor::Supervisor;
use postrider_core::alert::{AlertKind, Severity};
use postrider_core::breaker::BreakerConfig;
use postrider_core::dispatcher::DispatcherConfig;
use postrider_store::alerts::{Alert, AlertQuery};
use postrider_store::page::PageRequest;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::world::{Behaviour, START, TENANT, World};

const SECOND: Duration = Duration::from_secs(1);
/// Longer than between two looks.
const LOOK: Duration = Duration::from_secs(11);

/// Nothing but what a test turns on.
fn off() -> Thresholds {
    Thresholds {
        dead_letters: 0,
        dead_letters_per_destination: 0,
        dead_letter_growth: 0,
        dead_letter_growth_per_destination: 0,
        time_to_success_p99: Duration::ZERO,
        oldest_due_age: Duration::ZERO,
        breaker_open: false,
        destination_disabled: false,
        retries_exhausted: false,
        consecutive_failures: 0,
    }
}

/// Without breakers, so that every failure is a dead letter at once.
fn no_breaker() -> EngineConfig {
    EngineConfig {
        dispatcher: DispatcherConfig {
            breaker: BreakerConfig::off(),
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    }
}

/// The watching task.
struct Watch {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Watch {
    fn start(world: &World, config: &AlertsConfig) -> Self {
        let (stop, stopped) = watch::channel(false);
        let supervisor = Supervisor {
            health: Health::default(),
            metrics: Arc::default(),
            stop: stopped,
        };
        let parts = alerts::Parts {
            store: Arc::clone(&world.store),
            directory: Arc::clone(&world.directory),
            engine: world.control(),
            notices: world.notices.clone(),
            clock: Arc::clone(&world.clock),
            metrics: Arc::clone(&world.metrics),
        };
        let task = alerts::start(parts, config.clone(), &supervisor);
        Self { stop, task }
    }

    async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap();
    }
}

/// Stops everything and starts it again on the same data.
async fn restart(world: &mut World, watch: Watch, config: &AlertsConfig) -> Watch {
    watch.end().await;
    world.stop(Duration::ZERO).await;
    world.start();
    Watch::start(world, config)
}

async fn all(world: &World) -> Vec<Alert> {
    let query = AlertQuery {
        kinds: Vec::new(),
        state: None,
        tenant_ids: Vec::new(),
        destination_ids: Vec::new(),
        page: PageRequest {
            limit: 100,
            direction: Default::default(),
            cursor: Default::default(),
        },
    };
    world.store.alerts(query).await.unwrap().rows
}

/// The only alert that there is or was.
async fn only(world: &World) -> Alert {
    let mut alerts = all(world).await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    alerts.remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_is_told_once_and_cleared_when_it_closes() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            breaker_open: true,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let out = Behaviour::Out(500, Duration::from_secs(300));
    let key = world.destination("out", out, None).await;
    world.publish(&[key], 20).await;
    tokio::time::sleep(SECOND * 5).await;
    let raised = only(&world).await;
    assert_eq!(
        (raised.kind, raised.severity),
        (AlertKind::BreakerOpen, Severity::Warning)
    );
    assert_eq!((raised.version, raised.cleared_at), (1, None));
    let opened = world.control().view(key).await.unwrap().opening.unwrap();
    assert_eq!(
        raised.since, opened.opened_at,
        "it came at once, not with the next look"
    );
    assert!(raised.text.contains(&opened.reason.text), "{}", raised.text);
    assert!(
        raised
            .todo
            .contains("/api/v1/tenants/acme/destinations/out/health"),
        "{}",
        raised.todo
    );

    // Probes fail, and it stays open; over a restart, too.
    tokio::time::sleep(SECOND * 100).await;
    assert_eq!(only(&world).await, raised);
    let watch = restart(&mut world, watch, &config).await;
    tokio::time::sleep(LOOK * 3).await;
    assert_eq!(only(&world).await, raised, "not raised again");

    world.settle(Duration::from_secs(3_600)).await;
    tokio::time::sleep(LOOK).await;
    let cleared = only(&world).await;
    assert_eq!(
        (cleared.key, cleared.version, cleared.since),
        (raised.key, 2, raised.since)
    );
    assert!(cleared.cleared_at.unwrap() >= START.plus(Duration::from_secs(300)));
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_alert_that_cannot_be_kept_is_told_once_when_it_can() {
    let world = World::new(1, EngineConfig::default()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            breaker_open: true,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let out = Behaviour::Out(500, Duration::from_secs(3_600));
    let key = world.destination("out", out, None).await;
    world.held.is_full.store(true, Ordering::SeqCst);
    world.publish(&[key], 20).await;
    tokio::time::sleep(SECOND * 25).await;
    let opened = world.control().view(key).await.unwrap().opening.unwrap();
    assert_eq!(all(&world).await, [], "what is not kept is not told");
    world.held.is_full.store(false, Ordering::SeqCst);
    tokio::time::sleep(LOOK * 2).await;
    let raised = only(&world).await;
    assert_eq!(
        (raised.version, raised.since),
        (1, opened.opened_at),
        "since it was so"
    );
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn dead_letters_above_the_threshold_are_told_once_until_they_are_gone() {
    let mut world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            dead_letters: 5,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let key = world.destination("refuses", Behaviour::Status(400), None).await;
    world.publish(&[key], 4).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(all(&world).await, []);
    world.publish(&[key], 1).await;
    tokio::time::sleep(LOOK).await;
    let raised = only(&world).await;
    assert_eq!(
        (raised.kind, &raised.subject, raised.value, raised.threshold),
        (AlertKind::DeadLetterDepth, &None, 5, 5)
    );
    world.publish(&[key], 4).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(only(&world).await, raised, "9 are not twice 5");
    world.publish(&[key], 1).await;
    tokio::time::sleep(LOOK).await;
    let worse = only(&world).await;
    assert_eq!((worse.key, worse.version, worse.value), (raised.key, 2, 10));
    assert_eq!(worse.text, "10 dead letters in the queue (alarming from 5 on).");

    let watch = restart(&mut world, watch, &config).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(
        only(&world).await,
        worse,
        "neither raised nor worsened by the restart"
    );

    world.behave(key, Behaviour::Works(SECOND));
    for delivery in world.deliveries().await {
        let now = world.clock.now();
        world
            .store
            .retry(Some(TENANT), &delivery.event_id, key, now)
            .await
            .unwrap();
    }
    world.settle(Duration::from_secs(600)).await;
    tokio::time::sleep(LOOK).await;
    let cleared = only(&world).await;
    assert_eq!((cleared.key, cleared.version, cleared.value), (raised.key, 3, 10));
    assert!(cleared.cleared_at.is_some());
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn levels_of_one_destination_name_it_and_growth_is_over_after_an_hour() {
    let world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            dead_letters_per_destination: 3,
            dead_letter_growth_per_destination: 3,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let bad = world.destination("bad", Behaviour::Status(401), None).await;
    let worse = world.destination("fine", Behaviour::Works(SECOND), None).await;
    world.publish(&[bad, worse], 3).await;
    tokio::time::sleep(LOOK).await;
    let mut alerts = all(&world).await;
    alerts.sort_by_key(|alert| alert.kind);
    let kinds: Vec<_> = alerts.iter().map(|alert| alert.kind).collect();
    assert_eq!(kinds, [AlertKind::DeadLetterDepth, AlertKind::DeadLetterGrowth]);
    for alert in &alerts {
        let subject = alert.subject.clone().unwrap();
        assert_eq!(
            (subject.destination, &*subject.tenant_id, &*subject.destination_id),
            (bad, TENANT, "bad")
        );
    }
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let states: Vec<_> = all(&world)
        .await
        .iter()
        .map(|alert| (alert.kind, alert.cleared_at.is_some()))
        .collect();
    assert_eq!(
        states,
        [
            (AlertKind::DeadLetterDepth, false),
            (AlertKind::DeadLetterGrowth, true)
        ]
    );
    // What it is about is gone.
    world
        .directory
        .delete(TENANT, "bad", world.clock.now())
        .await
        .unwrap();
    tokio::time::sleep(LOOK).await;
    assert!(all(&world).await.iter().all(|alert| alert.cleared_at.is_some()));
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn growth_of_all_destinations_together_is_told_and_over_after_an_hour() {
    let world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            dead_letter_growth: 5,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let one = world.destination("one", Behaviour::Status(401), None).await;
    let two = world.destination("two", Behaviour::Status(401), None).await;
    world.publish(&[one, two], 2).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(all(&world).await, []);
    world.publish(&[one], 1).await;
    tokio::time::sleep(LOOK).await;
    let raised = only(&world).await;
    assert_eq!(
        (raised.kind, &raised.subject, raised.value, raised.threshold),
        (AlertKind::DeadLetterGrowth, &None, 5, 5)
    );
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let cleared = only(&world).await;
    assert_eq!((cleared.key, cleared.version), (raised.key, 2));
    assert!(cleared.cleared_at.is_some());
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn slow_deliveries_are_told_until_there_are_none_for_ten_minutes() {
    let world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            time_to_success_p99: SECOND * 5,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let mut slow = Vec::new();
    for id in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        let takes = Behaviour::Works(SECOND * 6);
        slow.push(world.destination(id, takes, None).await);
    }
    // The first look tells where counting begins.
    tokio::time::sleep(SECOND).await;
    for _ in 0..2 {
        world.publish(&slow, 1).await;
        tokio::time::sleep(SECOND * 7).await;
    }
    tokio::time::sleep(LOOK).await;
    let raised = only(&world).await;
    // All 20 are in the bucket from 5 to 10 s, at 99 % of it: 5,000 + 0.99 * 5,000 ms.
    assert_eq!(
        (raised.kind, &raised.subject, raised.value, raised.threshold),
        (AlertKind::TimeToSuccessP99, &None, 9_950, 5_000)
    );
    assert_eq!((raised.severity, raised.cleared_at), (Severity::Warning, None));
    tokio::time::sleep(Duration::from_secs(570)).await;
    assert_eq!(only(&world).await, raised);
    tokio::time::sleep(SECOND * 60).await;
    let cleared = only(&world).await;
    assert_eq!((cleared.key, cleared.version), (raised.key, 2));
    assert!(cleared.cleared_at.is_some());
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_due_and_not_sent_is_told_until_it_is_sent() {
    let world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            oldest_due_age: SECOND * 60,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let holds = Behaviour::LimitsOnce(0, SECOND * 100);
    let key = world.destination("holds", holds, None).await;
    world.publish(&[key], 1).await;
    tokio::time::sleep(SECOND).await;
    // Due at once, and held for 99 s.
    world.publish(&[key], 1).await;
    tokio::time::sleep(SECOND * 55).await;
    assert_eq!(all(&world).await, []);
    tokio::time::sleep(SECOND * 16).await;
    let raised = only(&world).await;
    assert_eq!(
        (raised.kind, &raised.subject, raised.threshold),
        (AlertKind::OldestDueAge, &None, 60_000)
    );
    assert!((60_000..=71_000).contains(&raised.value), "{}", raised.value);
    assert_eq!((raised.severity, raised.cleared_at), (Severity::Warning, None));
    tokio::time::sleep(SECOND * 60).await;
    let cleared = only(&world).await;
    assert_eq!((cleared.key, cleared.version), (raised.key, 2));
    assert!(cleared.cleared_at.is_some());
    watch.end().await;
}

/// Kind, version, severity of each, and whether it is over.
fn told(alerts: &[Alert]) -> Vec<(AlertKind, u32, Severity, bool)> {
    let mut told: Vec<_> = alerts
        .iter()
        .map(|alert| {
            (
                alert.kind,
                alert.version,
                alert.severity,
                alert.cleared_at.is_some(),
            )
        })
        .collect();
    told.sort();
    told
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_and_exhausted_retries_are_told() {
    let world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            retries_exhausted: true,
            consecutive_failures: 100,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    let once = Some(r#"{"max_attempts": 1, "immediate": {"retries": 0}}"#);
    let failing = world.destination("failing", Behaviour::Status(500), once).await;
    world.publish(&[failing], 70).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(
        told(&all(&world).await),
        [
            (AlertKind::RetriesExhausted, 1, Severity::Warning, false),
            // At 50 and at 70.
            (AlertKind::ConsecutiveFailures, 2, Severity::Warning, false),
        ]
    );
    world.behave(failing, Behaviour::Works(SECOND));
    world.publish(&[failing], 1).await;
    tokio::time::sleep(LOOK * 2).await;
    assert_eq!(
        told(&all(&world).await),
        [
            (AlertKind::RetriesExhausted, 1, Severity::Warning, false),
            (AlertKind::ConsecutiveFailures, 3, Severity::Warning, true),
        ]
    );
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(
        told(&all(&world).await)[0],
        (AlertKind::RetriesExhausted, 2, Severity::Warning, true)
    );

    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn each_share_of_the_failures_in_a_row_is_told_once_although_everything_restarts_in_between() {
    let mut world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            consecutive_failures: 100,
            ..off()
        },
        webhook: None,
    };
    let mut watch = Watch::start(&world, &config);
    let once = Some(r#"{"max_attempts": 1, "immediate": {"retries": 0}}"#);
    let failing = world.destination("failing", Behaviour::Status(500), once).await;
    world.publish(&[failing], 49).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(all(&world).await, [], "49 are not half of 100");
    // One failure reaches the share; those up to one short of the next one tell nothing, nor does a restart among them.
    for (version, failures, severity, short_of_next) in [
        (1, 50, Severity::Warning, 19),
        (2, 70, Severity::Warning, 19),
        (3, 90, Severity::Warning, 9),
        (4, 100, Severity::Critical, 50),
    ] {
        world.publish(&[failing], 1).await;
        tokio::time::sleep(LOOK).await;
        let told = only(&world).await;
        assert_eq!(
            (told.kind, told.version, told.value, told.severity),
            (AlertKind::ConsecutiveFailures, version, failures, severity)
        );
        watch = restart(&mut world, watch, &config).await;
        tokio::time::sleep(LOOK * 2).await;
        assert_eq!(only(&world).await, told, "told again after the restart");
        assert_eq!(
            u64::from(world.control().view(failing).await.unwrap().failures),
            failures,
            "the restart forgot failures"
        );
        world.publish(&[failing], short_of_next).await;
        tokio::time::sleep(LOOK).await;
        assert_eq!(
            only(&world).await,
            told,
            "{short_of_next} more are none of the shares"
        );
    }
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_was_given_up_is_told_until_it_is_enabled() {
    let world = World::new(1, no_breaker()).await;
    let config = AlertsConfig {
        thresholds: Thresholds {
            destination_disabled: true,
            ..off()
        },
        webhook: None,
    };
    let watch = Watch::start(&world, &config);
    world.destination("resting", Behaviour::Works(SECOND), None).await;
    let by_request = |record: &mut postrider_store::record::Destination| {
        record.disabled = Some(postrider_store::record::Disabled {
            at: START,
            reason: postrider::directory::DISABLED_BY_REQUEST.to_owned(),
        });
        Vec::new()
    };
    world
        .directory
        .change(TENANT, "resting", START, by_request)
        .await
        .unwrap();
    let gone = world.destination("gone", Behaviour::Status(410), None).await;
    world.publish(&[gone], 1).await;
    tokio::time::sleep(LOOK).await;
    let disabled = only(&world).await;
    assert_eq!(
        (disabled.kind, disabled.severity, disabled.version),
        (AlertKind::DestinationDisabled, Severity::Critical, 1)
    );
    assert!(disabled.text.contains("410 Gone"), "{}", disabled.text);
    let enable = |record: &mut postrider_store::record::Destination| {
        record.disabled = None;
        Vec::new()
    };
    let now = world.clock.now();
    world.directory.change(TENANT, "gone", now, enable).await.unwrap();
    tokio::time::sleep(LOOK).await;
    assert_eq!(
        told(&all(&world).await)[0],
        (AlertKind::DestinationDisabled, 2, Severity::Critical, true)
    );
    watch.end().await;
}
