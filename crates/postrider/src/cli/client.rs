//! A small HTTP client for the commands that talk to a running server: one request, one connection.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use url::Url;

use super::options::Server;

/// For a whole request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Answers beyond this are refused.
const MAX_ANSWER: usize = 64 << 20;

/// What the server said.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON, if the status is 2xx.
    ///
    /// # Errors
    /// With the server's message otherwise.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        let json = serde_json::from_slice::<serde_json::Value>(&self.body);
        if (200..300).contains(&self.status) {
            return json.context("read the server's answer as JSON");
        }
        let json = json.unwrap_or_default();
        let message = json["message"].as_str().unwrap_or("no message").to_owned();
        let details = match &json["data"] {
            serde_json::Value::Null => String::new(),
            serde_json::Value::Array(items) => {
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
    let base = server.url.trim_end_matches('/');
    let url = Url::parse(&format!("{base}{path_and_query}"))
        .with_context(|| format!("read {base:?} as the server's address such as http://127.0.0.1:3333"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")?;
    runtime.block_on(async {
        let exchange = exchange(&url, &server.api_key, method, body);
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        answer
            .unwrap_or_else(|_| Err(anyhow!("it did not answer within {} s", TIMEOUT.as_secs())))
            .with_context(|| format!("talk to the server at {base} (is it running? see --url)"))
    })
}

async fn exchange(url: &Url, api_key: &str, method: Method, body: Vec<u8>) -> anyhow::Result<Answer> {
    let host = url.host_str().context("find a host in the address")?;
    let port = url
        .port_or_known_default()
        .context("find a port in the address")?;
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
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
    match url.scheme() {
        "http" => send(stream, request).await,
        "https" => {
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
            send(tls()?.connect(name, stream).await?, request).await
        }
        other => Err(anyhow!("the scheme {other:?} is neither http nor https")),
    }
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

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), MAX_ANSWER);
    let body = body
        .collect()
        .await
        .map_err(|error| anyhow!("{error}"))?
        .to_bytes();
    Ok(Answer { status, body })
}
