//! Dead letters: what could not be delivered, why, and everything that helps to understand it.

pub(super) mod change;
pub(super) mod export;
pub(super) mod filter;
pub(super) mod import;
pub(super) mod show;
pub(super) mod summary;

use axum::Json;
use axum::extract::State;
use postrider_core::delivery::DeadReason;
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use postrider_store::letter::{DeadLetter, DeadLetterQuery};
use serde::Serialize;

use super::Shared;
use super::cursor::List;
use super::error::ApiError;
use super::query::{Models, Query, pagination};

/// A dead letter as it is answered.
#[derive(Debug, Serialize)]
pub(super) struct LetterAnswer {
    /// Id of the delivery.
    id: String,
    tenant_id: String,
    destination_id: String,
    event_id: String,
    topic: String,
    reason: DeadReason,
    category: Category,
    /// Status code of the last outcome.
    code: Option<u16>,
    /// The last outcome in one line.
    error: Option<String>,
    /// Requests made.
    attempts: u32,
    created_at: Timestamp,
    died_at: Timestamp,
}

impl From<DeadLetter> for LetterAnswer {
    fn from(letter: DeadLetter) -> Self {
        Self {
            id: letter.id,
            tenant_id: letter.tenant_id,
            destination_id: letter.destination_id,
            event_id: letter.event_id,
            topic: letter.topic,
            reason: letter.reason,
            category: letter.category,
            code: letter.code,
            error: letter.error,
            attempts: letter.attempts,
            created_at: letter.created_at,
            died_at: letter.died_at,
        }
    }
}

/// `GET /dead-letters`
pub(super) async fn list(
    State(app): State<Shared>,
    mut query: Query,
) -> Result<Json<Models<LetterAnswer>>, ApiError> {
    let ids = app.store.ids();
    let page = query.page(List::DeadLetters, ids)?;
    let filter = filter::from_query(&mut query);
    query.finish()?;
    let found = app.store.dead_letters(DeadLetterQuery { filter, page }).await?;
    let pagination = pagination(List::DeadLetters, ids, "time", page, &found);
    Ok(Json(Models {
        models: found.rows.into_iter().map(LetterAnswer::from).collect(),
        pagination,
    }))
}
