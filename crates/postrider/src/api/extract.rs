//! What handlers take: bounded bodies and path segments, with errors as JSON.

use std::time::Duration;

use axum::extract::rejection::{BytesRejection, FailedToBufferBody, PathRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::error::ApiError;

/// A client that does not finish its body in this time is not served further.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How large a body may be, for the text of the refusal.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyLimit {
    /// Its bytes.
    pub(super) max_bytes: usize,
    /// The setting that says so.
    pub(super) setting: &'static str,
}

impl BodyLimit {
    fn refusal(self) -> ApiError {
        let Self { max_bytes, setting } = self;
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request body too large").with_data(json!([format!(
            "the body must have at most {max_bytes} bytes ({setting})"
        )]))
    }
}

/// The whole body, within the route's limit.
#[derive(Debug)]
pub(super) struct Body(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let limit = request.extensions().get::<BodyLimit>().copied();
        // A length that is announced need not be waited for.
        if let Some(limit) = limit.filter(|limit| announced(&request) > Some(limit.max_bytes as u64)) {
            return Err(limit.refusal());
        }
        let read = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, state));
        match read.await {
            Ok(Ok(bytes)) => Ok(Self(bytes)),
            Ok(Err(BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(error)))) => {
                Err(limit.map_or_else(|| ApiError::internal(error), BodyLimit::refusal))
            }
            Ok(Err(_)) => Err(ApiError::bad_request("the request body ended early")),
            Err(_) => Err(ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                "the request body took too long",
            )),
        }
    }
}

/// Bytes of the body by its `Content-Length`.
fn announced(request: &Request) -> Option<u64> {
    let length = request.headers().get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Segments of the path, percent-decoded.
#[derive(Debug)]
pub(super) struct Segments<T>(pub(super) T);

impl<T, S> FromRequestParts<S> for Segments<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        path.map(|Path(segments)| Self(segments))
            .map_err(|_| ApiError::bad_request("the path is not valid UTF-8"))
    }
}
