//! Pages, cursors and filters of lists.

use std::time::Duration;

use axum::http::StatusCode;
use postrider_core::delivery::{DeadReason, DelayCause, Plan, Progress, Tier};
use postrider_core::outcome::{Category, ErrorKind};
use postrider_core::time::Timestamp;
use postrider_store::record::Next;
use serde_json::{Value, json};

use super::server::{START, Server};

fn ids(page: &Value) -> Vec<&str> {
    page["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect()
}

/// Event `e1` of acme: 500 with a retry in 2 s at `d`; event `e2`: timeout, dead at `d`; event `e3` of another tenant.
async fn server() -> Server {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server.publish(json!({ "id": "e1", "data": { "n": 1 } })).await;
    let due = server.due().await;
    let now = Timestamp::from_millis(START);
    let delay = Duration::from_secs(2);
    let plan = Plan {
        due_at: now.plus(delay),
        delay,
        tier: Tier::Backoff,
        cause: DelayCause::Backoff,
    };
    let progress = Progress {
        attempts: 1,
        scheduled: 1,
        ..Progress::new(now)
    };
    server.settle(&due[0], Ok(500), Next::Retry(plan, progress)).await;
    server.advance(Duration::from_secs(60));
    server
        .publish(json!({ "id": "e2", "topic": "user.created" }))
        .await;
    let due = server.due().await;
    let dead = Next::Dead(DeadReason::ExhaustedRetries, Category::Timeout);
    server.settle(&due[0], Err(ErrorKind::Timeout), dead).await;
    server.advance(Duration::from_secs(60));
    server.publish(json!({ "id": "e3", "tenant_id": "other" })).await;
    server
}

#[tokio::test]
async fn attempts_have_the_contracts_fields_and_more() {
    let server = server().await;
    let list = server.get("/attempts?event_id=e1").await.expect(200);
    let mut attempt = list["models"][0].clone();
    for (field, prefix) in [("id", "att_"), ("delivery_id", "dlv_")] {
        assert!(attempt[field].take().as_str().unwrap().starts_with(prefix));
    }
    let expected = json!({
        "id": null, "delivery_id": null,
        "tenant_id": "acme", "event_id": "e1", "destination_id": "d", "destination_type": "webhook",
        "topic": "order.paid", "status": "failed", "time": "2026-01-01T00:00:00.000Z", "code": "500",
        "attempt_number": 1, "manual": false,
        "planned_at": "2026-01-01T00:00:00.000Z", "tier": "backoff", "delay_ms": 0, "delay_cause": "first", "waited_for": null,
        "duration_ms": 12.345,
        "timings": {
            "queue_ms": 0.0, "dns_ms": null, "connect_ms": null, "tls_ms": null, "first_byte_ms": null,
            "total_ms": 12.345,
        },
        "delivery_status": "pending", "next_attempt_at": "2026-01-01T00:00:02.000Z",
    });
    assert_eq!(attempt, expected);
    let failed = server.get("/attempts?event_id=e2").await.expect(200);
    let failed = &failed["models"][0];
    assert_eq!(failed["code"], "timeout");
    assert_eq!(
        failed["error"],
        json!({ "kind": "timeout", "category": "timeout" })
    );
    assert_eq!(
        (&failed["delivery_status"], &failed["next_attempt_at"]),
        (&json!("dead"), &json!(null))
    );
}

#[tokio::test]
async fn include_adds_what_it_names() {
    let server = server().await;
    let path =
        "/attempts?event_id=e1&include[]=event&include[]=response_data&include[]=request_data&include[]=x";
    let list = server.get(path).await.expect(200);
    let attempt = &list["models"][0];
    let event = json!({
        "id": "e1", "tenant_id": "acme", "destination_id": "d", "topic": "order.paid",
        "time": "2026-01-01T00:00:00.000Z", "eligible_for_retry": true, "metadata": {},
    });
    assert_eq!(attempt["event"], event);
    let response = json!({
        "status": 500, "body": "oops", "truncated": false, "headers": [{ "name": "x-msg", "value": "café" }],
    });
    assert_eq!(attempt["response_data"], response);
    assert_eq!(
        attempt["request_data"]["headers"][0],
        json!({ "name": "webhook-id", "value": "evt_1" })
    );
    assert!(attempt.get("destination").is_none());
    let id = attempt["id"].as_str().unwrap();
    let one = server
        .get(&format!("/attempts/{id}?include=event.data,destination"))
        .await
        .expect(200);
    assert_eq!(one["event"]["data"], json!({ "n": 1 }));
    assert_eq!(one["destination"]["credentials"], json!({ "secret": "***" }));
    server.delete("/tenants/acme/destinations/d").await.expect(200);
    let one = server
        .get(&format!("/attempts/{id}?include=destination"))
        .await
        .expect(200);
    assert!(one.get("destination").is_none(), "it is deleted");
}

#[tokio::test]
async fn attempts_are_filtered() {
    let server = server().await;
    let events = async |query: &str| -> Vec<String> {
        let list = server.get(&format!("/attempts?{query}")).await.expect(200);
        let models = list["models"].as_array().unwrap();
        models
            .iter()
            .map(|one| one["event_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(events("").await, ["e2", "e1"]);
    assert_eq!(events("dir=asc").await, ["e1", "e2"]);
    assert_eq!(events("event_id[]=e1&event_id[]=e3").await, ["e1"]);
    assert_eq!(events("topic=user.created").await, ["e2"]);
    assert_eq!(events("tenant_id=other").await, [""; 0]);
    assert_eq!(events("destination_id=d").await.len(), 2);
    assert_eq!(events("destination_type=webhook").await.len(), 2);
    assert_eq!(events("destination_type=aws_sqs").await, [""; 0]);
    assert_eq!(events("status=failed").await.len(), 2);
    assert_eq!(events("status=success").await, [""; 0]);
    assert_eq!(events("time[gte]=2026-01-01T00:00:30Z").await, ["e2"]);
    assert_eq!(events("time[lt]=2026-01-01T00:00:30Z").await, ["e1"]);
}

#[tokio::test]
async fn attempts_of_a_destination() {
    let server = server().await;
    let path = "/tenants/acme/destinations/d/attempts";
    let list = server.get(path).await.expect(200);
    assert_eq!(list["models"].as_array().unwrap().len(), 2);
    let id = list["models"][0]["id"].as_str().unwrap();
    assert_eq!(
        server.get(&format!("{path}/{id}")).await.expect(200),
        list["models"][0]
    );
    server
        .get("/tenants/acme/destinations/x/attempts")
        .await
        .expect(404);
    server
        .get("/tenants/nobody/destinations/d/attempts")
        .await
        .expect(404);
    server.destination("other", json!({})).await;
    let elsewhere = format!("/tenants/acme/destinations/other/attempts/{id}");
    assert_eq!(
        server.get(&elsewhere).await.expect(404)["message"],
        "attempt not found"
    );
}

#[tokio::test]
async fn deliveries_tell_how_far_and_when_next() {
    let server = server().await;
    let list = server.get("/deliveries?event_id=e1").await.expect(200);
    let mut delivery = list["models"][0].clone();
    let id = delivery["id"].take();
    let last = delivery["last_attempt"].take();
    let expected = json!({
        "id": null, "tenant_id": "acme", "event_id": "e1", "destination_id": "d", "topic": "order.paid",
        "status": "pending", "reason": null, "category": "http_5xx", "attempts": 1,
        "next_attempt_at": "2026-01-01T00:00:02.000Z",
        "next_attempt": {
            "number": 2, "planned_at": "2026-01-01T00:00:02.000Z", "tier": "backoff", "delay_ms": 2_000,
            "delay_cause": "backoff",
        },
        "eligible_for_retry": true, "created_at": "2026-01-01T00:00:00.000Z", "ended_at": null,
        "last_attempt": null,
    });
    assert_eq!(delivery, expected);
    assert_eq!(last["code"], "500");
    let id = id.as_str().unwrap();
    assert_eq!(
        server.get(&format!("/deliveries/{id}")).await.expect(200)["event_id"],
        "e1"
    );
    assert_eq!(
        server
            .get(&format!("/deliveries/{id}?tenant_id=other"))
            .await
            .status,
        StatusCode::NOT_FOUND
    );
    let dead = server
        .get("/deliveries?status=dead&status=canceled")
        .await
        .expect(200);
    assert_eq!(dead["models"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&dead["models"][0]["event_id"], &dead["models"][0]["reason"]),
        (&json!("e2"), &json!("exhausted_retries"))
    );
    let refused = server.get("/deliveries?status=lost").await.expect(422);
    let expected = json!({ "query.status": "must be one of: pending, succeeded, dead, canceled" });
    assert_eq!(refused["data"], expected);
}

#[tokio::test]
async fn events_are_filtered_and_unmatched_ones_are_listed() {
    let server = server().await;
    let found = async |query: &str| -> Vec<String> {
        let list = server.get(&format!("/events?{query}")).await.expect(200);
        ids(&list).into_iter().map(str::to_owned).collect()
    };
    assert_eq!(found("").await, ["e3", "e2", "e1"]);
    assert_eq!(found("tenant_id=acme").await, ["e2", "e1"]);
    assert_eq!(found("id[0]=e1&id[1]=e3").await, ["e3", "e1"]);
    assert_eq!(found("destination_id=d").await, ["e2", "e1"]);
    assert_eq!(found("topic=user.created").await, ["e2"]);
    assert_eq!(
        found("time[gt]=2026-01-01T00:00:00Z&time[lte]=2026-01-01T00:01:00Z").await,
        ["e2"]
    );
    assert_eq!(found("time[gte]=2026-01-02").await, [""; 0]);
    server.get("/events/nothing").await.expect(404);
}

#[tokio::test]
async fn pages_are_exact_while_events_arrive() {
    let server = Server::start().await;
    for n in 0..7 {
        server.publish(json!({ "id": format!("e{n}") })).await;
    }
    let first = server.get("/events?limit=3").await.expect(200);
    assert_eq!(ids(&first), ["e6", "e5", "e4"]);
    assert_eq!(first["pagination"]["prev"], json!(null));
    server.publish(json!({ "id": "new" })).await;
    let next = first["pagination"]["next"].as_str().unwrap().to_owned();
    let second = server
        .get(&format!("/events?limit=3&next={next}"))
        .await
        .expect(200);
    assert_eq!(ids(&second), ["e3", "e2", "e1"]);
    let next = second["pagination"]["next"].as_str().unwrap();
    let third = server
        .get(&format!("/events?limit=3&next={next}"))
        .await
        .expect(200);
    assert_eq!(ids(&third), ["e0"]);
    assert_eq!(third["pagination"]["next"], json!(null));
    let prev = second["pagination"]["prev"].as_str().unwrap();
    let back = server
        .get(&format!("/events?limit=3&prev={prev}"))
        .await
        .expect(200);
    assert_eq!(ids(&back), ["e6", "e5", "e4"]);
    assert!(back["pagination"]["prev"].is_string(), "the new one is before it");
}

#[tokio::test]
async fn cursors_that_were_not_issued_here_are_refused() {
    let server = Server::start().await;
    for n in 0..3 {
        server.publish(json!({ "id": format!("e{n}") })).await;
    }
    let first = server.get("/events?limit=1").await.expect(200);
    let next = first["pagination"]["next"].as_str().unwrap();
    let tampered = format!("{}0", &next[..next.len() - 1]);
    let other = format!("{}1", &next[..next.len() - 1]);
    let forged = if tampered == next { other } else { tampered };
    for query in [
        format!("next={forged}"),
        "prev=x".to_owned(),
        format!("next={next}&prev={next}"),
    ] {
        let refused = server.get(&format!("/events?{query}")).await;
        assert_eq!(refused.expect(400)["status"], 400, "{query}");
    }
    server.get(&format!("/attempts?next={next}")).await.expect(400);
}

#[tokio::test]
async fn wrong_queries_name_each_parameter() {
    let server = Server::start().await;
    for list in ["/events", "/attempts", "/deliveries"] {
        let path = format!("{list}?dir=up&order_by=id&limit=0&time[gte]=yesterday");
        let refused = server.get(&path).await.expect(422);
        let expected = json!({
            "query.dir": "must be 'asc' or 'desc'",
            "query.limit": "must be a number from 1 to 1000",
            "query.order_by": "must be 'time'",
            "query.time[gte]": "must be an RFC 3339 date-time or YYYY-MM-DD",
        });
        assert_eq!(refused["data"], expected, "{list}");
        let page = server.get(&format!("{list}?limit=5000")).await.expect(200);
        assert_eq!(page["pagination"]["limit"], 1_000);
    }
}

#[tokio::test]
async fn a_page_of_large_events_or_attempts_ends_at_eight_mebibytes_and_goes_on_exactly() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    for n in 0..10 {
        let data = json!({ "text": "x".repeat(1_000_000) });
        server
            .publish(json!({ "id": format!("e{n}"), "data": data }))
            .await;
        let due = server.due().await.remove(0);
        server.settle(&due, Ok(200), Next::Succeeded).await;
    }
    for (list, id, sizes) in [
        ("/events?", "id", [8, 2]),
        ("/attempts?include=event.data", "event_id", [8, 2]),
        ("/attempts?include=event", "event_id", [10, 0]),
    ] {
        let mut seen = Vec::new();
        let first = server.get(list).await.expect(200);
        let models = |page: &Value| -> Vec<String> {
            let models = page["models"].as_array().unwrap().iter();
            models
                .map(|model| model[id].as_str().unwrap().to_owned())
                .collect()
        };
        seen.extend(models(&first));
        assert_eq!(seen.len(), sizes[0], "{list}");
        if let Some(next) = first["pagination"]["next"].as_str() {
            let second = server.get(&format!("{list}&next={next}")).await.expect(200);
            assert_eq!(models(&second).len(), sizes[1], "{list}");
            seen.extend(models(&second));
        }
        let expected: Vec<String> = (0..10).rev().map(|n| format!("e{n}")).collect();
        assert_eq!(seen, expected, "{list}");
    }
    server
        .post("/retry", json!({ "event_id": "e0", "destination_id": "d" }))
        .await
        .expect(202);
}
