//! Whether the process works (`/healthz`), whether it takes work (`/readyz`), and its numbers (`/metrics`).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::Shared;
use super::error::ApiError;
use crate::telemetry::health::WorkerState;
use crate::telemetry::metrics::CONTENT_TYPE;

const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// `GET /healthz`: 503 when a supervised part has failed. It does not touch the store, so that a slow disk does not
/// get the process killed.
pub(super) async fn healthz(State(app): State<Shared>) -> (StatusCode, Json<Value>) {
    let workers: Map<String, Value> = app
        .health
        .workers()
        .into_iter()
        .map(|(name, state)| {
            let state = match state {
                WorkerState::Healthy => json!({ "status": "healthy" }),
                WorkerState::Degraded(reason) => json!({ "status": "degraded", "reason": reason }),
                WorkerState::Failed(reason) => json!({ "status": "failed", "reason": reason }),
            };
            (name.to_owned(), state)
        })
        .collect();
    let (code, status) = if app.health.is_healthy() {
        (StatusCode::OK, "healthy")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "failed")
    };
    (
        code,
        Json(json!({ "status": status, "timestamp": app.now(), "workers": workers })),
    )
}

/// `GET /readyz`: 200 when a publish would be stored now.
pub(super) async fn readyz(State(app): State<Shared>) -> Response {
    let reason = match tokio::time::timeout(PING_TIMEOUT, app.store.ping()).await {
        Ok(Ok(())) if app.health.is_healthy() => {
            return Json(json!({ "status": "ready", "timestamp": app.now() })).into_response();
        }
        Ok(Ok(())) => "a part of the process has failed".to_owned(),
        Ok(Err(error)) => format!("failed to {error}"),
        Err(_) => "the store did not answer in time".to_owned(),
    };
    let body = json!({ "status": "not_ready", "timestamp": app.now(), "reason": reason });
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(header::RETRY_AFTER, "1")],
        Json(body),
    )
        .into_response()
}

/// `GET /metrics`
pub(super) async fn metrics(State(app): State<Shared>) -> Result<Response, ApiError> {
    let now = app.now();
    let stats = app.store.stats(now).await?;
    Ok((
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        app.metrics.encode(&stats, now),
    )
        .into_response())
}
