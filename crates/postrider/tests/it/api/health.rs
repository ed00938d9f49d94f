//! Health, readiness and metrics.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use postrider::clock::Clock;
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
        .set("engine", WorkerState::Degraded("it waits".to_owned()));
    let degraded = bare(&server, "/healthz").await.expect(200);
    assert_eq!(
        degraded["workers"]["engine"],
        json!({ "status": "degraded", "reason": "it waits" })
    );
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
    bare(&server, "/readyz").await.expect(200);
    server.advance(Duration::from_secs(1));
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

#[tokio::test]
async fn readyz_writes_once_a_second_however_often_it_is_asked() {
    let server = Server::start().await;
    let commits = async || server.store.stats(server.clock.now()).await.unwrap().commits;
    let before = commits().await;
    for _ in 0..20 {
        bare(&server, "/readyz").await.expect(200);
    }
    assert_eq!(commits().await, before + 1);
    server.advance(Duration::from_secs(1));
    bare(&server, "/readyz").await.expect(200);
    assert_eq!(commits().await, before + 2);
}

#[tokio::test]
async fn a_removed_database_refuses_events_and_readyz_says_so_and_remembers() {
    let server = Server::start().await;
    let event = json!({ "tenant_id": "acme", "data": {} });
    server.post("/publish", &event).await.expect(202);
    let (path, aside) = (server.path().join("postrider.db"), server.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    server.post("/publish", &event).await.expect(503);
    let cause = "failed to reach the database: the database file was removed or replaced; put it back: the log beside it \
                 belongs to it";
    assert_eq!(bare(&server, "/readyz").await.expect(503)["reason"], cause);
    std::fs::rename(&aside, &path).unwrap();
    server.advance(Duration::from_secs(10));
    let remembered = format!("the store refused an event a moment ago: {cause}");
    assert_eq!(bare(&server, "/readyz").await.expect(503)["reason"], remembered);
    server.post("/publish", &event).await.expect(202);
    server.advance(Duration::from_secs(1));
    bare(&server, "/readyz").await.expect(200);
}
