//! Publishing up to 1,000 events at once, each with its own answer: one bad event does not stop the others.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use postrider_core::time::Timestamp;
use postrider_store::record::NewEvent;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::ApiError;
use super::extract::Body;
use super::health::note_refusal;
use super::publish::{PublishAnswer, outcome as metrics_word, prepare};
use super::{App, Shared, json as text};

const MAX_EVENTS: usize = 1_000;
/// Deliveries that one transaction may create, so that a batch with a wide fan-out does not hold the writer up.
const MAX_DELIVERIES: usize = 20_000;

/// `POST /publish/batch`: an array of events, or `{"events": […]}`. Answers 202 when at least one was stored.
pub(super) async fn publish(
    State(app): State<Shared>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let events = split(&body)?;
    let now = app.now();
    let mut outcomes: Vec<Option<Result<PublishAnswer, ApiError>>> = Vec::with_capacity(events.len());
    let mut sound = Vec::with_capacity(events.len());
    for (at, event) in events.into_iter().enumerate() {
        match prepare_one(&app, event, now) {
            Ok(event) => {
                sound.push((at, event));
                outcomes.push(None);
            }
            Err(error) => outcomes.push(Some(Err(error))),
        }
    }
    for (places, events) in chunks(sound) {
        let answers = app.store.accept(events, now).await;
        match answers {
            Ok(answers) => {
                for (at, accepted) in places.into_iter().zip(answers) {
                    outcomes[at] = Some(Ok(accepted.into()));
                }
            }
            Err(error) => {
                note_refusal(&app, &error);
                let error = ApiError::from(error);
                error.log();
                for at in places {
                    outcomes[at] = Some(Err(error.repeated()));
                }
            }
        }
    }
    answer(&app, outcomes)
}

fn split(body: &[u8]) -> Result<Vec<&RawValue>, ApiError> {
    #[derive(Deserialize)]
    struct Wrapped<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
    }
    let trimmed = text::text(body)?.trim_ascii_start();
    let events = if trimmed.starts_with('[') {
        text::parse(trimmed)?
    } else {
        text::parse_object::<Wrapped<'_>>(body)?.events
    };
    if (1..=MAX_EVENTS).contains(&events.len()) {
        Ok(events)
    } else {
        Err(ApiError::validation(vec![format!(
            "events must have 1 to {MAX_EVENTS} items"
        )]))
    }
}

fn prepare_one(app: &App, event: &RawValue, now: Timestamp) -> Result<NewEvent, ApiError> {
    let text = event.get();
    if text.len() > app.config.max_body_bytes {
        let max = app.config.max_body_bytes;
        let text = format!("an event must have at most {max} bytes (server.max_body_bytes)");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "event too large").with_data(json!([text])));
    }
    // A copy: a slice would keep the whole batch in memory until its slowest event is delivered.
    prepare(app, text.as_bytes(), now, |data| {
        Bytes::copy_from_slice(data.as_bytes())
    })
}

fn chunks(events: Vec<(usize, NewEvent)>) -> Vec<(Vec<usize>, Vec<NewEvent>)> {
    let mut chunks: Vec<(Vec<usize>, Vec<NewEvent>)> = Vec::new();
    let mut deliveries = 0;
    for (at, event) in events {
        deliveries += event.destinations.len();
        if chunks.is_empty() || deliveries > MAX_DELIVERIES {
            deliveries = event.destinations.len();
            chunks.push((Vec::new(), Vec::new()));
        }
        if let Some((places, chunk)) = chunks.last_mut() {
            places.push(at);
            chunk.push(event);
        }
    }
    chunks
}

fn answer(
    app: &App,
    outcomes: Vec<Option<Result<PublishAnswer, ApiError>>>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (mut accepted, mut is_unavailable) = (0, false);
    let mut results = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        if let Some(outcome) = &outcome {
            app.metrics.published(metrics_word(outcome), 1);
        }
        match outcome {
            Some(Ok(PublishAnswer {
                id,
                duplicate,
                destination_ids,
            })) => {
                accepted += 1;
                results.push(json!({
                    "status": StatusCode::ACCEPTED.as_u16(),
                    "id": id,
                    "duplicate": duplicate,
                    "destination_ids": destination_ids,
                }));
            }
            Some(Err(error)) => {
                is_unavailable |= error.status() == StatusCode::SERVICE_UNAVAILABLE;
                results.push(error.body());
            }
            None => return Err(ApiError::internal("the store answered for too few events")),
        }
    }
    if accepted == 0 {
        let status = if is_unavailable {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        };
        return Err(ApiError::new(status, "no event was accepted").with_data(json!({ "results": results })));
    }
    let failed = results.len() - accepted;
    let body = json!({ "accepted": accepted, "failed": failed, "results": results });
    Ok((StatusCode::ACCEPTED, Json(body)))
}
