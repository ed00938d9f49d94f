//! The main job: published once, delivered as the policy says, visible afterwards.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::receiver::{Receiver, Reply};
use super::server::Server;
use super::wait::eventually;

const BOUND: Duration = Duration::from_secs(60);

/// A time of the interface as milliseconds.
fn millis(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_else(|| panic!("a time: {value}"));
    postrider_core::time::Timestamp::parse(text)
        .unwrap_or_else(|_| panic!("a time: {text}"))
        .as_millis()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_failures_then_success_are_three_attempts_on_schedule() {
    let server = Server::start().await;
    let receiver = Receiver::start(|_, before| match before {
        0 | 1 => Reply::Status(500, "not now"),
        _ => Reply::Status(200, "thanks"),
    })
    .await;
    server
        .api
        .subscribe("acme", "shop", "order.*", &receiver.url())
        .await;
    let data = r#"{ "total":9007199254740993, "total":1.0 }"#;
    server.api.publish("acme", "order-1", "order.paid", data).await;

    let requests = receiver.until_count(3, BOUND).await;
    for (number, request) in (1..).zip(&requests) {
        assert_eq!(
            request.body, data,
            "attempt {number} has the bytes that were published"
        );
        assert_eq!(request.header("webhook-id"), "order-1");
        assert_eq!(request.header("webhook-topic"), "order.paid");
        assert_eq!(request.header("webhook-attempt"), number.to_string());
    }

    let delivery = eventually("the delivery has succeeded", BOUND, async || {
        let list = server.api.get("/api/v1/deliveries?event_id=order-1").await;
        let delivery = list["models"][0].clone();
        (delivery["status"] == "succeeded").then_some(delivery)
    })
    .await;
    assert_eq!(delivery["attempts"], 3);
    let event = server.api.get("/api/v1/events/order-1").await;
    assert_eq!(event["deliveries"][0]["status"], "succeeded");
    assert_eq!(event["delivery_counts"]["succeeded"], 1);
    let list = server
        .api
        .get("/api/v1/attempts?event_id=order-1&dir=asc&include=response_data")
        .await;
    let attempts = list["models"].as_array().unwrap();
    let seen: Vec<_> = attempts
        .iter()
        .map(|attempt| {
            (
                attempt["attempt_number"].as_i64().unwrap(),
                attempt["status"].as_str().unwrap(),
                attempt["code"].as_str().unwrap(),
                attempt["response_data"]["body"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (1, "failed", "500", "not now"),
            (2, "failed", "500", "not now"),
            (3, "success", "200", "thanks")
        ]
    );
    // The default policy: full jitter over 1 s, then over 2 s. Not earlier than planned; the plan within its bounds.
    for (attempt, most) in attempts.iter().skip(1).zip([1_000, 2_000]) {
        let delay = attempt["delay_ms"].as_i64().unwrap();
        assert!((0..=most).contains(&delay), "{attempt}");
        assert!(
            millis(&attempt["time"]) >= millis(&attempt["planned_at"]),
            "{attempt}"
        );
    }
    for attempt in attempts {
        assert!(attempt["duration_ms"].is_number(), "{attempt}");
    }
    assert_eq!(receiver.count(), 3, "nothing came after the success");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_destination_does_not_hold_up_its_neighbour() {
    let server = Server::start().await;
    let hanging = Receiver::start(|_, _| Reply::Hang).await;
    let healthy = Receiver::always(200).await;
    server.api.subscribe("acme", "hanging", "*", &hanging.url()).await;
    server.api.subscribe("acme", "healthy", "*", &healthy.url()).await;
    for number in 0..300 {
        server
            .api
            .publish("acme", &format!("e{number}"), "tick", "{}")
            .await;
    }
    healthy.until_count(300, BOUND).await;
    let waiting = server
        .api
        .get("/api/v1/deliveries?destination_id=hanging&status=pending&limit=1000")
        .await;
    assert_eq!(
        waiting["models"].as_array().unwrap().len(),
        300,
        "the other one has answered nothing yet"
    );
    assert!(hanging.count() >= 1, "it was called");
}

/// A destination of a tenant of its own, whose requests wait for an answer as long as may be.
async fn patient(server: &Server, tenant: &str, receiver: &Receiver) {
    server
        .api
        .call(Method::PUT, &format!("/api/v1/tenants/{tenant}"), "")
        .await
        .expect(201);
    let body = json!({
        "id": "hooks", "type": "webhook", "topics": "*",
        "config": { "url": receiver.url(), "timeout_seconds": 60 },
    });
    let path = format!("/api/v1/tenants/{tenant}/destinations");
    server
        .api
        .call(Method::POST, &path, &body.to_string())
        .await
        .expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_hanging_destinations_do_not_hold_up_three_healthy_ones_and_say_what_they_wait_for() {
    let server = Server::start().await;
    let mut hanging = Vec::new();
    for number in 0..20 {
        let receiver = Receiver::start(|_, _| Reply::Hang).await;
        let tenant = format!("hanging-{number}");
        patient(&server, &tenant, &receiver).await;
        hanging.push((tenant, receiver));
    }
    let mut healthy = Vec::new();
    for number in 0..3 {
        let receiver = Receiver::always(200).await;
        let tenant = format!("healthy-{number}");
        patient(&server, &tenant, &receiver).await;
        healthy.push((tenant, receiver));
    }
    // 50 times one event for each, the hanging ones first.
    let tenants = hanging.iter().chain(&healthy).map(|(tenant, _)| tenant);
    let events: Vec<_> = tenants
        .map(|tenant| json!({ "tenant_id": tenant, "topic": "tick", "data": {} }))
        .collect();
    let batch = Value::from(events).to_string();
    for _ in 0..50 {
        server
            .api
            .call(Method::POST, "/api/v1/publish/batch", &batch)
            .await
            .expect(202);
    }
    for (_, receiver) in &healthy {
        receiver.until_count(50, BOUND).await;
    }
    for (tenant, receiver) in &hanging {
        // As many as a destination gets at first.
        receiver.until_count(4, BOUND).await;
        let health = server
            .api
            .get(&format!("/api/v1/tenants/{tenant}/destinations/hooks/health"))
            .await;
        assert_eq!(health["status"], "window_full", "{health}");
        assert_eq!(
            health["explanation"],
            "4 of 4 requests are out; the next one goes out when one of them ends."
        );
        assert_eq!(health["pending"]["in_store"], 50);
        assert_eq!(receiver.count(), 4, "no answer, no fifth request");
        let attempts = server
            .api
            .get(&format!("/api/v1/attempts?tenant_id={tenant}"))
            .await;
        assert_eq!(attempts["models"], json!([]), "none has been answered");
    }
}
