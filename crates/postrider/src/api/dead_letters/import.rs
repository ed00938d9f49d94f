//! The import: lines of the archive's format become dead letters again.
//!
//! One bad line does not stop the others; each has its own result. Importing a file twice adds nothing, so whoever does
//! not know how far an import came repeats it.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use postrider_core::time::Timestamp;
use postrider_core::topic;
use postrider_store::letter::{Imported, ImportedLetter};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::Shared;
use super::super::error::ApiError;
use super::super::extract::Body;
use super::super::json::is_too_deep;
use super::super::limits::{check_event_id, check_metadata, check_sendable};
use crate::alerts::operator;
use crate::letters::line::Line;

/// Lines of one request.
const MAX_LINES: usize = 1_000;
/// How far the clock that wrote a line may be ahead of this one: a later time is a mistake, and a list filtered by time looks
/// as far beyond its range as the time of any row was ever off. That is all that is bounded: times of long ago, which an
/// archive has by right, widen the lists as much, and so does the `time` of a publish, which may be any.
const MAX_AHEAD: Duration = Duration::from_secs(300);
/// Attempts of one line.
const MAX_ATTEMPTS: usize = 1_000;
/// Letters and attempts that are stored at once, except for those of one letter.
const PART_LETTERS: usize = 100;
const PART_ATTEMPTS: usize = 500;

#[derive(Debug, Default, Serialize)]
pub(in super::super) struct ImportAnswer {
    imported: usize,
    duplicates: usize,
    refused: usize,
    /// One for each line.
    results: Vec<LineAnswer>,
}

#[derive(Debug, Serialize)]
struct LineAnswer {
    /// Number of the line: 1 is the first.
    line: usize,
    status: &'static str,
    /// Of the delivery that is a dead letter again.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Why it is refused, in words that fit after the number of the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// `POST /dead-letters/import`
pub(in super::super) async fn post(
    State(app): State<Shared>,
    Body(body): Body,
) -> Result<Json<ImportAnswer>, ApiError> {
    let lines: Vec<(usize, &[u8])> = body
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .enumerate()
        .filter(|(_, line)| !line.is_empty())
        .map(|(at, line)| (at + 1, line))
        .collect();
    if !(1..=MAX_LINES).contains(&lines.len()) {
        let text = format!("the body must have 1 to {MAX_LINES} lines");
        return Err(ApiError::validation(vec![text]));
    }
    let mut answer = ImportAnswer::default();
    let mut sound = Vec::with_capacity(lines.len());
    for (line, text) in lines {
        match read(text, app.config.max_body_bytes, app.now()) {
            Ok(letter) => sound.push((line, letter)),
            Err(reason) => answer.refuse(line, reason),
        }
    }
    let (numbers, letters): (Vec<usize>, Vec<ImportedLetter>) = sound.into_iter().unzip();
    let mut numbers = numbers.into_iter();
    for part in parts(letters) {
        let imported = app.store.import_dead_letters(part, app.now()).await?;
        for (imported, line) in imported.into_iter().zip(&mut numbers) {
            answer.add(line, imported);
        }
    }
    answer.results.sort_by_key(|result| result.line);
    Ok(Json(answer))
}

impl ImportAnswer {
    fn refuse(&mut self, line: usize, reason: String) {
        self.refused += 1;
        self.push(line, "refused", None, Some(reason));
    }

    fn add(&mut self, line: usize, imported: Imported) {
        match imported {
            Imported::Imported(id) => {
                self.imported += 1;
                self.push(line, "imported", Some(id), None);
            }
            Imported::Duplicate => {
                self.duplicates += 1;
                self.push(line, "duplicate", None, None);
            }
            Imported::TenantMissing => self.refuse(line, "has a tenant_id that does not exist".to_owned()),
            Imported::DestinationMissing => {
                self.refuse(
                    line,
                    "has a destination_id that its tenant does not have".to_owned(),
                );
            }
            Imported::EventDiffers => {
                let text = "has the id of an event of its tenant with other data, topic or metadata";
                self.refuse(line, text.to_owned());
            }
            Imported::NoPlace => {
                let text = "belongs to an event that its tenant has, without room for another delivery";
                self.refuse(line, text.to_owned());
            }
        }
    }

    fn push(&mut self, line: usize, status: &'static str, id: Option<String>, reason: Option<String>) {
        self.results.push(LineAnswer {
            line,
            status,
            id,
            reason,
        });
    }
}

/// What is wrong with an event's bytes: the same that publishing would refuse.
fn data_fault(data: &[u8], max_bytes: usize) -> Option<String> {
    if data.len() > max_bytes {
        let text = format!("event.data_base64 must hold at most {max_bytes} bytes (server.max_body_bytes)");
        return Some(text);
    }
    let text = match serde_json::from_slice::<&RawValue>(data) {
        Ok(json) if json.get().starts_with('{') => json.get(),
        _ => return Some("event.data_base64 must be a valid JSON object".to_owned()),
    };
    is_too_deep(text).then(|| "event.data_base64 must not be nested deeper than 100 levels".to_owned())
}

/// The letters in parts that a queue which is nearly full still takes, one after the other.
fn parts(mut letters: Vec<ImportedLetter>) -> Vec<Vec<ImportedLetter>> {
    let mut parts = Vec::new();
    while !letters.is_empty() {
        let mut attempts = 0;
        let fitting = letters.iter().take(PART_LETTERS).take_while(|letter| {
            attempts += letter.attempts.len();
            attempts <= PART_ATTEMPTS
        });
        let rest = letters.split_off(fitting.count().max(1));
        parts.push(std::mem::replace(&mut letters, rest));
    }
    parts
}

/// A letter that may be stored, or everything that is wrong with it.
fn read(text: &[u8], max_data_bytes: usize, now: Timestamp) -> Result<ImportedLetter, String> {
    let line = Line::read(text).map_err(|error| error.to_string())?;
    let mut faults = Vec::new();
    if line.tenant_id == operator::TENANT {
        let text = format!(
            "tenant_id {} is reserved for Postrider's own alerts",
            operator::TENANT
        );
        faults.push(text);
    }
    check_event_id("event.id", &line.event.id, &mut faults);
    check_metadata("event.metadata", &line.event.metadata, &mut faults);
    check_sendable("event.metadata", &line.event.metadata, &mut faults);
    faults.extend(data_fault(&line.event.data, max_data_bytes));
    let topic = &line.event.topic;
    // Any good one, or none: which topics are configured may have changed since it was published.
    if !topic.is_empty()
        && let Err(invalid) = topic::validate(topic)
    {
        faults.push(format!("event.topic is invalid: {invalid}"));
    }
    let latest = now.plus(MAX_AHEAD);
    if line.event.time > latest {
        faults.push("event.time must not be in the future".to_owned());
    }
    let attempts: Vec<_> = line.attempts().collect();
    if attempts.iter().any(|attempt| attempt.started_at > latest) {
        faults.push("attempts must not have a time in the future".to_owned());
    }
    if attempts.len() > MAX_ATTEMPTS {
        faults.push(format!("attempts must have at most {MAX_ATTEMPTS} items"));
    }
    if !faults.is_empty() {
        return Err(format!("is refused: {}", faults.join("; ")));
    }
    let event = line.event;
    Ok(ImportedLetter {
        tenant_id: line.tenant_id,
        destination_id: line.destination_id,
        event_id: event.id,
        topic: event.topic,
        time: event.time,
        metadata: event.metadata,
        data: event.data,
        retryable: event.eligible_for_retry,
        reason: line.reason,
        category: line.category,
        attempts,
        // Its custom headers are masked in a file: requests must not be made from it.
        context: None,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_core::delivery::{DeadReason, Plan};
    use postrider_core::outcome::Category;
    use postrider_store::record::{Metadata, NewAttempt, Timings};

    use super::*;

    fn letter(id: usize) -> ImportedLetter {
        ImportedLetter {
            tenant_id: "acme".to_owned(),
            destination_id: "des_a".to_owned(),
            event_id: id.to_string(),
            topic: String::new(),
            time: Timestamp::from_millis(0),
            metadata: Metadata::new(),
            data: Bytes::new(),
            retryable: true,
            reason: DeadReason::PermanentFailure,
            category: Category::Http4xx,
            attempts: Vec::new(),
            context: None,
        }
    }

    fn attempt() -> NewAttempt {
        let at = Timestamp::from_millis(0);
        NewAttempt {
            number: 1,
            started_at: at,
            plan: Plan::first(at),
            waited_for: None,
            manual: false,
            status: Some(401),
            error: None,
            detail: None,
            timings: Timings::default(),
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            response_body: Bytes::new(),
            response_truncated: false,
        }
    }

    #[test]
    fn an_event_is_what_publish_takes() {
        let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        let (object, deep) = (
            "event.data_base64 must be a valid JSON object",
            "event.data_base64 must not be nested deeper than 100 levels",
        );
        for (data, fault) in [
            ("{}", None),
            (" {\"a\":1} ", None),
            (&nested(99), None),
            (&nested(100), Some(deep)),
            ("", Some(object)),
            ("[]", Some(object)),
            ("null", Some(object)),
            ("{}{}", Some(object)),
            ("{\"a\"", Some(object)),
        ] {
            assert_eq!(data_fault(data.as_bytes(), 1_000).as_deref(), fault, "{data:?}");
        }
        assert_eq!(data_fault(b"\xff\xfe", 1_000).as_deref(), Some(object));
        assert_eq!(data_fault(b"{\"a\":1}", 7), None);
        let large = "event.data_base64 must hold at most 6 bytes (server.max_body_bytes)";
        assert_eq!(data_fault(b"{\"a\":1}", 6).as_deref(), Some(large));
    }

    #[test]
    fn letters_are_stored_in_small_parts_in_their_order() {
        let sizes = |letters: Vec<ImportedLetter>| -> Vec<usize> {
            let parts = parts(letters);
            let order: Vec<_> = parts.iter().flatten().map(|letter| &letter.event_id).collect();
            assert!(order.iter().enumerate().all(|(at, id)| **id == at.to_string()));
            parts.iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(Vec::new()), [0; 0]);
        assert_eq!(sizes((0..250).map(letter).collect()), [100, 100, 50]);
        let attempted = |attempts: usize| {
            move |id: usize| ImportedLetter {
                attempts: vec![attempt(); attempts],
                ..letter(id)
            }
        };
        assert_eq!(sizes((0..5).map(attempted(250)).collect()), [2, 2, 1]);
        assert_eq!(sizes((0..3).map(attempted(501)).collect()), [1, 1, 1]);
    }
}
