//! One dead letter with everything that is known of it: the event with its bytes, every attempt, and what was in force.

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use postrider_core::time::Timestamp;
use postrider_store::letter::DeadLetterDetail;
use postrider_store::record::{Attempt, Event, Metadata};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::attempt_answer::{AttemptAnswer, Include};
use super::super::error::ApiError;
use super::super::extract::Segments;
use super::super::query::Query;
use super::super::{App, Shared};
use super::LetterAnswer;
use crate::letters::attempts;
use crate::letters::masked::masked;

#[derive(Debug, Serialize)]
pub(in super::super) struct DetailAnswer {
    #[serde(flatten)]
    letter: LetterAnswer,
    event: EventAnswer,
    /// Every attempt that is kept, oldest first, with request headers (secrets masked), response and timings.
    history: Vec<AttemptAnswer>,
    /// Destination and retry policy as they were when it died.
    context: Option<Value>,
}

#[derive(Debug, Serialize)]
struct EventAnswer {
    id: String,
    topic: String,
    time: Timestamp,
    accepted_at: Timestamp,
    eligible_for_retry: bool,
    metadata: Metadata,
    /// As published, byte for byte; absent when the bytes are not JSON.
    data: Option<Box<RawValue>>,
    /// The same bytes, for whoever parses and prints JSON.
    data_base64: String,
}

/// `GET /dead-letters/{delivery_id}`
pub(in super::super) async fn get(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
    query: Query,
) -> Result<Json<DetailAnswer>, ApiError> {
    let tenant_ids = query.list("tenant_id");
    query.finish()?;
    let found = app.store.dead_letter(&id).await?;
    let found = found.filter(|it| tenant_ids.is_empty() || tenant_ids.contains(&it.letter.tenant_id));
    let DeadLetterDetail {
        letter,
        event,
        context,
    } = found.ok_or_else(|| ApiError::not_found("dead letter not found"))?;
    let history = attempts(&app, &letter.id).await?;
    Ok(Json(DetailAnswer {
        letter: letter.into(),
        event: answer(event),
        history: history
            .into_iter()
            .map(|attempt| AttemptAnswer::new(attempt, Include::exchange(), None, None))
            .collect(),
        context: context.and_then(|context| masked(&context)),
    }))
}

/// The newest attempts of a delivery that are kept, oldest first.
pub(super) async fn attempts(app: &App, delivery_id: &str) -> Result<Vec<Attempt>, ApiError> {
    Ok(attempts::of_delivery(&*app.store, delivery_id).await?)
}

fn answer(event: Event) -> EventAnswer {
    let text = std::str::from_utf8(&event.data).map(str::to_owned).ok();
    EventAnswer {
        data: text.and_then(|text| RawValue::from_string(text).ok()),
        data_base64: STANDARD.encode(&event.data),
        id: event.id,
        topic: event.topic,
        time: event.time,
        accepted_at: event.accepted_at,
        eligible_for_retry: event.retryable,
        metadata: event.metadata,
    }
}
