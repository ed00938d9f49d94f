//! Tenants: the application's customers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_core::time::Timestamp;
use postrider_store::page::PageRequest;
use postrider_store::record::{Metadata, Tenant, TenantQuery, Upserted};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::alerts::refuse_operator;
use super::cursor::List;
use super::error::ApiError;
use super::extract::{Body, Segments};
use super::json::{Sent, parse_object};
use super::limits::{check_id, read_plain_metadata};
use super::query::{Query, pagination};
use super::{App, Shared};

const MAX_LIMIT: usize = 100;
const DEFAULT_LIMIT: usize = 20;

#[derive(Debug, Serialize)]
struct TenantAnswer {
    id: String,
    destinations_count: usize,
    topics: Vec<String>,
    metadata: Option<Metadata>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// `PUT /tenants/{tenant_id}`: creates it, or replaces its metadata.
pub(super) async fn put(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
    Body(body): Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    #[derive(Deserialize)]
    struct Put<'a> {
        #[serde(default, borrow)]
        metadata: Sent<'a>,
    }
    refuse_operator(&id)?;
    let mut faults = Vec::new();
    check_id("tenant_id", &id, &mut faults);
    let metadata = if body.trim_ascii().is_empty() {
        None
    } else {
        let put: Put<'_> = parse_object(&body)?;
        read_plain_metadata("metadata", put.metadata, &mut faults)
    };
    if !faults.is_empty() {
        return Err(ApiError::validation(faults));
    }
    let metadata = metadata.filter(|metadata| !metadata.is_empty());
    let (status, tenant) = match app.directory.upsert_tenant(id, metadata, app.now()).await? {
        Upserted::Created(tenant) => (StatusCode::CREATED, tenant),
        Upserted::Updated(tenant) => (StatusCode::OK, tenant),
    };
    Ok((status, Json(json!(answer(&app, tenant)))))
}

/// `GET /tenants/{tenant_id}`
pub(super) async fn get(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, ApiError> {
    let view = app
        .directory
        .tenant(&id)
        .ok_or_else(|| ApiError::not_found("tenant not found"))?;
    Ok(Json(json!(answer(&app, view.tenant))))
}

/// `DELETE /tenants/{tenant_id}`: with its destinations.
pub(super) async fn delete(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, ApiError> {
    refuse_operator(&id)?;
    app.directory.delete_tenant(id, app.now()).await?;
    Ok(Json(json!({ "success": true })))
}

/// `GET /tenants`
pub(super) async fn list(State(app): State<Shared>, mut query: Query) -> Result<Json<Value>, ApiError> {
    let ids = app.store.ids();
    let limit = match query.one("limit").map(str::parse::<usize>) {
        None => DEFAULT_LIMIT,
        Some(Ok(limit)) if (1..=MAX_LIMIT).contains(&limit) => limit,
        Some(_) => {
            return Err(ApiError::bad_request(format!(
                "limit must be between 1 and {MAX_LIMIT}"
            )));
        }
    };
    let cursor = query.cursor(List::Tenants, ids)?;
    let request = PageRequest {
        limit,
        direction: query.direction(),
        cursor,
    };
    let wanted = query.list("id");
    query.finish()?;
    let (page, count) = app
        .store
        .tenants(TenantQuery {
            ids: wanted,
            page: request,
        })
        .await?;
    let pagination = pagination(List::Tenants, ids, "created_at", request, &page);
    let models: Vec<_> = page.rows.into_iter().map(|tenant| answer(&app, tenant)).collect();
    Ok(Json(
        json!({ "models": models, "pagination": pagination, "count": count }),
    ))
}

fn answer(app: &App, tenant: Tenant) -> TenantAnswer {
    let (destinations_count, topics) = app
        .directory
        .tenant(&tenant.id)
        .map_or((0, Vec::new()), |view| (view.destinations_count, view.topics));
    let Tenant {
        id,
        metadata,
        created_at,
        updated_at,
        ..
    } = tenant;
    TenantAnswer {
        id,
        destinations_count,
        topics,
        metadata,
        created_at,
        updated_at,
    }
}
