//! A receiver in this process that knows every request it saw, and answers by a script.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// Path of the URL.
    pub(super) path: String,
    /// Headers.
    pub(super) headers: HeaderMap,
    /// Body, undecoded.
    pub(super) body: Bytes,
    /// When it was complete.
    pub(super) at: Instant,
}

impl Received {
    /// A header as text, empty when it is not there.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// What the script answers.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// A status and a body.
    Status(u16, &'static str),
    /// A status with one more header.
    Header(u16, &'static str, &'static str),
    /// A status with `Retry-After`, measured against this `Date`.
    RetryAfter(u16, &'static str, &'static str),
    /// Nothing, ever.
    Hang,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<Received>>,
    arrived: Notify,
}

/// Listens on a port of its own until it is dropped.
#[derive(Debug)]
pub(super) struct Receiver {
    address: SocketAddr,
    seen: Arc<Seen>,
    listener: AbortHandle,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Receiver {
    /// `script` answers each request; its second argument is how many came before.
    pub(super) async fn start(script: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let script = Arc::new(script);
        let task = tokio::spawn({
            let seen = seen.clone();
            async move {
                // Dropped with the task: then every connection closes.
                let mut connections = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let (seen, script) = (seen.clone(), script.clone());
                    let service = service_fn(move |request| answer(request, seen.clone(), script.clone()));
                    connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
                    while connections.try_join_next().is_some() {}
                }
            }
        });
        Self {
            address,
            seen,
            listener: task.abort_handle(),
        }
    }

    /// Always this status.
    pub(super) async fn always(status: u16) -> Self {
        Self::start(move |_, _| Reply::Status(status, "")).await
    }

    /// The URL of a destination that leads here.
    pub(super) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Every request so far.
    pub(super) fn requests(&self) -> Vec<Received> {
        self.seen.requests.lock().clone()
    }

    /// How many requests so far.
    pub(super) fn count(&self) -> usize {
        self.seen.requests.lock().len()
    }

    /// Waits until `found` finds what it wants among the requests.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        bound: Duration,
        found: impl Fn(&[Received]) -> Option<T>,
    ) -> T {
        let wait = async {
            loop {
                let arrived = self.seen.arrived.notified();
                if let Some(value) = found(&self.seen.requests.lock()) {
                    return value;
                }
                arrived.await;
            }
        };
        match timeout(bound, wait).await {
            Ok(value) => value,
            Err(_) => panic!("waited {bound:?} in vain: {what}; {} requests came", self.count()),
        }
    }

    /// Waits for this many requests and answers them all.
    pub(super) async fn until_count(&self, count: usize, bound: Duration) -> Vec<Received> {
        let enough = |requests: &[Received]| (requests.len() >= count).then(|| requests.to_vec());
        self.until(&format!("{count} requests"), bound, enough).await
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Seen>,
    script: Arc<impl Fn(&Received, usize) -> Reply>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        // Cut off in the middle: not a request. The answer goes nowhere.
        return Ok(Response::new(Full::default()));
    };
    let received = Received {
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body: body.to_bytes(),
        at: Instant::now(),
    };
    let reply = {
        let mut requests = seen.requests.lock();
        let reply = script(&received, requests.len());
        requests.push(received);
        reply
    };
    seen.arrived.notify_waiters();
    let response = match reply {
        Reply::Status(status, body) => Response::builder().status(status).body(Full::from(body)),
        Reply::Header(status, name, value) => Response::builder()
            .status(status)
            .header(name, value)
            .body(Full::default()),
        Reply::RetryAfter(status, date, retry_after) => Response::builder()
            .status(status)
            .header("date", date)
            .header("retry-after", retry_after)
            .body(Full::default()),
        Reply::Hang => std::future::pending().await,
    };
    Ok(response.unwrap())
}
