//! Publishing one event: the hot path.
//!
//! The body is read once and borrowed; `data` goes on as the very bytes that arrived. 202 is answered only after the
//! store has flushed the event and its deliveries to disk. From the moment the store has the event, a client that
//! disconnects changes nothing.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use postrider_core::time::Timestamp;
use postrider_core::topic;
use postrider_store::record::{Accepted, NewEvent};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::alerts::refuse_operator;
use super::document;
use super::error::ApiError;
use super::extract::Body;
use super::health::note_refusal;
use super::json::{Sent, is_too_deep, parse_object};
use super::limits::{check_event_id, check_id, check_sendable, read_plain_metadata};
use super::{App, Shared};
use crate::directory::{Directory, Published};
use crate::telemetry::metrics;

/// An event as it is sent.
#[derive(Debug, Deserialize)]
pub(super) struct PublishBody<'a> {
    #[serde(default, borrow)]
    id: Sent<'a>,
    #[serde(default, borrow)]
    tenant_id: Sent<'a>,
    #[serde(default, borrow)]
    destination_id: Sent<'a>,
    #[serde(default, borrow)]
    topic: Sent<'a>,
    #[serde(default, borrow)]
    eligible_for_retry: Sent<'a>,
    #[serde(default, borrow)]
    time: Sent<'a>,
    #[serde(default, borrow)]
    metadata: Sent<'a>,
    #[serde(default, borrow)]
    data: Sent<'a>,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct PublishAnswer {
    pub(super) id: String,
    pub(super) duplicate: bool,
    pub(super) destination_ids: Vec<String>,
}

impl From<Accepted> for PublishAnswer {
    fn from(accepted: Accepted) -> Self {
        let Accepted {
            id,
            duplicate,
            destination_ids,
        } = accepted;
        Self {
            id,
            duplicate,
            destination_ids,
        }
    }
}

/// `POST /publish`
pub(super) async fn publish(
    State(app): State<Shared>,
    Body(body): Body,
) -> Result<(StatusCode, Json<PublishAnswer>), ApiError> {
    let answer = accept_one(&app, &body).await;
    app.metrics.published(outcome(&answer), 1);
    Ok((StatusCode::ACCEPTED, Json(answer?)))
}

/// How the metrics call it.
pub(super) fn outcome(answer: &Result<PublishAnswer, ApiError>) -> metrics::Published {
    match answer {
        Ok(PublishAnswer { duplicate: false, .. }) => metrics::Published::Accepted,
        Ok(PublishAnswer { duplicate: true, .. }) => metrics::Published::Duplicate,
        Err(_) => metrics::Published::Refused,
    }
}

async fn accept_one(app: &App, body: &Bytes) -> Result<PublishAnswer, ApiError> {
    let now = app.now();
    let event = prepare(app, body, now, |data| keep(body, data))?;
    let accepted = app.store.accept(vec![event], now).await;
    let mut accepted = accepted.inspect_err(|error| note_refusal(app, error))?;
    accepted
        .pop()
        .map(Into::into)
        .ok_or_else(|| ApiError::internal("the store answered for no event"))
}

/// The body's own memory where `data` is most of it, a copy where it would hold on to much else.
fn keep(body: &Bytes, data: &str) -> Bytes {
    if data.len() >= body.len() / 2 {
        body.slice_ref(data.as_bytes())
    } else {
        Bytes::copy_from_slice(data.as_bytes())
    }
}

/// An event with its deliveries, checked. `keep` turns the text of `data` into bytes that outlive the body.
pub(super) fn prepare(
    app: &App,
    body: &[u8],
    now: Timestamp,
    keep: impl FnOnce(&str) -> Bytes,
) -> Result<NewEvent, ApiError> {
    let body: PublishBody<'_> = parse_object(body)?;
    let mut faults = Vec::new();
    let id = body.id.whole_text("id", &mut faults);
    if let Some(id) = &id {
        check_event_id("id", id, &mut faults);
    }
    let tenant_id = body.tenant_id.required_text("tenant_id", &mut faults);
    if !tenant_id.is_empty() {
        check_id("tenant_id", &tenant_id, &mut faults);
    }
    let destination_id = body.destination_id.text("destination_id", &mut faults);
    let topic = event_topic(&app.directory, body.topic, &mut faults);
    let retryable = body
        .eligible_for_retry
        .boolean("eligible_for_retry", &mut faults)
        .unwrap_or(true);
    let time = body.time.instant("time", &mut faults);
    let metadata = read_plain_metadata("metadata", body.metadata, &mut faults).unwrap_or_default();
    check_sendable("metadata", &metadata, &mut faults);
    let data = data(body.data, &mut faults);
    if !faults.is_empty() {
        return Err(ApiError::validation(faults));
    }
    refuse_operator(&tenant_id)?;
    let published = Published {
        tenant_id: &tenant_id,
        topic: &topic,
        destination_id: destination_id.as_deref(),
    };
    let destinations = app.directory.match_event(published, || {
        let invalid = || ApiError::validation(vec!["data must be a valid JSON object".to_owned()]);
        let data = document::value(data).ok_or_else(invalid)?;
        let time = time.unwrap_or(now);
        Ok::<_, ApiError>(
            json!({ "id": id, "topic": topic, "time": time, "metadata": metadata, "data": data }),
        )
    })?;
    let data = keep(data);
    Ok(NewEvent {
        tenant_id,
        id,
        topic,
        time,
        metadata,
        data,
        retryable,
        destinations,
    })
}

/// Without configured topics any is good, also none. With them it must be one of them.
fn event_topic(directory: &Directory, sent: Sent<'_>, faults: &mut Vec<String>) -> String {
    let known = faults.len();
    let topic = sent.text("topic", faults).unwrap_or_default();
    if faults.len() > known {
        return topic;
    }
    if !directory.is_known_topic(&topic) {
        faults.push(if topic.is_empty() {
            "topic is required".to_owned()
        } else {
            format!("topic {}", directory.rules().must_be_a_topic())
        });
    } else if !topic.is_empty()
        && let Err(invalid) = topic::validate(&topic)
    {
        faults.push(format!("topic is invalid: {invalid}"));
    }
    topic
}

fn data<'a>(sent: Sent<'a>, faults: &mut Vec<String>) -> &'a str {
    match sent {
        Sent::Absent => faults.push("data is required".to_owned()),
        Sent::Value(raw) if raw.get().starts_with('{') => {
            if is_too_deep(raw.get()) {
                faults.push("data must not be nested deeper than 100 levels".to_owned());
            }
            return raw.get();
        }
        Sent::Null | Sent::Value(_) => faults.push("data must be a valid JSON object".to_owned()),
    }
    ""
}
