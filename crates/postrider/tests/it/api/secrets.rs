//! Case 159: a canary in every secret field must come back to its owner only.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::delivery::Plan;
use postrider_core::delivery::Progress;
use postrider_store::record::Next;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use super::server::{KEY, Server};

/// Base64 of `canary-canary-canary-canary-1`.
const SECRET: &str = "whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LTE=";
const HEADER: &str = "canary-in-a-custom-header";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn secrets_are_shown_to_their_owner_only() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    // While there is one subscriber, the thread that comes to a callsite first is asked whether anybody listens, and its answer
    // is kept: that of another test, which has no subscriber. With two, all of them are asked.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start().await;
    server.tenant().await;
    let destination = json!({
        "config": {
            "url": "https://example.com/in",
            "custom_headers": json!({ "authorization": HEADER }).to_string(),
        },
        "credentials": { "secret": SECRET },
    });
    let created = server.destination("d", destination).await;
    assert_eq!(created["credentials"]["secret"], SECRET);
    server.publish(json!({ "id": "e" })).await;
    let due = server.due().await;
    let retry = Next::Retry(
        Plan::first(due[0].delivery.plan.due_at),
        Progress::new(due[0].delivery.plan.due_at),
    );
    server.settle(&due[0], Ok(500), retry).await;
    let bad =
        json!({ "credentials": { "secret": format!("{SECRET}!") }, "config": { "url": "http://10.0.0.1" } });
    let answers = [
        server
            .get("/attempts?include=destination,event.data,response_data,request_data")
            .await,
        server.get("/events").await,
        server.get("/deliveries").await,
        server.get("/tenants").await,
        server.patch("/tenants/acme/destinations/d", bad).await,
    ];
    for answer in &answers {
        let text = answer.text();
        assert!(!text.contains("canary") && !text.contains("Y2FuYXJ5"), "{text}");
    }
    let shown = &answers[0].json()["models"][0]["destination"];
    assert_eq!(shown["credentials"], json!({ "secret": "***" }));
    assert_eq!(shown["config"]["custom_headers"], "{\"authorization\":\"***\"}");
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(log.contains("postrider::access"), "requests are logged: {log}");
    for secret in ["canary", "Y2FuYXJ5", KEY] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
    let entry = server.directory.destination("acme", "d").unwrap();
    let debug = format!("{entry:?}");
    assert!(!debug.contains("Y2FuYXJ5"), "{debug}");
}
