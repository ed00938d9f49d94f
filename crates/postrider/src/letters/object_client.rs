//! HTTP for the object store: hyper and rustls, as everywhere else in this program, in place of a second client.
//!
//! One connection a request: a file is written now and then, so keeping connections would gain nothing. The address comes
//! from the operator's own configuration, so the guard that checks customers' addresses has no say here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{HOST, HeaderValue};
use http::{Request, Uri};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Until the end of the answer: the upload of a whole file included.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// Bytes of an answer: it says that a file was taken, or why not. Nothing is ever read back.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// An answer that broke off or is too long.
#[derive(Debug, thiserror::Error)]
#[error("read the answer of the object store: {0}")]
struct Unread(Box<dyn std::error::Error + Send + Sync>);

/// Makes clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Connector {
    answer_time: Duration,
}

impl Default for Connector {
    fn default() -> Self {
        Self {
            answer_time: ANSWER_TIME,
        }
    }
}

#[derive(Debug)]
struct Client {
    tls: Arc<rustls::ClientConfig>,
    answer_time: Duration,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| object_store::Error::Generic {
                store: "HTTP",
                source: error.into(),
            })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(HttpClient::new(Client {
            tls: Arc::new(config),
            answer_time: self.answer_time,
        }))
    }
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let stream = timeout(CONNECT_TIME, connect(request.uri()))
            .await
            .map_err(|error| HttpError::new(HttpErrorKind::Timeout, error))?
            .map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?;
        let request = in_origin_form(request)?;
        let exchange = async {
            let response = if request.1 {
                let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.tls));
                let stream = connector.connect(request.2, stream).await;
                send(
                    stream.map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?,
                    request.0,
                )
                .await?
            } else {
                send(stream, request.0).await?
            };
            // The body too, within the same time: a store that stops in the middle must not stop retention with it.
            let (parts, body) = response.into_parts();
            let read = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
            let body = read.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, Unread(error)))?;
            Ok(HttpResponse::from_parts(
                parts,
                HttpResponseBody::from(body.to_bytes()),
            ))
        };
        timeout(self.answer_time, exchange)
            .await
            .map_err(|error| HttpError::new(HttpErrorKind::Timeout, error))?
    }
}

fn is_tls(uri: &Uri) -> bool {
    uri.scheme_str() != Some("http")
}

async fn connect(uri: &Uri) -> io::Result<TcpStream> {
    let host = uri
        .host()
        .ok_or_else(|| io::Error::other("the address has no host"))?;
    let port = uri.port_u16().unwrap_or(if is_tls(uri) { 443 } else { 80 });
    TcpStream::connect((host.trim_matches(['[', ']']), port)).await
}

/// The request as a server expects it: path and query only, with a `Host`; whether it goes over TLS, and to which name.
fn in_origin_form(
    request: HttpRequest,
) -> Result<(Request<HttpRequestBody>, bool, ServerName<'static>), HttpError> {
    let refused = |text: &'static str| HttpError::new(HttpErrorKind::Unknown, io::Error::other(text));
    let (mut parts, body) = request.into_parts();
    let tls = is_tls(&parts.uri);
    let host = parts
        .uri
        .host()
        .unwrap_or_default()
        .trim_matches(['[', ']'])
        .to_owned();
    let name = ServerName::try_from(host).map_err(|_| refused("the address has no valid host"))?;
    let authority = parts.uri.authority().map_or("", http::uri::Authority::as_str);
    let value = HeaderValue::from_str(authority).map_err(|_| refused("the address has no valid host"))?;
    parts.headers.entry(HOST).or_insert(value);
    let path = parts
        .uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    parts.uri = path
        .parse()
        .map_err(|_| refused("the address has no valid path"))?;
    Ok((Request::from_parts(parts, body), tls, name))
}

async fn send<S>(stream: S, request: Request<HttpRequestBody>) -> Result<HttpResponse, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error| HttpError::new(HttpErrorKind::Request, error);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    tokio::spawn(connection);
    let (parts, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
    let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::Router;
    use axum::body::Bytes;
    use axum::http::{HeaderMap, Method};
    use object_store::ObjectStoreExt;
    use object_store::aws::AmazonS3Builder;
    use object_store::path::Path;
    use tokio::io::AsyncWriteExt;

    use super::*;

    type Seen = Arc<Mutex<Vec<(Method, String, HeaderMap, Bytes)>>>;

    /// A server that notes what it gets and answers as S3 does to a put.
    async fn bucket(seen: Seen) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let note = async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            seen.lock()
                .unwrap()
                .push((method, uri.to_string(), headers, body));
            [("etag", "\"1\"")]
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(note)).await });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn a_file_reaches_an_s3_server_signed() {
        let seen = Seen::default();
        let store = AmazonS3Builder::new()
            .with_url("s3://bucket/dead")
            .with_endpoint(bucket(Arc::clone(&seen)).await)
            .with_allow_http(true)
            .with_region("eu-central-1")
            .with_access_key_id("id")
            .with_secret_access_key("canary")
            .with_http_connector(Connector::default())
            .build()
            .unwrap();
        store
            .put(&Path::from("dead/one.jsonl.zst"), b"content".to_vec().into())
            .await
            .unwrap();
        let seen = seen.lock().unwrap();
        let [(method, path, headers, body)] = seen.as_slice() else {
            panic!("{seen:?}");
        };
        assert_eq!(
            (method, path.as_str(), &body[..]),
            (&Method::PUT, "/bucket/dead/one.jsonl.zst", &b"content"[..])
        );
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(
            authorization.starts_with("AWS4-HMAC-SHA256 Credential=id/"),
            "{authorization}"
        );
        assert!(!format!("{store:?}").is_empty());
    }

    #[tokio::test]
    async fn an_answer_that_stops_in_its_body_is_an_error() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let head = b"HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 9\r\n\r\n";
                stream.write_all(head).await.unwrap();
                open.push(stream);
            }
        });
        let client = Connector {
            answer_time: Duration::from_millis(200),
        };
        let client = client.connect(&ClientOptions::default()).unwrap();
        let request = Request::get(format!("http://{address}/bucket"))
            .body(HttpRequestBody::empty())
            .unwrap();
        let called = timeout(Duration::from_secs(20), client.execute(request)).await;
        let error = called.unwrap().unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
    }

    #[tokio::test]
    async fn a_server_that_is_away_is_an_error() {
        let retry = object_store::RetryConfig {
            max_retries: 0,
            ..object_store::RetryConfig::default()
        };
        let store = AmazonS3Builder::new()
            .with_url("s3://bucket")
            .with_endpoint("http://127.0.0.1:1")
            .with_allow_http(true)
            .with_access_key_id("id")
            .with_secret_access_key("canary")
            .with_retry(retry)
            .with_http_connector(Connector::default())
            .build()
            .unwrap();
        let error = store
            .put(&Path::from("x"), b"content".to_vec().into())
            .await
            .unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}
