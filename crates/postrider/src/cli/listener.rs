//! The API's listener: accepts connections up to a bound, and ends them politely.
//!
//! axum's own `serve` has neither a bound on connections nor a limit on how slowly a request's head may arrive, so
//! connections are driven here with hyper directly.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::ServiceExt;

use crate::config::settings::ServerConfig;
use crate::telemetry::supervisor::stopped;

/// Connections that may wait to be accepted; the system has a bound of its own (`net.core.somaxconn`). The 128 that a listener
/// has by default are too few for a burst of clients: what is beyond is dropped, and tried again a second later.
const WAITING_CONNECTIONS: u32 = 4_096;

/// Listens on an address.
///
/// # Errors
/// When it is in use, or not this machine's.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // As for every server: the port of one that has just ended can be used again.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_CONNECTIONS)
}

/// After an accept that failed for want of resources: others may free some meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An open listener with everything that its connections need; cheap to clone.
#[derive(Debug, Clone)]
pub struct Listener {
    socket: Arc<TcpListener>,
    connections: Connections,
    stop: watch::Receiver<bool>,
}

/// What a connection needs, and the slots that bound how many there are.
#[derive(Debug, Clone)]
pub struct Connections {
    router: Router,
    config: Arc<ServerConfig>,
    slots: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

impl Listener {
    /// Serves `router` on `socket` until `stop`.
    #[must_use]
    pub fn new(
        socket: TcpListener,
        router: Router,
        config: ServerConfig,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let slots = Arc::new(Semaphore::new(config.max_connections));
        let connections = Connections {
            router,
            config: Arc::new(config),
            slots,
            stop: stop.clone(),
        };
        Self {
            socket: Arc::new(socket),
            connections,
            stop,
        }
    }

    /// Its connections, which outlive it.
    #[must_use]
    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Accepts connections until `stop`. Once the last clone of the listener is gone, new connections are refused.
    pub async fn accept(mut self) {
        loop {
            let slots = Arc::clone(&self.connections.slots);
            let next = async {
                let slot = slots.acquire_owned().await.map_err(io::Error::other)?;
                let (stream, _) = self.socket.accept().await?;
                Ok::<_, io::Error>((stream, slot))
            };
            let accepted = tokio::select! {
                accepted = next => accepted,
                () = stopped(&mut self.stop) => return,
            };
            match accepted {
                Ok((stream, slot)) => {
                    tokio::spawn(self.connections().drive(stream, slot));
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection; trying again");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Connections {
    /// Returns when every connection has ended; call it after `stop`, when accepting has ended.
    pub async fn drained(&self) {
        let all = u32::try_from(self.config.max_connections).unwrap_or(u32::MAX);
        drop(self.slots.acquire_many(all).await);
    }

    async fn drive(self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        let _slot = slot;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
        let mut stop = self.stop.clone();
        let service = service_fn(|request| self.answer(request));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.config.header_read_timeout)
            // Whoever has nothing more to say may still be listening.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the API broke");
        }
    }

    fn answer(
        &self,
        request: http::Request<Incoming>,
    ) -> impl Future<Output = Result<http::Response<Body>, Infallible>> + use<> {
        let answer = self.router.clone().oneshot(request.map(Body::new));
        let limit = self.config.request_timeout;
        async move {
            match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer,
                Err(_) => Ok(too_slow(limit)),
            }
        }
    }
}

fn too_slow(limit: Duration) -> http::Response<Body> {
    let message = format!("request took longer than {} s", limit.as_secs());
    let body = serde_json::json!({ "status": 408, "message": message });
    let close = [(http::header::CONNECTION, "close")];
    (http::StatusCode::REQUEST_TIMEOUT, close, axum::Json(body)).into_response()
}

/// Errors of one connection that died before it was accepted (accept(2)); the next one may be fine.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn config() -> ServerConfig {
        ServerConfig {
            max_connections: 2,
            header_read_timeout: Duration::from_millis(50),
            request_timeout: Duration::from_millis(50),
            grace: Duration::ZERO,
        }
    }

    async fn start(config: ServerConfig) -> (Connections, std::net::SocketAddr, watch::Sender<bool>) {
        let (stop, stopped) = watch::channel(false);
        let socket = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        let router = Router::new()
            .route("/quick", get(|| async { "hello" }))
            .route("/stuck", get(std::future::pending::<&'static str>));
        let listener = Listener::new(socket, router, config, stopped);
        let connections = listener.connections();
        tokio::spawn(listener.accept());
        (connections, address, stop)
    }

    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_burst_of_clients_is_not_kept_waiting_before_it_is_accepted() {
        let socket = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        // Nobody accepts, so whoever finds no room in the queue is never connected.
        let clients = (0..300).map(|_| TcpStream::connect(address));
        let connected = futures_util::future::join_all(clients);
        let connected = tokio::time::timeout(Duration::from_secs(20), connected).await;
        assert!(connected.is_ok_and(|all| all.iter().all(Result::is_ok)));
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_is_answered_408() {
        let (_connections, address, _stop) = start(config()).await;
        let answer = ask(address, "GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(
            answer.ends_with(r#"{"message":"request took longer than 0 s","status":408}"#),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn a_connection_that_sends_no_head_is_closed_and_frees_its_slot() {
        let (_connections, address, _stop) = start(config()).await;
        let _idle = (
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        );
        let answer = ask(
            address,
            "GET /quick HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
        .await;
        assert!(answer.ends_with("hello"), "{answer}");
    }

    #[tokio::test]
    async fn a_stop_lets_the_request_under_way_finish() {
        let mut slow = config();
        slow.request_timeout = Duration::from_millis(200);
        slow.header_read_timeout = Duration::from_secs(60);
        let (connections, address, stop) = start(slow).await;
        let under_way =
            tokio::spawn(async move { ask(address, "GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n").await });
        // One slot is held for the next connection, the other by the one that is open.
        while connections.slots.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        stop.send(true).unwrap();
        connections.drained().await;
        assert!(under_way.await.unwrap().starts_with("HTTP/1.1 408 "));
        assert!(
            TcpStream::connect(address).await.is_err(),
            "nobody accepts any more"
        );
    }
}
