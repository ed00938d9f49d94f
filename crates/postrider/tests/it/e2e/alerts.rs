//! Alerts from the binary: at the operator's receiver, signed, and over when the cause is cured.

use std::time::Duration;

use http::Method;
use postrider_core::secret::Secret;
use postrider_core::signing::{SignedHeaders, Verifier};
use postrider_core::time::Timestamp;
use serde_json::Value;

use super::receiver::{Received, Receiver, Reply};
use super::server::Server;

const BOUND: Duration = Duration::from_secs(60);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What an alert's webhook got, once its signature was verified.
fn verified(request: &Received) -> Value {
    let headers = SignedHeaders {
        id: request.header("webhook-id"),
        timestamp: request.header("webhook-timestamp"),
        signature: request.header("webhook-signature"),
    };
    let seconds: i64 = headers.timestamp.parse().unwrap();
    Verifier::new(&Secret::new(SECRET))
        .unwrap()
        .verify(headers, &request.body, Timestamp::from_millis(seconds * 1_000))
        .unwrap();
    serde_json::from_slice(&request.body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_arrives_signed_and_its_end_too() {
    let operator = Receiver::always(200).await;
    let customer = Receiver::start(|_, before| match before {
        0..3 => Reply::Status(401, "token expired"),
        _ => Reply::Status(200, ""),
    })
    .await;
    let mut server = Server::start_with(&[
        ("POSTRIDER_ALERTS__WEBHOOK_URL", &operator.url()),
        ("POSTRIDER_ALERTS__WEBHOOK_SECRET", SECRET),
        ("POSTRIDER_ALERTS__DEAD_LETTERS_PER_DESTINATION", "3"),
    ])
    .await;
    server.api.subscribe("acme", "shop", "*", &customer.url()).await;
    for id in ["a", "b", "c"] {
        server.api.publish("acme", id, "order.paid", "{}").await;
    }
    let raised = operator.until_count(1, BOUND).await.remove(0);
    assert_eq!(raised.header("webhook-topic"), "alert.raised");
    let body = verified(&raised);
    let alert = &body["data"];
    assert_eq!(body["type"], "alert.raised");
    assert_eq!(
        (
            &alert["kind"],
            &alert["tenant_id"],
            &alert["destination_id"],
            &alert["value"]
        ),
        (
            &"dead_letter_depth".into(),
            &"acme".into(),
            &"shop".into(),
            &3.into()
        )
    );
    assert_eq!(
        raised.header("webhook-id"),
        format!("{}.1", alert["id"].as_str().unwrap())
    );
    let listed = server.api.get("/api/v1/alerts?state=firing").await;
    assert_eq!(&listed["models"][0], alert, "what was sent is what is listed");

    server.kill();
    server.start_again().await;
    it_ends(&server, &operator, alert).await;
}

/// Sends the three events once more, which succeed, and waits for the end of the alert.
async fn it_ends(server: &Server, operator: &Receiver, alert: &Value) {
    for id in ["a", "b", "c"] {
        let retry = format!(r#"{{"event_id":"{id}","destination_id":"shop"}}"#);
        server
            .api
            .call(Method::POST, "/api/v1/retry", &retry)
            .await
            .expect(202);
    }
    let requests = operator
        .until("the end of the alert", BOUND, |requests| {
            let is_end = |request: &Received| request.header("webhook-topic") == "alert.cleared";
            requests.iter().any(is_end).then(|| requests.to_vec())
        })
        .await;
    let topics: Vec<_> = requests
        .iter()
        .map(|request| request.header("webhook-topic"))
        .collect();
    // The kill may have come before the first request was settled: then it is sent once more, under its own id.
    let ids: std::collections::BTreeSet<_> = requests
        .iter()
        .map(|request| request.header("webhook-id"))
        .collect();
    assert_eq!(ids.len(), 2, "{topics:?} {ids:?}");
    let end = verified(&requests[requests.len() - 1]);
    assert_eq!(
        (&end["data"]["id"], &end["data"]["state"]),
        (&alert["id"], &"cleared".into())
    );
    assert_eq!(end["data"]["since"], alert["since"]);
    let metrics = server.api.call(Method::GET, "/metrics", "").await.body;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(
        metrics.contains("postrider_alerts_firing{kind=\"dead_letter_depth\"} 0\n"),
        "{metrics}"
    );
}
