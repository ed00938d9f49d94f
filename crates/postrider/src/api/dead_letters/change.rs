//! What is done to dead letters and to deliveries that are to become some: deleting, ending by hand.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_store::StoreError;
use postrider_store::letter::{DeadLetterFilter, Withdrawn};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::error::ApiError;
use super::super::extract::{Body, Segments};
use super::super::json::{Fields, Sent, parse_object};
use super::super::{App, Shared};
use super::filter;

/// Dead letters that one transaction removes, and the pause after it, so that writers are not disturbed.
const STEP: u32 = 250;
const PAUSE: Duration = Duration::from_millis(10);
/// A purge that takes longer is answered with what is left.
const BUDGET: Duration = Duration::from_secs(20);

/// `POST /dead-letters/purge`
pub(in super::super) async fn purge(
    State(app): State<Shared>,
    Body(body): Body,
) -> Result<Json<Value>, ApiError> {
    let mut fields: Fields<'_> = parse_object(&body)?;
    let mut faults = Vec::new();
    let dry_run = fields.take("dry_run").boolean("dry_run", &mut faults) == Some(true);
    let all = fields.take("all").boolean("all", &mut faults) == Some(true);
    let upto = upto(fields.take("upto"), &mut faults);
    let filter = filter::from_body(&mut fields, &mut faults);
    fields.refuse_others(&mut faults);
    if faults.is_empty() {
        check_all(all, filter.is_empty(), &mut faults);
    }
    if !faults.is_empty() {
        return Err(ApiError::validation(faults));
    }
    let upper = match upto {
        Some(upper) => upper,
        None => app.store.last_dead_letter().await?,
    };
    let upto = upper.to_string();
    if dry_run {
        let count = app.store.count_dead_letters(filter, upper).await?;
        return Ok(Json(json!({ "dry_run": true, "count": count, "upto": upto })));
    }
    let Removed { purged, remaining } = remove(&app, filter, upper).await?;
    Ok(Json(
        json!({ "purged": purged, "remaining": remaining, "upto": upto }),
    ))
}

/// The bound that an earlier answer gave: what died later is not meant. A text, since it has more digits than a number of
/// JSON is sure to keep.
fn upto(sent: Sent<'_>, faults: &mut Vec<String>) -> Option<i64> {
    let text = sent.filled_text("upto", faults)?;
    let bound = text.parse().ok().filter(|bound| *bound >= 0);
    if bound.is_none() {
        faults.push("upto must be the upto of an earlier answer".to_owned());
    }
    bound
}

/// What a purge did.
struct Removed {
    purged: u64,
    /// How many of those that it meant are left; `None` when they are too many to count.
    remaining: Option<u64>,
}

/// A forgotten filter must not mean everything.
pub(in super::super) fn check_all(all: bool, is_empty: bool, faults: &mut Vec<String>) {
    if is_empty && !all {
        faults.push("all must be true when there is no filter".to_owned());
    }
    if all && !is_empty {
        faults.push("all must not be true when there is a filter".to_owned());
    }
}

/// Removes what died up to a serial, until the budget is used up.
async fn remove(app: &App, filter: DeadLetterFilter, upper: i64) -> Result<Removed, ApiError> {
    let end = Instant::now() + BUDGET;
    let (mut purged, mut after) = (0, 0);
    loop {
        let step = app
            .store
            .purge_dead_letters(filter.clone(), after, upper, STEP)
            .await?;
        purged += step.removed;
        let remaining = match step.next {
            None => Some(0),
            Some(_) if Instant::now() >= end => match app.store.count_dead_letters(filter, upper).await {
                Ok(count) => Some(count),
                Err(StoreError::TooSlow) => None,
                Err(error) => return Err(error.into()),
            },
            Some(next) => {
                after = next;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        return Ok(Removed { purged, remaining });
    }
}

/// `DELETE /dead-letters/{delivery_id}`
pub(in super::super) async fn delete(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, ApiError> {
    let filter = DeadLetterFilter {
        ids: vec![id],
        ..DeadLetterFilter::default()
    };
    match remove(&app, filter, i64::MAX).await?.purged {
        0 => Err(ApiError::not_found("dead letter not found")),
        _ => Ok(Json(json!({ "success": true }))),
    }
}

/// `POST /deliveries/{delivery_id}/dead-letter`
pub(in super::super) async fn dead_letter(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, ApiError> {
    let delivery = app.store.delivery(&id).await?;
    let entry = delivery.and_then(|delivery| app.directory.entry(delivery.destination));
    let context = entry.map(|entry| entry.context());
    answer(app.store.dead_letter_delivery(&id, context, app.now()).await?)
}

/// `POST /deliveries/{delivery_id}/cancel`
pub(in super::super) async fn cancel(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<Value>, ApiError> {
    answer(app.store.cancel_delivery(&id, app.now()).await?)
}

fn answer(withdrawn: Withdrawn) -> Result<Json<Value>, ApiError> {
    match withdrawn {
        Withdrawn::Done => Ok(Json(json!({ "success": true }))),
        Withdrawn::Missing => Err(ApiError::not_found("delivery not found")),
        Withdrawn::NotPending(status) => {
            let error = ApiError::new(StatusCode::CONFLICT, "the delivery is not pending");
            Err(error.with_data(json!({ "status": status })))
        }
    }
}
