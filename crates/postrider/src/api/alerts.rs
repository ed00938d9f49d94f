//! What Postrider tells its operator: `GET /alerts`.

use std::str::FromStr;

use axum::Json;
use axum::extract::State;
use postrider_core::words::UnknownWord;
use postrider_store::alerts::AlertQuery;
use serde_json::value::RawValue;

use super::Shared;
use super::cursor::List;
use super::error::ApiError;
use super::json::raw;
use super::query::{Models, Query, pagination};
use crate::alerts::operator;
use crate::alerts::shape::AlertShape;

/// `GET /alerts`: those that fire first, then by when they were raised, the newest first.
pub(super) async fn list(
    State(app): State<Shared>,
    mut query: Query,
) -> Result<Json<Models<Box<RawValue>>>, ApiError> {
    let ids = app.store.ids();
    let page = query.page(List::Alerts, ids)?;
    let kinds = words(&mut query, "kind");
    let states = words(&mut query, "state");
    let (tenant_ids, destination_ids) = (query.list("tenant_id"), query.list("destination_id"));
    query.finish()?;
    let wanted = AlertQuery {
        kinds,
        // Both are all.
        state: (states.len() == 1).then(|| states[0]),
        tenant_ids,
        destination_ids,
        page,
    };
    let found = app.store.alerts(wanted).await?;
    let pagination = pagination(List::Alerts, ids, "time", page, &found);
    let models = found
        .rows
        .iter()
        .map(|alert| raw(&AlertShape::of(alert, ids)))
        .collect::<Result<_, _>>()?;
    Ok(Json(Models { models, pagination }))
}

/// Refuses what would change the tenant that alerts are sent by.
pub(super) fn refuse_operator(tenant_id: &str) -> Result<(), ApiError> {
    if tenant_id != operator::TENANT {
        return Ok(());
    }
    Err(ApiError::validation(vec![format!(
        "tenant_id {tenant_id} is reserved for Postrider's own alerts; choose another, or change [alerts] in the configuration"
    )]))
}

/// The values of a parameter as words of an enum, without repeats; a wrong one is a fault.
fn words<T: FromStr<Err = UnknownWord> + PartialEq>(query: &mut Query, name: &str) -> Vec<T> {
    let mut found: Vec<T> = Vec::new();
    for text in query.list(name) {
        match text.parse() {
            Ok(word) if found.contains(&word) => {}
            Ok(word) => found.push(word),
            Err(wrong) => query.fault(name, wrong.to_string()),
        }
    }
    found
}
