//! An attempt as it is answered: the contract's fields, and what it leaves out (durations, plan, headers, error).

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use postrider_core::delivery::{DelayCause, DeliveryStatus, Tier, WaitCause};
use postrider_core::outcome::ErrorKind;
use postrider_core::time::Timestamp;
use postrider_store::record::{Attempt, Headers, NewAttempt, Timings};
use serde::Serialize;
use serde_json::value::RawValue;

use super::query::Query;

/// What a client wants to see beside the attempt itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Include {
    pub(super) event: bool,
    pub(super) event_data: bool,
    pub(super) destination: bool,
    response_data: bool,
    request_data: bool,
}

impl Include {
    /// Request and response.
    pub(super) const fn exchange() -> Self {
        Self {
            event: false,
            event_data: false,
            destination: false,
            response_data: true,
            request_data: true,
        }
    }

    /// From `include=event,response_data` or its array forms; unknown words are ignored.
    pub(super) fn from_query(query: &Query) -> Self {
        let mut include = Self::default();
        for word in query.list("include").iter().flat_map(|value| value.split(',')) {
            match word.trim() {
                "event" => include.event = true,
                "event.data" => (include.event, include.event_data) = (true, true),
                "destination" => include.destination = true,
                "response_data" => include.response_data = true,
                "request_data" => include.request_data = true,
                _ => {}
            }
        }
        include
    }
}

/// An attempt.
#[derive(Debug, Serialize)]
pub(super) struct AttemptAnswer {
    id: String,
    tenant_id: String,
    event_id: String,
    delivery_id: String,
    destination_id: String,
    destination_type: String,
    topic: String,
    status: &'static str,
    /// When its request began.
    time: Timestamp,
    /// The status, or the kind of error.
    code: String,
    attempt_number: u32,
    manual: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorAnswer>,
    /// More about the outcome, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    planned_at: Timestamp,
    tier: Tier,
    delay_ms: u64,
    delay_cause: DelayCause,
    /// What kept it from beginning when it was planned, beside a busy machine.
    waited_for: Option<WaitCause>,
    duration_ms: f64,
    timings: TimingsAnswer,
    delivery_status: DeliveryStatus,
    /// When the retry that it led to was planned for.
    next_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_data: Option<RequestAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_data: Option<ResponseAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
struct ErrorAnswer {
    kind: ErrorKind,
    category: &'static str,
}

/// Phases in milliseconds.
#[derive(Debug, Serialize)]
struct TimingsAnswer {
    queue_ms: f64,
    dns_ms: Option<f64>,
    connect_ms: Option<f64>,
    tls_ms: Option<f64>,
    first_byte_ms: Option<f64>,
    total_ms: f64,
}

#[derive(Debug, Serialize)]
struct RequestAnswer {
    headers: Vec<HeaderAnswer>,
}

#[derive(Debug, Serialize)]
struct ResponseAnswer {
    status: u16,
    body: String,
    /// The very bytes, when `body` could not show them.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    truncated: bool,
    headers: Vec<HeaderAnswer>,
}

#[derive(Debug, Serialize)]
struct HeaderAnswer {
    name: String,
    value: String,
}

impl AttemptAnswer {
    /// With the parts that were asked for.
    pub(super) fn new(
        attempt: Attempt,
        include: Include,
        event: Option<Box<RawValue>>,
        destination: Option<Box<RawValue>>,
    ) -> Self {
        let Attempt { recorded, .. } = attempt;
        let is_success = recorded.status.is_some_and(|status| (200..300).contains(&status));
        Self {
            id: attempt.id,
            tenant_id: attempt.tenant_id,
            event_id: attempt.event_id,
            delivery_id: attempt.delivery_id,
            destination_id: attempt.destination_id,
            destination_type: attempt.destination_kind,
            topic: attempt.topic,
            status: if is_success { "success" } else { "failed" },
            time: recorded.started_at,
            code: code(&recorded),
            attempt_number: recorded.number,
            manual: recorded.manual,
            error: recorded.error.map(|kind| ErrorAnswer {
                kind,
                category: kind.category().as_str(),
            }),
            planned_at: recorded.plan.due_at,
            tier: recorded.plan.tier,
            delay_ms: u64::try_from(recorded.plan.delay.as_millis()).unwrap_or(u64::MAX),
            delay_cause: recorded.plan.cause,
            waited_for: recorded.waited_for,
            duration_ms: millis(recorded.timings.total),
            timings: timings(&recorded.timings),
            delivery_status: attempt.left,
            next_attempt_at: attempt.retry.map(|plan| plan.due_at),
            request_data: include.request_data.then(|| RequestAnswer {
                headers: headers(&recorded.request_headers),
            }),
            response_data: include.response_data.then(|| response(&recorded)).flatten(),
            detail: recorded.detail,
            event,
            destination,
        }
    }
}

fn code(recorded: &NewAttempt) -> String {
    match (recorded.status, recorded.error) {
        (Some(status), _) => status.to_string(),
        (None, Some(error)) => error.as_str().to_owned(),
        (None, None) => String::new(),
    }
}

fn response(recorded: &NewAttempt) -> Option<ResponseAnswer> {
    let body = &recorded.response_body;
    let text = String::from_utf8_lossy(body);
    let is_exact = matches!(text, Cow::Borrowed(_));
    Some(ResponseAnswer {
        status: recorded.status?,
        body: text.into_owned(),
        body_base64: (!is_exact).then(|| STANDARD.encode(body)),
        truncated: recorded.response_truncated,
        headers: headers(&recorded.response_headers),
    })
}

/// Values that are not UTF-8 are read as ISO 8859-1, which is what HTTP once allowed there (RFC 9110 §5.5).
fn headers(headers: &Headers) -> Vec<HeaderAnswer> {
    let text = |value: &Bytes| match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().copied().map(char::from).collect(),
    };
    headers
        .iter()
        .map(|(name, value)| HeaderAnswer {
            name: name.clone(),
            value: text(value),
        })
        .collect()
}

fn timings(timings: &Timings) -> TimingsAnswer {
    TimingsAnswer {
        queue_ms: millis(timings.queue),
        dns_ms: timings.dns.map(millis),
        connect_ms: timings.connect.map(millis),
        tls_ms: timings.tls.map(millis),
        first_byte_ms: timings.first_byte.map(millis),
        total_ms: millis(timings.total),
    }
}

/// Milliseconds with three digits after the point.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
