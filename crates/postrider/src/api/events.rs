//! Events: what was published, and how far each has come.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use postrider_core::delivery::DeliveryStatus;
use postrider_core::time::Timestamp;
use postrider_store::page::{Cursor, Direction, PageRequest, TimeRange};
use postrider_store::record::{Event, EventQuery, Metadata};
use serde::Serialize;
use serde_json::value::RawValue;

use super::cursor::List;
use super::error::ApiError;
use super::extract::Segments;
use super::json::raw;
use super::query::{Models, Query, pagination};
use super::{App, Shared};

/// An event as it is answered.
#[derive(Debug, Serialize)]
pub(super) struct EventAnswer {
    id: String,
    tenant_id: String,
    /// Where it goes.
    matched_destination_ids: Vec<String>,
    topic: String,
    time: Timestamp,
    accepted_at: Timestamp,
    eligible_for_retry: bool,
    metadata: Metadata,
    data: Box<RawValue>,
    /// How many of its deliveries have which status.
    delivery_counts: BTreeMap<&'static str, usize>,
    deliveries: Vec<DeliverySummary>,
}

#[derive(Debug, Serialize)]
struct DeliverySummary {
    id: String,
    destination_id: String,
    status: DeliveryStatus,
}

/// `GET /events`
pub(super) async fn list(
    State(app): State<Shared>,
    mut query: Query,
) -> Result<Json<Models<EventAnswer>>, ApiError> {
    let ids = app.store.ids();
    let page = query.page(List::Events, ids)?;
    let wanted = EventQuery {
        tenant_ids: query.list("tenant_id"),
        ids: query.list("id"),
        destination_ids: query.list("destination_id"),
        topics: query.list("topic"),
        time: query.time("time"),
        page,
        with_data: true,
    };
    query.finish()?;
    let found = app.store.events(wanted).await?;
    let pagination = pagination(List::Events, ids, "time", page, &found);
    let models = found.rows.into_iter().map(answer).collect::<Result<_, _>>()?;
    Ok(Json(Models { models, pagination }))
}

/// `GET /events/{event_id}`: ids are unique within a tenant only; without `tenant_id`, the newest with this id.
pub(super) async fn get(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
    query: Query,
) -> Result<Json<EventAnswer>, ApiError> {
    let found = all(&app, vec![id], query.list("tenant_id"), 1, true).await?;
    let event = found
        .into_iter()
        .next()
        .ok_or_else(|| ApiError::not_found("event not found"))?;
    answer(event).map(Json)
}

/// Events with one of these ids, newest first, at most `limit`; without their data unless they are wanted.
pub(super) async fn all(
    app: &App,
    ids: Vec<String>,
    tenant_ids: Vec<String>,
    limit: usize,
    with_data: bool,
) -> Result<Vec<Event>, ApiError> {
    let mut found = Vec::new();
    let mut cursor = Cursor::Start;
    while found.len() < limit {
        let page = PageRequest {
            limit: limit - found.len(),
            direction: Direction::Descending,
            cursor,
        };
        let page = app
            .store
            .events(EventQuery {
                tenant_ids: tenant_ids.clone(),
                ids: ids.clone(),
                destination_ids: Vec::new(),
                topics: Vec::new(),
                time: TimeRange::default(),
                page,
                with_data,
            })
            .await?;
        found.extend(page.rows);
        match page.next {
            Some(next) => cursor = Cursor::After(next),
            None => break,
        }
    }
    Ok(found)
}

/// What an attempt says of its event; `with_data` adds the data.
pub(super) fn summary(
    event: &Event,
    destination_id: &str,
    with_data: bool,
) -> Result<Box<RawValue>, ApiError> {
    #[derive(Serialize)]
    struct Summary<'a> {
        id: &'a str,
        tenant_id: &'a str,
        destination_id: &'a str,
        topic: &'a str,
        time: Timestamp,
        eligible_for_retry: bool,
        metadata: &'a Metadata,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Box<RawValue>>,
    }
    let summary = Summary {
        id: &event.id,
        tenant_id: &event.tenant_id,
        destination_id,
        topic: &event.topic,
        time: event.time,
        eligible_for_retry: event.retryable,
        metadata: &event.metadata,
        data: with_data.then(|| data(event)).transpose()?,
    };
    raw(&summary)
}

fn answer(event: Event) -> Result<EventAnswer, ApiError> {
    let data = data(&event)?;
    let mut delivery_counts: BTreeMap<&'static str, usize> = DeliveryStatus::ALL
        .iter()
        .map(|status| (status.as_str(), 0))
        .collect();
    for delivery in &event.deliveries {
        *delivery_counts.entry(delivery.status.as_str()).or_default() += 1;
    }
    Ok(EventAnswer {
        id: event.id,
        tenant_id: event.tenant_id,
        matched_destination_ids: event
            .deliveries
            .iter()
            .map(|one| one.destination_id.clone())
            .collect(),
        topic: event.topic,
        time: event.time,
        accepted_at: event.accepted_at,
        eligible_for_retry: event.retryable,
        metadata: event.metadata,
        data,
        delivery_counts,
        deliveries: event
            .deliveries
            .into_iter()
            .map(|one| DeliverySummary {
                id: one.id,
                destination_id: one.destination_id,
                status: one.status,
            })
            .collect(),
    })
}

/// The data as published, byte for byte.
fn data(event: &Event) -> Result<Box<RawValue>, ApiError> {
    let text = std::str::from_utf8(&event.data).map_err(ApiError::internal)?;
    RawValue::from_string(text.to_owned()).map_err(ApiError::internal)
}
