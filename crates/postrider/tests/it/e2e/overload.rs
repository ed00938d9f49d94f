//! A receiver that comes back with little capacity. The sink of the binary is the receiver: it alone counts what was too much
//! for it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::client::Api;
use super::server::{BINARY, Server, free_port};
use super::wait::eventually;

const BOUND: Duration = Duration::from_secs(120);
const HEALTH: &str = "/api/v1/tenants/acme/destinations/weak/health";
const RESET: &str = "/api/v1/tenants/acme/destinations/weak/breaker/reset";

/// `postrider sink`. Killed when dropped.
struct Sink {
    /// Its `/stats`; it asks for no key.
    api: Api,
    child: Child,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Sink {
    /// Works on 50 requests at once, each for 100 ms; those beyond are answered with 503.
    async fn start(address: SocketAddr) -> Self {
        let child = Command::new(BINARY)
            .args(["sink", "--quiet", "--port", &address.port().to_string()])
            .args(["--capacity", "50", "--delay", "100ms"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let api = Api {
            address,
            key: String::new(),
        };
        let sink = Self { api, child };
        eventually("the sink listens", BOUND, async || sink.api.connect().await.ok()).await;
        sink
    }

    /// What it has counted once this many events have arrived.
    async fn until_delivered(&self, events: u64) -> Value {
        eventually(&format!("{events} events have arrived"), BOUND, async || {
            let stats = self.api.get("/stats").await;
            (stats["delivered_events"] == events).then_some(stats)
        })
        .await
    }
}

/// Publishes a thousand events.
async fn publish(api: &Api) {
    let event = json!({ "tenant_id": "acme", "topic": "tick", "data": {} });
    for _ in 0..10 {
        let batch = Value::from(vec![event.clone(); 100]).to_string();
        api.call(Method::POST, "/api/v1/publish/batch", &batch)
            .await
            .expect(202);
    }
}

/// How often a breaker has opened.
async fn openings(api: &Api) -> u64 {
    let answer = api.call(Method::GET, "/metrics", "").await;
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let counts = text
        .lines()
        .filter(|line| line.starts_with("postrider_breaker_opened_total{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    counts.sum()
}

/// Four failures halve the window from 4 to 2, the fifth halves it to 1 and opens the breaker. Then it may be 1, and grows by
/// one a round (the first two times by one in eight rounds, since 2 was too much): 51, one more than the receiver takes, are
/// out after 8 + 16 + (3 + 4 + .. + 50) = 1,296 answers. Until the first 503 is back, each other request that is answered
/// makes room for one more that is refused: at most a window of 51. Then it halves, and comes back to nine tenths of 51 within
/// 191 answers, and from there to 51 in no less than 8 * (46 + .. + 50) = 1,920. So one request in 25 is refused at the most
/// when there are 1,296 at least; 1 in 20 leaves some for answers that overtake each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_comes_back_with_little_capacity_gets_no_more_than_it_can_take() {
    let server = Server::start().await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let url = format!("http://{address}/hook");
    server.api.subscribe("acme", "weak", "*", &url).await;
    publish(&server.api).await;
    publish(&server.api).await;
    eventually("the breaker is open", BOUND, async || {
        (server.api.get(HEALTH).await["status"] == "open").then_some(())
    })
    .await;
    assert_eq!(openings(&server.api).await, 1);

    let sink = Sink::start(address).await;
    server.api.call(Method::POST, RESET, "").await.expect(200);
    let mut events = 2_000;
    let mut stats = sink.until_delivered(events).await;
    // A machine that stood still looks like a slow receiver, for which the window halves before it is too large.
    while stats["over_capacity"]["refused"] == 0 && events < 10_000 {
        publish(&server.api).await;
        events += 1_000;
        stats = sink.until_delivered(events).await;
    }

    let refused = stats["over_capacity"]["refused"].as_u64().unwrap();
    let requests = stats["requests"].as_u64().unwrap();
    assert!(
        refused >= 1,
        "it never had too much, so this test shows nothing: {stats}"
    );
    assert!(refused * 20 < requests, "{stats}");
    assert_eq!(requests - refused, events, "each event was taken once: {stats}");
    eventually("nothing is pending", BOUND, async || {
        (server.api.get(HEALTH).await["pending"]["in_store"] == 0).then_some(())
    })
    .await;
    let health = server.api.get(HEALTH).await;
    assert_eq!(health["breaker"]["state"], "closed", "{health}");
    assert_eq!(
        openings(&server.api).await,
        1,
        "it did not open for the 503s: {stats}"
    );
    let dead = server.api.get("/api/v1/dead-letters/summary").await;
    assert_eq!(dead["count"], 0, "{dead}");
}
