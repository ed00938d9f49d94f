//! The retry policy on the wire: what a receiver says, and when the next request comes.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::receiver::{Received, Receiver, Reply};
use super::server::Server;
use super::wait::eventually;

const BOUND: Duration = Duration::from_secs(60);
/// The instant of RFC 9110 §5.6.7.
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// What the receiver answers to the first attempt, and what comes of it.
struct Form {
    name: &'static str,
    status: u16,
    retry_after: &'static str,
    delay_ms: u64,
    cause: &'static str,
}

const fn form(
    name: &'static str,
    status: u16,
    retry_after: &'static str,
    delay_ms: u64,
    cause: &'static str,
) -> Form {
    Form {
        name,
        status,
        retry_after,
        delay_ms,
        cause,
    }
}

const FORMS: [Form; 11] = [
    form("seconds", 429, "1", 1_000, "retry_after"),
    form("decimal", 503, "0.7", 700, "retry_after"),
    form("imf", 503, "Sun, 06 Nov 1994 08:49:38 GMT", 1_000, "retry_after"),
    form(
        "rfc850",
        429,
        "Sunday, 06-Nov-94 08:49:38 GMT",
        1_000,
        "retry_after",
    ),
    form("asctime", 503, "Sun Nov  6 08:49:38 1994", 1_000, "retry_after"),
    form("iso8601", 500, "1994-11-06T08:49:38Z", 1_000, "retry_after"),
    form("shorter", 500, "0", 0, "retry_after"),
    form("capped", 503, "3600", 1_500, "retry_after"),
    form("negative", 500, "-5", 400, "backoff"),
    form("words", 503, "soon", 400, "backoff"),
    form("words_429", 429, "soon", 1_200, "rate_limited"),
];

fn is_first(request: &Received) -> bool {
    request.header("webhook-attempt") == "1"
}

/// The delivery of this event, once it is final.
async fn ended(server: &Server, event: &str) -> Value {
    eventually(&format!("{event} has ended"), BOUND, async || {
        let list = server
            .api
            .get(&format!("/api/v1/deliveries?event_id={event}"))
            .await;
        let delivery = list["models"][0].clone();
        (delivery["status"] != "pending").then_some(delivery)
    })
    .await
}

async fn attempts(server: &Server, event: &str) -> Vec<Value> {
    let list = server
        .api
        .get(&format!("/api/v1/attempts?event_id={event}&dir=asc"))
        .await;
    list["models"].as_array().unwrap().clone()
}

/// When the requests for this event came.
fn gap(receiver: &Receiver, event: &str) -> Duration {
    let requests = receiver.requests();
    let mut times = requests
        .iter()
        .filter(|request| request.header("webhook-id") == event)
        .map(|request| request.at);
    let (first, second) = (times.next().unwrap(), times.next().unwrap());
    second - first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_honoured_in_every_form() {
    let server = Server::start().await;
    let receiver = Receiver::start(|request, _| {
        let form = FORMS
            .iter()
            .find(|form| form.name == request.header("webhook-id"))
            .unwrap();
        if is_first(request) {
            Reply::RetryAfter(form.status, DATE, form.retry_after)
        } else {
            Reply::Status(200, "")
        }
    })
    .await;
    let policy = json!({
        "backoff": { "base": "400ms" }, "jitter": "none", "immediate": { "retries": 0 }, "retry_after_max": "1500ms",
    });
    for form in FORMS {
        server
            .api
            .subscribe_with("acme", form.name, form.name, &receiver.url(), &policy)
            .await;
        server.api.publish("acme", form.name, form.name, "{}").await;
    }
    for form in FORMS {
        let delivery = ended(&server, form.name).await;
        assert_eq!(
            (&delivery["status"], &delivery["attempts"]),
            (&json!("succeeded"), &json!(2))
        );
        let attempts = attempts(&server, form.name).await;
        let second = &attempts[1];
        assert_eq!(
            (&second["delay_ms"], &second["delay_cause"], &second["tier"]),
            (&json!(form.delay_ms), &json!(form.cause), &json!("backoff")),
            "{}",
            form.name
        );
        assert_eq!(attempts[0]["next_attempt_at"], second["planned_at"]);
        // Instants are cut to whole milliseconds, so a request may seem to come one early.
        let gap = gap(&receiver, form.name);
        assert!(
            gap >= Duration::from_millis(form.delay_ms.saturating_sub(1)),
            "{} after {gap:?}",
            form.name
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_requests_without_retry_after_wait_three_times_as_long() {
    let server = Server::start().await;
    let receiver = Receiver::start(|request, _| match request.header("webhook-id") {
        "limited" if is_first(request) => Reply::Status(429, ""),
        "failed" if is_first(request) => Reply::Status(500, ""),
        _ => Reply::Status(200, ""),
    })
    .await;
    let policy = json!({ "backoff": { "base": "300ms" }, "jitter": "none" });
    for (event, delay_ms, cause) in [("limited", 900, "rate_limited"), ("failed", 300, "backoff")] {
        server
            .api
            .subscribe_with("acme", event, event, &receiver.url(), &policy)
            .await;
        server.api.publish("acme", event, event, "{}").await;
        ended(&server, event).await;
        let second = attempts(&server, event).await.remove(1);
        assert_eq!(
            (&second["delay_ms"], &second["delay_cause"]),
            (&json!(delay_ms), &json!(cause))
        );
        assert!(gap(&receiver, event) >= Duration::from_millis(delay_ms - 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_4xx_are_dead_letters_at_once_and_a_rule_gives_404_three_tries() {
    let server = Server::start().await;
    let receiver = Receiver::start(|request, _| {
        let status = request.header("webhook-topic").parse().unwrap();
        Reply::Status(status, "no")
    })
    .await;
    let statuses = [400, 401, 403, 404, 409, 410, 422, 451];
    for status in statuses {
        let topic = status.to_string();
        server
            .api
            .subscribe("acme", &topic, &topic, &receiver.url())
            .await;
        server.api.publish("acme", &topic, &topic, "{}").await;
    }
    for status in statuses {
        let event = status.to_string();
        let delivery = ended(&server, &event).await;
        assert_eq!(
            (&delivery["status"], &delivery["reason"], &delivery["attempts"]),
            (&json!("dead"), &json!("permanent_failure"), &json!(1)),
            "{status}"
        );
        let path = format!("/api/v1/tenants/acme/destinations/{event}");
        let disabled = eventually("410 has its effect", BOUND, async || {
            let disabled = server.api.get(&path).await["disabled_at"].is_string();
            (disabled || status != 410).then_some(disabled)
        })
        .await;
        assert_eq!(disabled, status == 410, "only 410 disables");
    }
    assert_eq!(receiver.count(), statuses.len());

    let policy = json!({
        "rules": [{ "match": ["404"], "then": "retry", "max_attempts": 3 }],
        "backoff": { "base": "50ms" }, "jitter": "none",
    });
    let patch = json!({ "retry_policy": policy }).to_string();
    server
        .api
        .call(Method::PATCH, "/api/v1/tenants/acme/destinations/404", &patch)
        .await
        .expect(200);
    server.api.publish("acme", "missing", "404", "{}").await;
    let delivery = ended(&server, "missing").await;
    assert_eq!(
        (&delivery["reason"], &delivery["attempts"]),
        (&json!("exhausted_retries"), &json!(3))
    );
    let delays: Vec<_> = attempts(&server, "missing")
        .await
        .iter()
        .map(|attempt| attempt["delay_ms"].as_u64().unwrap())
        .collect();
    assert_eq!(delays, [0, 50, 100]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_forecast_of_the_server_is_what_the_receiver_sees() {
    let server = Server::start().await;
    let receiver = Receiver::always(500).await;
    let policy = json!({ "backoff": { "base": "2s" }, "max_attempts": 3 });
    server
        .api
        .subscribe_with("acme", "shop", "*", &receiver.url(), &policy)
        .await;
    server.api.publish("acme", "e", "tick", "{}").await;
    let forecast = eventually("there is a forecast", BOUND, async || {
        let list = server.api.get("/api/v1/deliveries?event_id=e").await;
        let id = list["models"][0]["id"].as_str().unwrap().to_owned();
        let delivery = server.api.get(&format!("/api/v1/deliveries/{id}")).await;
        (delivery["attempts"] == 1).then(|| delivery["forecast"].clone())
    })
    .await;
    let delivery = ended(&server, "e").await;
    assert_eq!(delivery["reason"], forecast["reason"]);
    let attempts = attempts(&server, "e").await;
    let foreseen = forecast["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), foreseen.len()), (3, 2));
    // The first of them is planned; the delay of the other is known, its time begins with the answer before.
    assert_eq!(attempts[1]["planned_at"], foreseen[0]["planned_at"]);
    for (attempt, foreseen) in attempts[1..].iter().zip(foreseen) {
        for field in ["delay_ms", "delay_cause", "tier"] {
            assert_eq!(attempt[field], foreseen[field], "{field}");
        }
    }
}
