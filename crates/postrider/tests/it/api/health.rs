//! Health, readiness and metrics.

use axum::body::Body;
use axum::http::Request;
use postrider::telemetry::health::WorkerState;
use postrider_store::Store;
use serde_json::json;

use super::server::{Answer, Server};

async fn bare(server: &Server, path: &str) -> Answer {
    server
        .send(Request::builder().uri(path).body(Body::empty()).unwrap())
        .await
}

#[tokio::test]
async fn healthz_tells_each_worker() {
    let server = Server::start().await;
    server.health.set("engine", WorkerState::Healthy);
    for path in ["/healthz", "/api/v1/healthz"] {
        let healthy = json!({
            "status": "healthy",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "workers": { "engine": { "status": "healthy" } },
        });
        assert_eq!(bare(&server, path).await.expect(200), healthy);
    }
    server
        .health
        .set("engine", WorkerState::Failed("it panicked".to_owned()));
    let failed = bare(&server, "/healthz").await.expect(503);
    assert_eq!(failed["status"], "failed");
    assert_eq!(
        failed["workers"]["engine"],
        json!({ "status": "failed", "reason": "it panicked" })
    );
}

#[tokio::test]
async fn readyz_asks_the_store() {
    let server = Server::start().await;
    assert_eq!(bare(&server, "/readyz").await.expect(200)["status"], "ready");
    server.store.close().await;
    let answer = bare(&server, "/api/v1/readyz").await;
    assert_eq!(answer.expect(503)["status"], "not_ready");
    assert_eq!(answer.headers["retry-after"], "1");
    bare(&server, "/healthz").await.expect(200);
}

#[tokio::test]
async fn metrics_are_text() {
    let server = Server::start().await;
    server.publish(json!({})).await;
    let answer = bare(&server, "/metrics").await;
    assert_eq!(answer.status.as_u16(), 200);
    assert!(answer.headers["content-type"].to_str().unwrap().contains("text"));
    assert!(
        answer
            .text()
            .contains("postrider_publishes_total{result=\"accepted\"} 1"),
        "{}",
        answer.text()
    );
}
