//! What is kept of an answer, within bounds and byte for byte.
//!
//! By now the status is known and the verdict with it: nothing here can fail the attempt. A body that is endless, slow, broken
//! or encoded is cut off, and the reason becomes the detail.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use postrider_store::record::Headers;

use super::failure::chain;

/// A body, as far as it is kept.
#[derive(Debug, Default)]
pub(super) struct Capture {
    kept: BytesMut,
    pub(super) truncated: bool,
    /// Whether the answer was read to its end, so that the connection can carry another.
    pub(super) complete: bool,
    /// Why the body broke off.
    pub(super) broken: Option<String>,
}

/// A rest up to this size is read and dropped to keep the connection; beyond, a new connection costs less.
const MAX_DRAINED: u64 = 64 * 1024;

impl Capture {
    /// `complete` when there is no body at all.
    pub(super) fn new(complete: bool) -> Self {
        Self {
            complete,
            ..Self::default()
        }
    }

    /// Reads `body` until its end, its error, or `limit` bytes. Dropping the future keeps what has arrived.
    pub(super) async fn read(&mut self, mut body: Incoming, limit: usize) {
        while let Some(frame) = body.frame().await {
            let data = match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => data,
                Ok(Err(_trailers)) => continue,
                Err(error) => {
                    self.broken = Some(format!("the answer's body broke off: {}", chain(&error)));
                    return;
                }
            };
            let room = limit - self.kept.len();
            self.kept.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                self.truncated = true;
                self.complete = drain(body).await;
                return;
            }
        }
        self.complete = true;
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.kept.freeze()
    }
}

/// Reads and drops a rest of known, small size.
async fn drain(mut body: Incoming) -> bool {
    if body.size_hint().upper().is_none_or(|rest| rest > MAX_DRAINED) {
        return false;
    }
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}

/// Names and values in their order, until `limit` bytes of both together.
pub(super) fn headers(headers: &HeaderMap, limit: usize) -> Headers {
    let mut left = limit;
    let mut kept = Headers::with_capacity(headers.len());
    for (name, value) in headers {
        let size = name.as_str().len() + value.len();
        if size > left {
            continue;
        }
        left -= size;
        kept.push((name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())));
    }
    kept
}
