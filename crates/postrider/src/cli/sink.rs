//! `postrider sink`: a receiver that behaves, or misbehaves, on request.
//!
//! For trying a policy out, for tests, and as the far end of the benchmark, where it must cost as little as possible: hyper
//! without a framework, and with `--quiet` nothing but counters and one sharded map on the way of a request. What it
//! does with the n-th request depends on n alone, so that two runs are alike.

mod behaviour;
mod capacity;
mod counts;
mod print;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use clap::Args;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postrider_core::policy::duration;
use postrider_core::secret::Secret;
use postrider_core::signing::{SignedHeaders, Verifier};
use tokio::net::{TcpListener, TcpStream};

use self::behaviour::{Act, Behaviour};
use self::counts::Counts;
use super::listener::listen;
use super::output;
use super::signal::Signals;
use crate::clock::{Clock as _, SystemClock};

/// Longer bodies are refused with 413.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Receive webhooks, print them, and misbehave on request.
///
/// Besides webhooks, which it takes at every other path and with every method, it answers GET /stats (counts as
/// JSON), GET /ids (one line for each event that it accepted: id, path, requests, successes; ?all=1 for the
/// refused ones too) and POST /reset (forgets everything).
#[derive(Debug, Clone, Args)]
pub struct SinkArgs {
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 4000)]
    pub port: u16,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    pub listen: IpAddr,
    /// Status to answer; several, such as 500,500,200, answer an event's first, second and later requests
    #[arg(long, value_delimiter = ',', default_value = "200", value_name = "STATUS,...", value_parser = status)]
    pub status: Vec<u16>,
    /// Share of the requests, in percent, that are answered with 500
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    pub fail_percent: f64,
    /// Share of the requests, in percent, that are never answered
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    pub hang_percent: f64,
    /// Share of the requests, in percent, whose connection is reset instead of an answer
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    pub reset_percent: f64,
    /// How many requests it can work on at once; those beyond are answered with 503, after the same delay
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    pub capacity: Option<u64>,
    /// How long to wait before each answer, such as 250ms or 2s
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration::parse)]
    pub delay: Duration,
    /// Value of Retry-After on answers of 400 and above: seconds or a date, sent as it is
    #[arg(long, value_name = "VALUE", value_parser = header_value)]
    pub retry_after: Option<HeaderValue>,
    /// Secret (whsec_..., whsk_... or whpk_...) to verify signatures with; a wrong one is answered with 401
    #[arg(long, value_name = "SECRET", value_parser = verifier)]
    pub verify: Option<Verifier>,
    /// Print nothing for a request
    #[arg(long, short)]
    pub quiet: bool,
}

/// Receives until Ctrl-C.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn run(args: SinkArgs) -> anyhow::Result<()> {
    let address = SocketAddr::new(args.listen, args.port);
    let listener = listen(address).with_context(|| format!("listen on {address}"))?;
    let sink = Arc::new(Sink::new(args)?);
    output::say(&format!(
        "postrider sink listens on http://{}",
        listener.local_addr()?
    ))?;
    let mut signals = Signals::install().context("watch for signals")?;
    tokio::select! {
        () = accept(&listener, &sink) => {}
        _ = signals.next() => {}
    }
    output::say(&sink.counts.stats().to_string())?;
    Ok(())
}

async fn accept(listener: &TcpListener, sink: &Arc<Sink>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve(stream, Arc::clone(sink)));
            }
            Err(error) => {
                // Out of descriptors: those that are open come first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn serve(stream: TcpStream, sink: Arc<Sink>) {
    let _open = sink.counts.connection();
    // Without it, small answers wait for acknowledgements; if it fails they merely do.
    let _ = stream.set_nodelay(true);
    let serving = Arc::clone(&sink);
    let service = service_fn(move |request| {
        let sink = Arc::clone(&serving);
        Box::pin(async move { sink.answer(request).await })
    });
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    let ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let was_reset =
        ended.is_err_and(|error| std::error::Error::source(&error).is_some_and(|cause| cause.is::<Reset>()));
    if was_reset {
        let _ = connection.into_parts().io.into_inner().set_zero_linger();
    }
}

/// The request's connection is to be reset.
#[derive(Debug, thiserror::Error)]
#[error("reset on request")]
struct Reset;

struct Sink {
    behaviour: Behaviour,
    retry_after: Option<HeaderValue>,
    verifier: Option<Verifier>,
    quiet: bool,
    counts: Counts,
}

impl Sink {
    fn new(args: SinkArgs) -> anyhow::Result<Self> {
        let behaviour = Behaviour::new(&args)?;
        let SinkArgs {
            capacity,
            retry_after,
            verify: verifier,
            quiet,
            ..
        } = args;
        Ok(Self {
            behaviour,
            retry_after,
            verifier,
            quiet,
            counts: Counts::new(capacity),
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Reset> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/stats") => return Ok(json(self.counts.stats().to_string())),
            (&Method::GET, "/ids") => {
                let everything = request.uri().query().is_some_and(|query| query.contains("all=1"));
                return Ok(Response::new(Full::from(self.counts.ids(everything))));
            }
            (&Method::POST, "/reset") => {
                self.counts.reset();
                return Ok(json("{}".to_owned()));
            }
            _ => {}
        }
        self.take(request).await
    }

    /// One webhook.
    async fn take(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Reset> {
        let arrival = self.counts.request();
        let number = arrival.number;
        let (head, body) = request.into_parts();
        let Some(body) = read(body).await else {
            self.counts.answered(StatusCode::PAYLOAD_TOO_LARGE.as_u16());
            return Ok(status_only(StatusCode::PAYLOAD_TOO_LARGE));
        };
        let header = |name: &str| {
            head.headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let id = match header("webhook-id") {
            "" => header("x-outpost-event-id"),
            id => id,
        };
        let earlier = self.counts.arrived(head.uri.path(), id);
        let verified = self.verifier.as_ref().map(|verifier| {
            let headers = SignedHeaders {
                id,
                timestamp: header("webhook-timestamp"),
                signature: header("webhook-signature"),
            };
            verifier.verify(headers, &body, SystemClock.now())
        });
        if let Some(verified) = verified {
            self.counts.verified(verified.is_ok());
        }
        let act = match verified {
            Some(Err(_)) => Act::Answer(StatusCode::UNAUTHORIZED),
            _ if arrival.is_too_many => Act::Answer(StatusCode::SERVICE_UNAVAILABLE),
            _ => self.behaviour.act(number, earlier),
        };
        if !self.quiet {
            print::request(number, &head, &body, act, verified);
        }
        self.behaviour.wait().await;
        match act {
            Act::Answer(status) => {
                self.counts.answered(status.as_u16());
                if status.is_success() {
                    self.counts.delivered(head.uri.path(), id);
                }
                let mut response = status_only(status);
                if let Some(value) = self.retry_after.as_ref().filter(|_| status.as_u16() >= 400) {
                    response.headers_mut().insert(RETRY_AFTER, value.clone());
                }
                Ok(response)
            }
            Act::Hang => {
                self.counts.hung();
                std::future::pending().await
            }
            Act::Reset => {
                self.counts.was_reset();
                Err(Reset)
            }
        }
    }
}

/// The whole body; a body in one piece is not copied. `None` when it is too long or broke off.
async fn read(mut body: Incoming) -> Option<Bytes> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.ok()?.into_data() else {
            continue;
        };
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        joined.extend_from_slice(&std::mem::take(&mut first));
        joined.extend_from_slice(&data);
        if joined.len() > MAX_BODY_BYTES {
            return None;
        }
    }
    Some(if joined.is_empty() { first } else { joined.freeze() })
}

fn status_only(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn json(text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(text: &str) -> Result<u16, String> {
    match text.trim().parse() {
        Ok(status @ 200..=999) => Ok(status),
        _ => Err("a status is a number from 200 to 999".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a percentage is a number from 0 to 100".to_owned()),
    }
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "a header value has no control characters".to_owned())
}

fn verifier(text: &str) -> Result<Verifier, String> {
    Verifier::new(&Secret::new(text)).map_err(|error| error.to_string())
}
