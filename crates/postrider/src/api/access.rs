//! Around every request: a line in the log, and an answer even when a handler panics.
//!
//! The line has the route's template, never the path (ids are not secret, but templates can be counted), and neither
//! headers nor bodies.

use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::time::Instant;

use super::error::{ApiError, CauseLogged};
use super::refusals::TOLD;

const TARGET: &str = "postrider::access";

/// Logs a request and its answer: server errors as warnings (those that say "not now" only now and then), refusals as
/// information, the rest for debugging.
pub(super) async fn log(request: Request, next: Next) -> Response {
    if !tracing::enabled!(target: TARGET, tracing::Level::WARN) {
        return guarded(request, next).await;
    }
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = guarded(request, next).await;
    let status = response.status();
    let route = route.as_ref().map_or("(none)", MatchedPath::as_str);
    let duration_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let status_code = status.as_u16();
    let is_refusal = status == StatusCode::SERVICE_UNAVAILABLE;
    if is_refusal && response.extensions().get::<CauseLogged>().is_some() {
        tracing::debug!(target: TARGET, %method, route, status_code, duration_us, "answered a request");
    } else if is_refusal {
        if let Some(untold) = TOLD.admit(route, Instant::now()) {
            tracing::warn!(target: TARGET, %method, route, status_code, duration_us, untold, "answered a request");
        }
    } else if status.is_server_error() {
        tracing::warn!(target: TARGET, %method, route, status_code, duration_us, "answered a request");
    } else if status.is_client_error() {
        tracing::info!(target: TARGET, %method, route, status_code, duration_us, "answered a request");
    } else {
        tracing::debug!(target: TARGET, %method, route, status_code, duration_us, "answered a request");
    }
    response
}

async fn guarded(request: Request, next: Next) -> Response {
    AssertUnwindSafe(next.run(request))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| ApiError::internal("a handler panicked").into_response())
}
