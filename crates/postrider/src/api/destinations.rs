//! Destinations: where a tenant wants its events.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_core::time::Timestamp;
use postrider_store::record::{Destination, Metadata};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::alerts::refuse_operator;
use super::destination_body::{self, Change, read_draft};
use super::error::ApiError;
use super::extract::{Body, Segments};
use super::json::raw;
use super::query::Query;
use super::retry_policies::{EffectiveAnswer, effective};
use super::secrets::{new_destination_id, new_secret};
use super::{App, Shared};
use crate::alerts::operator;
use crate::directory::Entry;

const MASK: &str = "***";

/// A destination as it is answered.
#[derive(Debug, Serialize)]
pub(super) struct DestinationAnswer<'a> {
    id: &'a str,
    tenant_id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    topics: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<&'a RawValue>,
    config: BTreeMap<&'a str, &'a str>,
    credentials: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_policy: Option<&'a RawValue>,
    /// Only in the answer for one destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_retry_policy: Option<EffectiveAnswer>,
    created_at: Timestamp,
    updated_at: Timestamp,
    disabled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_reason: Option<&'a str>,
    target: &'a str,
    /// Why nothing can be sent, when the destination is no longer valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    invalid_reason: Option<&'a str>,
}

/// A destination as JSON text.
type Answer = Box<RawValue>;

/// A destination for the eyes of its owner: with its secrets, but not with one that has run out. The one of the operator has
/// its secret from the configuration, which is nobody else's.
fn answer(entry: &Entry, now: Timestamp) -> Result<Answer, ApiError> {
    raw(&parts(entry, now))
}

/// The same, with what its retry policy amounts to.
fn whole_answer(app: &App, entry: &Entry, now: Timestamp) -> Result<Answer, ApiError> {
    let mut answer = parts(entry, now);
    answer.effective_retry_policy = effective(app, entry.record.retry_policy.as_deref());
    raw(&answer)
}

fn parts(entry: &Entry, now: Timestamp) -> DestinationAnswer<'_> {
    let mut answer = masked_parts(entry);
    if entry.target.tenant_id == operator::TENANT {
        return answer;
    }
    let fields = &entry.record.credentials.fields;
    let end = fields
        .get("previous_secret_invalid_at")
        .and_then(|end| Timestamp::parse(end.expose()).ok());
    let has_run_out = end.is_some_and(|end| end <= now);
    answer.credentials = fields
        .iter()
        .filter(|(name, _)| !has_run_out || !name.starts_with("previous_secret"))
        .map(|(name, secret)| (name.as_str(), secret.expose()))
        .collect();
    answer
}

/// A destination inside another answer: its secrets and the values of its custom headers are masked.
pub(super) fn masked_answer(entry: &Entry) -> Result<Answer, ApiError> {
    let mut answer = masked_parts(entry);
    let headers: BTreeMap<&str, &str> = entry
        .target
        .headers
        .iter()
        .map(|(name, _)| (name, MASK))
        .collect();
    let masked = json!(headers).to_string();
    if let Some(custom) = answer.config.get_mut("custom_headers") {
        *custom = &masked;
    }
    raw(&answer)
}

fn masked_parts(entry: &Entry) -> DestinationAnswer<'_> {
    let Entry { record, target, .. } = entry;
    DestinationAnswer {
        id: &record.id,
        tenant_id: &target.tenant_id,
        kind: &record.kind,
        topics: &record.topics,
        filter: record
            .filter
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok()),
        config: record
            .config
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect(),
        credentials: record
            .credentials
            .fields
            .keys()
            .map(|name| (name.as_str(), MASK))
            .collect(),
        delivery_metadata: record.delivery_metadata.as_ref(),
        metadata: record.metadata.as_ref(),
        retry_policy: record
            .retry_policy
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok()),
        effective_retry_policy: None,
        created_at: record.created_at,
        updated_at: record.updated_at,
        disabled_at: record.disabled.as_ref().map(|disabled| disabled.at),
        disabled_reason: record.disabled.as_ref().map(|disabled| disabled.reason.as_str()),
        target: target
            .url
            .as_ref()
            .map_or(record.config.get("url").map_or("", String::as_str), |url| {
                url.display()
            }),
        invalid_reason: target.url.as_ref().err().map(String::as_str),
    }
}

/// `POST /tenants/{tenant_id}/destinations`
pub(super) async fn create(
    State(app): State<Shared>,
    Segments(tenant_id): Segments<String>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Answer>), ApiError> {
    refuse_operator(&tenant_id)?;
    if !app.directory.has_tenant(&tenant_id) {
        return Err(ApiError::not_found("tenant not found"));
    }
    let now = app.now();
    let (draft, faults) = read_draft(&body, now, new_destination_id(now)?, new_secret()?)?;
    let entry = app.directory.create(tenant_id, draft, faults).await?;
    Ok((StatusCode::CREATED, Json(whole_answer(&app, &entry, now)?)))
}

/// `GET /tenants/{tenant_id}/destinations/{destination_id}`
pub(super) async fn get(
    State(app): State<Shared>,
    Segments((tenant_id, id)): Segments<(String, String)>,
) -> Result<Json<Answer>, ApiError> {
    let entry = find(&app, &tenant_id, &id)?;
    whole_answer(&app, &entry, app.now()).map(Json)
}

/// `GET /tenants/{tenant_id}/destinations`: those of the given types that get all of the given topics.
pub(super) async fn list(
    State(app): State<Shared>,
    Segments(tenant_id): Segments<String>,
    query: Query,
) -> Result<Json<Vec<Answer>>, ApiError> {
    let entries = app
        .directory
        .destinations(&tenant_id)
        .ok_or_else(|| ApiError::not_found("tenant not found"))?;
    let (kinds, topics) = (query.list("type"), query.list("topics"));
    let now = app.now();
    let models = entries
        .iter()
        .filter(|entry| kinds.is_empty() || kinds.contains(&entry.record.kind))
        .filter(|entry| topics.iter().all(|topic| subscribes(entry, topic)))
        .map(|entry| answer(entry, now))
        .collect::<Result<_, _>>()?;
    Ok(Json(models))
}

/// `PATCH /tenants/{tenant_id}/destinations/{destination_id}`
pub(super) async fn patch(
    State(app): State<Shared>,
    Segments((tenant_id, id)): Segments<(String, String)>,
    Body(body): Body,
) -> Result<Json<Answer>, ApiError> {
    refuse_operator(&tenant_id)?;
    let before = find(&app, &tenant_id, &id)?;
    let now = app.now();
    let change = Change::read(&body, now)?;
    let fresh = new_secret()?;
    let entry = app
        .directory
        .change(&tenant_id, &id, now, move |record| {
            change.apply(record, now, fresh)
        })
        .await?;
    forgive_if_enabled(&app, &before, &entry).await;
    app.engine
        .changed(entry.record.key, makes_other_requests(&before, &entry));
    whole_answer(&app, &entry, now).map(Json)
}

/// Whether a receiver that failed before may be well now.
fn makes_other_requests(before: &Entry, after: &Entry) -> bool {
    let (before, after) = (&before.record, &after.record);
    before.config != after.config
        || before.credentials != after.credentials
        || before.delivery_metadata != after.delivery_metadata
}

/// `PUT /tenants/{tenant_id}/destinations/{destination_id}/enable`
pub(super) async fn enable(
    State(app): State<Shared>,
    Segments((tenant_id, id)): Segments<(String, String)>,
) -> Result<Json<Answer>, ApiError> {
    edit(&app, &tenant_id, &id, |record, _| record.disabled = None).await
}

/// `PUT /tenants/{tenant_id}/destinations/{destination_id}/disable`
pub(super) async fn disable(
    State(app): State<Shared>,
    Segments((tenant_id, id)): Segments<(String, String)>,
) -> Result<Json<Answer>, ApiError> {
    edit(&app, &tenant_id, &id, destination_body::disable).await
}

/// `DELETE /tenants/{tenant_id}/destinations/{destination_id}`: its pending deliveries are canceled.
pub(super) async fn delete(
    State(app): State<Shared>,
    Segments((tenant_id, id)): Segments<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    refuse_operator(&tenant_id)?;
    app.directory.delete(&tenant_id, &id, app.now()).await?;
    Ok(Json(json!({ "success": true })))
}

async fn edit(
    app: &App,
    tenant_id: &str,
    id: &str,
    edit: fn(&mut Destination, Timestamp),
) -> Result<Json<Answer>, ApiError> {
    let before = find(app, tenant_id, id)?;
    let now = app.now();
    let change = move |record: &mut Destination| {
        edit(record, now);
        Vec::new()
    };
    let entry = app.directory.change(tenant_id, id, now, change).await?;
    forgive_if_enabled(app, &before, &entry).await;
    whole_answer(app, &entry, now).map(Json)
}

/// Whoever enables a destination says that it is well: what the engine holds against it is forgotten. An engine that does
/// not run holds nothing in memory, and keeps what it wrote down until the first success.
async fn forgive_if_enabled(app: &App, before: &Entry, after: &Entry) {
    let is_enabled = before.record.disabled.is_some() && after.record.disabled.is_none();
    if is_enabled && app.engine.reset(after.record.key).await.is_err() {
        tracing::debug!(
            destination = after.record.id,
            "no engine to tell that a destination is enabled"
        );
    }
}

/// A destination, or which of tenant and destination is missing.
pub(super) fn find(app: &App, tenant_id: &str, id: &str) -> Result<Arc<Entry>, ApiError> {
    app.directory.destination(tenant_id, id).ok_or_else(|| {
        let is_tenant_known = app.directory.has_tenant(tenant_id);
        ApiError::not_found(if is_tenant_known {
            "destination not found"
        } else {
            "tenant not found"
        })
    })
}

fn subscribes(entry: &Entry, topic: &str) -> bool {
    if topic == "*" {
        entry.record.topics.iter().any(|pattern| pattern == "*")
    } else {
        entry.target.topics.matches(topic)
    }
}
