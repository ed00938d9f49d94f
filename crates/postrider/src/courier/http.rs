//! Requests over real sockets.
//!
//! One request is one future on the caller's task: taken from the pool or dialled, sent, judged by its status line,
//! captured. Only an open connection has a task of its own. There is no retry here but one: a connection that was open
//! before may turn out to be dead before a byte of an answer has come, and then the request goes out once more on a new one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use postrider_core::guard::Guard;
use postrider_core::outcome::{Answer, ErrorKind, Outcome};
use postrider_core::time::Timestamp;
use postrider_core::{rate_fields, retry_after};
use postrider_store::record::{Headers, Timings};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::capture::{self, Capture};
use super::config::{CourierConfig, connections_within_descriptor_limit};
use super::connect::Dialer;
use super::failure::{Failure, is_unprocessed};
use super::lease::{Lease, Link};
use super::pool::{Pool, PoolBounds, Slot};
use super::request::{Prepared, Route, Routes};
use super::resolve::{CachingResolver, Resolve, SystemResolver};
use super::tls::{self, CaFileError};
use super::wire::Wire;
use super::{Courier, Parcel, Report};

/// The courier that production uses.
pub struct HttpCourier {
    routes: Routes,
    pool: Arc<Pool>,
    dialer: Dialer,
    max_captured_body_bytes: usize,
    max_captured_header_bytes: usize,
}

impl HttpCourier {
    /// With the system's resolver.
    ///
    /// # Errors
    /// When the file of trusted certificates cannot be used.
    pub fn new(config: CourierConfig, guard: Guard) -> Result<Self, CaFileError> {
        Self::with_resolver(config, guard, Arc::new(SystemResolver))
    }

    /// With another source of addresses. The guard checks those too.
    ///
    /// # Errors
    /// When the file of trusted certificates cannot be used.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a configuration is given away to the part it configures"
    )]
    pub fn with_resolver(
        config: CourierConfig,
        guard: Guard,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, CaFileError> {
        let tls = TlsConnector::from(Arc::new(tls::client_config(&config)?));
        let pool = Pool::new(PoolBounds {
            max_connections: config
                .max_connections
                .unwrap_or_else(connections_within_descriptor_limit),
            max_idle_per_host: config.max_idle_per_host,
            idle_timeout: config.idle_timeout,
        });
        let resolver = CachingResolver::new(resolver, config.dns_cache);
        Ok(Self {
            routes: Routes::new(config.header_mode),
            pool,
            dialer: Dialer {
                guard,
                resolver,
                tls,
                timeout: config.connect_timeout,
            },
            max_captured_body_bytes: config.max_captured_body_bytes,
            max_captured_header_bytes: config.max_captured_header_bytes,
        })
    }

    /// Connections that are open now, idle ones included.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.pool.open_connections()
    }

    /// Connections that may be open at once. More requests than this in flight wait for one, and fail as
    /// [`ErrorKind::LocalResources`] when none comes free within the connect timeout.
    #[must_use]
    pub fn max_connections(&self) -> usize {
        self.pool.max_connections()
    }

    /// A new connection, within the connect timeout, driven by a task of its own.
    async fn open(&self, route: &Route, timings: &mut Timings) -> Result<Lease, Failure> {
        let Ok(slot) = timeout(self.dialer.timeout, self.pool.slot()).await else {
            let detail = "no connection became free: the limit on open connections is reached";
            return Err(Failure::new(ErrorKind::LocalResources, detail));
        };
        let wire = self.dialer.dial(&route.origin, timings).await?;
        let mut lease = start(wire, slot).await?;
        self.pool.share(&route.origin, &mut lease);
        Ok(lease)
    }

    /// Sends until the final status line.
    async fn exchange(
        &self,
        route: &Route,
        parcel: &Parcel,
        prepared: &mut Prepared,
        trip: &mut Trip,
    ) -> Result<(Response<Incoming>, Lease), Failure> {
        let mut lease = match self.pool.take(&route.origin) {
            Some(lease) => lease,
            // Boxed, since connections are seldom made: else every request would carry the room for making one.
            None => Box::pin(self.open(route, &mut trip.timings)).await?,
        };
        let mut headers = prepared.take_headers();
        let mut repeated = false;
        loop {
            trip.connected = true;
            let bytes_before = lease.vitals.bytes_read();
            let request = route.request(headers, parcel.payload.data.clone(), lease.is_h2());
            let error = match lease.send(request).await {
                Ok(response) => return Ok((response, lease)),
                Err(error) => error,
            };
            let answered_bytes = lease.vitals.bytes_read() - bytes_before;
            if repeated || !may_repeat(&lease, &error, answered_bytes) {
                return Err(Failure::exchange(&error, &lease.vitals, answered_bytes));
            }
            repeated = true;
            trip.connected = false;
            lease = Box::pin(self.open(route, &mut trip.timings)).await?;
            headers = route.prepare(parcel)?.take_headers();
        }
    }

    /// One request; `Err` when no final status line arrived.
    async fn deliver(&self, parcel: &Parcel, trip: &mut Trip) -> Result<Answer, Failure> {
        let limit = parcel.target.timeout;
        let mut deadline = pin!(sleep_until(trip.started + limit));
        let route = self.routes.route(&parcel.target)?;
        let mut prepared = route.prepare(parcel)?;
        trip.request_headers = std::mem::take(&mut prepared.reported);
        if !prepared.left_out.is_empty() {
            let names = prepared.left_out.join(", ");
            trip.detail = Some(format!("metadata that cannot be a header was left out: {names}"));
        }
        let exchanged = tokio::select! {
            biased;
            exchanged = self.exchange(&route, parcel, &mut prepared, trip) => Some(exchanged),
            () = &mut deadline => None,
        };
        let Some(exchanged) = exchanged else {
            return Err(Failure::timeout(limit, trip.connected));
        };
        let (response, lease) = exchanged?;
        trip.timings.first_byte = Some(trip.started.elapsed());
        let (head, body) = response.into_parts();
        if head.status.is_informational() {
            let detail = format!("the receiver answered {} that nobody asked for", head.status);
            return Err(Failure::new(ErrorKind::Protocol, detail));
        }
        trip.response_headers = capture::headers(&head.headers, self.max_captured_header_bytes);
        let mut capture = Capture::new(body.is_end_stream());
        if !capture.complete {
            tokio::select! {
                biased;
                () = capture.read(body, self.max_captured_body_bytes) => {}
                () = &mut deadline => {
                    trip.detail = Some(format!("the answer's body did not end within {limit:?}"));
                }
            }
        }
        if capture.complete {
            self.pool.give_back(&route.origin, lease);
        }
        trip.keep(capture);
        Ok(answer(
            head.status.as_u16(),
            &head.headers,
            parcel.now.plus(trip.started.elapsed()),
        ))
    }
}

#[async_trait]
impl Courier for HttpCourier {
    async fn send(&self, parcel: Parcel) -> Report {
        let mut trip = Trip::new();
        let outcome = match self.deliver(&parcel, &mut trip).await {
            Ok(answer) => Outcome::Answered(answer),
            Err(failure) => {
                trip.detail = Some(failure.detail);
                Outcome::Failed(failure.kind)
            }
        };
        trip.report(outcome)
    }
}

/// What a request leaves behind, however it ends.
struct Trip {
    started: Instant,
    connected: bool,
    timings: Timings,
    detail: Option<String>,
    request_headers: Headers,
    response_headers: Headers,
    response_body: Bytes,
    response_truncated: bool,
}

impl Trip {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            connected: false,
            timings: Timings::default(),
            detail: None,
            request_headers: Headers::new(),
            response_headers: Headers::new(),
            response_body: Bytes::new(),
            response_truncated: false,
        }
    }

    fn keep(&mut self, mut capture: Capture) {
        self.response_truncated = capture.truncated;
        if let Some(broken) = capture.broken.take() {
            self.detail = Some(broken);
        }
        self.response_body = capture.into_bytes();
    }

    fn report(self, outcome: Outcome) -> Report {
        Report {
            outcome,
            detail: self.detail.map(bounded),
            timings: Timings {
                total: self.started.elapsed(),
                ..self.timings
            },
            request_headers: self.request_headers,
            response_headers: self.response_headers,
            response_body: self.response_body,
            response_truncated: self.response_truncated,
        }
    }
}

/// Hands a connection to hyper, and to a task that drives it until it ends.
async fn start(wire: Wire, slot: Slot) -> Result<Lease, Failure> {
    let vitals = wire.vitals();
    let refused = |error: hyper::Error| Failure::new(ErrorKind::Protocol, super::failure::chain(&error));
    let link = if wire.speaks_h2() {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(20))
            .handshake(TokioIo::new(wire))
            .await
            .map_err(refused)?;
        tokio::spawn(drive(connection, slot));
        Link::H2(sender)
    } else {
        let (sender, connection) = http1::Builder::new()
            .max_headers(MAX_RESPONSE_HEADERS)
            .max_buf_size(MAX_RESPONSE_HEAD_BYTES)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(refused)?;
        tokio::spawn(drive(connection, slot));
        Link::H1(sender)
    };
    Ok(Lease::new(link, vitals))
}

const MAX_RESPONSE_HEADERS: usize = 256;
const MAX_RESPONSE_HEAD_BYTES: usize = 64 * 1024;

async fn drive(connection: impl Future<Output = hyper::Result<()>>, slot: Slot) {
    if let Err(error) = connection.await {
        tracing::trace!(%error, "connection ended");
    }
    drop(slot);
}

/// Whether a failed request goes out again on a new connection: when a used connection died before a byte of an answer, and
/// for HTTP/2 also when the receiver says that it did nothing, or hyper that it sent nothing.
fn may_repeat(lease: &Lease, error: &hyper::Error, answered_bytes: u64) -> bool {
    let died_unanswered = lease.reused && answered_bytes == 0 && !error.is_parse() && !error.is_user();
    died_unanswered || lease.is_h2() && (error.is_canceled() || is_unprocessed(error))
}

fn answer(status: u16, headers: &HeaderMap, now: Timestamp) -> Answer {
    let date = headers.get(DATE).map(http::HeaderValue::as_bytes);
    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| retry_after::parse(value.as_bytes(), date, now));
    let location = if (300..400).contains(&status) {
        headers
            .get(LOCATION)
            .map(|value| bounded(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    } else {
        None
    };
    let fields = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()));
    Answer {
        status,
        retry_after,
        used_up: rate_fields::parse(fields),
        location,
    }
}

/// At most 1 KiB of a text.
fn bounded(mut text: String) -> String {
    const MAX: usize = 1024;
    if text.len() > MAX {
        let end = (0..=MAX)
            .rev()
            .find(|&end| text.is_char_boundary(end))
            .unwrap_or(0);
        text.truncate(end);
    }
    text
}
