//! `PATCH` of a destination: the contract's table.

use std::time::Duration;

use serde_json::{Value, json};

use super::server::Server;

const PATH: &str = "/tenants/acme/destinations/d";

async fn server() -> Server {
    let server = Server::start().await;
    server.tenant().await;
    let full = json!({
        "topics": ["a.b"],
        "filter": { "data": { "n": 1 } },
        "config": { "url": "https://example.com/in", "custom_headers": "{\"x-a\":\"1\"}", "timeout_seconds": "9" },
        "delivery_metadata": { "one": "1", "two": "2" },
        "metadata": { "one": "1", "two": "2" },
    });
    server.destination("d", full).await;
    server
}

async fn patched(server: &Server, change: Value) -> Value {
    server.patch(PATH, change).await.expect(200)
}

#[tokio::test]
async fn what_is_absent_stays() {
    let server = server().await;
    let before = server.get(PATH).await.expect(200);
    server.advance(Duration::from_secs(1));
    assert_eq!(patched(&server, json!({})).await, before);
    assert_eq!(patched(&server, json!({ "type": "webhook" })).await, before);
    let nothing = json!({ "config": {}, "credentials": {}, "metadata": {}, "delivery_metadata": {} });
    assert_eq!(
        patched(&server, nothing).await,
        before,
        "an empty object changes no map"
    );
}

#[tokio::test]
async fn null_clears() {
    let server = server().await;
    let cleared = patched(
        &server,
        json!({ "metadata": null, "delivery_metadata": null, "filter": null }),
    )
    .await;
    for field in ["metadata", "delivery_metadata", "filter"] {
        assert!(cleared.get(field).is_none(), "{field}");
    }
    let refused = server.patch(PATH, json!({ "config": null })).await.expect(422);
    assert_eq!(
        refused["data"],
        json!(["config.url is required"]),
        "cleared, then validated"
    );
    let refused = server.patch(PATH, json!({ "topics": null })).await.expect(422);
    assert_eq!(refused["data"], json!(["topics is required"]));
    let refused = server.patch(PATH, json!({ "topics": [] })).await.expect(422);
    assert_eq!(refused["data"], json!(["topics is required"]));
}

#[tokio::test]
async fn an_empty_filter_matches_everything() {
    let server = server().await;
    for empty in ["{}", "{ \n }"] {
        patched(&server, json!({ "filter": { "data": { "n": 1 } } })).await;
        let cleared = server
            .patch(PATH, format!(r#"{{"filter":{empty}}}"#))
            .await
            .expect(200);
        assert!(cleared.get("filter").is_none());
    }
}

#[tokio::test]
async fn objects_are_merged_and_their_nulls_delete() {
    let server = server().await;
    let change = json!({
        "metadata": { "one": null, "two": "zwei", "three": "3", "absent": null },
        "delivery_metadata": { "one": null, "two": null },
        "config": { "custom_headers": null, "timeout_seconds": 11 },
    });
    let merged = patched(&server, change).await;
    assert_eq!(merged["metadata"], json!({ "two": "zwei", "three": "3" }));
    assert!(merged.get("delivery_metadata").is_none(), "nothing is left");
    assert_eq!(
        merged["config"],
        json!({ "url": "https://example.com/in", "timeout_seconds": "11" })
    );
}

#[tokio::test]
async fn filter_and_topics_are_replaced() {
    let server = server().await;
    let change = json!({ "filter": { "topic": "x" }, "topics": ["c.d", "e.f", "c.d"] });
    let replaced = patched(&server, change).await;
    assert_eq!(replaced["filter"], json!({ "topic": "x" }));
    assert_eq!(replaced["topics"], json!(["c.d", "e.f"]));
    assert_eq!(
        patched(&server, json!({ "topics": "*" })).await["topics"],
        json!(["*"])
    );
}

#[tokio::test]
async fn disabled_at_disables_since_then_and_null_enables() {
    let server = server().await;
    let disabled = patched(&server, json!({ "disabled_at": "2025-06-01T00:00:00Z" })).await;
    assert_eq!(disabled["disabled_at"], "2025-06-01T00:00:00.000Z");
    let refused = server
        .patch(PATH, json!({ "disabled_at": "2026-01-01T00:00:01Z" }))
        .await
        .expect(422);
    assert_eq!(refused["data"], json!(["disabled_at must not be in the future"]));
    assert_eq!(
        patched(&server, json!({ "disabled_at": null })).await["disabled_at"],
        json!(null)
    );
}

#[tokio::test]
async fn type_cannot_change() {
    let server = server().await;
    let refused = server.patch(PATH, json!({ "type": "aws_sqs" })).await.expect(422);
    assert_eq!(refused["data"], json!(["type must be one of: webhook"]));
}

#[tokio::test]
async fn an_id_cannot_change() {
    let server = server().await;
    let refused = server.patch(PATH, json!({ "id": "other" })).await.expect(422);
    assert_eq!(refused["data"], json!(["id cannot be changed"]));
    patched(&server, json!({ "id": "d" })).await;
}

#[tokio::test]
async fn a_refused_change_changes_nothing() {
    let server = server().await;
    let before = server.get(PATH).await.expect(200);
    let change = json!({ "metadata": { "new": "1" }, "config": { "url": "http://10.0.0.1/" }, "topics": 5 });
    let refused = server.patch(PATH, change).await.expect(422);
    assert_eq!(refused["data"].as_array().unwrap().len(), 2, "{refused}");
    assert_eq!(server.get(PATH).await.expect(200), before);
}

#[tokio::test]
async fn rotation_keeps_the_secret_before_for_a_day() {
    let server = server().await;
    let first = server.get(PATH).await.expect(200)["credentials"]["secret"].clone();
    let rotated = patched(&server, json!({ "credentials": { "rotate_secret": true } })).await;
    let second = rotated["credentials"]["secret"].clone();
    assert_ne!(first, second);
    assert_eq!(rotated["credentials"]["previous_secret"], first);
    assert_eq!(
        rotated["credentials"]["previous_secret_invalid_at"],
        "2026-01-02T00:00:00.000Z"
    );
    server.advance(Duration::from_secs(3_600));
    let again = patched(&server, json!({ "credentials": { "rotate_secret": "true" } })).await;
    assert_eq!(again["credentials"]["previous_secret"], second);
    assert_eq!(
        again["credentials"]["previous_secret_invalid_at"],
        "2026-01-02T01:00:00.000Z"
    );
    server.advance(Duration::from_secs(24 * 3_600));
    let later = server.get(PATH).await.expect(200);
    assert_eq!(
        later["credentials"],
        json!({ "secret": again["credentials"]["secret"] }),
        "it has run out"
    );
}

#[tokio::test]
async fn rotation_takes_a_given_secret_and_end() {
    let server = server().await;
    let first = server.get(PATH).await.expect(200)["credentials"]["secret"].clone();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let change = json!({ "credentials": {
        "rotate_secret": true, "secret": secret, "previous_secret_invalid_at": "2026-01-01T01:00:00Z",
    } });
    let expected = json!({
        "secret": secret, "previous_secret": first, "previous_secret_invalid_at": "2026-01-01T01:00:00Z",
    });
    assert_eq!(patched(&server, change).await["credentials"], expected);
}

#[tokio::test]
async fn the_end_of_a_previous_secret_is_an_instant_up_to_the_year_9999() {
    let server = server().await;
    let until =
        |end: &str| json!({ "credentials": { "rotate_secret": true, "previous_secret_invalid_at": end } });
    patched(&server, until("9999-12-31T23:59:59Z")).await;
    for (end, fault) in [
        ("soon", "failed datetime validation"),
        ("1969-12-31T23:59:59Z", "must lie in the years 1970 to 9999"),
    ] {
        let refused = server.patch(PATH, until(end)).await.expect(422);
        let text = format!("credentials.previous_secret_invalid_at {fault}");
        assert_eq!(refused["data"], json!([text]));
    }
}

#[tokio::test]
async fn a_destination_always_has_a_secret() {
    let server = server().await;
    let before = server.get(PATH).await.expect(200)["credentials"]["secret"].clone();
    for change in [
        json!({ "credentials": null }),
        json!({ "credentials": { "secret": null } }),
    ] {
        let after = patched(&server, change).await["credentials"]["secret"].clone();
        assert!(after.as_str().unwrap().starts_with("whsec_"));
        assert_ne!(after, before);
    }
    let refused = server
        .patch(PATH, json!({ "credentials": { "secret": "guess" } }))
        .await
        .expect(422);
    assert!(
        refused["data"][0]
            .as_str()
            .unwrap()
            .starts_with("credentials.secret is invalid")
    );
    let refused = server
        .patch(PATH, json!({ "credentials": { "rotate_secret": "maybe" } }))
        .await
        .expect(422);
    assert_eq!(
        refused["data"],
        json!(["credentials.rotate_secret must be true or false"])
    );
}
