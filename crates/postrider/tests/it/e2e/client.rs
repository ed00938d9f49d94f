//! A client of the HTTP interface, no cleverer than `curl`.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    /// Status code.
    pub(super) status: u16,
    /// Body, undecoded.
    pub(super) body: Bytes,
}

impl Answer {
    /// The body as JSON; `null` when it is empty.
    pub(super) fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(&self.body)))
    }

    /// The body as JSON, when the status is this one.
    #[track_caller]
    pub(super) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }
}

/// Where the server is, and the key.
#[derive(Debug, Clone)]
pub(super) struct Api {
    /// Address of the listener.
    pub(super) address: SocketAddr,
    /// API key.
    pub(super) key: String,
}

impl Api {
    /// One kept connection.
    pub(super) async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            api: self.clone(),
        })
    }

    /// One request on a connection of its own; a failure to connect is a failure of the test.
    pub(super) async fn call(&self, method: Method, path: &str, body: &str) -> Answer {
        let mut connection = self
            .connect()
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        connection
            .call(method, path, body)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// `GET`, answered with 200.
    pub(super) async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, "").await.expect(200)
    }

    /// A tenant with one destination for `topic` at `url`; answers the destination.
    pub(super) async fn subscribe(&self, tenant: &str, destination: &str, topic: &str, url: &str) -> Value {
        self.subscribe_with(tenant, destination, topic, url, &Value::Null)
            .await
    }

    /// The same, with a retry policy of its own.
    pub(super) async fn subscribe_with(
        &self,
        tenant: &str,
        destination: &str,
        topic: &str,
        url: &str,
        policy: &Value,
    ) -> Value {
        self.call(Method::PUT, &format!("/api/v1/tenants/{tenant}"), "")
            .await;
        let mut body = serde_json::json!({
            "id": destination, "type": "webhook", "topics": [topic], "config": { "url": url },
        });
        if !policy.is_null() {
            body["retry_policy"] = policy.clone();
        }
        let path = format!("/api/v1/tenants/{tenant}/destinations");
        self.call(Method::POST, &path, &body.to_string())
            .await
            .expect(201)
    }

    /// Publishes one event; answers the receipt.
    pub(super) async fn publish(&self, tenant: &str, id: &str, topic: &str, data: &str) -> Value {
        self.call(Method::POST, "/api/v1/publish", &event(tenant, id, topic, data))
            .await
            .expect(202)
    }
}

/// The body of a publish, with `data` as these very bytes.
pub(super) fn event(tenant: &str, id: &str, topic: &str, data: &str) -> String {
    format!(r#"{{"tenant_id":"{tenant}","id":"{id}","topic":"{topic}","data":{data}}}"#)
}

/// One kept connection.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    api: Api,
}

impl Connection {
    /// One request. After an error the connection is of no further use.
    pub(super) async fn call(&mut self, method: Method, path: &str, body: &str) -> io::Result<Answer> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.api.address.to_string())
            .header("authorization", format!("Bearer {}", self.api.key))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .map_err(io::Error::other)?;
        self.sender.ready().await.map_err(io::Error::other)?;
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(io::Error::other)?
            .to_bytes();
        Ok(Answer { status, body })
    }
}
