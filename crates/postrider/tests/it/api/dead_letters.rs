//! Dead letters: lists, the summary, one with everything, and the export.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider::clock::Clock;
use postrider::letters::line::Line;
use postrider_core::delivery::DeadReason;
use postrider_core::outcome::{Category, ErrorKind};
use postrider_store::DeadLetters;
use postrider_store::letter::{Imported, ImportedLetter};
use postrider_store::record::{NewAttempt, Next};
use serde_json::{Value, json};

use super::server::Server;

/// How an attempt of a test ends.
pub(super) const DENIED: (Result<u16, ErrorKind>, Next) = (
    Ok(401),
    Next::Dead(DeadReason::PermanentFailure, Category::Http4xx),
);
pub(super) const TIMED_OUT: (Result<u16, ErrorKind>, Next) = (
    Err(ErrorKind::Timeout),
    Next::Dead(DeadReason::ExhaustedRetries, Category::Timeout),
);

/// Publishes `count` events to one destination, and lets their deliveries die in this way, a second apart.
pub(super) async fn die(
    server: &Server,
    destination: &str,
    count: usize,
    how: (Result<u16, ErrorKind>, Next),
) {
    for n in 0..count {
        server.advance(Duration::from_secs(1));
        let event =
            json!({ "destination_id": destination, "id": format!("{destination}-{n}"), "data": { "n": n } });
        server.publish(event).await;
        for due in server.due().await {
            server.settle(&due, how.0, how.1).await;
        }
    }
}

/// A tenant with three destinations, of which `des_a` has five times 401 and `des_b` twice a timeout.
pub(super) async fn troubled() -> Server {
    let server = Server::start().await;
    server.tenant().await;
    for id in ["des_a", "des_b", "des_c"] {
        let headers = json!({ "config": { "url": "https://hooks.example.com/in", "custom_headers": { "x-key": "canary" } } });
        server.destination(id, headers).await;
    }
    die(&server, "des_b", 2, TIMED_OUT).await;
    die(&server, "des_a", 5, DENIED).await;
    server
}

fn ids(answer: &Value) -> Vec<&str> {
    let events = answer["models"].as_array().unwrap().iter();
    events
        .map(|letter| letter["event_id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn lists_are_in_order_of_death_with_exact_pages() {
    let server = troubled().await;
    let all = server.get("/dead-letters").await.expect(200);
    let newest_first = [
        "des_a-4", "des_a-3", "des_a-2", "des_a-1", "des_a-0", "des_b-1", "des_b-0",
    ];
    assert_eq!(ids(&all), newest_first);
    let letter = &all["models"][0];
    assert_eq!(letter["reason"], "permanent_failure");
    assert_eq!(letter["category"], "http_4xx");
    assert_eq!(letter["code"], 401);
    assert_eq!(letter["error"], "401: oops");
    assert_eq!(letter["attempts"], 1);
    assert_eq!(letter["died_at"], "2026-01-01T00:00:07.000Z");
    let mut found = Vec::new();
    let mut path = "/dead-letters?limit=3&dir=asc".to_owned();
    loop {
        let page = server.get(&path).await.expect(200);
        found.extend(ids(&page).into_iter().map(str::to_owned));
        // What dies while somebody turns the pages is after the last of them.
        if found.len() == 3 {
            die(&server, "des_c", 1, DENIED).await;
        }
        let Some(next) = page["pagination"]["next"].as_str() else {
            break;
        };
        path = format!("/dead-letters?limit=3&dir=asc&next={next}");
    }
    let mut right: Vec<&str> = newest_first.into_iter().rev().collect();
    right.push("des_c-0");
    assert_eq!(found, right);
}

#[tokio::test]
async fn every_filter_narrows() {
    let server = troubled().await;
    let table = [
        ("tenant_id=acme", 7),
        ("tenant_id=other", 0),
        ("destination_id[]=des_a&destination_id[]=des_c", 5),
        ("topic=order.paid", 7),
        ("topic=order.lost", 0),
        ("reason=exhausted_retries", 2),
        ("category=http_4xx", 5),
        ("code=401", 5),
        ("code=403", 0),
        ("died_at[gte]=2026-01-01T00:00:06Z", 2),
        ("died_at[lt]=2026-01-01T00:00:02Z", 1),
        ("text=401:%20OOPS", 5),
        ("text=timeout", 2),
        ("text=timeout&code=401", 0),
    ];
    for (query, count) in table {
        let answer = server.get(&format!("/dead-letters?{query}")).await.expect(200);
        assert_eq!(ids(&answer).len(), count, "{query}");
        let summary = server
            .get(&format!("/dead-letters/summary?{query}"))
            .await
            .expect(200);
        assert_eq!(summary["count"], count, "{query}");
    }
    let all = server.get("/dead-letters").await.expect(200);
    let id = all["models"][3]["id"].as_str().unwrap();
    let one = server.get(&format!("/dead-letters?id={id}")).await.expect(200);
    assert_eq!(ids(&one), ["des_a-1"]);
}

#[tokio::test]
async fn every_wrong_parameter_is_named() {
    let server = Server::start().await;
    let query = "reason=bad&category=odd&code=99&died_at[since]=x&died_at[gte]=yesterday&limit=0&tenant_id=";
    for route in ["", "/summary", "/export"] {
        let refused = server
            .get(&format!("/dead-letters{route}?{query}"))
            .await
            .expect(422);
        let data = refused["data"].as_object().unwrap();
        assert_eq!(data["query.code"], "must be a status code from 100 to 999");
        assert_eq!(
            data["query.died_at[since]"],
            "must be one of: died_at[gte], died_at[gt], died_at[lte], died_at[lt]"
        );
        assert_eq!(
            data["query.died_at[gte]"],
            "must be an RFC 3339 date-time or YYYY-MM-DD"
        );
        assert_eq!(data["query.tenant_id"], "must not be empty");
        assert!(
            data["query.reason"]
                .as_str()
                .unwrap()
                .starts_with("must be one of: permanent_failure, ")
        );
        assert!(
            data["query.category"]
                .as_str()
                .unwrap()
                .starts_with("must be one of: success, ")
        );
        assert_eq!(data.contains_key("query.limit"), route != "/export", "{route}");
    }
    let refused = server.get("/dead-letters?next=dlv_1").await.expect(400);
    assert_eq!(refused["message"], "invalid next cursor");
    let missing = server.get("/dead-letters/dlv_00").await.expect(404);
    assert_eq!(missing["message"], "dead letter not found");
}

#[tokio::test]
async fn a_hundred_times_401_from_one_customer_is_the_first_line_of_the_summary() {
    let server = troubled().await;
    server.advance(Duration::from_secs(7_200));
    die(&server, "des_c", 100, DENIED).await;
    let summary = server.get("/dead-letters/summary").await.expect(200);
    assert_eq!((&summary["count"], &summary["groups"]), (&json!(107), &json!(3)));
    let right = json!({
        "tenant_id": "acme", "destination_id": "des_c", "category": "http_4xx", "code": 401, "count": 100,
        "text": "100 × 401 at des_c of acme", "last_error": "401: oops",
        "first_died_at": "2026-01-01T02:00:08.000Z", "last_died_at": "2026-01-01T02:01:47.000Z",
        "growth_per_hour": 100,
    });
    assert_eq!(summary["models"][0], right);
    assert_eq!(summary["models"][1]["growth_per_hour"], 0);
    assert_eq!(summary["models"][2]["text"], "2 × timeout at des_b of acme");
    let short = server.get("/dead-letters/summary?limit=1").await.expect(200);
    assert_eq!(short["models"].as_array().unwrap().len(), 1);
    assert_eq!(short["count"], 107, "those beyond the limit are counted");
}

#[tokio::test]
async fn one_dead_letter_has_everything_but_secrets() {
    let server = Server::start().await;
    server.tenant().await;
    let more = json!({ "config": { "url": "https://hooks.example.com/in", "custom_headers": { "x-key": "canary" } } });
    server.destination("des_a", more).await;
    // Sent as text: the bytes count.
    let data = r#"{"a":1,  "a":2,"n":9007199254740993,"x":1.0,"s":"<\/script>"}"#;
    let body = format!(r#"{{"tenant_id":"acme","topic":"t","id":"evt-1","data":{data}}}"#);
    server.post("/publish", body).await.expect(202);
    for due in server.due().await {
        server.settle(&due, DENIED.0, DENIED.1).await;
    }
    let all = server.get("/dead-letters").await.expect(200);
    let id = all["models"][0]["id"].as_str().unwrap();
    let answer = server.get(&format!("/dead-letters/{id}")).await;
    let letter = answer.expect(200);
    assert!(answer.text().contains(data), "{}", answer.text());
    assert!(!answer.text().contains("canary") && !answer.text().contains("whsec_"));
    assert_eq!(letter["event"]["data_base64"], STANDARD.encode(data));
    assert_eq!(letter["history"][0]["code"], "401");
    assert_eq!(letter["history"][0]["response_data"]["body"], "oops");
    assert_eq!(
        letter["history"][0]["request_data"]["headers"][0]["name"],
        "webhook-id"
    );
    assert_eq!(
        letter["context"]["destination"]["config"]["url"],
        "https://hooks.example.com/in"
    );
    assert!(letter["context"]["retry_policy"].is_object());
    server
        .get(&format!("/dead-letters/{id}?tenant_id=other"))
        .await
        .expect(404);
}

#[tokio::test]
async fn an_export_has_a_line_for_each_with_the_bytes_as_published() {
    let server = troubled().await;
    let answer = server.get("/dead-letters/export?destination_id=des_a").await;
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let lines: Vec<Line> = answer
        .text()
        .lines()
        .map(|line| Line::read(line.as_bytes()).unwrap())
        .collect();
    let events: Vec<&str> = lines.iter().map(|line| line.event.id.as_str()).collect();
    assert_eq!(
        events,
        ["des_a-0", "des_a-1", "des_a-2", "des_a-3", "des_a-4"],
        "oldest first"
    );
    assert_eq!(lines[3].event.data, r#"{"n":3}"#);
    let attempt = lines[3].attempts().next().unwrap();
    assert_eq!(attempt.response_headers[0].1, &b"caf\xe9"[..]);
    assert!(!answer.text().contains("canary"));
    let none = server.get("/dead-letters/export?tenant_id=other").await;
    assert_eq!((none.status.as_u16(), none.text()), (200, String::new()));
}

/// The newest are the ones that an operator looks for, and by whose last an import tells the letter.
#[tokio::test]
async fn of_many_attempts_the_newest_thousand_are_shown_and_exported() {
    let server = troubled().await;
    let exported = server.get("/dead-letters/export?destination_id=des_a").await;
    let line = Line::read(exported.text().lines().next().unwrap().as_bytes()).unwrap();
    let attempt = line.attempts().next().unwrap();
    let attempts = (1..=1_001).map(|number| NewAttempt {
        number,
        ..attempt.clone()
    });
    let letter = ImportedLetter {
        tenant_id: line.tenant_id,
        destination_id: "des_c".to_owned(),
        event_id: "often".to_owned(),
        topic: line.event.topic,
        time: line.event.time,
        metadata: line.event.metadata,
        data: line.event.data,
        retryable: true,
        reason: line.reason,
        category: line.category,
        attempts: attempts.collect(),
        context: None,
    };
    let now = server.clock.now();
    let imported = server.store.import_dead_letters(vec![letter], now).await.unwrap();
    let [Imported::Imported(id)] = &imported[..] else {
        panic!("{imported:?}")
    };
    let shown = server.get(&format!("/dead-letters/{id}")).await.expect(200);
    let history = shown["history"].as_array().unwrap().iter();
    let numbers: Vec<u64> = history
        .map(|attempt| attempt["attempt_number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (2..=1_001).collect::<Vec<_>>());
    let exported = server.get("/dead-letters/export?destination_id=des_c").await;
    let line = Line::read(exported.text().trim_end().as_bytes()).unwrap();
    let numbers: Vec<u32> = line.attempts().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, (2..=1_001).collect::<Vec<_>>());
}
