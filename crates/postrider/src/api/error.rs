//! The one error that every route answers: `{"status", "message", "data"}`.
//!
//! `message` is stable and for programs and people alike; `data` names what is wrong, all of it at once. The cause
//! stays here and goes to the log, never to the client.

use std::borrow::Cow;
use std::error::Error;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postrider_store::StoreError;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::refusals::TOLD;
use crate::directory::change::ChangeError;
use crate::engine::control::EngineAway;

/// What went wrong, as the client sees it.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    message: Cow<'static, str>,
    data: Option<Value>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// On an answer whose cause went to the log, or was counted there as one more of its kind, so that no second line says the
/// same.
#[derive(Debug, Clone, Copy)]
pub(super) struct CauseLogged;

impl ApiError {
    /// An error with a status and a stable message.
    pub(super) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            message: message.into(),
            data: None,
            cause: None,
        }
    }

    /// 422 with one text for each wrong field.
    pub(super) fn validation(faults: Vec<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation error").with_data(faults.into())
    }

    /// 422 for a body that is not JSON, or not of the right kind; `detail` says where.
    pub(super) fn invalid_json(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid JSON").with_data(json!([detail.into()]))
    }

    /// 400.
    pub(super) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404, such as `tenant not found`.
    pub(super) fn not_found(message: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 500, with the reason for the log.
    pub(super) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error").caused_by(cause)
    }

    pub(super) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    fn caused_by(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The status it is answered with.
    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    /// The body it is answered with.
    pub(super) fn body(&self) -> Value {
        let mut body = json!({ "status": self.status.as_u16(), "message": self.message });
        if let Some(data) = &self.data {
            body["data"] = data.clone();
        }
        body
    }

    /// The same answer once more, without the cause.
    pub(super) fn repeated(&self) -> Self {
        Self {
            status: self.status,
            message: self.message.clone(),
            data: self.data.clone(),
            cause: None,
        }
    }

    /// Writes the cause to the log, when there is one. What says "not now" is told once and then counted.
    pub(super) fn log(&self) {
        let Some(cause) = &self.cause else { return };
        let untold = match self.status {
            StatusCode::SERVICE_UNAVAILABLE => TOLD.admit(&self.message, Instant::now()),
            _ => Some(0),
        };
        if let Some(untold) = untold {
            tracing::error!(
                status = self.status.as_u16(),
                message = &*self.message,
                cause = &**cause as &dyn Error,
                untold = (untold > 0).then_some(untold),
                "failed to answer a request"
            );
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.log();
        let mut response = (self.status, Json(self.body())).into_response();
        if self.cause.is_some() {
            response.extensions_mut().insert(CauseLogged);
        }
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let unavailable = |message| Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
        match error {
            StoreError::Busy => unavailable("the store is at its limit, try again"),
            StoreError::Closed => unavailable("the server is shutting down, try again"),
            StoreError::TooSlow => unavailable("the query took too long, narrow its filter or time range"),
            StoreError::Full => unavailable("the store is full, try again later").caused_by(error),
            StoreError::Unavailable(_) => unavailable("the store is unavailable, try again").caused_by(error),
            StoreError::Unknown(_) => {
                unavailable("the store did not confirm the change, repeat it with the same id")
                    .caused_by(error)
            }
            StoreError::Corrupt(_) => Self::internal(error),
        }
    }
}

impl From<EngineAway> for ApiError {
    fn from(_: EngineAway) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the engine is not running, try again",
        )
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::TenantMissing => Self::not_found("tenant not found"),
            ChangeError::DestinationMissing => Self::not_found("destination not found"),
            ChangeError::Exists => Self::bad_request("destination already exists"),
            ChangeError::LimitReached => {
                Self::bad_request("maximum number of destinations per tenant reached")
            }
            ChangeError::Invalid(faults) => Self::validation(faults),
            ChangeError::Conflict => Self::new(
                StatusCode::CONFLICT,
                "the destination was changed at the same time, try again",
            ),
            ChangeError::Store(error) => error.into(),
            ChangeError::Interrupted => Self::internal(error),
        }
    }
}
