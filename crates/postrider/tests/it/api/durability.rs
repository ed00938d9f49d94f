//! What a store that cannot write means for clients: 503, and nothing half done.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use postrider::directory::Rules;
use postrider_store::Store;
use serde_json::json;
use tower::ServiceExt;

use super::server::{KEY, Server};

#[tokio::test]
async fn a_closed_store_answers_503_and_memory_stays_as_it_was() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server.store.close().await;
    let path = "/tenants/acme/destinations";
    let new =
        json!({ "id": "new", "type": "webhook", "topics": "*", "config": { "url": "https://example.com" } });
    let event = json!({ "tenant_id": "acme", "data": {} });
    for answer in [
        server.post("/publish", &event).await,
        server.post("/publish/batch", json!([event])).await,
        server.post(path, new).await,
        server
            .patch(&format!("{path}/d"), json!({ "metadata": { "a": "b" } }))
            .await,
        server.put(&format!("{path}/d/disable"), "").await,
        server.delete(&format!("{path}/d")).await,
        server.put("/tenants/other", "").await,
        server.delete("/tenants/acme").await,
        server.get("/events").await,
    ] {
        assert_eq!(answer.expect(503)["status"], 503);
        assert_eq!(answer.headers["retry-after"], "1");
    }
    let list = server.get(path).await.expect(200);
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(
        (&list[0]["disabled_at"], list[0].get("metadata")),
        (&json!(null), None)
    );
    server.get("/tenants/other").await.expect(404);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_memory_and_store_equal() {
    let server = Server::start().await;
    server.tenant().await;
    for n in 0..50 {
        let body = json!({
            "id": format!("d{n}"), "type": "webhook", "topics": "*", "config": { "url": "https://example.com" },
        });
        let request = Request::post("/api/v1/tenants/acme/destinations")
            .header("authorization", format!("Bearer {KEY}"))
            .body(Body::from(body.to_string()))
            .unwrap();
        let call = server.router.clone().oneshot(request);
        // Polled a few times at most, then dropped.
        drop(tokio::time::timeout(Duration::from_micros(n * 20), call).await);
    }
    // One change after the others: the tenant's lock waits for all of them.
    server.put("/tenants/acme", "").await.expect(200);
    let path = "/tenants/acme/destinations";
    let in_memory = server.get(path).await.expect(200);
    let server = server.restart(Rules::default()).await;
    assert_eq!(server.get(path).await.expect(200), in_memory);
}

#[tokio::test]
async fn an_answered_publish_is_there_after_a_restart() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    let published = server.publish(json!({ "id": "e" })).await;
    let server = server.restart(Rules::default()).await;
    assert_eq!(
        server.publish(json!({ "id": "e" })).await["duplicate"],
        json!(true)
    );
    let event = server.get("/events/e").await.expect(200);
    assert_eq!(event["matched_destination_ids"], published["destination_ids"]);
}
