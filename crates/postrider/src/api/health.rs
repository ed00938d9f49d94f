//! Whether the process works (`/healthz`), whether it takes work (`/readyz`), and its numbers (`/metrics`).

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use postrider_core::time::Timestamp;
use postrider_store::StoreError;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::error::ApiError;
use super::{App, Shared};
use crate::telemetry::health::WorkerState;
use crate::telemetry::metrics::CONTENT_TYPE;

const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the store's answer counts.
const PING_LIFE: Duration = Duration::from_secs(1);
/// How long an event that the store could not write counts.
const REFUSAL_LIFE: Duration = Duration::from_secs(10);

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

/// What the store last said when it was asked whether it can write. Asking commits a write and needs no key, so however many ask,
/// the store is asked once a second.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Option<(Timestamp, Result<(), String>)>>);

impl Readiness {
    async fn ask(&self, app: &App) -> Result<(), String> {
        let mut known = self.0.lock().await;
        let now = app.now();
        if let Some((at, answer)) = &*known
            && (*at..at.plus(PING_LIFE)).contains(&now)
        {
            return answer.clone();
        }
        let answer = match timeout(PING_TIMEOUT, app.store.ping()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err("the store did not answer in time".to_owned()),
        };
        *known = Some((now, answer.clone()));
        answer
    }
}

/// `GET /readyz`: 200 when a publish would be stored now.
pub(super) async fn readyz(
    State(app): State<Shared>,
    Extension(readiness): Extension<Arc<Readiness>>,
) -> Response {
    let answer = readiness.ask(&app).await;
    let now = app.now();
    let reason = match (answer, app.health.refusal(now.minus(REFUSAL_LIFE))) {
        (Ok(()), None) if app.health.is_healthy() => {
            return Json(json!({ "status": "ready", "timestamp": now })).into_response();
        }
        (Ok(()), None) => "a part of the process has failed".to_owned(),
        (Ok(()), Some(refusal)) => format!("the store refused an event a moment ago: {refusal}"),
        (Err(reason), _) => reason,
    };
    let body = json!({ "status": "not_ready", "timestamp": now, "reason": reason });
    (
        StatusCode::SERVICE_UNAVAILABLE,
        [(header::RETRY_AFTER, "1")],
        Json(body),
    )
        .into_response()
}

/// Remembers that the store could not write, unless it only had too much to do.
pub(super) fn note_refusal(app: &App, error: &StoreError) {
    if matches!(
        error,
        StoreError::Full | StoreError::Unavailable(_) | StoreError::Unknown(_)
    ) {
        app.health.refused(app.now(), reason(error));
    }
}

/// With the cause, which names no path and no data.
fn reason(error: &StoreError) -> String {
    match error.source() {
        Some(cause) => format!("failed to {error}: {cause}"),
        None => format!("failed to {error}"),
    }
}

/// `GET /metrics`
pub(super) async fn metrics(State(app): State<Shared>) -> Result<Response, ApiError> {
    let now = app.now();
    let stats = app.store.stats(now).await?;
    let (labels, keys): (Vec<_>, Vec<_>) = app.metrics.labelled().into_iter().unzip();
    let answered = app.engine.census(keys).await.ok();
    let lanes = answered.map(|(census, views)| (census, labels.into_iter().zip(views).collect()));
    app.metrics.protection.show(lanes);
    Ok((
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        app.metrics.encode(&stats, now),
    )
        .into_response())
}
