//! A small HTTP client for the commands that talk to a running server: one request, one connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::Instant;
use url::Url;

use super::options::Server;
use super::output::complain;
use crate::letters::line::MEDIA_TYPE;

/// For a whole request, or between two pieces of a long answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Answers beyond this are refused.
const MAX_ANSWER: usize = 64 << 20;
/// A server that is away or says "not now" is asked again, the last time after so long: it may be restarting, or have a full
/// queue.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two such questions.
const PAUSE: Duration = Duration::from_millis(500);

/// Where the API begins; an address that is given with it means the server, too.
const API_PATH: &str = "/api/v1";

/// What the server said.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: Bytes,
    /// Base address of who said it.
    from: String,
}

impl Answer {
    /// The body as JSON, if the status is 2xx.
    ///
    /// # Errors
    /// With the server's message otherwise.
    pub fn json(&self) -> anyhow::Result<Value> {
        let json = serde_json::from_slice::<Value>(&self.body);
        if (200..300).contains(&self.status) {
            return json
                .with_context(|| format!("read the answer as JSON ({})", is_it_postrider(&self.from)));
        }
        let json = json.unwrap_or_default();
        let message = json["message"].as_str();
        if message.is_none_or(is_no_route) {
            let (status, question) = (self.status, is_it_postrider(&self.from));
            let message = message.unwrap_or("no message");
            return Err(anyhow!(
                "get it done by the server: {status} {message} ({question})"
            ));
        }
        let message = message.unwrap_or_default();
        let details = match &json["data"] {
            Value::Null => String::new(),
            Value::Array(items) => {
                let texts: Vec<String> = items
                    .iter()
                    .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                    .collect();
                format!(" ({})", texts.join("; "))
            }
            other => format!(" ({other})"),
        };
        Err(anyhow!(
            "get it done by the server: {} {message}{details}",
            self.status
        ))
    }
}

/// Makes one request and waits for its answer.
///
/// # Errors
/// When no answer arrives; the text names the server.
pub fn request(
    server: &Server,
    method: Method,
    path_and_query: &str,
    body: Vec<u8>,
) -> anyhow::Result<Answer> {
    runtime()?.block_on(ask(server, method, path_and_query, body))
}

/// What a path shows, as JSON.
///
/// # Errors
/// As [`request`] and [`Answer::json`].
pub fn get(server: &Server, path_and_query: &str) -> anyhow::Result<Value> {
    request(server, Method::GET, path_and_query, Vec::new())?.json()
}

/// Makes a request that may be made twice, again while the failure may pass, for a minute.
/// It says so once.
///
/// # Errors
/// As [`request`] and [`Answer::json`], of the last try.
pub fn persist(server: &Server, method: &Method, path_and_query: &str, body: &[u8]) -> anyhow::Result<Value> {
    runtime()?.block_on(ask_persistently(server, method, path_and_query, body))
}

/// The same, for commands that wait for something else meanwhile.
///
/// # Errors
/// As [`persist`].
pub async fn ask_persistently(
    server: &Server,
    method: &Method,
    path_and_query: &str,
    body: &[u8],
) -> anyhow::Result<Value> {
    let give_up = Instant::now() + PATIENCE;
    let mut told = false;
    loop {
        let asked = ask(server, method.clone(), path_and_query, body.to_vec()).await;
        let passes = match &asked {
            Ok(answer) => matches!(answer.status, 502..=504),
            Err(error) => may_pass(error, server.has_answered.get()),
        };
        let answer = asked.and_then(|answer| answer.json());
        let Err(error) = &answer else { return answer };
        if !passes || Instant::now() >= give_up {
            return answer;
        }
        if !std::mem::replace(&mut told, true) {
            complain(&format!("waiting for up to {} s: {error:#}", PATIENCE.as_secs()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The host's name leads nowhere.
#[derive(Debug, thiserror::Error)]
#[error("find {host}: {reason}")]
struct Unresolved {
    host: String,
    reason: String,
}

/// Whether a request that got no answer may get one later: not when its address, or whom it meets there, is wrong. Nobody can
/// tell a wrong name from a resolver that is away, unless the name was right before.
fn may_pass(error: &anyhow::Error, has_answered: bool) -> bool {
    error.chain().any(|cause| {
        if cause.is::<Unresolved>() {
            return has_answered;
        }
        let broken = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let talked = cause.downcast_ref::<hyper::Error>();
        broken.is_some_and(|kind| kind != io::ErrorKind::InvalidData)
            || talked.is_some_and(|error| !error.is_parse())
    })
}

/// A value for a query or a path.
#[must_use]
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// [`request`] for commands that wait for something else meanwhile.
///
/// # Errors
/// When no answer arrives; the text names the server.
pub async fn ask(
    server: &Server,
    method: Method,
    path_and_query: &str,
    body: Vec<u8>,
) -> anyhow::Result<Answer> {
    let exchange = async {
        let answer = open(&address(server, path_and_query)?, &server.api_key, method, body).await?;
        let answer = whole(server, answer).await?;
        server.has_answered.set(true);
        Ok(answer)
    };
    in_time(exchange).await.with_context(|| talk(server))
}

async fn whole(server: &Server, answer: http::Response<Incoming>) -> anyhow::Result<Answer> {
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    Ok(Answer {
        status,
        body: body.map_err(|error| anyhow!("{error}"))?.to_bytes(),
        from: base(server).to_owned(),
    })
}

/// Gets lines of JSON of any length, piece by piece.
///
/// # Errors
/// When it is something else, when it breaks off, when nothing comes for a while, and with the server's message when the status is not 2xx.
pub fn download(
    server: &Server,
    path_and_query: &str,
    mut piece: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let url = address(server, path_and_query)?;
        let opened = in_time(open(&url, &server.api_key, Method::GET, Vec::new())).await;
        let mut answer = opened.with_context(|| talk(server))?;
        if !answer.status().is_success() {
            return whole(server, answer).await?.json().map(drop);
        }
        if answer
            .headers()
            .get(header::CONTENT_TYPE)
            .is_none_or(|kind| kind != MEDIA_TYPE)
        {
            let question = is_it_postrider(base(server));
            return Err(anyhow!(
                "read the answer as lines of JSON: it is something else ({question})"
            ));
        }
        while let Some(frame) = in_time(async { Ok(answer.frame().await) })
            .await
            .with_context(|| talk(server))?
        {
            let frame = frame.context("read the answer to its end: it broke off")?;
            if let Some(data) = frame.data_ref() {
                piece(data)?;
            }
        }
        Ok(())
    })
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")
}

fn address(server: &Server, path_and_query: &str) -> anyhow::Result<Url> {
    let base = base(server);
    let is_http = |url: &Url| matches!(url.scheme(), "http" | "https");
    Url::parse(&server.url)
        .ok()
        .filter(is_http)
        .and_then(|_| Url::parse(&format!("{base}{path_and_query}")).ok())
        .with_context(|| {
            let text = "as the server's address such as http://127.0.0.1:3333";
            format!("read {:?} {text}", server.url)
        })
}

/// The server's address without what every path begins with.
fn base(server: &Server) -> &str {
    let url = server.url.trim_end_matches('/');
    url.strip_suffix(API_PATH).unwrap_or(url).trim_end_matches('/')
}

fn talk(server: &Server) -> String {
    format!(
        "talk to the server at {} (is it running? see --url)",
        base(server)
    )
}

fn is_it_postrider(base: &str) -> String {
    format!("is {base} the address of a Postrider server? see --url")
}

/// Whether a message is that of a path that Postrider does not have: what one asks for is called by its name there.
fn is_no_route(message: &str) -> bool {
    message == "not found"
}

async fn in_time<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| {
        let text = format!("it did not answer within {} s", TIMEOUT.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
    })
}

async fn open(
    url: &Url,
    api_key: &str,
    method: Method,
    body: Vec<u8>,
) -> anyhow::Result<http::Response<Incoming>> {
    let host = url.host_str().context("find a host in the address")?;
    let port = url
        .port_or_known_default()
        .context("find a port in the address")?;
    let addresses = lookup_host((host.trim_matches(['[', ']']), port))
        .await
        .map_err(|error| Unresolved {
            host: host.to_owned(),
            reason: error.to_string(),
        })?;
    let stream = TcpStream::connect(&*addresses.collect::<Vec<_>>()).await?;
    let path = url.query().map_or_else(
        || url.path().to_owned(),
        |query| format!("{}?{query}", url.path()),
    );
    let authority = url
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, authority)
        .header(header::AUTHORIZATION, format!("Bearer {api_key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    if url.scheme() == "http" {
        return send(stream, request).await;
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    send(tls()?.connect(name, stream).await?, request).await
}

fn tls() -> anyhow::Result<tokio_rustls::TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<http::Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_nowhere_is_wrong_until_it_has_led_to_the_server() {
        let unresolved = Unresolved {
            host: "postrider.internal".to_owned(),
            reason: "temporary failure".to_owned(),
        };
        let unresolved = anyhow::Error::from(unresolved).context("talk to the server");
        assert!(!may_pass(&unresolved, false));
        assert!(may_pass(&unresolved, true));
        let refused = anyhow::Error::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(may_pass(&refused, false), "it may be starting");
    }
}
