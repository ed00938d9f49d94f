//! What the health of a destination says in each of its standings: in a word, in a sentence, in times.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use postrider::courier::{Courier, Parcel, Report};
use postrider::directory::{Rules, Shares};
use postrider::engine::EngineConfig;
use postrider_core::dispatcher::{DispatcherConfig, Share};
use postrider_core::outcome::{Answer, Outcome};
use postrider_store::record::Timings;
use serde_json::{Value, json};

use super::destination_health::{PATH, Silent, at_once, publish, run_engine, until_in_flight, until_status};
use super::server::Server;

/// The clock stands still here until a test moves it on.
const START: &str = "2026-01-01T00:00:00.000Z";
/// So much later the health is asked.
const LATER: Duration = Duration::from_millis(500);

/// Answers so, one request after the other; those beyond it never answers.
struct Scripted(Mutex<VecDeque<Outcome>>);

#[async_trait]
impl Courier for Scripted {
    async fn send(&self, _: Parcel) -> Report {
        let next = self.0.lock().pop_front();
        let Some(outcome) = next else {
            return std::future::pending().await;
        };
        Report {
            outcome,
            detail: None,
            timings: Timings::default(),
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            response_body: Bytes::new(),
            response_truncated: false,
        }
    }
}

/// 429 with `Retry-After: 30`.
fn limited() -> Outcome {
    Outcome::Answered(Answer {
        status: 429,
        retry_after: Some(Duration::from_secs(30)),
        used_up: None,
        location: None,
    })
}

/// What is done once the destination stands so.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    /// Time passes.
    Pass(&'static str, Duration),
    Disable(&'static str),
}

/// How a standing comes about, and what is said of it.
struct Row {
    status: &'static str,
    destination: Value,
    tenant_rate: Option<NonZeroU32>,
    /// Requests at once.
    window: u32,
    answers: Vec<Outcome>,
    events: usize,
    then: Then,
    /// Requests that are out in the end.
    in_flight: u64,
    /// With `{until}` for that time.
    explanation: &'static str,
    /// Not before the first and not after the second.
    until: Option<[&'static str; 2]>,
    /// Whether that is when the receiver's pause, or the breaker's, ends.
    is_hold: bool,
    is_probe: bool,
    oldest_due_at: Option<&'static str>,
    oldest_due_age_ms: u64,
}

impl Default for Row {
    /// Nothing was published.
    fn default() -> Self {
        Self {
            status: "idle",
            destination: json!({}),
            tenant_rate: None,
            window: 1,
            answers: Vec::new(),
            events: 0,
            then: Then::Nothing,
            in_flight: 0,
            explanation: "Nothing waits.",
            until: None,
            is_hold: false,
            is_probe: false,
            oldest_due_at: None,
            oldest_due_age_ms: 0,
        }
    }
}

impl Row {
    /// A destination for which events have been due since the start.
    fn due(status: &'static str, events: usize) -> Self {
        Self {
            status,
            events,
            oldest_due_at: Some(START),
            oldest_due_age_ms: 500,
            ..Self::default()
        }
    }

    async fn check(self) {
        let rules = Rules {
            shares: Shares {
                usual: Share {
                    rate_limit: self.tenant_rate,
                    ..Share::default()
                },
                ..Shares::default()
            },
            ..Rules::default()
        };
        let mut server = Server::with(rules, |_| {}).await;
        let answered = self.answers.len();
        let courier = Scripted(Mutex::new(self.answers.into()));
        let _engine = run_engine(&mut server, Arc::new(courier), at_once(self.window));
        server.tenant().await;
        server.destination("des_1", self.destination).await;
        publish(&server, "des_1", self.events).await;
        until_attempts(&server, answered).await;
        match self.then {
            Then::Nothing => {}
            Then::Pass(standing, time) => {
                until_status(&server, "des_1", standing).await;
                server.advance(time);
            }
            Then::Disable(standing) => {
                until_status(&server, "des_1", standing).await;
                server.put(&format!("{PATH}/des_1/disable"), "").await.expect(200);
            }
        }
        until_status(&server, "des_1", self.status).await;
        until_in_flight(&server, self.in_flight).await;
        server.advance(LATER);
        let health = server.get(&format!("{PATH}/des_1/health")).await.expect(200);

        let until = health["until"].as_str();
        assert_eq!(until.is_some(), self.until.is_some(), "{health}");
        if let (Some(until), Some([first, last])) = (until, self.until) {
            assert!(first <= until && until <= last, "{health}");
        }
        let explanation = self.explanation.replace("{until}", until.unwrap_or_default());
        assert_eq!(health["status"], self.status, "{health}");
        assert_eq!(health["explanation"], explanation);
        let right = [
            ("/hold_until", json!(until.filter(|_| self.is_hold))),
            ("/breaker/next_probe_at", json!(until.filter(|_| self.is_probe))),
            ("/oldest_due_at", json!(self.oldest_due_at)),
            ("/oldest_due_age_ms", json!(self.oldest_due_age_ms)),
        ];
        for (field, value) in right {
            assert_eq!(health.pointer(field), Some(&value), "{field} of {health}");
        }
    }
}

/// Waits until the store knows so many attempts.
async fn until_attempts(server: &Server, attempts: usize) {
    for _ in 0..2_000 {
        let list = server.get("/attempts").await.expect(200);
        if list["models"].as_array().unwrap().len() == attempts {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {attempts} attempts are kept");
}

/// Neither before nor after this.
const fn at(moment: &'static str) -> [&'static str; 2] {
    [moment, moment]
}

#[tokio::test]
async fn what_nothing_is_due_for_says_when_something_will_be() {
    Row::default().check().await;
    Row {
        destination: json!({
            "retry_policy": { "backoff": { "base": "60s" }, "jitter": "none", "immediate": { "retries": 0 } },
        }),
        events: 1,
        answers: vec![Outcome::status(500)],
        explanation: "Nothing is due; the next delivery is due at {until}.",
        until: Some(at("2026-01-01T00:01:00.000Z")),
        ..Row::default()
    }
    .check()
    .await;
}

#[tokio::test]
async fn what_a_receiver_stops_says_until_when_it_waits() {
    let hold = Row {
        answers: vec![limited()],
        explanation: "Nothing is sent before {until}, because the receiver asked for a pause.",
        until: Some(at("2026-01-01T00:00:30.000Z")),
        is_hold: true,
        ..Row::due("held", 2)
    };
    hold.check().await;
    // 30 s, and up to a fifth more so that not all probes go at once.
    let open = Row {
        answers: vec![Outcome::status(500); 5],
        explanation: "Nothing is sent before {until}, when one request goes out as a probe: the circuit breaker is open, \
                      because 5 of the last 5 attempts failed, the last: 500.",
        until: Some(["2026-01-01T00:00:30.000Z", "2026-01-01T00:00:36.000Z"]),
        is_probe: true,
        ..Row::due("open", 10)
    };
    open.check().await;
    let probing = Row {
        answers: vec![Outcome::status(500); 5],
        then: Then::Pass("open", Duration::from_secs(40)),
        in_flight: 1,
        explanation: "One request is out as a probe, and the others wait for its answer: the circuit breaker had opened, \
                      because 5 of the last 5 attempts failed, the last: 500.",
        oldest_due_age_ms: 40_500,
        ..Row::due("probing", 10)
    };
    probing.check().await;
    let window = Row {
        window: 2,
        in_flight: 2,
        explanation: "2 of 2 requests are out; the next one goes out when one of them ends.",
        ..Row::due("window_full", 3)
    };
    window.check().await;
}

#[tokio::test]
async fn what_its_owner_or_its_operator_stops_says_what_is_allowed() {
    // One a second, which may be 10 ms early.
    let next = Some(at("2026-01-01T00:00:00.990Z"));
    let of_destination = Row {
        destination: json!({ "config": { "url": "https://hooks.example.com/in", "rate_limit_per_second": 1 } }),
        answers: vec![Outcome::status(200)],
        explanation: "The next request goes out at {until}, because the destination allows 1 a second.",
        until: next,
        ..Row::due("rate_limited", 2)
    };
    of_destination.check().await;
    let of_tenant = Row {
        tenant_rate: NonZeroU32::new(1),
        answers: vec![Outcome::status(200)],
        explanation: "The next request goes out at {until} or later, because all destinations of the tenant together get 1 \
                      a second.",
        until: next,
        ..Row::due("rate_limited", 2)
    };
    of_tenant.check().await;
    let disabled = Row {
        window: 2,
        then: Then::Disable("window_full"),
        in_flight: 2,
        explanation: "Nothing is sent, because the destination is disabled since 2026-01-01T00:00:00.000Z: disabled by \
                      request.",
        ..Row::due("disabled", 3)
    };
    disabled.check().await;
}

/// Nothing of its own stops it: it waits for its turn among all destinations, of whose requests one may be out.
#[tokio::test]
async fn what_the_server_has_no_room_for_says_so() {
    let mut server = Server::start().await;
    let config = EngineConfig {
        dispatcher: DispatcherConfig {
            max_in_flight: 1,
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    };
    let _engine = run_engine(&mut server, Arc::new(Silent), config);
    server.tenant().await;
    for id in ["des_1", "des_2"] {
        server.destination(id, json!({})).await;
    }
    publish(&server, "des_1", 1).await;
    until_in_flight(&server, 1).await;
    publish(&server, "des_2", 1).await;
    until_status(&server, "des_2", "at_capacity").await;
    server.advance(LATER);
    let health = server.get(&format!("{PATH}/des_2/health")).await.expect(200);
    assert_eq!(
        health["explanation"],
        "The one request that this server may have out is out; the next one goes out when it ends and this destination has its turn."
    );
    assert_eq!(
        [
            &health["until"],
            &health["hold_until"],
            &health["breaker"]["next_probe_at"],
            &health["oldest_due_at"],
            &health["oldest_due_age_ms"]
        ],
        [
            &Value::Null,
            &Value::Null,
            &Value::Null,
            &json!(START),
            &json!(500)
        ]
    );
}
