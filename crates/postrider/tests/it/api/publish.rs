//! Publishing one event: validation, idempotency, bytes.

use postrider::directory::Rules;
use postrider_core::delivery::DeadReason;
use serde_json::{Value, json};

use super::server::Server;

/// Case 61: bytes that a parser would change.
const EXACT: [&str; 7] = [
    r#"{"a":1,"a":2}"#,
    r#"{"n":9007199254740993,"x":1.0,"y":1e2,"z":-0}"#,
    r#"{"s":"\u0000"}"#,
    r#"{"s":"<\/script>\u2028"}"#,
    "{ \"b\" :\t1 ,\r\n \"a\" : [ ] }",
    r#"{"big":1e999,"lone":"\ud800"}"#,
    r#"{"s":"žluťoučký 🐎"}"#,
];

#[tokio::test]
async fn data_are_stored_and_shown_byte_for_byte() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    for data in EXACT {
        let body =
            format!(r#"{{"tenant_id":"acme","topic":"t","data": {data} ,"time":"2026-01-01T00:00:00Z"}}"#);
        let published = server.post("/publish", body).await.expect(202);
        let due = server.due().await;
        let payload = due[0].payload.as_ref().unwrap();
        assert_eq!(payload.data, data.as_bytes(), "{data}");
        let id = published["id"].as_str().unwrap();
        let event = server.get(&format!("/events/{id}")).await;
        assert!(
            event.text().contains(&format!("\"data\":{data},")),
            "{}",
            event.text()
        );
    }
    let server = server.restart(Rules::default()).await;
    let list = server.get("/events?dir=asc").await.text();
    for data in EXACT {
        assert!(
            list.contains(&format!("\"data\":{data},")),
            "{data} after a restart: {list}"
        );
    }
}

#[tokio::test]
async fn everything_published_is_kept() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    let published = server
        .publish(json!({
            "id": "order-17", "topic": "order.paid", "eligible_for_retry": false,
            "time": "2025-12-31T23:00:00+01:00", "metadata": { "source": "till" }, "data": { "n": 1 },
        }))
        .await;
    let expected = json!({ "id": "order-17", "duplicate": false, "destination_ids": ["d"] });
    assert_eq!(published, expected);
    let mut event = server.get("/events/order-17").await.expect(200);
    let delivery = event["deliveries"][0]["id"].take();
    assert!(delivery.as_str().unwrap().starts_with("dlv_"));
    let expected = json!({
        "id": "order-17",
        "tenant_id": "acme",
        "matched_destination_ids": ["d"],
        "topic": "order.paid",
        "time": "2025-12-31T22:00:00.000Z",
        "accepted_at": "2026-01-01T00:00:00.000Z",
        "eligible_for_retry": false,
        "metadata": { "source": "till" },
        "data": { "n": 1 },
        "delivery_counts": { "pending": 1, "succeeded": 0, "dead": 0, "canceled": 0 },
        "deliveries": [{ "id": null, "destination_id": "d", "status": "pending" }],
    });
    assert_eq!(event, expected);
}

#[tokio::test]
async fn ids_are_unique_per_tenant() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server.publish(json!({ "id": "e" })).await;
    server.destination("later", json!({})).await;
    let again = server
        .publish(json!({ "id": "e", "data": { "other": true } }))
        .await;
    assert_eq!(
        again,
        json!({ "id": "e", "duplicate": true, "destination_ids": ["d"] })
    );
    let other = server.publish(json!({ "id": "e", "tenant_id": "other" })).await;
    assert_eq!(
        other,
        json!({ "id": "e", "duplicate": false, "destination_ids": [] })
    );
    let of_acme = server.get("/events/e?tenant_id=acme").await.expect(200);
    assert_eq!(
        (&of_acme["tenant_id"], &of_acme["data"]),
        (&json!("acme"), &json!({}))
    );
}

#[tokio::test]
async fn every_wrong_field_is_named_at_once() {
    let server = Server::start().await;
    let body = json!({
        "id": "no spaces", "tenant_id": 5, "destination_id": [], "topic": {}, "eligible_for_retry": "yes",
        "time": "tomorrow", "metadata": { "a": 1, "b": "x\u{0}" }, "data": [],
    });
    let refused = server.post("/publish", body).await.expect(422);
    let expected = json!({
        "status": 422,
        "message": "validation error",
        "data": [
            "id must be 1 to 255 visible ASCII characters",
            "tenant_id must be a string",
            "destination_id must be a string",
            "topic must be a string",
            "eligible_for_retry must be true or false",
            "time must be an RFC 3339 date-time",
            "metadata.a must be a string",
            "metadata.b must not have control characters",
            "data must be a valid JSON object",
        ],
    });
    assert_eq!(refused, expected);
    let refused = server.post("/publish", "{}").await.expect(422);
    assert_eq!(
        refused["data"],
        json!(["tenant_id is required", "data is required"])
    );
    for data in ["null", "[]", "\"x\"", "1"] {
        let refused = server
            .post("/publish", format!(r#"{{"tenant_id":"t","data":{data}}}"#))
            .await
            .expect(422);
        assert_eq!(
            refused["data"],
            json!(["data must be a valid JSON object"]),
            "{data}"
        );
    }
}

#[tokio::test]
async fn nesting_is_bounded() {
    let server = Server::start().await;
    let nested = |levels: usize| {
        format!(
            r#"{{"tenant_id":"t","data":{}{}}}"#,
            r#"{"a":"#.repeat(levels - 1) + "{}",
            "}".repeat(levels - 1)
        )
    };
    server.post("/publish", nested(100)).await.expect(202);
    for levels in [101, 100_000] {
        let refused = server.post("/publish", nested(levels)).await.expect(422);
        assert_eq!(
            refused["data"],
            json!(["data must not be nested deeper than 100 levels"])
        );
    }
}

#[tokio::test]
async fn of_many_topics_a_refusal_names_ten() {
    let rules = Rules {
        topics: (10..22).map(|number| format!("t{number}")).collect(),
        ..Rules::default()
    };
    let server = Server::with(rules, |_| {}).await;
    let event = json!({ "tenant_id": "acme", "topic": "other", "data": {} });
    let refused = server.post("/publish", event).await.expect(422);
    let text = "topic must be one of: t10, t11, t12, t13, t14, t15, t16, t17, t18, t19, or 2 more (GET /topics has all)";
    assert_eq!(refused["data"], json!([text]));
}

#[tokio::test]
async fn known_topics_are_enforced_when_configured() {
    let rules = Rules {
        topics: vec!["user.created".into(), "user.deleted".into()],
        ..Rules::default()
    };
    let server = Server::with(rules, |_| {}).await;
    server.tenant().await;
    assert_eq!(
        server.get("/topics").await.expect(200),
        json!(["user.created", "user.deleted"])
    );
    let event = |topic: &str| json!({ "tenant_id": "acme", "topic": topic, "data": {} });
    let refused = server.post("/publish", event("")).await.expect(422);
    assert_eq!(refused["data"], json!(["topic is required"]));
    let text = "topic must be one of: user.created, user.deleted";
    for topic in ["user.renamed", "*"] {
        let refused = server.post("/publish", event(topic)).await.expect(422);
        assert_eq!(refused["data"], json!([text]), "{topic}");
    }
    server.post("/publish", event("user.created")).await.expect(202);
    let body = json!({
        "type": "webhook", "topics": ["user.created", "user.renamed"],
        "config": { "url": "https://hooks.example.com/" },
    });
    let refused = server.post("/tenants/acme/destinations", body).await.expect(422);
    assert_eq!(
        refused["data"],
        json!(["topics[1] must be one of: user.created, user.deleted"])
    );
}

#[tokio::test]
async fn events_go_where_topic_filter_and_destination_agree() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("all", json!({})).await;
    server
        .destination("orders", json!({ "topics": ["order.paid", "order.sent"] }))
        .await;
    let filter = json!({ "data": { "amount": { "$gte": 100 } } });
    server
        .destination("large", json!({ "topics": ["order.paid"], "filter": filter }))
        .await;
    let goes_to = async |event: Value| server.publish(event).await["destination_ids"].clone();
    assert_eq!(
        goes_to(json!({ "data": { "amount": 150 } })).await,
        json!(["all", "orders", "large"])
    );
    assert_eq!(
        goes_to(json!({ "data": { "amount": 50 } })).await,
        json!(["all", "orders"])
    );
    assert_eq!(
        goes_to(json!({ "topic": "*", "data": { "amount": 50 } })).await,
        json!(["all", "orders"]),
        "as without a topic"
    );
    assert_eq!(goes_to(json!({ "topic": "user.created" })).await, json!(["all"]));
    let only = json!({ "destination_id": "orders", "topic": "order.sent" });
    assert_eq!(goes_to(only).await, json!(["orders"]));
    let unmatched = json!({ "destination_id": "orders", "topic": "user.created" });
    assert_eq!(
        goes_to(unmatched).await,
        json!([]),
        "a named destination must still match"
    );
}

#[tokio::test]
async fn events_of_a_disabled_destination_become_dead_letters() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server
        .put("/tenants/acme/destinations/d/disable", "")
        .await
        .expect(200);
    let published = server.publish(json!({ "id": "e" })).await;
    assert_eq!(published["destination_ids"], json!(["d"]));
    let deliveries = server.get("/deliveries?event_id=e").await.expect(200);
    let delivery = &deliveries["models"][0];
    assert_eq!(delivery["status"], "dead");
    assert_eq!(delivery["reason"], DeadReason::DestinationDisabled.as_str());
}

#[tokio::test]
async fn one_event_may_match_a_thousand_destinations() {
    let server = Server::start().await;
    server.tenant().await;
    let creations = (0..1_001).map(|n| {
        let server = &server;
        async move { server.destination(&format!("d{n}"), json!({})).await }
    });
    futures_util::future::join_all(creations).await;
    let published = server.publish(json!({})).await;
    assert_eq!(published["destination_ids"].as_array().unwrap().len(), 1_001);
    assert_eq!(server.due().await.len(), 1_001);
}

#[tokio::test]
async fn what_could_not_be_sent_is_refused_by_name() {
    let server = Server::start().await;
    server.tenant().await;
    let table = [
        (
            json!({ "id": "" }),
            "id must be 1 to 255 visible ASCII characters",
        ),
        (
            json!({ "metadata": { "big": "v".repeat(8_193) } }),
            "metadata.big has 8193 bytes as a header's value, at most 8192 are possible",
        ),
        (
            json!({ "metadata": { "Key": "1", "key": "2" } }),
            "metadata.key is the same header as another key",
        ),
        (
            json!({ "metadata": { "a": "v".repeat(8_000), "b": "ü".repeat(1_300), "c": "v".repeat(600) } }),
            "metadata has 16433 bytes as headers, at most 16384 are possible",
        ),
        (
            json!({ "time": "1969-12-31T23:59:59Z" }),
            "time must lie in the years 1970 to 9999",
        ),
    ];
    for (field, text) in table {
        let mut body = json!({ "tenant_id": "acme", "data": {} });
        body.as_object_mut()
            .unwrap()
            .extend(field.as_object().unwrap().clone());
        let refused = server.post("/publish", body).await.expect(422);
        assert_eq!(refused["data"], json!([text]));
    }
    let last = json!({ "tenant_id": "acme", "id": "last", "data": {}, "time": "9999-12-31T23:59:59.999Z" });
    server.post("/publish", last).await.expect(202);
    let found = server.get("/events?time[gte]=9999-12-31").await.expect(200);
    assert_eq!(found["models"][0]["time"], "9999-12-31T23:59:59.999Z");
    let refused = server.get("/events?time[gte]=1900-01-01").await.expect(422);
    let text = "must lie in the years 1970 to 9999";
    assert_eq!(refused["data"], json!({ "query.time[gte]": text }));
}
