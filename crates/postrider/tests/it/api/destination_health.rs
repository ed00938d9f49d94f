//! How destinations fare, asked of a running engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use postrider::api::{App, router};
use postrider::clock::Clock as _;
use postrider::courier::{Courier, Parcel, Report};
use postrider::engine::{Engine, EngineConfig, EngineHandle, Parts};
use postrider::telemetry::metrics::Metrics;
use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::outcome::Outcome;
use postrider_core::replay::ReplayConfig;
use postrider_core::window::WindowConfig;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::record::Timings;
use postrider_store::replay::{ReplayCreated, ReplayScope, ReplaySpec, ReplayStep};
use postrider_store::{DeadLetters as _, Store as _};
use serde_json::{Value, json};

use super::dead_letters::{DENIED, die};
use super::server::{self, Server};

pub(super) const PATH: &str = "/tenants/acme/destinations";

/// Every receiver answers 500.
struct Down;

#[async_trait]
impl Courier for Down {
    async fn send(&self, _: Parcel) -> Report {
        Report {
            outcome: Outcome::status(500),
            detail: None,
            timings: Timings::default(),
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            response_body: Bytes::from_static(b"no\ndatabase"),
            response_truncated: false,
        }
    }
}

/// No receiver answers.
pub(super) struct Silent;

#[async_trait]
impl Courier for Silent {
    async fn send(&self, _: Parcel) -> Report {
        std::future::pending().await
    }
}

/// So many requests to a destination at once, whatever happens.
pub(super) fn at_once(requests: u32) -> EngineConfig {
    EngineConfig {
        dispatcher: DispatcherConfig {
            window: WindowConfig {
                floor: requests,
                ceiling: requests,
                initial: requests,
            },
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    }
}

/// A server with tenant `acme` and an engine whose requests all fail, one after the other, so that it is known how many do
/// before a breaker opens.
async fn start() -> (Server, EngineHandle) {
    let mut server = Server::start().await;
    let engine = run_engine(&mut server, Arc::new(Down), at_once(1));
    server.tenant().await;
    (server, engine)
}

/// Starts an engine, which the server asks from now on.
pub(super) fn run_engine(
    server: &mut Server,
    courier: Arc<dyn Courier>,
    config: EngineConfig,
) -> EngineHandle {
    let parts = Parts {
        store: server.store.clone(),
        directory: Arc::clone(&server.directory),
        courier,
        clock: server.clock.clone(),
        metrics: Arc::new(Metrics::default()),
        notices: postrider::alerts::notice::Notices::default(),
        health: server.health.clone(),
    };
    let engine = Engine::start(parts, config);
    server.router = router(App {
        replays: Arc::default(),
        store: server.store.clone(),
        directory: Arc::clone(&server.directory),
        engine: engine.control(),
        clock: server.clock.clone(),
        health: server.health.clone(),
        metrics: Arc::new(Metrics::default()),
        config: server::config(),
    });
    engine
}

/// The health of a destination once it has this status.
pub(super) async fn until_status(server: &Server, id: &str, status: &str) -> Value {
    for _ in 0..2_000 {
        let health = server.get(&format!("{PATH}/{id}/health")).await.expect(200);
        if health["status"] == status {
            return health;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{id} never was {status}");
}

/// Waits until so many requests to `des_1` are out.
pub(super) async fn until_in_flight(server: &Server, requests: u64) {
    for _ in 0..2_000 {
        let health = server.get(&format!("{PATH}/des_1/health")).await.expect(200);
        if health["in_flight"] == requests {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {requests} requests are out");
}

pub(super) async fn publish(server: &Server, id: &str, events: usize) {
    for _ in 0..events {
        server.publish(json!({ "destination_id": id })).await;
    }
}

#[tokio::test]
async fn an_open_breaker_says_why_until_when_and_what_waits() {
    let (server, _engine) = start().await;
    server
        .destination(
            "des_1",
            json!({ "config": { "url": "https://hooks.example.com/in", "rate_limit_per_second": 5_000 } }),
        )
        .await;
    let idle = server.get(&format!("{PATH}/des_1/health")).await.expect(200);
    assert_eq!(idle["explanation"], "Nothing waits.");
    assert_eq!(idle["breaker"]["state"], "closed");
    assert_eq!(
        idle["recent"],
        json!({ "attempts": 0, "failures": 0, "failure_rate": null, "p50_ms": null, "p95_ms": null, "p99_ms": null })
    );
    assert_eq!(
        idle["window"],
        json!({ "size": 1, "ceiling": 1, "baseline_ms": null })
    );
    publish(&server, "des_1", 10).await;
    let open = until_status(&server, "des_1", "open").await;
    let reason = "5 of the last 5 attempts failed, the last: 500";
    let until = open["until"].as_str().unwrap();
    assert!(
        ("2026-01-01T00:00:30".."2026-01-01T00:00:37").contains(&until),
        "{until}"
    );
    assert_eq!(
        open["explanation"],
        format!(
            "Nothing is sent before {until}, when one request goes out as a probe: the circuit breaker is open, because {reason}."
        )
    );
    assert_eq!(
        open["breaker"],
        json!({
            "state": "open", "trigger": "failures", "reason": reason, "opened_at": "2026-01-01T00:00:00.000Z",
            "next_probe_at": until, "failed_probes": 0,
        })
    );
    // The receiver answers at once: within the first step, which ends at 1 ms.
    assert_eq!(
        open["recent"],
        json!({ "attempts": 5, "failures": 5, "failure_rate": 1.0, "p50_ms": 1, "p95_ms": 1, "p99_ms": 1 })
    );
    assert_eq!(open["pending"]["in_store"], 10);
    assert_eq!(open["consecutive_failures"], 5);
    assert_eq!(open["failing_since"], "2026-01-01T00:00:00.000Z");
    assert_eq!(open["rate_limit_per_second"], 5_000);
    assert_eq!(open["in_flight"], 0);
}

#[tokio::test]
async fn a_reset_forgets_what_was_held_against_it() {
    let (server, _engine) = start().await;
    server.destination("des_1", json!({})).await;
    publish(&server, "des_1", 5).await;
    until_status(&server, "des_1", "open").await;
    let reset = server
        .post(&format!("{PATH}/des_1/breaker/reset"), "")
        .await
        .expect(200);
    assert_eq!(reset["breaker"]["state"], "closed");
    assert_eq!(reset["consecutive_failures"], 0);
    assert_eq!(reset["window"]["size"], 1);
    server
        .post(&format!("{PATH}/des_2/breaker/reset"), "")
        .await
        .expect(404);
}

#[tokio::test]
async fn another_url_or_secret_lets_a_probe_go_a_second_after_the_opening() {
    let (server, _engine) = start().await;
    for (id, change) in [
        (
            "des_1",
            json!({ "config": { "url": "https://elsewhere.example.com/in" } }),
        ),
        ("des_2", json!({ "credentials": { "rotate_secret": true } })),
        (
            "des_3",
            json!({ "metadata": { "note": "nothing that a receiver sees" } }),
        ),
    ] {
        server.destination(id, json!({})).await;
        publish(&server, id, 10).await;
        let open = until_status(&server, id, "open").await;
        let before = open["breaker"]["next_probe_at"].clone();
        server.patch(&format!("{PATH}/{id}"), change).await.expect(200);
        let health = server.get(&format!("{PATH}/{id}/health")).await.expect(200);
        let soon = json!("2026-01-01T00:00:01.000Z");
        let right = if id == "des_3" { before } else { soon };
        assert_eq!(health["breaker"]["next_probe_at"], right, "{id}");
    }
}

#[tokio::test]
async fn a_breaker_that_nothing_waits_for_says_so() {
    let (server, _engine) = start().await;
    let policy = json!({ "retry_policy": { "while_open": "dead_letter", "max_attempts": 1, "immediate": { "retries": 0 } } });
    server.destination("des_1", policy).await;
    publish(&server, "des_1", 10).await;
    let open = until_status(&server, "des_1", "open").await;
    let explanation = open["explanation"].as_str().unwrap();
    let ending = " From 2026-01-01T00:00:00.000Z on, deliveries that are due meanwhile become dead letters.";
    assert!(explanation.ends_with(ending), "{explanation}");
}

#[tokio::test]
async fn the_list_of_all_begins_with_the_worst() {
    let (server, _engine) = start().await;
    for id in ["fine", "open", "off"] {
        server.destination(id, json!({})).await;
    }
    server.put(&format!("{PATH}/off/disable"), "").await.expect(200);
    publish(&server, "open", 5).await;
    until_status(&server, "open", "open").await;
    let ids = |list: &Value| {
        let models = list["models"].as_array().unwrap().clone();
        models
            .iter()
            .map(|model| (model["destination_id"].clone(), model["status"].clone()))
            .collect::<Vec<_>>()
    };
    let list = server.get("/destinations/health").await.expect(200);
    assert_eq!(
        ids(&list),
        [
            (json!("open"), json!("open")),
            (json!("off"), json!("disabled")),
            (json!("fine"), json!("idle"))
        ]
    );
    assert_eq!(list["pagination"], json!({ "limit": 100, "next": null }));
    let off = &list["models"][1];
    assert_eq!(
        off["explanation"],
        "Nothing is sent, because the destination is disabled since 2026-01-01T00:00:00.000Z: disabled by request."
    );
    server.get("/destinations/health?limit=0").await.expect(422);
}

#[tokio::test]
async fn pages_of_the_list_join_without_gap_or_repeat() {
    let (server, _engine) = start().await;
    for n in 0..7 {
        server.destination(&format!("des_{n}"), json!({})).await;
    }
    server.put(&format!("{PATH}/des_5/disable"), "").await.expect(200);
    publish(&server, "des_3", 5).await;
    until_status(&server, "des_3", "open").await;
    let mut seen = Vec::new();
    let mut path = "/destinations/health?limit=2".to_owned();
    for _ in 0..4 {
        let page = server.get(&path).await.expect(200);
        let models = page["models"].as_array().unwrap();
        assert!(models.len() <= 2);
        seen.extend(
            models
                .iter()
                .map(|model| model["destination_id"].as_str().unwrap().to_owned()),
        );
        // A destination that comes later is the last of all, so it belongs to the last page.
        if seen.len() == 2 {
            server.destination("des_7", json!({})).await;
        }
        let Some(next) = page["pagination"]["next"].as_str() else {
            break;
        };
        path = format!("/destinations/health?limit=2&next={next}");
    }
    assert_eq!(
        seen,
        [
            "des_3", "des_5", "des_0", "des_1", "des_2", "des_4", "des_6", "des_7"
        ]
    );
    for wrong in ["hlt_", "x", "hlt_0.0", "evt_00"] {
        server
            .get(&format!("/destinations/health?next={wrong}"))
            .await
            .expect(400);
    }
}

#[tokio::test]
async fn a_delivery_says_what_it_waits_for_and_until_when() {
    let (server, _engine) = start().await;
    for id in ["open", "off", "fine"] {
        server.destination(id, json!({})).await;
    }
    publish(&server, "open", 10).await;
    let health = until_status(&server, "open", "open").await;
    server.put(&format!("{PATH}/off/disable"), "").await.expect(200);
    publish(&server, "off", 1).await;
    let list = server
        .get("/deliveries?destination_id=open&status=pending")
        .await
        .expect(200);
    let models = list["models"].as_array().unwrap();
    assert_eq!(models.len(), 10);
    let waiting = models
        .iter()
        .filter(|model| model["waiting_for"] == "breaker" && model["waiting_until"] == health["until"])
        .count();
    assert_eq!(
        waiting, 10,
        "those that failed are due again before the probe may go: {list}"
    );
    let id = models[0]["id"].as_str().unwrap();
    let one = server.get(&format!("/deliveries/{id}")).await.expect(200);
    assert_eq!(
        (&one["waiting_for"], &one["waiting_until"]),
        (&json!("breaker"), &health["until"])
    );
    let dead = server.get("/deliveries?destination_id=off").await.expect(200);
    assert_eq!(
        dead["models"][0].get("waiting_for"),
        None,
        "what has ended waits for nothing"
    );
}

/// Has three dead letters of `des_1` replayed, and all replays of it paused.
async fn pause_replays(server: &Server, engine: &EngineHandle) {
    let destination = server.directory.destination("acme", "des_1").unwrap().record.key;
    let spec = ReplaySpec {
        scope: ReplayScope::DeadLetters(DeadLetterFilter::default()),
        config: ReplayConfig::Current,
        rate_per_second: 50,
    };
    let now = server.clock.now();
    let ReplayCreated::Created { replay, .. } = server.store.create_replay(spec, now).await.unwrap() else {
        panic!("the first one");
    };
    assert!(engine.control().limit_replays(vec![(destination, None)]));
    let step = ReplayStep {
        replay: replay.key,
        destination,
        limit: 3,
        max_outstanding: 3,
    };
    let stepped = server.store.replay_step(step, now).await.unwrap().unwrap();
    assert_eq!(stepped.moved, 3);
}

/// What each pending delivery waits for, with the number of those that do.
async fn waiting(server: &Server) -> BTreeMap<String, usize> {
    let list = server.get("/deliveries?status=pending").await.expect(200);
    let mut counts = BTreeMap::new();
    for model in list["models"].as_array().unwrap() {
        let word = model
            .get("waiting_for")
            .map_or("nothing", |word| word.as_str().unwrap());
        *counts.entry(word.to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn only_replays_wait_for_a_pause_and_they_do_whatever_else_their_destination_does() {
    let mut server = Server::start().await;
    server.tenant().await;
    server.destination("des_1", json!({})).await;
    die(&server, "des_1", 3, DENIED).await;
    let engine = run_engine(&mut server, Arc::new(Silent), at_once(2));
    pause_replays(&server, &engine).await;
    until_status(&server, "des_1", "replays_paused").await;
    let right = |counts: &[(&str, usize)]| -> BTreeMap<String, usize> {
        let counts = counts.iter();
        counts.map(|(word, count)| ((*word).to_owned(), *count)).collect()
    };
    assert_eq!(waiting(&server).await, right(&[("replay_paused", 3)]));
    publish(&server, "des_1", 1).await;
    until_in_flight(&server, 1).await;
    let health = server.get(&format!("{PATH}/des_1/health")).await.expect(200);
    assert_eq!(health["status"], "replays_paused");
    let one_is_out = right(&[("nothing", 1), ("replay_paused", 3)]);
    assert_eq!(waiting(&server).await, one_is_out, "its request is out");
    publish(&server, "des_1", 2).await;
    until_status(&server, "des_1", "window_full").await;
    let full = right(&[("replay_paused", 3), ("window", 3)]);
    assert_eq!(waiting(&server).await, full);
    server.put(&format!("{PATH}/des_1/disable"), "").await.expect(200);
    assert_eq!(waiting(&server).await, right(&[("disabled", 6)]));
}

/// Waits until the store keeps the state of so many breakers, holds and failures in a row.
async fn until_kept(server: &Server, destinations: usize) {
    for _ in 0..2_000 {
        if server.store.protections().await.unwrap().len() == destinations {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {destinations} destinations are kept");
}

#[tokio::test]
async fn enabling_resets_the_counters() {
    let (server, _engine) = start().await;
    // Each event fails once, and nothing is left that could fail after the enabling.
    let once = json!({ "retry_policy": { "max_attempts": 1, "immediate": { "retries": 0 } } });
    server.destination("des_1", once).await;
    publish(&server, "des_1", 5).await;
    until_status(&server, "des_1", "open").await;
    until_kept(&server, 1).await;
    server.put(&format!("{PATH}/des_1/disable"), "").await.expect(200);
    let disabled = until_status(&server, "des_1", "disabled").await;
    assert_eq!(disabled["consecutive_failures"], 5);
    assert_eq!(disabled["breaker"]["state"], "open", "disabling resets nothing");
    server.put(&format!("{PATH}/des_1/enable"), "").await.expect(200);
    let health = server.get(&format!("{PATH}/des_1/health")).await.expect(200);
    assert_eq!(health["status"], "idle");
    assert_eq!(health["consecutive_failures"], 0);
    assert_eq!(health["failing_since"], Value::Null);
    assert_eq!(
        health["breaker"],
        json!({
            "state": "closed", "trigger": null, "reason": null, "opened_at": null, "next_probe_at": null, "failed_probes": 0,
        })
    );
    until_kept(&server, 0).await;
}

#[tokio::test]
async fn without_an_engine_it_is_503() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("des_1", json!({})).await;
    let answer = server.get(&format!("{PATH}/des_1/health")).await;
    assert_eq!(
        answer.expect(503)["message"],
        "the engine is not running, try again"
    );
}
