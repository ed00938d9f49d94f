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
/// information, the rest for debugging, and so what the log was told the cause of.
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
    if response.extensions().get::<CauseLogged>().is_some() {
        tracing::debug!(target: TARGET, %method, route, status_code, duration_us, "answered a request");
    } else if status == StatusCode::SERVICE_UNAVAILABLE {
        if let Some(untold) = TOLD.admit(route, Instant::now()) {
            let untold = (untold > 0).then_some(untold);
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use parking_lot::Mutex;
    use postrider_store::StoreError;
    use tower::ServiceExt;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// The lines of a log at INFO after so many requests.
    async fn told(path: &str, requests: usize) -> Vec<String> {
        let log_of_test = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_writer(log_of_test.clone())
            .with_ansi(false)
            .without_time()
            .finish();
        // With one subscriber only, callsites that another test came to first would be off (see `tests/it/api/secrets.rs`).
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        let _guard = tracing::subscriber::set_default(subscriber);
        let router = Router::new()
            .route("/broken", get(|| async { ApiError::internal("no such column") }))
            .route("/full", get(|| async { ApiError::from(StoreError::Full) }))
            .route("/busy", get(|| async { ApiError::from(StoreError::Busy) }))
            .layer(from_fn(log));
        for _ in 0..requests {
            let request = Request::get(path).body(Body::empty()).unwrap();
            router.clone().oneshot(request).await.unwrap();
        }
        let bytes = std::mem::take(&mut *log_of_test.0.lock());
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[tokio::test]
    async fn what_is_said_with_its_cause_is_not_said_twice() {
        for (path, requests, right) in [
            ("/broken", 2, vec!["status=500 cause=no such column"; 2]),
            ("/full", 3, vec!["status=503"]),
            ("/busy", 3, vec!["status_code=503"]),
        ] {
            let lines = told(path, requests).await;
            assert_eq!(lines.len(), right.len(), "{lines:?}");
            for (line, words) in lines.iter().zip(right) {
                let has_all = words.split(' ').all(|word| line.contains(word));
                assert!(has_all && !line.contains("untold"), "{line}");
            }
        }
    }
}
