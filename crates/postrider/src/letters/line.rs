//! The archive's line: one dead letter with everything that is known of it, as one JSON object.
//!
//! Export, archive and import share it, and its name has a version, so that a file of today is read by the program of
//! later years. Event bytes and response bodies are base64: whatever they are, the same bytes come back.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::delivery::{DeadReason, DelayCause, Plan, Tier, WaitCause};
use postrider_core::outcome::{Category, ErrorKind};
use postrider_core::time::Timestamp;
use postrider_store::record::{Headers, Metadata, NewAttempt, Timings};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::wire_bytes::{HeaderValue, base64_text};

/// Value of `format` in every line.
pub const FORMAT: &str = "postrider.dead_letter.v1";
/// Media type of a sequence of lines.
pub const MEDIA_TYPE: &str = "application/x-ndjson";

/// One dead letter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    format: String,
    /// Id of the delivery where it was exported.
    pub id: String,
    /// Owner of the destination.
    pub tenant_id: String,
    /// Public id of the destination.
    pub destination_id: String,
    /// Why it is dead.
    pub reason: DeadReason,
    /// Category of its last outcome.
    pub category: Category,
    /// Status code of its last outcome, if it had one.
    #[serde(default)]
    pub code: Option<u16>,
    /// The last error as one line.
    #[serde(default)]
    pub error: Option<String>,
    /// When the delivery was created.
    pub created_at: Timestamp,
    /// When it died.
    pub died_at: Timestamp,
    /// What it sends.
    pub event: EventLine,
    /// The newest 1,000 attempts that are kept, oldest first.
    #[serde(default)]
    pub attempts: Vec<AttemptLine>,
    /// Destination and policy as they were when it died.
    #[serde(default)]
    pub context: Option<Box<RawValue>>,
}

/// The event of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// Its id, unique within the tenant.
    pub id: String,
    /// Its topic.
    pub topic: String,
    /// When it happened.
    pub time: Timestamp,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// Sent along as headers.
    #[serde(default)]
    pub metadata: Metadata,
    /// Whether failures are retried.
    pub eligible_for_retry: bool,
    /// The bytes as published.
    #[serde(rename = "data_base64", with = "base64_text")]
    pub data: Bytes,
}

/// An attempt of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptLine {
    number: u32,
    started_at: Timestamp,
    planned_at: Timestamp,
    tier: Tier,
    delay_ms: u64,
    delay_cause: DelayCause,
    #[serde(default)]
    waited_for: Option<WaitCause>,
    manual: bool,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    error: Option<ErrorKind>,
    #[serde(default)]
    detail: Option<String>,
    timings: TimingsLine,
    request_headers: Vec<(String, HeaderValue)>,
    response_headers: Vec<(String, HeaderValue)>,
    #[serde(rename = "response_body_base64", with = "base64_text")]
    response_body: Bytes,
    response_truncated: bool,
}

/// Phases in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct TimingsLine {
    queue_us: u64,
    #[serde(default)]
    dns_us: Option<u64>,
    #[serde(default)]
    connect_us: Option<u64>,
    #[serde(default)]
    tls_us: Option<u64>,
    #[serde(default)]
    first_byte_us: Option<u64>,
    total_us: u64,
}

/// A text that is not a line of this format. `Display` says what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It has another format.
    #[error("has format {0:?}; this version reads {FORMAT:?}")]
    Format(String),
    /// It is not a whole line.
    #[error("is not a dead letter: {0}")]
    Malformed(String),
}

/// The parts of a line that are not its event, its attempts and its format.
#[derive(Debug, Clone)]
pub struct Head {
    /// Id of the delivery.
    pub id: String,
    /// Owner of the destination.
    pub tenant_id: String,
    /// Public id of the destination.
    pub destination_id: String,
    /// Why it is dead.
    pub reason: DeadReason,
    /// Category of its last outcome.
    pub category: Category,
    /// Status code of its last outcome.
    pub code: Option<u16>,
    /// The last error as one line.
    pub error: Option<String>,
    /// When the delivery was created.
    pub created_at: Timestamp,
    /// When it died.
    pub died_at: Timestamp,
}

impl Line {
    /// A line from its parts. A context that is not JSON is left out.
    #[must_use]
    pub fn new(head: Head, event: EventLine, attempts: &[NewAttempt], context: Option<&str>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            id: head.id,
            tenant_id: head.tenant_id,
            destination_id: head.destination_id,
            reason: head.reason,
            category: head.category,
            code: head.code,
            error: head.error,
            created_at: head.created_at,
            died_at: head.died_at,
            event,
            attempts: attempts.iter().map(AttemptLine::from).collect(),
            context: context.and_then(|text| RawValue::from_string(text.to_owned()).ok()),
        }
    }

    /// Appends the line with its line end.
    ///
    /// # Errors
    /// Never in practice: every field is JSON.
    pub fn write(&self, to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(&mut *to, self)?;
        to.push(b'\n');
        Ok(())
    }

    /// Reads one line.
    ///
    /// # Errors
    /// What is wrong with it, in words that fit after "line 7".
    pub fn read(text: &[u8]) -> Result<Self, LineError> {
        #[derive(Deserialize)]
        struct Format {
            format: String,
        }
        let malformed = |error: serde_json::Error| LineError::Malformed(error.to_string());
        let format = serde_json::from_slice::<Format>(text).map_err(malformed)?.format;
        if format != FORMAT {
            return Err(LineError::Format(format));
        }
        serde_json::from_slice(text).map_err(malformed)
    }

    /// Its attempts as the store keeps them.
    pub fn attempts(&self) -> impl Iterator<Item = NewAttempt> {
        self.attempts.iter().map(NewAttempt::from)
    }
}

impl From<&NewAttempt> for AttemptLine {
    fn from(attempt: &NewAttempt) -> Self {
        Self {
            number: attempt.number,
            started_at: attempt.started_at,
            planned_at: attempt.plan.due_at,
            tier: attempt.plan.tier,
            delay_ms: u64::try_from(attempt.plan.delay.as_millis()).unwrap_or(u64::MAX),
            delay_cause: attempt.plan.cause,
            waited_for: attempt.waited_for,
            manual: attempt.manual,
            status: attempt.status,
            error: attempt.error,
            detail: attempt.detail.clone(),
            timings: TimingsLine::from(&attempt.timings),
            request_headers: written(&attempt.request_headers),
            response_headers: written(&attempt.response_headers),
            response_body: attempt.response_body.clone(),
            response_truncated: attempt.response_truncated,
        }
    }
}

impl From<&AttemptLine> for NewAttempt {
    fn from(line: &AttemptLine) -> Self {
        Self {
            number: line.number,
            started_at: line.started_at,
            plan: Plan {
                due_at: line.planned_at,
                delay: Duration::from_millis(line.delay_ms),
                tier: line.tier,
                cause: line.delay_cause,
            },
            waited_for: line.waited_for,
            manual: line.manual,
            status: line.status,
            error: line.error,
            detail: line.detail.clone(),
            timings: Timings::from(&line.timings),
            request_headers: read(&line.request_headers),
            response_headers: read(&line.response_headers),
            response_body: line.response_body.clone(),
            response_truncated: line.response_truncated,
        }
    }
}

fn written(headers: &Headers) -> Vec<(String, HeaderValue)> {
    let line = |(name, value): &(String, Bytes)| (name.clone(), HeaderValue(value.clone()));
    headers.iter().map(line).collect()
}

fn read(headers: &[(String, HeaderValue)]) -> Headers {
    let header = |(name, value): &(String, HeaderValue)| (name.clone(), value.0.clone());
    headers.iter().map(header).collect()
}

impl From<&Timings> for TimingsLine {
    fn from(timings: &Timings) -> Self {
        let micros = |phase: Duration| u64::try_from(phase.as_micros()).unwrap_or(u64::MAX);
        Self {
            queue_us: micros(timings.queue),
            dns_us: timings.dns.map(micros),
            connect_us: timings.connect.map(micros),
            tls_us: timings.tls.map(micros),
            first_byte_us: timings.first_byte.map(micros),
            total_us: micros(timings.total),
        }
    }
}

impl From<&TimingsLine> for Timings {
    fn from(line: &TimingsLine) -> Self {
        let phase = Duration::from_micros;
        Self {
            queue: phase(line.queue_us),
            dns: line.dns_us.map(phase),
            connect: line.connect_us.map(phase),
            tls: line.tls_us.map(phase),
            first_byte: line.first_byte_us.map(phase),
            total: phase(line.total_us),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn head() -> Head {
        Head {
            id: "dlv_1".to_owned(),
            tenant_id: "acme".to_owned(),
            destination_id: "des_1".to_owned(),
            reason: DeadReason::PermanentFailure,
            category: Category::Http4xx,
            code: Some(401),
            error: Some("401: {\"error\":\"token expired\"}".to_owned()),
            created_at: Timestamp::from_millis(1_000),
            died_at: Timestamp::from_millis(2_500),
        }
    }

    pub(in super::super) fn event(data: &'static [u8]) -> EventLine {
        EventLine {
            id: "evt_1".to_owned(),
            topic: "order.paid".to_owned(),
            time: Timestamp::from_millis(900),
            accepted_at: Timestamp::from_millis(1_000),
            metadata: Metadata::from([("k".to_owned(), "v".to_owned())]),
            eligible_for_retry: true,
            data: Bytes::from_static(data),
        }
    }

    fn attempt(body: &'static [u8], header: &'static [u8]) -> NewAttempt {
        let headers = vec![("x-a".to_owned(), Bytes::from_static(header))];
        NewAttempt {
            number: 2,
            started_at: Timestamp::from_millis(2_000),
            plan: Plan {
                due_at: Timestamp::from_millis(1_999),
                delay: Duration::from_millis(750),
                tier: Tier::LongTerm,
                cause: DelayCause::RetryAfter,
            },
            waited_for: Some(WaitCause::Window),
            manual: true,
            status: Some(401),
            error: None,
            detail: Some("in words".to_owned()),
            timings: Timings {
                queue: Duration::from_micros(1),
                dns: Some(Duration::from_micros(2)),
                connect: None,
                tls: Some(Duration::ZERO),
                first_byte: Some(Duration::from_micros(4_001)),
                total: Duration::from_micros(5_000),
            },
            request_headers: headers.clone(),
            response_headers: headers,
            response_body: Bytes::from_static(body),
            response_truncated: true,
        }
    }

    /// Bytes that text formats like to lose.
    const AWKWARD: [&[u8]; 7] = [
        b"",
        b"\xff\xfe\x80",
        b"\0",
        b"\n\r\n",
        br#"{"a":1,"a":2,"n":9007199254740993,"x":1.0}"#,
        br#"{"s":"<\/script>\u2028"}"#,
        "\u{2028}é".as_bytes(),
    ];

    #[test]
    fn any_bytes_come_back_as_they_were() {
        for data in AWKWARD {
            for header in AWKWARD {
                let original = attempt(data, header);
                let line = Line::new(head(), event(data), std::slice::from_ref(&original), None);
                let mut text = Vec::new();
                line.write(&mut text).unwrap();
                assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1, "{data:?}");
                let again = Line::read(&text).unwrap();
                assert_eq!(again.event, line.event);
                assert_eq!(again.attempts().collect::<Vec<_>>(), [original]);
                let mut twice = Vec::new();
                again.write(&mut twice).unwrap();
                assert_eq!(twice, text, "{data:?} {header:?}");
            }
        }
    }

    #[test]
    fn a_line_looks_as_documented() {
        let line = Line::new(head(), event(b"\xff"), &[], Some("{\"retry_policy\":  {}}"));
        let mut text = Vec::new();
        line.write(&mut text).unwrap();
        let right = concat!(
            r#"{"format":"postrider.dead_letter.v1","id":"dlv_1","tenant_id":"acme","destination_id":"des_1","#,
            r#""reason":"permanent_failure","category":"http_4xx","code":401,"#,
            r#""error":"401: {\"error\":\"token expired\"}","#,
            r#""created_at":"1970-01-01T00:00:01.000Z","died_at":"1970-01-01T00:00:02.500Z","#,
            r#""event":{"id":"evt_1","topic":"order.paid","time":"1970-01-01T00:00:00.900Z","#,
            r#""accepted_at":"1970-01-01T00:00:01.000Z","metadata":{"k":"v"},"eligible_for_retry":true,"data_base64":"/w=="},"#,
            r#""attempts":[],"context":{"retry_policy":  {}}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(text).unwrap(), right);
    }

    #[test]
    fn what_is_not_a_line_is_refused_with_its_fault() {
        let table = [
            (
                "",
                "is not a dead letter: EOF while parsing a value at line 1 column 0",
            ),
            (
                "{}",
                "is not a dead letter: missing field `format` at line 1 column 2",
            ),
            (
                r#"{"format":"postrider.dead_letter.v2"}"#,
                "has format \"postrider.dead_letter.v2\"; this version reads \"postrider.dead_letter.v1\"",
            ),
            (
                r#"{"format":"postrider.dead_letter.v1"}"#,
                "is not a dead letter: missing field `id` at line 1 column 37",
            ),
        ];
        for (text, right) in table {
            assert_eq!(
                Line::read(text.as_bytes()).unwrap_err().to_string(),
                right,
                "{text}"
            );
        }
        let mut text = Vec::new();
        Line::new(head(), event(b"x"), &[], None)
            .write(&mut text)
            .unwrap();
        let broken = String::from_utf8(text).unwrap().replace("eA==", "eA");
        let error = Line::read(broken.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("is not a dead letter: expected standard base64 with padding"),
            "{error}"
        );
    }
}
