//! A connection in the hands of one request.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};

use super::wire::Vitals;

/// Whom a connection reaches. Requests to the same origin share connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) tls: bool,
    /// ASCII, IPv6 without brackets.
    pub(super) host: Box<str>,
    pub(super) port: u16,
    /// The literal address, when the host is one.
    pub(super) ip: Option<IpAddr>,
}

/// A connection in use by one request.
pub(super) struct Lease {
    pub(super) link: Link,
    pub(super) vitals: Arc<Vitals>,
    /// Whether it has carried a request before.
    pub(super) reused: bool,
    /// Its existence tells the pool that a shared connection is in use.
    pub(super) in_use: Option<Arc<()>>,
}

/// How requests go into a connection.
pub(super) enum Link {
    /// One at a time.
    H1(http1::SendRequest<Full<Bytes>>),
    /// Many at once, over one connection for a host.
    H2(http2::SendRequest<Full<Bytes>>),
}

impl Lease {
    pub(super) fn new(link: Link, vitals: Arc<Vitals>) -> Self {
        Self {
            link,
            vitals,
            reused: false,
            in_use: None,
        }
    }

    pub(super) fn is_h2(&self) -> bool {
        matches!(self.link, Link::H2(_))
    }

    /// Sends a request and waits for the final status and headers. Dropping the future closes an HTTP/1.1 connection, and
    /// resets an HTTP/2 stream.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.link {
            Link::H1(sender) => sender.send_request(request).await,
            Link::H2(sender) => sender.send_request(request).await,
        }
    }
}
