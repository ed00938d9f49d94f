//! Dead letters with the real binary: a customer's expired token from the first failure to the last replayed event, and
//! a replay whose server is killed.

use std::collections::HashMap;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::Api;
use super::crash::{repeats_per_kill, setting};
use super::receiver::{Received, Receiver, Reply};
use super::server::{BINARY, Server};
use super::wait::eventually;

const BOUND: Duration = Duration::from_secs(180);
/// Without a breaker every 401 becomes a dead letter at once; with one, ten would, and the rest would wait for the mended token.
const NO_BREAKER: [(&str, &str); 4] = [
    ("POSTRIDER_BREAKER__FAILURES", "0"),
    ("POSTRIDER_BREAKER__RATE_PERCENT", "0"),
    ("POSTRIDER_BREAKER__PERMANENT_RUN", "0"),
    ("POSTRIDER_FAILURES__ALERT_AT", "0"),
];

/// A receiver whose token has expired until somebody mends it.
async fn expired() -> (Receiver, Arc<AtomicBool>) {
    let mended = Arc::new(AtomicBool::new(false));
    let script = {
        let mended = Arc::clone(&mended);
        move |_: &_, _| {
            if mended.load(Ordering::Relaxed) {
                Reply::Status(200, "")
            } else {
                Reply::Status(401, r#"{"error":"token expired"}"#)
            }
        }
    };
    (Receiver::start(script).await, mended)
}

/// Publishes `count` events, a hundred at a time.
async fn publish(api: &Api, count: usize, topic: &str) {
    for chunk in 0..count.div_ceil(100) {
        let events: Vec<Value> = (chunk * 100..count.min(chunk * 100 + 100))
            .map(|n| json!({ "tenant_id": "acme", "topic": topic, "id": format!("{topic}-{n}"), "data": { "n": n } }))
            .collect();
        let body = Value::from(events).to_string();
        api.call(Method::POST, "/api/v1/publish/batch", &body)
            .await
            .expect(202);
    }
}

async fn dead(api: &Api) -> u64 {
    let summary = api.get("/api/v1/dead-letters/summary").await;
    summary["count"].as_u64().unwrap()
}

async fn until_dead(api: &Api, count: u64) {
    eventually(&format!("{count} dead letters"), BOUND, async || {
        (dead(api).await == count).then_some(())
    })
    .await;
}

/// The state of the alert about the depth of this destination's dead letters.
async fn alert(api: &Api) -> Option<String> {
    let alerts = api
        .get("/api/v1/alerts?kind=dead_letter_depth&destination_id=hooks")
        .await;
    alerts["models"][0]["state"].as_str().map(str::to_owned)
}

/// Runs a command of the binary against the server, without a terminal.
async fn run(api: &Api, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .args(["--url", &format!("http://{}", api.address), "--api-key", &api.key])
        .env_clear()
        .stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap()
}

/// What a command printed, which must succeed.
async fn postrider(api: &Api, arguments: &[&str]) -> String {
    let output = run(api, arguments).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// By hand, on the command line: how many it would be, then the replay, while live events come and go; how many these were.
async fn replay_beside_live_traffic(api: &Api, receiver: &Receiver) -> usize {
    let filter = ["--destination", "hooks", "--code", "401"];
    let counted = postrider(
        api,
        &[&["dead-letters", "replay", "--dry-run"], &filter[..]].concat(),
    )
    .await;
    assert_eq!(counted, "500 deliveries would be sent again\n");
    let start = Instant::now();
    let replay = [&["dead-letters", "replay"], &filter[..]].concat();
    let is_done = AtomicBool::new(false);
    let replaying = async {
        let told = postrider(api, &replay).await;
        is_done.store(true, Ordering::Relaxed);
        told
    };
    let live = async {
        let mut count = 0;
        while !is_done.load(Ordering::Relaxed) {
            let id = format!("live-{count}");
            api.publish("acme", &id, "order", "{}").await;
            let found = |requests: &[Received]| {
                let is_live = |request: &Received| request.header("webhook-id") == id;
                requests.iter().any(is_live).then_some(())
            };
            // Beside the replay, not behind it: that takes ten seconds.
            receiver
                .until("a live event", Duration::from_secs(3), found)
                .await;
            count += 1;
        }
        count
    };
    let (told, live) = tokio::join!(replaying, live);
    let took = start.elapsed();
    assert!(
        told.ends_with("done: 500 of 500 done, 500 succeeded, 0 failed again\n"),
        "{told}"
    );
    assert!(
        took >= Duration::from_millis(9_500),
        "500 at 50 a second: {took:?}"
    );
    assert!(live >= 10, "{live} live events");
    live
}

fn each_once_with_its_bytes(replayed: &[Received]) {
    for n in 0..499 {
        let id = format!("order-{n}");
        let sent: Vec<_> = replayed
            .iter()
            .filter(|it| it.header("webhook-id") == id)
            .collect();
        assert_eq!(
            (sent.len(), &sent[0].body[..]),
            (1, format!(r#"{{"n":{n}}}"#).as_bytes()),
            "{id}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_in_the_life_of_an_expired_token() {
    let server = Server::start_with(&NO_BREAKER).await;
    let api = &server.api;
    let (receiver, mended) = expired().await;
    api.subscribe("acme", "hooks", "order", &receiver.url()).await;
    let data = r#"{"a":1,  "a":2,"n":9007199254740993,"x":1.0,"s":"<\/script>"}"#;
    api.publish("acme", "awkward", "order", data).await;
    publish(api, 499, "order").await;
    until_dead(api, 500).await;
    eventually("the alert", BOUND, async || {
        (alert(api).await.as_deref() == Some("firing")).then_some(())
    })
    .await;

    let summary = postrider(api, &["dead-letters", "summary"]).await;
    let line: Vec<&str> = summary.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        line[..5],
        ["500", "401", "http_4xx", "acme", "hooks"],
        "{summary}"
    );
    assert!(summary.contains("token expired"), "{summary}");

    mended.store(true, Ordering::Relaxed);
    let before = receiver.count();
    let live = replay_beside_live_traffic(api, &receiver).await;
    assert_eq!(dead(api).await, 0);
    let requests = receiver.requests();
    let replayed = &requests[before..];
    assert_eq!(replayed.len(), 500 + live, "each once, and the live ones");
    each_once_with_its_bytes(replayed);
    let both: Vec<_> = requests
        .iter()
        .filter(|it| it.header("webhook-id") == "awkward")
        .collect();
    assert_eq!(both.len(), 2);
    assert!(both.iter().all(|it| it.body == data), "the same bytes (case 61)");
    assert_ne!(
        both[0].header("webhook-timestamp"),
        both[1].header("webhook-timestamp"),
        "signed afresh"
    );
    eventually("the alert clears", BOUND, async || {
        (alert(api).await.as_deref() == Some("cleared")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_breaker_a_broken_token_does_not_drain_the_queue_into_the_dead_letters() {
    let server = Server::start().await;
    let (receiver, _) = expired().await;
    server
        .api
        .subscribe("acme", "hooks", "order", &receiver.url())
        .await;
    publish(&server.api, 100, "order").await;
    let path = "/api/v1/tenants/acme/destinations/hooks/health";
    eventually("the breaker is open", BOUND, async || {
        let health = server.api.get(path).await;
        (health["breaker"]["state"] == "open").then_some(())
    })
    .await;
    let pending = server.api.get(path).await["pending"]["in_store"].as_u64();
    let dead = dead(&server.api).await;
    assert!(dead <= 20, "ten in a row, and what was in flight: {dead}");
    assert!(pending.unwrap_or_default() >= 80, "{pending:?} wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_is_killed_goes_on_and_repeats_only_what_was_in_flight() {
    let count = usize::try_from(setting("XTASK_REPLAY_COUNT", 2_000)).unwrap();
    // As fast as is allowed, when there are many.
    let rate = (count / 4).clamp(50, 1_000);
    let patience = BOUND + Duration::from_millis(3 * count as u64);
    let mut server = Server::start_with(&NO_BREAKER).await;
    let (receiver, mended) = expired().await;
    server
        .api
        .subscribe("acme", "hooks", "order", &receiver.url())
        .await;
    publish(&server.api, count, "order").await;
    until_dead(&server.api, count as u64).await;
    mended.store(true, Ordering::Relaxed);
    let before = receiver.count();
    let body = json!({ "code": 401, "rate_per_second": rate }).to_string();
    let made = server
        .api
        .call(Method::POST, "/api/v1/replays", &body)
        .await
        .expect(201);
    let path = format!("/api/v1/replays/{}", made["id"].as_str().unwrap());
    receiver.until_count(before + count / 3, patience).await;
    server.kill();
    server.start_again().await;
    let done = eventually("the replay is done", patience, async || {
        let replay = server.api.get(&path).await;
        (replay["state"] != "running").then_some(replay)
    })
    .await;
    assert_eq!(
        (&done["state"], &done["succeeded"]),
        (&json!("done"), &json!(count)),
        "{done}"
    );
    assert_eq!(dead(&server.api).await, 0);
    let mut taken: HashMap<String, usize> = HashMap::new();
    for request in &receiver.requests()[before..] {
        *taken.entry(request.header("webhook-id").to_owned()).or_default() += 1;
    }
    assert_eq!(taken.len(), count, "each is delivered");
    let repeats: usize = taken.values().map(|times| times - 1).sum();
    let bound = repeats_per_kill();
    println!("{count} replayed, {repeats} repeats");
    assert!(repeats <= bound, "{repeats} repeats, at most {bound}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_dead_letters_goes_out_and_comes_back() {
    let server = Server::start_with(&NO_BREAKER).await;
    let api = &server.api;
    let (receiver, _) = expired().await;
    api.subscribe("acme", "hooks", "order", &receiver.url()).await;
    publish(api, 120, "order").await;
    until_dead(api, 120).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("letters.jsonl.zst");
    let file = file.to_str().unwrap();
    postrider(api, &["dead-letters", "export", "--tenant", "acme", file]).await;
    let purged = postrider(api, &["dead-letters", "purge", "--tenant", "acme", "--yes"]).await;
    assert_eq!(purged, "120 dead letters deleted\n");
    assert_eq!(dead(api).await, 0);
    let imported = postrider(api, &["dead-letters", "import", file]).await;
    assert_eq!(imported, "120 imported, 0 were there already, 0 refused\n");
    let again = postrider(api, &["dead-letters", "import", file]).await;
    assert_eq!(again, "0 imported, 120 were there already, 0 refused\n");
    let letter = api.get("/api/v1/dead-letters?limit=1&dir=asc").await;
    let id = letter["models"][0]["id"].as_str().unwrap();
    let shown = postrider(api, &["dead-letters", "show", id]).await;
    assert!(shown.contains(r#"data            {"n":"#), "{shown}");

    // Without a terminal there is nobody to ask.
    let refused = run(api, &["dead-letters", "purge", "--all"]).await;
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&refused.stderr),
        "postrider: failed to go on without being asked: this is not a terminal, so give --yes\n"
    );
    assert_eq!(dead(api).await, 120);
}
