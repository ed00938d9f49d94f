//! A request, built from a target and an event.
//!
//! What is the same for every event of a target is built once, as a [`Route`]. Values are checked when they are saved and
//! again here, since what is stored may be older than today's rules: an invalid one is a failure with its name, never
//! a panic. Only an event's metadata is made to fit, for the event is accepted already.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use http::{Method, Request, Uri};
use http_body_util::Full;
use parking_lot::Mutex;
use postrider_core::header::CustomHeaders;
use postrider_core::id::DestinationKey;
use postrider_core::outcome::ErrorKind;
use postrider_store::record::Headers;

use super::Parcel;
use super::config::HeaderMode;
use super::failure::Failure;
use super::lease::Origin;
use crate::directory::target::Target;

const AGENT: &str = concat!("Postrider/", env!("CARGO_PKG_VERSION"));
const OUTPOST_PREFIX: &str = "x-outpost-";
const MASK: &[u8] = b"***";
static WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
static WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
static WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
static WEBHOOK_TOPIC: HeaderName = HeaderName::from_static("webhook-topic");
static WEBHOOK_ATTEMPT: HeaderName = HeaderName::from_static("webhook-attempt");
static OUTPOST_EVENT_ID: HeaderName = HeaderName::from_static("x-outpost-event-id");
static OUTPOST_TIMESTAMP: HeaderName = HeaderName::from_static("x-outpost-timestamp");
static OUTPOST_SIGNATURE: HeaderName = HeaderName::from_static("x-outpost-signature");
static OUTPOST_TOPIC: HeaderName = HeaderName::from_static("x-outpost-topic");

/// Everything about requests to one target that no event changes.
#[derive(Debug)]
pub(super) struct Route {
    target: Arc<Target>,
    pub(super) origin: Arc<Origin>,
    mode: HeaderMode,
    headers: HeaderMap,
    reported: Headers,
    /// For HTTP/1.1: path and query.
    origin_form: Uri,
    /// For HTTP/2: with scheme and authority.
    absolute_form: Uri,
}

/// The headers of one request: to send, and to show.
pub(super) struct Prepared {
    headers: HeaderMap,
    pub(super) reported: Headers,
    /// Metadata that cannot be sent as headers.
    pub(super) left_out: Vec<String>,
}

impl Route {
    fn new(target: &Arc<Target>, mode: HeaderMode) -> Result<Self, Failure> {
        let url = target
            .url
            .as_ref()
            .map_err(|why| Failure::new(ErrorKind::BlockedAddress, why.clone()))?;
        let origin = Origin {
            tls: url.is_tls(),
            host: url.host().into(),
            port: url.port(),
            ip: url.ip(),
        };
        let scheme = if origin.tls { "https" } else { "http" };
        let uri = |text: &str| {
            Uri::try_from(text).map_err(|_| invalid("the URL's path holds what HTTP cannot carry".to_owned()))
        };
        let origin_form = uri(url.path_and_query())?;
        let absolute_form = uri(&format!("{scheme}://{}{}", url.authority(), url.path_and_query()))?;

        let mut headers = HeaderMap::with_capacity(24);
        let mut reported = Headers::new();
        let mut put = |name: HeaderName, value: &str| -> Result<(), Failure> {
            reported.push((name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())));
            headers.insert(name.clone(), header_value(name.as_str(), value)?);
            Ok(())
        };
        put(HOST, url.authority())?;
        put(USER_AGENT, AGENT)?;
        put(CONTENT_TYPE, "application/json")?;
        put(ACCEPT_ENCODING, "identity")?;
        for (name, value) in target.headers.iter() {
            let is_metadata = target.delivery_metadata.contains_key(name);
            if is_metadata && mode == HeaderMode::Outpost {
                continue;
            }
            headers.insert(header_name(name)?, header_value(name, value)?);
            let shown = if is_metadata && !is_secret(name) {
                value.as_bytes()
            } else {
                MASK
            };
            reported.push((name.to_owned(), Bytes::copy_from_slice(shown)));
        }
        Ok(Self {
            target: Arc::clone(target),
            origin: Arc::new(origin),
            mode,
            headers,
            reported,
            origin_form,
            absolute_form,
        })
    }

    /// Headers for one event and one attempt, signed.
    pub(super) fn prepare(&self, parcel: &Parcel) -> Result<Prepared, Failure> {
        let mut prepared = Prepared {
            headers: self.headers.clone(),
            reported: self.reported.clone(),
            left_out: Vec::new(),
        };
        let payload = &parcel.payload;
        let seconds = parcel.now.as_seconds().to_string();
        match self.mode {
            HeaderMode::Standard => {
                self.add_metadata(&mut prepared, "", &payload.metadata)?;
                let signature = self
                    .target
                    .keyring
                    .sign(&payload.event_id, parcel.now, &payload.data);
                prepared.put(&WEBHOOK_ID, payload.event_id.clone())?;
                prepared.put(&WEBHOOK_TIMESTAMP, seconds)?;
                prepared.put(&WEBHOOK_SIGNATURE, signature)?;
                prepared.put(&WEBHOOK_TOPIC, payload.topic.clone())?;
                prepared.put(&WEBHOOK_ATTEMPT, parcel.number.to_string())?;
            }
            HeaderMode::Outpost => {
                prepared.put(&OUTPOST_EVENT_ID, payload.event_id.clone())?;
                prepared.put(&OUTPOST_TIMESTAMP, seconds)?;
                prepared.put(&OUTPOST_TOPIC, payload.topic.clone())?;
                self.add_metadata(&mut prepared, OUTPOST_PREFIX, &self.target.delivery_metadata)?;
                self.add_metadata(&mut prepared, OUTPOST_PREFIX, &payload.metadata)?;
                if let Some(signature) = self.target.keyring.sign_outpost(parcel.now, &payload.data) {
                    prepared.put(&OUTPOST_SIGNATURE, signature)?;
                }
            }
        }
        prepared.put(&CONTENT_LENGTH, payload.data.len().to_string())?;
        Ok(prepared)
    }

    /// The request itself.
    pub(super) fn request(&self, mut headers: HeaderMap, body: Bytes, is_h2: bool) -> Request<Full<Bytes>> {
        let uri = if is_h2 {
            headers.remove(HOST);
            self.absolute_form.clone()
        } else {
            self.origin_form.clone()
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
    }

    /// Metadata as headers. Without a prefix, what the destination's owner or we ourselves have set stays.
    fn add_metadata(
        &self,
        prepared: &mut Prepared,
        prefix: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        if metadata.is_empty() {
            return Ok(());
        }
        let (headers, left_out) = CustomHeaders::from_event(metadata, prefix);
        prepared.left_out.extend(left_out);
        for (name, value) in headers.iter() {
            if self.headers.contains_key(name) {
                prepared.left_out.push(name.to_owned());
            } else {
                let shown = if is_secret(name) {
                    Bytes::from_static(MASK)
                } else {
                    Bytes::copy_from_slice(value.as_bytes())
                };
                prepared.insert(header_name(name)?, header_value(name, value)?, shown);
            }
        }
        Ok(())
    }
}

impl Prepared {
    /// Takes the headers for sending; what is shown stays.
    pub(super) fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.headers)
    }

    /// One of our own headers: nothing secret, and sent and shown without a copy.
    fn put(&mut self, name: &HeaderName, value: String) -> Result<(), Failure> {
        let shown = Bytes::from(value);
        let sent = HeaderValue::from_maybe_shared(shown.clone()).map_err(|_| invalid_value(name.as_str()))?;
        self.insert(name.clone(), sent, shown);
        Ok(())
    }

    fn insert(&mut self, name: HeaderName, sent: HeaderValue, shown: Bytes) {
        let text = name.as_str().to_owned();
        if self.headers.insert(name, sent).is_none() {
            self.reported.push((text, shown));
        } else if let Some(reported) = self.reported.iter_mut().find(|(reported, _)| *reported == text) {
            reported.1 = shown;
        }
    }
}

/// The routes of recently used targets.
#[derive(Debug)]
pub(super) struct Routes {
    mode: HeaderMode,
    by_destination: Mutex<HashMap<DestinationKey, Arc<Route>>>,
}

impl Routes {
    const MAX: usize = 8192;

    pub(super) fn new(mode: HeaderMode) -> Self {
        Self {
            mode,
            by_destination: Mutex::default(),
        }
    }

    /// The route to a target; built again when the target was replaced.
    pub(super) fn route(&self, target: &Arc<Target>) -> Result<Arc<Route>, Failure> {
        if let Some(route) = self.by_destination.lock().get(&target.key)
            && Arc::ptr_eq(&route.target, target)
        {
            return Ok(Arc::clone(route));
        }
        let route = Arc::new(Route::new(target, self.mode)?);
        let mut routes = self.by_destination.lock();
        if routes.len() >= Self::MAX {
            routes.clear();
        }
        routes.insert(target.key, Arc::clone(&route));
        Ok(route)
    }
}

fn header_name(name: &str) -> Result<HeaderName, Failure> {
    HeaderName::try_from(name).map_err(|_| invalid(format!("{name:?} is not a valid header name")))
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid_value(name))
}

fn invalid_value(name: &str) -> Failure {
    invalid(format!(
        "the value of header {name} holds a line break or another control character"
    ))
}

fn invalid(detail: String) -> Failure {
    Failure::new(ErrorKind::InvalidRequest, detail)
}

/// Whether a header's name says that its value should not be shown.
fn is_secret(name: &str) -> bool {
    [
        "authorization",
        "cookie",
        "token",
        "secret",
        "password",
        "api-key",
        "apikey",
    ]
    .iter()
    .any(|word| name.contains(word))
}
