//! Alerts as signed webhooks to the operator.

use std::time::Duration;

use postrider::alerts::{AlertsConfig, Thresholds, Webhook, operator};
use postrider::engine::EngineConfig;
use postrider_core::alert::{AlertKind, Severity};
use postrider_core::id::{AlertKey, DestinationKey};
use postrider_core::secret::Secret;
use postrider_store::alerts::{Alert, AlertSubject};
use postrider_store::page::{Direction, PageRequest};
use postrider_store::record::EventQuery;

use super::super::world::{Behaviour, START, TENANT, World};
use super::{LOOK, SECOND, Watch, all, off, restart};

fn webhook() -> AlertsConfig {
    AlertsConfig {
        thresholds: Thresholds {
            breaker_open: true,
            ..off()
        },
        webhook: Some(Webhook {
            url: "https://ops.example.com/in".to_owned(),
            secret: Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        }),
    }
}

/// Ids and topics of what was published for the operator, the oldest first.
async fn published(world: &World) -> Vec<(String, String)> {
    let query = EventQuery {
        tenant_ids: vec![operator::TENANT.to_owned()],
        ids: Vec::new(),
        destination_ids: Vec::new(),
        topics: Vec::new(),
        time: Default::default(),
        page: PageRequest {
            limit: 100,
            direction: Direction::Ascending,
            cursor: Default::default(),
        },
        with_data: false,
    };
    let events = world.store.events(query).await.unwrap().rows;
    events.into_iter().map(|event| (event.id, event.topic)).collect()
}

async fn own(world: &World, config: &AlertsConfig) -> DestinationKey {
    let now = world.clock.now();
    operator::ensure(&world.directory, config.webhook.as_ref(), now)
        .await
        .unwrap();
    let entry = world
        .directory
        .destination(operator::TENANT, operator::DESTINATION);
    entry.unwrap().record.key
}

#[tokio::test(start_paused = true)]
async fn an_alert_that_was_not_published_is_published_once_at_the_start() {
    let mut world = World::new(1, EngineConfig::default()).await;
    let config = webhook();
    let own = own(&world, &config).await;
    let key = world.destination("out", Behaviour::Works(SECOND), None).await;
    let mut alert = Alert {
        key: AlertKey(0),
        kind: AlertKind::BreakerOpen,
        subject: Some(AlertSubject {
            destination: key,
            tenant_id: TENANT.to_owned(),
            destination_id: "out".to_owned(),
        }),
        severity: Severity::Warning,
        since: START,
        updated_at: START,
        cleared_at: None,
        value: 1,
        threshold: 1,
        text: "open".to_owned(),
        todo: "wait".to_owned(),
        version: 1,
        published: 0,
    };
    alert.key = world.store.keep_alerts(vec![alert.clone()], START).await.unwrap()[0];
    let mut watch = Watch::start(&world, &config);
    tokio::time::sleep(LOOK).await;
    let topics: Vec<_> = published(&world)
        .await
        .into_iter()
        .map(|(_, topic)| topic)
        .collect();
    // The breaker is not open in truth.
    assert_eq!(topics, ["alert.raised", "alert.cleared"]);
    assert_eq!(world.seen(own).len(), 2, "and sent");

    // As if the process had died before it noted that it is published.
    let over = all(&world).await.remove(0);
    assert_eq!((over.version, over.published), (2, 2));
    let lost = Alert { published: 0, ..over };
    world.store.keep_alerts(vec![lost], START).await.unwrap();
    watch = restart(&mut world, watch, &config).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(published(&world).await.len(), 2, "its id was there already");
    assert_eq!(world.seen(own).len(), 2);
    assert_eq!(all(&world).await.remove(0).published, 2);
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_the_operators_own_receiver_is_not_sent_to_it() {
    let world = World::new(1, EngineConfig::default()).await;
    let config = webhook();
    let own = own(&world, &config).await;
    world.behave(own, Behaviour::Status(500));
    let watch = Watch::start(&world, &config);
    // Five breakers open: five alerts, each of which fails at the operator's own.
    let mut keys = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        keys.push(world.destination(id, Behaviour::Hangs, None).await);
    }
    world.publish(&keys, 20).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let about_own = |alerts: &[Alert]| {
        let mut subjects = alerts.iter().filter_map(|alert| alert.subject.as_ref());
        subjects.any(|subject| subject.destination == own)
    };
    let alerts = all(&world).await;
    assert!(about_own(&alerts), "it is in the list: {alerts:?}");
    assert_eq!(alerts.len(), 6, "{alerts:?}");
    assert_eq!(published(&world).await.len(), 5);
    watch.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_operators_destination_follows_the_configuration() {
    let world = World::new(1, EngineConfig::default()).await;
    let mut config = webhook();
    let key = own(&world, &config).await;
    let webhook = config.webhook.as_mut().unwrap();
    webhook.url = "https://other.example.com/in".to_owned();
    assert_eq!(own(&world, &config).await, key, "changed, not made anew");
    let record = world.directory.entry(key).unwrap().record.clone();
    assert_eq!(record.config["url"], "https://other.example.com/in");
    config.webhook.as_mut().unwrap().url = "http://127.0.0.1/in".to_owned();
    let refused = operator::ensure(&world.directory, config.webhook.as_ref(), START).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("config.url is not allowed"),
        "the guard: {refused}"
    );
    operator::ensure(&world.directory, None, START).await.unwrap();
    assert!(world.directory.entry(key).is_none());
    operator::ensure(&world.directory, None, START).await.unwrap();
}
