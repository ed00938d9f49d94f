//! Attempts: every HTTP request that was made, and what came of it.

use axum::Json;
use axum::extract::State;
use postrider_store::record::{Attempt, AttemptQuery};
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};

use super::attempt_answer::{AttemptAnswer, Include};
use super::catalog::TYPES;
use super::cursor::List;
use super::error::ApiError;
use super::extract::Segments;
use super::query::{Models, Query, pagination};
use super::{App, Shared, destinations, events};

/// `GET /attempts`
pub(super) async fn list(
    State(app): State<Shared>,
    query: Query,
) -> Result<Json<Models<AttemptAnswer>>, ApiError> {
    let tenant_ids = query.list("tenant_id");
    let destination_ids = query.list("destination_id");
    answer_list(&app, query, tenant_ids, destination_ids).await
}

/// `GET /tenants/{tenant_id}/destinations/{destination_id}/attempts`
pub(super) async fn list_of_destination(
    State(app): State<Shared>,
    Segments((tenant_id, destination_id)): Segments<(String, String)>,
    query: Query,
) -> Result<Json<Models<AttemptAnswer>>, ApiError> {
    destinations::find(&app, &tenant_id, &destination_id)?;
    answer_list(&app, query, vec![tenant_id], vec![destination_id]).await
}

/// `GET /attempts/{attempt_id}`
pub(super) async fn get(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
    query: Query,
) -> Result<Json<AttemptAnswer>, ApiError> {
    let tenant_ids = query.list("tenant_id");
    let is_wanted = |attempt: &Attempt| tenant_ids.is_empty() || tenant_ids.contains(&attempt.tenant_id);
    answer_one(&app, &id, &query, is_wanted).await
}

/// `GET /tenants/{tenant_id}/destinations/{destination_id}/attempts/{attempt_id}`
pub(super) async fn get_of_destination(
    State(app): State<Shared>,
    Segments((tenant_id, destination_id, id)): Segments<(String, String, String)>,
    query: Query,
) -> Result<Json<AttemptAnswer>, ApiError> {
    destinations::find(&app, &tenant_id, &destination_id)?;
    let is_wanted =
        |attempt: &Attempt| attempt.tenant_id == tenant_id && attempt.destination_id == destination_id;
    answer_one(&app, &id, &query, is_wanted).await
}

async fn answer_list(
    app: &App,
    mut query: Query,
    tenant_ids: Vec<String>,
    destination_ids: Vec<String>,
) -> Result<Json<Models<AttemptAnswer>>, ApiError> {
    let ids = app.store.ids();
    let page = query.page(List::Attempts, ids)?;
    let successful = query.choice("status", "success", "failed");
    let include = Include::from_query(&query);
    let kinds = query.list("destination_type");
    let wanted = AttemptQuery {
        tenant_ids,
        event_ids: query.list("event_id"),
        delivery_ids: query.list("delivery_id"),
        destination_ids,
        topics: query.list("topic"),
        successful,
        time: query.time("time"),
        page,
        with_event_data: include.event_data,
    };
    query.finish()?;
    let is_possible = kinds.is_empty() || kinds.iter().any(|kind| TYPES.contains(&kind.as_str()));
    let found = if is_possible {
        app.store.attempts(wanted).await?
    } else {
        postrider_store::page::Page {
            rows: Vec::new(),
            next: None,
            prev: None,
        }
    };
    let pagination = pagination(List::Attempts, ids, "time", page, &found);
    let models = answers(app, found.rows, include).await?;
    Ok(Json(Models { models, pagination }))
}

async fn answer_one(
    app: &App,
    id: &str,
    query: &Query,
    is_wanted: impl Fn(&Attempt) -> bool,
) -> Result<Json<AttemptAnswer>, ApiError> {
    let attempt = app.store.attempt(id).await?.filter(is_wanted);
    let attempt = attempt.ok_or_else(|| ApiError::not_found("attempt not found"))?;
    let answers = answers(app, vec![attempt], Include::from_query(query)).await?;
    let answer = answers.into_iter().next();
    answer
        .map(Json)
        .ok_or_else(|| ApiError::internal("one attempt gave no answer"))
}

async fn answers(
    app: &App,
    attempts: Vec<Attempt>,
    include: Include,
) -> Result<Vec<AttemptAnswer>, ApiError> {
    let events = if include.event {
        events_of(app, &attempts, include.event_data).await?
    } else {
        HashMap::new()
    };
    let mut answers = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        let event = events.get(&(attempt.tenant_id.clone(), attempt.event_id.clone()));
        let event = event
            .map(|event| events::summary(event, &attempt.destination_id, include.event_data))
            .transpose()?;
        let destination = destination(app, &attempt, include)?;
        answers.push(AttemptAnswer::new(attempt, include, event, destination));
    }
    Ok(answers)
}

type Events = HashMap<(String, String), postrider_store::record::Event>;

async fn events_of(app: &App, attempts: &[Attempt], with_data: bool) -> Result<Events, ApiError> {
    let distinct: HashSet<(&str, &str)> = attempts
        .iter()
        .map(|attempt| (&*attempt.tenant_id, &*attempt.event_id))
        .collect();
    let ids: HashSet<&str> = distinct.iter().map(|(_, event)| *event).collect();
    let tenants: HashSet<&str> = distinct.iter().map(|(tenant, _)| *tenant).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let owned = |texts: HashSet<&str>| texts.into_iter().map(str::to_owned).collect();
    // An id may be one of each of these tenants, so this bounds what can be found.
    let most = ids.len() * tenants.len();
    let found = events::all(app, owned(ids), owned(tenants), most, with_data).await?;
    Ok(found
        .into_iter()
        .map(|event| ((event.tenant_id.clone(), event.id.clone()), event))
        .collect())
}

fn destination(app: &App, attempt: &Attempt, include: Include) -> Result<Option<Box<RawValue>>, ApiError> {
    if !include.destination {
        return Ok(None);
    }
    let entry = app
        .directory
        .destination(&attempt.tenant_id, &attempt.destination_id);
    entry.map(|entry| destinations::masked_answer(&entry)).transpose()
}
