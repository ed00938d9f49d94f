//! A manual retry: one event to one destination, now.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_store::record::Retried;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::error::ApiError;
use super::events;
use super::extract::Body;
use super::json::{Sent, parse_object};

/// Tenants whose events may share an id before a retry has to say which it means.
const MAX_NAMESAKES: usize = 100;

#[derive(Debug, Deserialize)]
struct RetryBody<'a> {
    #[serde(default, borrow)]
    event_id: Sent<'a>,
    #[serde(default, borrow)]
    destination_id: Sent<'a>,
    #[serde(default, borrow)]
    tenant_id: Sent<'a>,
}

/// `POST /retry`. Ids are unique within a tenant only; without `tenant_id`, and when several tenants have both, it is refused.
pub(super) async fn retry(
    State(app): State<Shared>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let body: RetryBody<'_> = parse_object(&body)?;
    let mut faults = Vec::new();
    let event_id = body.event_id.required_text("event_id", &mut faults);
    let destination_id = body.destination_id.required_text("destination_id", &mut faults);
    let tenant_id = body.tenant_id.text("tenant_id", &mut faults);
    if !faults.is_empty() {
        return Err(ApiError::validation(faults));
    }
    let ids = vec![event_id.clone()];
    let tenant_ids = tenant_id.into_iter().collect();
    let events = events::all(&app, ids, tenant_ids, MAX_NAMESAKES, false).await?;
    if events.is_empty() {
        return Err(ApiError::not_found("event not found"));
    }
    let mut found = events.iter().filter_map(|event| {
        let entry = app.directory.destination(&event.tenant_id, &destination_id)?;
        Some((&event.tenant_id, entry))
    });
    let (tenant_id, entry) = found
        .next()
        .ok_or_else(|| ApiError::not_found("destination not found"))?;
    if found.any(|(other, _)| other != tenant_id) {
        let text = "several tenants have this event and destination: name one by tenant_id";
        return Err(ApiError::bad_request(text));
    }
    if entry.record.disabled.is_some() {
        let error = ApiError::bad_request("Destination is disabled");
        return Err(error.with_data(json!({ "error": "destination_disabled" })));
    }
    match app
        .store
        .retry(Some(tenant_id), &event_id, entry.record.key, app.now())
        .await?
    {
        Retried::Scheduled => Ok((StatusCode::ACCEPTED, Json(json!({ "success": true })))),
        Retried::EventMissing => Err(ApiError::not_found("event not found")),
        Retried::NoDelivery => Err(ApiError::bad_request("destination does not match event")),
    }
}
