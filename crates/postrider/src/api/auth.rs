//! Who may call: the holders of an API key.
//!
//! Keys are compared by their SHA-256 digests, all of them on every call and each in constant time, so that neither
//! length, nor content, nor which key matched can be measured. Without any key nobody may call.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use postrider_core::secret::Secret;
use ring::digest::{SHA256, digest};
use subtle::{Choice, ConstantTimeEq};

use super::error::ApiError;

/// Digests of the keys that are accepted.
#[derive(Clone)]
pub(super) struct ApiKeys(Arc<[[u8; 32]]>);

impl ApiKeys {
    /// From keys in plain text; empty ones are left out.
    pub(super) fn new(keys: &[Secret]) -> Self {
        let keys = keys.iter().map(Secret::expose).filter(|key| !key.is_empty());
        Self(keys.map(|key| sha256(key.as_bytes())).collect())
    }

    /// Whether the request carries one of the keys as `Authorization: Bearer KEY`.
    pub(super) fn admit(&self, headers: &HeaderMap) -> bool {
        let presented = bearer(headers).map(sha256).unwrap_or_default();
        let found = self
            .0
            .iter()
            .fold(Choice::from(0), |found, key| found | key.ct_eq(&presented));
        found.into()
    }
}

/// Answers 401 unless the request carries a key.
pub(super) async fn require_key(State(keys): State<ApiKeys>, request: Request, next: Next) -> Response {
    if keys.admit(request.headers()) {
        next.run(request).await
    } else {
        ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized").into_response()
    }
}

/// RFC 6750 §2.1: the scheme in any case, one space, the token. More than one such header is none.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.split_at_checked(7)?;
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

fn sha256(text: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn admits(keys: &[&str], authorization: &[&[u8]]) -> bool {
        let keys: Vec<_> = keys.iter().map(|key| Secret::new(*key)).collect();
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        ApiKeys::new(&keys).admit(&headers)
    }

    #[test]
    fn any_of_several_keys_is_accepted() {
        assert!(admits(&["one", "two"], &[b"Bearer one"]));
        assert!(admits(&["one", "two"], &[b"bearer two"]));
        assert!(admits(&["sp ace"], &[b"Bearer sp ace"]));
    }

    #[test]
    fn everything_else_is_refused() {
        let refused: [&[&[u8]]; 9] = [
            &[],
            &[b""],
            &[b"Bearer"],
            &[b"Bearer "],
            &[b"Bearer three"],
            &[b"Bearer  one"],
            &[b"Basic one"],
            &[b"Bearer on\xe9"],
            &[b"Bearer one", b"Bearer one"],
        ];
        for headers in refused {
            assert!(!admits(&["one", "two"], headers), "{headers:?}");
        }
    }

    #[test]
    fn no_key_and_an_empty_key_admit_nobody() {
        for keys in [&[][..], &[""][..]] {
            assert!(!admits(keys, &[]));
            assert!(!admits(keys, &[b"Bearer "]));
            assert!(!admits(keys, &[b"Bearer x"]));
        }
    }
}
