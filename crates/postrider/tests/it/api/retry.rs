//! Retrying a delivery on request.

use postrider_core::delivery::DeadReason;
use postrider_core::outcome::Category;
use postrider_store::Store;
use postrider_store::record::Next;
use serde_json::json;

use super::server::Server;

#[tokio::test]
async fn a_dead_letter_is_due_again() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server.publish(json!({ "id": "e" })).await;
    let due = server.due().await;
    server
        .settle(
            &due[0],
            Ok(404),
            Next::Dead(DeadReason::PermanentFailure, Category::Http4xx),
        )
        .await;
    let answer = server
        .post("/retry", json!({ "event_id": "e", "destination_id": "d" }))
        .await;
    assert_eq!(answer.expect(202), json!({ "success": true }));
    let arrivals = server.store.feed().arrivals().await;
    assert_eq!(arrivals.accepted.len() + arrivals.rescheduled.len(), 1);
    assert_eq!(
        server.get("/deliveries?event_id=e").await.expect(200)["models"][0]["status"],
        "pending"
    );
}

#[tokio::test]
async fn what_cannot_be_retried_says_why() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server.publish(json!({ "id": "e" })).await;
    server.destination("later", json!({})).await;
    server.destination("off", json!({})).await;
    server
        .put("/tenants/acme/destinations/off/disable", "")
        .await
        .expect(200);
    let retry = async |event: &str, destination: &str| {
        server
            .post(
                "/retry",
                json!({ "event_id": event, "destination_id": destination }),
            )
            .await
    };
    assert_eq!(
        retry("nothing", "d").await.expect(404)["message"],
        "event not found"
    );
    assert_eq!(
        retry("e", "nowhere").await.expect(404)["message"],
        "destination not found"
    );
    assert_eq!(
        retry("e", "later").await.expect(400)["message"],
        "destination does not match event"
    );
    let disabled = json!({
        "status": 400, "message": "Destination is disabled", "data": { "error": "destination_disabled" },
    });
    assert_eq!(retry("e", "off").await.expect(400), disabled);
    let refused = server.post("/retry", json!({ "event_id": 1 })).await.expect(422);
    assert_eq!(
        refused["data"],
        json!(["event_id must be a string", "destination_id is required"])
    );
}

#[tokio::test]
async fn a_tenant_can_be_named_when_ids_are_shared() {
    let server = Server::start().await;
    server.tenant().await;
    server.put("/tenants/other", "").await.expect(201);
    server.destination("d", json!({})).await;
    server.publish(json!({ "id": "e" })).await;
    server.publish(json!({ "id": "e", "tenant_id": "other" })).await;
    let body = json!({ "event_id": "e", "destination_id": "d" });
    server.post("/retry", body).await.expect(202);
    let of_other = json!({ "event_id": "e", "destination_id": "d", "tenant_id": "other" });
    assert_eq!(
        server.post("/retry", of_other).await.expect(404)["message"],
        "destination not found"
    );
}
