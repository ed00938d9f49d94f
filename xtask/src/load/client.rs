//! One kept HTTP/1.1 connection, and the bodies that are sent over it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any answer of a working server.
const PATIENCE: Duration = Duration::from_secs(60);

/// One kept connection.
#[derive(Debug)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    authorization: Option<String>,
}

impl Client {
    /// Connects; `key` is sent with each request.
    pub(crate) async fn connect(address: SocketAddr, key: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("failed to connect to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: address.to_string(),
            authorization: key.map(|key| format!("Bearer {key}")),
        })
    }

    /// Sends what a delivery sends, with the least possible effort; answers the status. The signature is a constant,
    /// since the limit is about HTTP, and there is no timeout.
    pub(crate) async fn deliver(&mut self, id: &str, body: Bytes) -> Result<u16> {
        let request = Request::post("/hook")
            .header("host", &self.host)
            .header("content-type", "application/json")
            .header("user-agent", "bare")
            .header("webhook-id", id)
            .header("webhook-timestamp", "1767225600")
            .header(
                "webhook-signature",
                "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
            )
            .header("webhook-topic", "order.paid")
            .header("webhook-attempt", "1")
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status().as_u16();
        response.into_body().collect().await?;
        Ok(status)
    }

    /// One request; answers status and body.
    pub(crate) async fn call(&mut self, method: Method, path: &str, body: Bytes) -> Result<(u16, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(Full::new(body))?;
        let exchange = async {
            self.sender.ready().await?;
            let response = self.sender.send_request(request).await?;
            let status = response.status().as_u16();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        timeout(PATIENCE, exchange)
            .await
            .with_context(|| format!("no answer from {path}"))?
    }

    /// One request that must be answered with 2xx; answers the body.
    pub(crate) async fn succeed(&mut self, method: Method, path: &str, body: String) -> Result<Bytes> {
        let (status, answer) = self.call(method, path, body.into()).await?;
        if !(200..300).contains(&status) {
            bail!("{path} answered {status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(answer)
    }

    /// Publishes one event (`/publish`), or several at once (`/publish/batch`).
    pub(crate) async fn publish(&mut self, events: &[String]) -> Result<()> {
        match events {
            [event] => drop(
                self.succeed(Method::POST, "/api/v1/publish", event.clone())
                    .await?,
            ),
            events => {
                let body = format!("[{}]", events.join(","));
                let answer = self.succeed(Method::POST, "/api/v1/publish/batch", body).await?;
                ensure!(
                    !answer.windows(9).any(|window| window == b"\"message\""),
                    "an item was refused: {}",
                    String::from_utf8_lossy(&answer)
                );
            }
        }
        Ok(())
    }
}

/// About 300 bytes of `data`, different for each number.
pub(crate) fn data(number: u64) -> String {
    let mut text = format!(
        r#"{{"order":{number},"customer":"c-{number:08}","currency":"EUR","total":1999,"placed_at":"2026-01-31T10:00:00Z","items":["#
    );
    for item in 0..3_u64 {
        let comma = if item == 0 { "" } else { "," };
        let sku = (number.wrapping_mul(7) + item) % 100_000;
        let _ = write!(
            text,
            r#"{comma}{{"sku":"sku-{sku:05}","quantity":{},"price":499}}"#,
            item + 1
        );
    }
    text.push_str(r#"],"note":"leave it at the door"}"#);
    text
}

/// The body of a publish.
pub(crate) fn event(tenant: &str, id: Option<&str>, number: u64) -> String {
    let id = id.map_or_else(String::new, |id| format!(r#""id":"{id}","#));
    format!(
        r#"{{"tenant_id":"{tenant}",{id}"topic":"order.paid","data":{}}}"#,
        data(number)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_about_300_bytes() {
        for number in [0, 7, 123_456_789] {
            let body: serde_json::Value = serde_json::from_str(&event("t1", Some("e1"), number)).unwrap();
            assert_eq!(body["data"]["order"], number);
            assert!(
                (270..=330).contains(&data(number).len()),
                "{}",
                data(number).len()
            );
        }
    }
}
