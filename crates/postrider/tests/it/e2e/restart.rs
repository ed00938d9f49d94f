//! Stopping and starting at the worst moment.

use std::collections::BTreeSet;
use std::time::Duration;

use super::receiver::{Receiver, Reply};
use super::server::Server;
use super::wait::eventually;

const BOUND: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_right_after_publish_loses_nothing() {
    let mut server = Server::start().await;
    let receiver = Receiver::always(200).await;
    server.api.subscribe("acme", "shop", "*", &receiver.url()).await;
    for round in 0..3 {
        for number in 0..20 {
            server
                .api
                .publish("acme", &format!("e{round}-{number}"), "tick", "{}")
                .await;
        }
        server.terminate();
        let status = server.ended(BOUND).await;
        assert!(status.success(), "a graceful end: {status}");
        server.start_again().await;
    }
    let published: BTreeSet<_> = (0..3)
        .flat_map(|round| (0..20).map(move |number| format!("e{round}-{number}")))
        .collect();
    let ids = receiver
        .until("every event", BOUND, |requests| {
            let ids: BTreeSet<_> = requests
                .iter()
                .map(|request| request.header("webhook-id").to_owned())
                .collect();
            (ids.len() >= published.len()).then_some(ids)
        })
        .await;
    assert_eq!(ids, published);
    assert_eq!(
        receiver.count(),
        published.len(),
        "a graceful stop repeats nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_moves_no_schedule_and_ends_no_hold() {
    let mut server = Server::start().await;
    let later = Receiver::start(|_, _| Reply::Header(503, "retry-after", "600")).await;
    let healthy = Receiver::always(200).await;
    server.api.subscribe("acme", "later", "*", &later.url()).await;
    server.api.publish("acme", "held", "tick", "{}").await;
    let path = "/api/v1/deliveries?event_id=held&destination_id=later";
    let before = eventually("the failure is settled", BOUND, async || {
        let delivery = server.api.get(path).await["models"][0].clone();
        (delivery["attempts"] == 1).then_some(delivery)
    })
    .await;
    assert_eq!(before["status"], "pending");
    assert!(before["next_attempt_at"].is_string(), "{before}");

    // What is answered 202 now was committed after what was known of the destination before.
    server.api.publish("acme", "waiting", "tick", "{}").await;
    server.kill();
    server.start_again().await;
    // Something that was published later is delivered: so the server had its chance to send the others too early.
    server.api.subscribe("acme", "healthy", "*", &healthy.url()).await;
    server.api.publish("acme", "after", "tick", "{}").await;
    healthy.until_count(1, BOUND).await;
    let after = server.api.get(path).await["models"][0].clone();
    assert_eq!(after["next_attempt_at"], before["next_attempt_at"]);
    assert_eq!(after["attempts"], 1);
    let health = server
        .api
        .get("/api/v1/tenants/acme/destinations/later/health")
        .await;
    assert_eq!(health["status"], "held", "{health}");
    assert_eq!(
        later.count(),
        1,
        "no request of any delivery before the time that the receiver named"
    );
}
