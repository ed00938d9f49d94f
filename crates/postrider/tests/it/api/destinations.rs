//! Creating, reading, enabling and deleting destinations.

use std::time::Duration;

use postrider::directory::Rules;
use postrider_core::time::Timestamp;
use serde_json::{Value, json};

use super::server::{START, Server, loopback};

const PATH: &str = "/tenants/acme/destinations";

#[tokio::test]
async fn a_whole_destination_comes_back_as_it_was_sent() {
    let server = Server::start().await;
    server.tenant().await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = json!({
        "id": "des_1", "type": "webhook", "topics": ["user.created"],
        "filter": { "data": { "amount": { "$gte": 100 } } },
        "config": {
            "url": "https://example.com/hook", "custom_headers": "{\"x-env\":\"prod\"}", "timeout_seconds": 30,
        },
        "credentials": { "secret": secret },
        "delivery_metadata": { "source": "billing" }, "metadata": { "team": "a" },
        "retry_policy": { "max_attempts": 3 },
        "disabled_at": null,
    });
    let mut created = server.post(PATH, &body).await.expect(201);
    let effective = created
        .as_object_mut()
        .unwrap()
        .remove("effective_retry_policy")
        .unwrap();
    assert_eq!(effective["policy"]["max_attempts"], 3);
    let mut expected = body;
    expected["config"]["timeout_seconds"] = json!("30");
    expected["tenant_id"] = json!("acme");
    expected["created_at"] = json!("2026-01-01T00:00:00.000Z");
    expected["updated_at"] = json!("2026-01-01T00:00:00.000Z");
    expected["target"] = json!("https://example.com/hook");
    assert_eq!(created, expected);
    assert_eq!(server.get(PATH).await.expect(200), json!([expected]));
    expected["effective_retry_policy"] = effective;
    assert_eq!(server.get(&format!("{PATH}/des_1")).await.expect(200), expected);
    let target = server
        .directory
        .destination("acme", "des_1")
        .unwrap()
        .target
        .clone();
    assert_eq!(target.timeout, Duration::from_secs(30));
    let headers: Vec<_> = target.headers.iter().collect();
    assert_eq!(headers, [("source", "billing"), ("x-env", "prod")]);
    let server = server.restart(Rules::default()).await;
    assert_eq!(server.get(&format!("{PATH}/des_1")).await.expect(200), expected);
}

#[tokio::test]
async fn what_is_left_out_is_filled_in() {
    let server = Server::start().await;
    server.tenant().await;
    let body = json!({ "type": "webhook", "topics": "*", "config": { "url": "https://example.com" } });
    let created = server.post(PATH, body).await.expect(201);
    assert!(
        created["id"].as_str().unwrap().starts_with("des_019b"),
        "{created}"
    );
    assert!(
        created["credentials"]["secret"]
            .as_str()
            .unwrap()
            .starts_with("whsec_")
    );
    assert_eq!(created["topics"], json!(["*"]));
    assert_eq!(created["target"], "https://example.com/");
    for absent in [
        "filter",
        "metadata",
        "delivery_metadata",
        "target_url",
        "disabled_reason",
        "retry_policy",
    ] {
        assert!(created.get(absent).is_none(), "{absent}");
    }
}

#[tokio::test]
async fn every_wrong_field_is_named_at_once() {
    let server = Server::start().await;
    server.tenant().await;
    let refused = server.post(PATH, "{}").await.expect(422);
    assert_eq!(refused["message"], "validation error");
    assert_eq!(
        refused["data"],
        json!(["type is required", "config.url is required", "topics is required"])
    );
    let body = json!({
        "id": "a\u{0}", "type": "carrier_pigeon", "topics": [1], "filter": [],
        "config": { "url": 7, "timeout_seconds": 61, "rate_limit_per_second": 0, "colour": "red" },
        "credentials": { "secret": "short", "rotate_secret": true, "pin": "1" },
        "delivery_metadata": { "a": {} }, "metadata": "x", "disabled_at": "2027-01-01", "retry_policy": 3,
    });
    let refused = server.post(PATH, body).await.expect(422);
    let faults: Vec<&str> = refused["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect();
    for start in [
        "id must be",
        "type must be one of: webhook",
        "topics must be",
        "filter must be an object",
        "config.url ",
        "config.timeout_seconds must be a whole number from 1 to 60",
        "config.rate_limit_per_second must be a whole number from 1 to 100000",
        "config.colour is forbidden",
        "credentials.secret is invalid",
        "credentials.rotate_secret is forbidden",
        "credentials.pin is forbidden",
        "delivery_metadata.a must be a string",
        "metadata must be an object",
        "disabled_at must not be in the future",
        "retry_policy must be",
    ] {
        let named = faults.iter().filter(|fault| fault.starts_with(start)).count();
        assert_eq!(named, 1, "{start} in {faults:#?}");
    }
    assert_eq!(server.get(PATH).await.expect(200), json!([]));
}

#[tokio::test]
async fn other_types_are_refused_with_the_supported_ones() {
    let server = Server::start().await;
    server.tenant().await;
    for kind in [
        "aws_sqs",
        "rabbitmq",
        "hookdeck",
        "aws_kinesis",
        "azure_servicebus",
        "aws_s3",
        "gcp_pubsub",
    ] {
        let body = json!({ "type": kind, "topics": "*", "config": { "url": "https://example.com" } });
        let refused = server.post(PATH, body).await.expect(422);
        assert_eq!(refused["data"], json!(["type must be one of: webhook"]));
    }
}

#[tokio::test]
async fn headers_that_cannot_be_sent_are_refused_by_name() {
    let server = Server::start().await;
    server.tenant().await;
    for (header, value) in [
        ("Host", json!("a")),
        ("Content-Length", json!("1")),
        ("Transfer-Encoding", json!("chunked")),
        ("webhook-signature", json!("v1,x")),
        ("x-split", json!("a\r\nb: c")),
        ("x-number", json!(1)),
        ("x-null", json!(null)),
        ("x-large", json!("x".repeat(64 << 10))),
    ] {
        let headers = json!({ header: value }).to_string();
        let config = json!({ "url": "https://example.com", "custom_headers": headers });
        let body = json!({ "type": "webhook", "topics": "*", "config": config });
        let refused = server.post(PATH, body).await.expect(422);
        let text = refused["data"][0].as_str().unwrap();
        let is_named = text.starts_with("config.custom_headers") && text.contains(header);
        assert!(
            is_named || text.starts_with("config must have at most"),
            "{header}: {text}"
        );
    }
}

#[tokio::test]
async fn addresses_inside_are_refused_at_save() {
    let server = Server::start().await;
    server.tenant().await;
    for url in [
        "http://127.0.0.1/",
        "https://[::ffff:7f00:1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://2130706433/",
        "https://0177.0.0.1/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://user:p%40ss@example.com/",
        "ftp://example.com/",
        "not a url",
        "",
    ] {
        let body = json!({ "type": "webhook", "topics": "*", "config": { "url": url } });
        let refused = server.post(PATH, body).await.expect(422);
        let faults = refused["data"].as_array().unwrap();
        assert_eq!(faults.len(), 1, "{url}: {faults:?}");
        assert!(
            faults[0].as_str().unwrap().starts_with("config.url is "),
            "{url}: {faults:?}"
        );
        assert!(!refused.to_string().contains("p%40ss"));
    }
}

#[tokio::test]
async fn a_destination_that_is_no_longer_allowed_stays_listed_and_can_be_mended() {
    let server = Server::with(loopback(), |_| {}).await;
    server.tenant().await;
    server
        .destination("d", json!({ "config": { "url": "http://127.0.0.1:9000/in" } }))
        .await;
    let server = server.restart(Rules::default()).await;
    let shown = server.get(&format!("{PATH}/d")).await.expect(200);
    assert_eq!(shown["target"], "http://127.0.0.1:9000/in");
    assert!(
        shown["invalid_reason"]
            .as_str()
            .unwrap()
            .starts_with("config.url is not allowed"),
        "{shown}"
    );
    let target = server.directory.destination("acme", "d").unwrap().target.clone();
    assert!(target.url.is_err());
    assert_eq!(
        server.publish(json!({})).await["destination_ids"],
        json!(["d"]),
        "the engine says why it fails"
    );
    server.put(&format!("{PATH}/d/disable"), "").await.expect(200);
    server
        .patch(&format!("{PATH}/d"), json!({ "metadata": { "a": "b" } }))
        .await
        .expect(200);
    let mended = json!({ "config": { "url": "https://example.com/in" }, "disabled_at": null });
    let mended = server.patch(&format!("{PATH}/d"), mended).await.expect(200);
    assert!(mended.get("invalid_reason").is_none());
}

#[tokio::test]
async fn ids_are_unique_within_a_tenant_only() {
    let server = Server::start().await;
    server.tenant().await;
    server.put("/tenants/other", "").await.expect(201);
    server.destination("d", json!({})).await;
    let body =
        json!({ "id": "d", "type": "webhook", "topics": "*", "config": { "url": "https://example.com" } });
    let refused = server.post(PATH, &body).await.expect(400);
    assert_eq!(
        refused,
        json!({ "status": 400, "message": "destination already exists" })
    );
    server
        .post("/tenants/other/destinations", &body)
        .await
        .expect(201);
    let refused = server
        .post("/tenants/nobody/destinations", &body)
        .await
        .expect(404);
    assert_eq!(refused, json!({ "status": 404, "message": "tenant not found" }));
}

#[tokio::test]
async fn number_of_destinations_is_bounded() {
    let server = Server::with(
        Rules {
            max_destinations_per_tenant: 2,
            ..Rules::default()
        },
        |_| {},
    )
    .await;
    server.tenant().await;
    server.destination("a", json!({})).await;
    server.destination("b", json!({})).await;
    let body = json!({ "type": "webhook", "topics": "*", "config": { "url": "https://example.com" } });
    let refused = server.post(PATH, body).await.expect(400);
    assert_eq!(
        refused["message"],
        "maximum number of destinations per tenant reached"
    );
}

#[tokio::test]
async fn list_is_an_array_in_order_of_creation() {
    let server = Server::start().await;
    server.tenant().await;
    for (id, topics) in [
        ("b", json!(["user.created"])),
        ("a", json!("*")),
        ("c", json!(["order.paid"])),
    ] {
        server.destination(id, json!({ "topics": topics })).await;
        server.advance(Duration::from_secs(1));
    }
    let ids = async |query: &str| -> Vec<String> {
        let list = server.get(&format!("{PATH}{query}")).await.expect(200);
        list.as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids("").await, ["b", "a", "c"]);
    assert_eq!(ids("?type=webhook&type=aws_sqs").await, ["b", "a", "c"]);
    assert!(ids("?type=aws_sqs").await.is_empty());
    assert_eq!(ids("?topics[]=user.created").await, ["b", "a"]);
    assert_eq!(ids("?topics[]=user.created&topics[]=order.paid").await, ["a"]);
    assert_eq!(ids("?topics=*").await, ["a"]);
    server.get("/tenants/nobody/destinations").await.expect(404);
}

#[tokio::test]
async fn enable_and_disable_keep_the_first_time() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    let path = format!("{PATH}/d");
    let disabled = server.put(&format!("{path}/disable"), "").await.expect(200);
    assert_eq!(disabled["disabled_at"], "2026-01-01T00:00:00.000Z");
    assert_eq!(disabled["disabled_reason"], "disabled by request");
    server.advance(Duration::from_secs(60));
    assert_eq!(
        server.put(&format!("{path}/disable"), "").await.expect(200),
        disabled
    );
    let enabled = server.put(&format!("{path}/enable"), "").await.expect(200);
    assert_eq!(enabled["disabled_at"], json!(null));
    assert_eq!(enabled["updated_at"], "2026-01-01T00:01:00.000Z");
}

#[tokio::test]
async fn delete_ends_what_was_pending() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server.publish(json!({ "id": "e" })).await;
    let key = server.directory.destination("acme", "d").unwrap().record.key;
    let path = format!("{PATH}/d");
    assert_eq!(server.delete(&path).await.expect(200), json!({ "success": true }));
    assert!(server.directory.target(key).is_none());
    let missing = json!({ "status": 404, "message": "destination not found" });
    assert_eq!(server.delete(&path).await.expect(404), missing);
    assert_eq!(server.get(&path).await.expect(404), missing);
    assert_eq!(server.patch(&path, json!({})).await.expect(404), missing);
    assert_eq!(
        server.put(&format!("{path}/enable"), "").await.expect(404),
        missing
    );
    let deliveries = server.get("/deliveries?event_id=e").await.expect(200);
    assert_eq!(deliveries["models"][0]["status"], "canceled");
}

#[tokio::test]
async fn the_system_disables_with_its_reason() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    let key = server.directory.destination("acme", "d").unwrap().record.key;
    let now = Timestamp::from_millis(START + 5);
    server.directory.disable(key, "410 Gone".to_owned(), now).await;
    let shown = server.get(&format!("{PATH}/d")).await.expect(200);
    assert_eq!(
        (&shown["disabled_reason"], &shown["disabled_at"]),
        (&json!("410 Gone"), &json!("2026-01-01T00:00:00.005Z"))
    );
    server
        .directory
        .disable(key, "again".to_owned(), Timestamp::from_millis(START + 9))
        .await;
    assert_eq!(server.get(&format!("{PATH}/d")).await.expect(200), shown);
    server
        .directory
        .disable(postrider_core::id::DestinationKey(999), "gone".to_owned(), now)
        .await;
    let server = server.restart(Rules::default()).await;
    assert_eq!(server.get(&format!("{PATH}/d")).await.expect(200), shown);
}

#[tokio::test]
async fn changes_at_the_same_time_follow_one_another() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    let path = format!("{PATH}/d");
    let changes = (0..40).map(|n| {
        let (server, path) = (&server, &path);
        async move {
            server
                .patch(path, json!({ "metadata": { format!("k{n}"): "v" } }))
                .await
                .expect(200)
        }
    });
    futures_util::future::join_all(changes).await;
    let shown = server.get(&path).await.expect(200);
    assert_eq!(
        shown["metadata"].as_object().unwrap().len(),
        40,
        "no change overwrote another"
    );
    let stored = server
        .restart(Rules::default())
        .await
        .get(&path)
        .await
        .expect(200);
    assert_eq!(stored, shown);
}

#[tokio::test]
async fn a_filter_keeps_its_bytes_and_is_checked_when_saved() {
    let server = Server::start().await;
    server.tenant().await;
    let body = r#"{"id":"d","type":"webhook","topics":"*","config":{"url":"https://example.com"},
        "filter":{"data":{"z":1.0,"a":12345678901234567890123}}}"#;
    let created = server.post(PATH, body).await;
    assert!(
        created
            .text()
            .contains(r#""filter":{"data":{"z":1.0,"a":12345678901234567890123}}"#)
    );
    let refused = server
        .patch(
            &format!("{PATH}/d"),
            json!({ "filter": { "data": { "a": { "$near": 1 } } } }),
        )
        .await;
    let refused = refused.expect(422);
    let text = refused["data"][0].as_str().unwrap();
    assert!(text.starts_with("filter ") && text.contains("$near"), "{text}");
}

#[tokio::test]
async fn types_are_described() {
    let server = Server::start().await;
    let list: Value = server.get("/destination-types").await.expect(200);
    let one = server.get("/destination-types/webhook").await.expect(200);
    assert_eq!(list, json!([one]));
    assert_eq!(one["config_fields"][0]["key"], "url");
    server.get("/destination-types/aws_sqs").await.expect(404);
}

#[tokio::test]
async fn a_url_or_a_secret_that_is_no_text_is_no_destination() {
    let server = Server::start().await;
    server.tenant().await;
    let body = json!({
        "type": "webhook", "topics": "*",
        "config": { "url": 5, "timeout_seconds": 9 },
        "credentials": { "secret": 5, "previous_secret": true, "rotate_secret": false },
    });
    let refused = server.post("/tenants/acme/destinations", body).await.expect(422);
    let expected = json!([
        "credentials.previous_secret must be a string",
        "credentials.secret must be a string",
        "config.url must be a string",
    ]);
    assert_eq!(refused["data"], expected);
}
