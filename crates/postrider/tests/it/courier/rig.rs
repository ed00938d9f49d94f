//! A scripted receiver, which answers any bytes at any pace, and a courier that may call it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use postrider::courier::config::CourierConfig;
use postrider::courier::http::HttpCourier;
use postrider::courier::{Courier, Parcel, Report};
use postrider::directory::target::Target;
use postrider_core::delivery::{PendingDelivery, Plan, Progress};
use postrider_core::guard::Guard;
use postrider_core::header::CustomHeaders;
use postrider_core::id::{DeliveryKey, DestinationKey, EventKey, TenantKey};
use postrider_core::outcome::{ErrorKind, Outcome};
use postrider_core::policy::RetryPolicy;
use postrider_core::secret::Secret;
use postrider_core::signing::Keyring;
use postrider_core::time::Timestamp;
use postrider_core::topic::TopicSet;
use postrider_store::record::Payload;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

pub(super) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// 2026-01-01T00:00:00Z.
pub(super) const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// Longer than any wait of a test that passes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What a receiver saw.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) requests: Mutex<Vec<Received>>,
    pub(super) connections: AtomicUsize,
    closed: AtomicUsize,
    changed: Notify,
}

impl Log {
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(super) fn request(&self, index: usize) -> Received {
        self.requests.lock()[index].clone()
    }

    pub(super) fn count(&self) -> usize {
        self.requests.lock().len()
    }

    /// Waits until this many connections have ended.
    pub(super) async fn closed(&self, count: usize) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if self.closed.load(Ordering::SeqCst) >= count {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("the courier closes the connection");
    }

    pub(super) fn note_closed(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// One connection, from the receiver's side.
pub(super) struct Peer<S = TcpStream> {
    pub(super) stream: S,
    pub(super) log: Arc<Log>,
    /// Which connection this is, from 0.
    pub(super) index: usize,
    buffer: Vec<u8>,
}

impl<S: Io> Peer<S> {
    pub(super) fn new(stream: S, log: Arc<Log>, index: usize) -> Self {
        Self {
            stream,
            log,
            index,
            buffer: Vec::new(),
        }
    }

    /// Reads until the end of a request's head.
    pub(super) async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            self.more().await?;
        }
    }

    /// Reads a whole request and logs it.
    pub(super) async fn request(&mut self) -> Option<Received> {
        let head = self.head().await?;
        let mut received = Received {
            head,
            body: Vec::new(),
        };
        let length: usize = received
            .header("content-length")
            .map_or(0, |text| text.parse().unwrap());
        while self.buffer.len() < length {
            self.more().await?;
        }
        received.body = self.buffer.drain(..length).collect();
        self.log.requests.lock().push(received.clone());
        Some(received)
    }

    pub(super) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Waits until the courier closes the connection.
    pub(super) async fn closed(&mut self) {
        while self.more().await.is_some() {}
    }

    async fn more(&mut self) -> Option<()> {
        let mut chunk = [0_u8; 16 * 1024];
        match self.stream.read(&mut chunk).await {
            Ok(0) | Err(_) => None,
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Some(())
            }
        }
    }
}

impl Peer<TcpStream> {
    /// Closes with RST instead of FIN.
    pub(super) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

/// Listens and serves each connection by a script.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    pub(super) log: Arc<Log>,
}

impl Receiver {
    pub(super) async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(Peer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::listen("127.0.0.1:0".parse().unwrap(), script).await
    }

    pub(super) async fn listen<F, Fut>(address: SocketAddr, script: F) -> Self
    where
        F: Fn(Peer) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let accepting = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let index = accepting.connections.fetch_add(1, Ordering::SeqCst);
                let serving = script(Peer::new(stream, Arc::clone(&accepting), index));
                let log = Arc::clone(&accepting);
                tokio::spawn(async move {
                    serving.await;
                    log.note_closed();
                });
            }
        });
        Self { address, log }
    }

    /// Answers every request with the same bytes and keeps the connection open.
    pub(super) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut peer| {
            let answer = Arc::clone(&answer);
            async move {
                while peer.request().await.is_some() {
                    if peer.write(&answer).await.is_err() {
                        break;
                    }
                }
            }
        })
        .await
    }

    /// Reads one request, writes, and waits for the courier to hang up.
    pub(super) async fn writing_once(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut peer| {
            let answer = Arc::clone(&answer);
            async move {
                peer.request().await;
                let _ = peer.write(&answer).await;
                peer.closed().await;
            }
        })
        .await
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook?a=1", self.address)
    }
}

/// Loopback only.
pub(super) fn guard() -> Guard {
    Guard::new("127.0.0.0/8", true).unwrap()
}

pub(super) fn config() -> CourierConfig {
    CourierConfig {
        max_connections: Some(64),
        ..CourierConfig::default()
    }
}

pub(super) fn courier() -> HttpCourier {
    HttpCourier::new(config(), guard()).unwrap()
}

pub(super) fn target(url: &str) -> Target {
    target_under(&guard(), url)
}

pub(super) fn target_under(guard: &Guard, url: &str) -> Target {
    Target {
        name: "acme/des_1".to_owned(),
        rate_limit: None,
        share: Default::default(),
        key: DestinationKey(1),
        tenant: TenantKey(1),
        tenant_id: "acme".to_owned(),
        id: "des_1".to_owned(),
        topics: TopicSet::new(vec!["*".to_owned()]).unwrap(),
        filter: None,
        url: guard.url(url).map_err(|refused| refused.to_string()),
        headers: CustomHeaders::default(),
        delivery_metadata: std::collections::BTreeMap::new(),
        keyring: Keyring::new(&Secret::new(SECRET), None).unwrap(),
        timeout: Duration::from_secs(10),
        policy: Arc::new(RetryPolicy::default()),
        disabled: false,
    }
}

pub(super) fn payload(data: impl Into<Bytes>) -> Payload {
    Payload {
        event_id: "evt_1".to_owned(),
        topic: "order.paid".to_owned(),
        time: NOW,
        metadata: std::collections::BTreeMap::new(),
        data: data.into(),
    }
}

pub(super) fn parcel(target: Target, payload: Payload) -> Parcel {
    Parcel {
        target: Arc::new(target),
        payload: Arc::new(payload),
        delivery: PendingDelivery {
            key: DeliveryKey(2),
            event: EventKey(1),
            tenant: TenantKey(1),
            destination: DestinationKey(1),
            plan: Plan::first(NOW),
            progress: Progress::new(NOW),
            retryable: true,
            replayed: false,
            last_attempt: None,
            context: None,
        },
        number: 3,
        now: NOW,
    }
}

/// One request with a small body.
pub(super) async fn send(courier: &HttpCourier, target: Target) -> Report {
    send_data(courier, target, r#"{"n":1}"#).await
}

pub(super) async fn send_data(courier: &HttpCourier, target: Target, data: impl Into<Bytes>) -> Report {
    let sending = courier.send(parcel(target, payload(data)));
    tokio::time::timeout(PATIENCE, sending)
        .await
        .expect("a request ends by its own timeout")
}

/// Within a timeout that is over soon.
pub(super) fn hurried(target: Target) -> Target {
    Target {
        timeout: Duration::from_millis(400),
        ..target
    }
}

#[track_caller]
pub(super) fn assert_failed(report: &Report, kind: ErrorKind) {
    assert_eq!(report.outcome, Outcome::Failed(kind), "{:?}", report.detail);
    assert!(
        report.detail.as_ref().is_some_and(|detail| !detail.is_empty()),
        "a failure says why"
    );
}

#[track_caller]
pub(super) fn assert_status(report: &Report, status: u16) {
    assert_eq!(report.outcome.code(), Some(status), "{report:?}");
}
