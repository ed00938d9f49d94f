//! What is wrong, at a glance: dead letters counted by destination and outcome, the largest group first, so that a
//! hundred times 401 at one customer is one line at the top.

use axum::Json;
use axum::extract::State;
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use postrider_store::letter::{DeadLetterFilter, DeadLetterGroup, DeadLetterQuery};
use postrider_store::page::{Cursor, Direction, PageRequest};
use serde::Serialize;

use super::super::error::ApiError;
use super::super::query::Query;
use super::super::{App, Shared};
use super::filter;

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;
/// So many of the largest groups are answered with their newest error; it takes a read each.
const MAX_QUOTED: usize = 20;

#[derive(Debug, Serialize)]
pub(in super::super) struct SummaryAnswer {
    /// Dead letters that the filter admits, those of groups beyond the limit included.
    count: u64,
    /// How many groups there are.
    groups: usize,
    models: Vec<GroupAnswer>,
}

#[derive(Debug, Serialize)]
struct GroupAnswer {
    tenant_id: String,
    destination_id: String,
    category: Category,
    code: Option<u16>,
    count: u64,
    /// In words: `100 × 401 at des_1 of acme`.
    text: String,
    last_error: Option<String>,
    first_died_at: Timestamp,
    last_died_at: Timestamp,
    /// How many of them died within the last hour.
    growth_per_hour: u64,
}

/// `GET /dead-letters/summary`
pub(in super::super) async fn get(
    State(app): State<Shared>,
    mut query: Query,
) -> Result<Json<SummaryAnswer>, ApiError> {
    let limit = match query.one("limit").map(str::parse::<usize>) {
        None => DEFAULT_LIMIT,
        Some(Ok(limit)) if (1..=MAX_LIMIT).contains(&limit) => limit,
        Some(_) => {
            query.fault("limit", format!("must be a number from 1 to {MAX_LIMIT}"));
            DEFAULT_LIMIT
        }
    };
    let filter = filter::from_query(&mut query);
    query.finish()?;
    let groups = app.store.dead_letter_summary(filter.clone(), app.now()).await?;
    let count = groups.iter().map(|group| group.count).sum();
    let found = groups.len();
    let mut models = Vec::with_capacity(found.min(limit));
    for (place, group) in groups.into_iter().take(limit).enumerate() {
        let last_error = if place < MAX_QUOTED {
            newest_error(&app, &filter, &group).await?
        } else {
            None
        };
        models.push(answer(group, last_error));
    }
    Ok(Json(SummaryAnswer {
        count,
        groups: found,
        models,
    }))
}

async fn newest_error(
    app: &App,
    filter: &DeadLetterFilter,
    group: &DeadLetterGroup,
) -> Result<Option<String>, ApiError> {
    let filter = DeadLetterFilter {
        tenant_ids: vec![group.tenant_id.clone()],
        destination_ids: vec![group.destination_id.clone()],
        categories: vec![group.category],
        codes: group.code.into_iter().collect(),
        ..filter.clone()
    };
    let page = PageRequest {
        limit: 1,
        direction: Direction::Descending,
        cursor: Cursor::Start,
    };
    let newest = app.store.dead_letters(DeadLetterQuery { filter, page }).await?;
    Ok(newest.rows.into_iter().next().and_then(|letter| letter.error))
}

fn answer(group: DeadLetterGroup, last_error: Option<String>) -> GroupAnswer {
    let what = group
        .code
        .map_or_else(|| group.category.to_string(), |code| code.to_string());
    GroupAnswer {
        text: format!(
            "{} × {what} at {} of {}",
            group.count, group.destination_id, group.tenant_id
        ),
        tenant_id: group.tenant_id,
        destination_id: group.destination_id,
        category: group.category,
        code: group.code,
        count: group.count,
        last_error,
        first_died_at: group.first_died_at,
        last_died_at: group.last_died_at,
        growth_per_hour: group.last_hour,
    }
}
