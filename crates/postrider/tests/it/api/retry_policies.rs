//! Retry policies: named ones, a preview, the effective one of a destination.

use std::time::Duration;

use postrider::directory::Rules;
use postrider_core::delivery::Plan;
use postrider_core::outcome::Outcome;
use postrider_core::policy::{Case, Policies, RawPolicy, Verdict};
use postrider_core::time::Timestamp;
use postrider_store::record::Next;
use serde_json::{Value, json};

use super::server::{START, Server};

const PATH: &str = "/tenants/acme/destinations";

fn at(seconds: u64) -> String {
    Timestamp::from_millis(START)
        .plus(Duration::from_secs(seconds))
        .to_string()
}

fn origins(answer: &Value) -> Value {
    answer["effective_retry_policy"]["origins"].clone()
}

/// The delays of Outpost: 30 s, doubled ten times. The n-th retry is due 30 s * (2^n - 1) after publish.
fn outpost_offset(retry: u32) -> u64 {
    30 * ((1 << retry) - 1)
}

#[tokio::test]
async fn a_named_policy_comes_changes_and_goes() {
    let server = Server::start().await;
    let path = "/retry-policies/slow";
    server.get(path).await.expect(404);
    let created = server.put(path, r#"{ "max_attempts": 3 }"#).await.expect(201);
    let fixed = |answer: &Value| {
        let mut answer = answer.clone();
        answer.as_object_mut().unwrap().remove("effective");
        answer
    };
    let expected = json!({
        "name": "slow", "preset": false, "policy": { "max_attempts": 3 }, "revision": 1,
        "created_at": at(0), "updated_at": at(0),
    });
    assert_eq!(fixed(&created), expected);
    assert_eq!(created["effective"]["origins"]["max_attempts"], "named:slow");
    assert_eq!(created["effective"]["origins"]["jitter"], "preset:standard");
    server.advance(Duration::from_secs(5));
    let changed = server.put(path, r#"{"max_attempts":4}"#).await.expect(200);
    assert_eq!(
        (
            &changed["revision"],
            &changed["updated_at"],
            &changed["created_at"]
        ),
        (&json!(2), &json!(at(5)), &json!(at(0)))
    );
    server.advance(Duration::from_secs(5));
    let same = server.put(path, r#"{ "max_attempts" : 4 }"#).await.expect(200);
    assert_eq!(same, changed, "the same policy in other spaces changes nothing");

    let server = server.restart(Rules::default()).await;
    assert_eq!(server.get(path).await.expect(200), changed);
    let all = server.get("/retry-policies").await.expect(200);
    let names: Vec<_> = all["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["preset"].as_bool().unwrap()))
        .collect();
    let expected = [
        ("standard", true),
        ("latency_sensitive", true),
        ("batch", true),
        ("three_tier", true),
        ("outpost", true),
        ("slow", false),
    ];
    assert_eq!(names, expected);
    assert_eq!(all["global"]["policy"]["max_attempts"], 20);

    let deleted = server.delete(path).await.expect(200);
    assert_eq!(deleted, json!({ "success": true }));
    server.delete(path).await.expect(404);
    server.get(path).await.expect(404);
    let changes = server.get(&format!("{path}/changes")).await.expect(200);
    let expected = json!({ "models": [
        { "at": at(10), "old": { "max_attempts": 4 }, "new": null },
        { "at": at(5), "old": { "max_attempts": 3 }, "new": { "max_attempts": 4 } },
        { "at": at(0), "old": null, "new": { "max_attempts": 3 } },
    ] });
    assert_eq!(changes, expected);
    let newest = server.get(&format!("{path}/changes?limit=1")).await.expect(200);
    assert_eq!(newest["models"], json!([expected["models"][0]]));
    server.get(&format!("{path}/changes?limit=0")).await.expect(422);
    server.get("/retry-policies/other/changes").await.expect(404);
}

#[tokio::test]
async fn presets_are_there_and_stay() {
    let server = Server::start().await;
    let batch = server.get("/retry-policies/batch").await.expect(200);
    assert_eq!(
        (&batch["preset"], &batch["policy"]["backoff"]["base"]),
        (&json!(true), &json!("5s"))
    );
    assert_eq!(batch["effective"]["origins"]["backoff.base"], "preset:batch");
    let refused = server.put("/retry-policies/batch", "{}").await.expect(422);
    assert_eq!(
        refused["data"],
        json!(["name is the name of a preset; choose another"])
    );
    server.delete("/retry-policies/batch").await.expect(400);
    server.put("/retry-policies/Slow%20one", "{}").await.expect(422);
}

/// A new destination with this policy.
fn body(policy: &Value) -> Value {
    json!({ "id": "d", "type": "webhook", "topics": "*", "config": { "url": "https://example.com" },
        "retry_policy": policy })
}

/// The fields that a refusal names.
fn fields(refused: &Value) -> Vec<String> {
    assert_eq!(refused["message"], "validation error");
    let faults = refused["data"].as_array().unwrap();
    let first = |fault: &Value| fault.as_str().unwrap().split(' ').next().unwrap().to_owned();
    faults.iter().map(first).collect()
}

#[tokio::test]
async fn an_unknown_field_of_a_policy_hides_no_other_mistake() {
    let server = Server::start().await;
    server.tenant().await;
    let hiding = json!({ "max_attempts": -1, "backoff": { "base": "-1s", "foo": 1 }, "foo": 1,
        "rules": [{ "match": ["999x"], "then": "z" }] });
    let expected = [
        "backoff.foo",
        "foo",
        "backoff.base",
        "max_attempts",
        "rules[0].then",
        "rules[0].match",
    ];
    let put = server
        .put("/retry-policies/Slow", &hiding.to_string())
        .await
        .expect(422);
    assert_eq!(fields(&put)[1..], expected, "after the name");
    let named = fields(&server.post(PATH, body(&hiding)).await.expect(422));
    assert_eq!(named, expected.map(|field| format!("retry_policy.{field}")));
    let preview = json!({ "policy": hiding });
    let named = fields(&server.post("/retry-policies/preview", preview).await.expect(422));
    assert_eq!(named, expected.map(|field| format!("policy.{field}")));
}

#[tokio::test]
async fn a_wrong_policy_names_every_wrong_field() {
    let server = Server::start().await;
    server.tenant().await;
    let wrong = json!({ "jitter": "some", "max_attempts": 0, "backoff": { "multiplier": 0.5 } });
    let expected = ["backoff.multiplier", "jitter", "max_attempts"];
    let put = server
        .put("/retry-policies/slow", &wrong.to_string())
        .await
        .expect(422);
    let mut named = fields(&put);
    named.sort();
    assert_eq!(named, expected, "{put}");

    let mut named = fields(&server.post(PATH, body(&wrong)).await.expect(422));
    named.sort();
    assert_eq!(named, expected.map(|field| format!("retry_policy.{field}")));
    let shapes = json!({ "jiter": "full", "max_attempts": "3" });
    let named = fields(&server.post(PATH, body(&shapes)).await.expect(422));
    assert_eq!(named, ["retry_policy.jiter", "retry_policy.max_attempts"]);
    let unknown = server.post(PATH, body(&json!("slow"))).await.expect(422);
    assert_eq!(
        unknown["data"],
        json!([
            "retry_policy names no retry policy; use one of: standard, latency_sensitive, batch, three_tier, outpost"
        ])
    );
    server.destination("d", json!({})).await;
    let named = fields(
        &server
            .patch(&format!("{PATH}/d"), json!({ "retry_policy": wrong }))
            .await
            .expect(422),
    );
    assert_eq!(named.len(), 3);
    for (body, message) in [
        ("[]", "invalid JSON"),
        ("", "invalid JSON"),
        ("{", "validation error"),
    ] {
        let refused = server.put("/retry-policies/slow", body).await.expect(422);
        assert!(
            [message, "invalid JSON"].contains(&refused["message"].as_str().unwrap()),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_destination_shows_its_policy_and_where_each_value_comes_from() {
    let global: RawPolicy =
        serde_json::from_value(json!({ "max_age": "24h", "long_term": { "enabled": false } })).unwrap();
    let policies = Policies {
        global: global.clone(),
        ..Policies::default()
    };
    let default_policy = policies.effective(None).unwrap().policy.into();
    let rules = Rules {
        policies,
        default_policy,
        ..Rules::default()
    };
    let server = Server::with(rules, |_| {}).await;
    server.tenant().await;
    server
        .put("/retry-policies/slow", r#"{"backoff":{"base":"30s"}}"#)
        .await
        .expect(201);

    let plain = server.destination("plain", json!({})).await;
    assert!(plain.get("retry_policy").is_none());
    assert_eq!(origins(&plain)["max_age"], "global");
    assert_eq!(origins(&plain)["backoff.base"], "preset:standard");

    let named = server
        .destination("named", json!({ "retry_policy": "slow" }))
        .await;
    assert_eq!(named["retry_policy"], "slow");
    assert_eq!(origins(&named)["backoff.base"], "named:slow");
    assert_eq!(origins(&named)["max_age"], "global");
    assert_eq!(
        named["effective_retry_policy"]["policy"]["backoff"]["base"],
        "30s"
    );

    let inline = json!({ "retry_policy": { "jitter": "equal" } });
    let inline = server.patch(&format!("{PATH}/named"), inline).await.expect(200);
    assert_eq!(inline["retry_policy"], json!({ "jitter": "equal" }));
    assert_eq!(origins(&inline)["jitter"], "inline");
    assert_eq!(origins(&inline)["backoff.base"], "preset:standard");

    let preset = json!({ "retry_policy": "outpost" });
    let preset = server.patch(&format!("{PATH}/named"), preset).await.expect(200);
    assert_eq!(
        origins(&preset)["max_age"],
        "preset:outpost",
        "a preset hides the global policy"
    );

    let cleared = server
        .patch(&format!("{PATH}/named"), json!({ "retry_policy": null }))
        .await
        .expect(200);
    assert!(cleared.get("retry_policy").is_none());
    assert_eq!(cleared["effective_retry_policy"], plain["effective_retry_policy"]);
    assert_eq!(server.get(&format!("{PATH}/named")).await.expect(200), cleared);
}

#[tokio::test]
async fn a_policy_in_use_cannot_be_deleted() {
    let server = Server::start().await;
    server.tenant().await;
    server.put("/retry-policies/slow", "{}").await.expect(201);
    server.post(
        PATH,
        r#"{"id":"a","type":"webhook","topics":"*","config":{"url":"https://example.com"},"retry_policy":"sl\u006fw"}"#,
    )
    .await
    .expect(201);
    server.destination("b", json!({ "retry_policy": "slow" })).await;
    let refused = server.delete("/retry-policies/slow").await.expect(409);
    let expected = json!({ "status": 409, "message": "the retry policy is in use", "data": { "destinations_count": 2 } });
    assert_eq!(refused, expected);
    server
        .patch(&format!("{PATH}/a"), json!({ "retry_policy": null }))
        .await
        .expect(200);
    server.delete(&format!("{PATH}/b")).await.expect(200);
    server.delete("/retry-policies/slow").await.expect(200);
}

#[tokio::test]
async fn a_change_reaches_what_is_planned_from_then_on() {
    let server = Server::start().await;
    server.tenant().await;
    let slow = |attempts: u32| json!({ "preset": "outpost", "max_attempts": attempts }).to_string();
    server.put("/retry-policies/slow", &slow(5)).await.expect(201);
    server.destination("d", json!({ "retry_policy": "slow" })).await;
    server.publish(json!({ "id": "e" })).await;
    let due = server.due().await.remove(0);
    let progress = due.delivery.progress.attempted(&due.delivery.plan);
    let plan = Plan {
        due_at: Timestamp::parse(&at(30)).unwrap(),
        delay: Duration::from_secs(30),
        cause: postrider_core::delivery::DelayCause::Backoff,
        ..due.delivery.plan
    };
    server.settle(&due, Ok(500), Next::Retry(plan, progress)).await;
    let list = server.get("/deliveries?event_id=e").await.expect(200);
    let path = format!("/deliveries/{}", list["models"][0]["id"].as_str().unwrap());
    let look = async || server.get(&path).await.expect(200);
    let before = look().await;
    assert_eq!(before["forecast"]["attempts"].as_array().unwrap().len(), 4);

    let mut changed: Value = serde_json::from_str(&slow(3)).unwrap();
    changed["backoff"] = json!({ "base": "10s" });
    server
        .put("/retry-policies/slow", &changed.to_string())
        .await
        .expect(200);
    let after = look().await;
    assert_eq!(after["next_attempt_at"], at(30), "what is planned keeps its time");
    let times: Vec<_> = after["forecast"]["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["planned_at"].clone())
        .collect();
    assert_eq!(
        times,
        [at(30), at(30 + 20)],
        "the retry after it is the second: 10 s doubled"
    );
    let target = server.directory.destination("acme", "d").unwrap().target.clone();
    assert_eq!(target.policy.max_attempts(), 3);
}

#[tokio::test]
async fn a_preview_lists_every_attempt() {
    let server = Server::start().await;
    let body = json!({ "policy": "outpost", "assume": 500, "from": "2026-01-01T00:00:00Z" });
    let preview = server.post("/retry-policies/preview", body).await.expect(200);
    let attempts = preview["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 11);
    for (retry, attempt) in (0..).zip(attempts) {
        let offset = outpost_offset(retry);
        let millis = offset * 1_000;
        assert_eq!(attempt["number"], retry + 1);
        assert_eq!(attempt["tier"], "backoff");
        assert_eq!(
            attempt["offset"],
            json!({ "earliest_ms": millis, "expected_ms": millis, "latest_ms": millis })
        );
        assert_eq!(
            attempt["at"],
            json!({ "earliest": at(offset), "expected": at(offset), "latest": at(offset) })
        );
    }
    assert_eq!(preview["ends"], "exhausted_retries");
    assert_eq!(preview["window"]["latest_ms"], 30_690_000);
    assert_eq!(preview["window"]["at"]["latest"], at(30_690));
    assert_eq!(preview["origins"]["max_attempts"], "preset:outpost");

    let body = json!({ "policy": { "jitter": "equal", "max_attempts": 2 }, "assume": "429" });
    let preview = server.post("/retry-policies/preview", body).await.expect(200);
    assert_eq!(
        preview["attempts"][1]["delay"],
        json!({ "earliest_ms": 1_500, "expected_ms": 2_250, "latest_ms": 3_000 }),
        "1 s, three times as long after 429, the upper half of it"
    );
    assert_eq!(preview["attempts"][1]["cause"], "rate_limited");
    let global = server.post("/retry-policies/preview", "{}").await.expect(200);
    assert_eq!(global["attempts"].as_array().unwrap().len(), 20);
    let wrong =
        json!({ "policy": { "jitter": "some", "max_age": "x" }, "assume": "sometimes", "from": "soon" });
    let refused = server.post("/retry-policies/preview", wrong).await.expect(422);
    let fields: Vec<_> = refused["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| fault.as_str().unwrap().split(' ').next().unwrap())
        .collect();
    assert_eq!(fields, ["policy.jitter", "policy.max_age", "assume", "from"]);
}

#[tokio::test]
async fn a_pending_delivery_has_its_forecast_to_the_millisecond() {
    let server = Server::start().await;
    server.tenant().await;
    server
        .destination("exact", json!({ "retry_policy": "outpost" }))
        .await;
    server.destination("spread", json!({})).await;
    server.publish(json!({ "id": "e" })).await;
    for due in server.due().await {
        let target = server.directory.target(due.delivery.destination).unwrap();
        let progress = due.delivery.progress.attempted(&due.delivery.plan);
        let case = Case {
            delivery: due.delivery.key,
            progress,
            retryable: true,
        };
        let now = Timestamp::from_millis(START);
        let Verdict::Retry(plan) = target.policy.judge(&case, &Outcome::status(500), now) else {
            panic!("500 is retried");
        };
        server.settle(&due, Ok(500), Next::Retry(plan, progress)).await;
    }
    let list = server.get("/deliveries?event_id=e&dir=asc").await.expect(200);
    let look = async |n: usize, query: &str| {
        let id = list["models"][n]["id"].as_str().unwrap();
        server.get(&format!("/deliveries/{id}{query}")).await.expect(200)["forecast"].clone()
    };
    assert!(
        list["models"][0].get("forecast").is_none(),
        "only for one delivery"
    );
    let exact = look(0, "").await;
    assert_eq!(
        (&exact["assume"], &exact["reason"]),
        (&json!("500"), &json!("exhausted_retries"))
    );
    assert_eq!(exact["ends_at"], at(30_690));
    let attempts = exact["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 10);
    for (retry, attempt) in (1..).zip(attempts) {
        let expected = json!({
            "number": retry + 1, "planned_at": at(outpost_offset(retry)), "tier": "backoff",
            "delay_ms": 30_000_u64 << (retry - 1), "delay_cause": "backoff",
        });
        assert_eq!(*attempt, expected);
    }
    let spread = look(1, "").await;
    assert_eq!(spread["attempts"].as_array().unwrap().len(), 19);
    assert_eq!(spread, look(1, "").await, "and it stays the same");
    let limited = look(0, "?assume=200").await;
    assert_eq!(
        (limited["attempts"].as_array().unwrap().len(), &limited["reason"]),
        (1, &Value::Null)
    );
    let permanent = look(0, "?assume=400").await;
    assert_eq!(permanent["reason"], "permanent_failure");
    let id = list["models"][0]["id"].as_str().unwrap();
    server
        .get(&format!("/deliveries/{id}?assume=never"))
        .await
        .expect(422);
    server.put(&format!("{PATH}/exact/disable"), "").await.expect(200);
    assert_eq!(look(0, "").await, Value::Null, "nothing is sent to it");
}

#[tokio::test]
async fn a_policy_that_the_configuration_makes_invalid_is_shown_and_replaced() {
    let server = Server::start().await;
    server.tenant().await;
    let own = json!({ "retry_policy": { "backoff": { "base": "3h", "max_delay": "6h" } } });
    server.destination("d", own).await;
    let global: RawPolicy = serde_json::from_value(json!({ "max_age": "2h" })).unwrap();
    let policies = Policies {
        global,
        ..Policies::default()
    };
    let default_policy = policies.effective(None).unwrap().policy.into();
    let rules = Rules {
        policies,
        default_policy,
        ..Rules::default()
    };
    let server = server.restart(rules).await;
    let shown = server.get(&format!("{PATH}/d")).await.expect(200);
    let effective = &shown["effective_retry_policy"];
    assert_eq!(effective["policy"]["max_age"], "2h");
    assert_eq!(effective["origins"]["backoff.base"], "preset:standard");
    let problem = effective["problems"][0].as_str().unwrap();
    assert!(
        problem.starts_with("retry_policy.max_age is 2h, shorter than the first delay (3h)"),
        "{problem}"
    );
    let target = server.directory.destination("acme", "d").unwrap().target.clone();
    assert!(target.url.is_ok(), "it is sent to all the same");
    assert_eq!(target.policy.max_age(), Duration::from_secs(7_200));
}
