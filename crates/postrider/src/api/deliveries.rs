//! Deliveries: what of each event happens at each destination, and when next.

use axum::Json;
use axum::extract::State;
use postrider_core::delivery::{DeadReason, DelayCause, DeliveryStatus, Tier};
use postrider_core::outcome::{Category, Outcome};
use postrider_core::policy::ForecastAttempt;
use postrider_core::time::Timestamp;
use postrider_store::record::{Delivery, DeliveryQuery};
use serde::Serialize;

use super::attempt_answer::{AttemptAnswer, Include};
use super::cursor::List;
use super::error::ApiError;
use super::extract::Segments;
use super::query::{Models, Query, pagination};
use super::retry_policies::assumed;
use super::waiting::{Stops, WaitingAnswer};
use super::{App, Shared};

/// A delivery as it is answered.
#[derive(Debug, Serialize)]
pub(super) struct DeliveryAnswer {
    id: String,
    tenant_id: String,
    event_id: String,
    destination_id: String,
    topic: String,
    status: DeliveryStatus,
    /// Why it is dead.
    reason: Option<DeadReason>,
    /// Category of its last outcome.
    category: Option<Category>,
    /// Requests made so far.
    attempts: u32,
    next_attempt_at: Option<Timestamp>,
    /// How the next attempt came to be planned; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt: Option<PlanAnswer>,
    /// What keeps it from being sent when it is due; absent when nothing does now.
    #[serde(flatten)]
    waiting: Option<WaitingAnswer>,
    eligible_for_retry: bool,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// Without request and response.
    last_attempt: Option<AttemptAnswer>,
    /// Only in the answer for one delivery, while it is pending at a destination that is not disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<ForecastAnswer>,
}

/// The rest of a delivery's life if every attempt sees the assumed outcome, at once, and nothing but the policy makes it
/// wait.
#[derive(Debug, Serialize)]
struct ForecastAnswer {
    assume: String,
    attempts: Vec<PlanAnswer>,
    ends_at: Timestamp,
    /// Why it would be dead.
    reason: Option<DeadReason>,
}

#[derive(Debug, Serialize)]
struct PlanAnswer {
    number: u32,
    planned_at: Timestamp,
    tier: Tier,
    delay_ms: u64,
    delay_cause: DelayCause,
}

/// `GET /deliveries`
pub(super) async fn list(
    State(app): State<Shared>,
    mut query: Query,
) -> Result<Json<Models<DeliveryAnswer>>, ApiError> {
    let ids = app.store.ids();
    let page = query.page(List::Deliveries, ids)?;
    let wanted = DeliveryQuery {
        tenant_ids: query.list("tenant_id"),
        event_ids: query.list("event_id"),
        destination_ids: query.list("destination_id"),
        topics: query.list("topic"),
        statuses: statuses(&mut query),
        time: query.time("time"),
        page,
    };
    query.finish()?;
    let found = app.store.deliveries(wanted).await?;
    let pagination = pagination(List::Deliveries, ids, "time", page, &found);
    let stops = Stops::ask(&app, &found.rows).await;
    let with_waiting = |delivery: Delivery| DeliveryAnswer {
        waiting: stops.of(&delivery),
        ..answer(delivery)
    };
    Ok(Json(Models {
        models: found.rows.into_iter().map(with_waiting).collect(),
        pagination,
    }))
}

/// `GET /deliveries/{delivery_id}`
pub(super) async fn get(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
    mut query: Query,
) -> Result<Json<DeliveryAnswer>, ApiError> {
    let tenant_ids = query.list("tenant_id");
    let (word, outcome) = assumed(&mut query);
    query.finish()?;
    let is_wanted = |delivery: &Delivery| tenant_ids.is_empty() || tenant_ids.contains(&delivery.tenant_id);
    let found = app.store.delivery(&id).await?.filter(is_wanted);
    let delivery = found.ok_or_else(|| ApiError::not_found("delivery not found"))?;
    let forecast = forecast(&app, &delivery, word, &outcome);
    let stops = Stops::ask(&app, std::slice::from_ref(&delivery)).await;
    Ok(Json(DeliveryAnswer {
        forecast,
        waiting: stops.of(&delivery),
        ..answer(delivery)
    }))
}

fn forecast(app: &App, delivery: &Delivery, assume: String, outcome: &Outcome) -> Option<ForecastAnswer> {
    let plan = delivery.plan?;
    let target = app.directory.target(delivery.destination)?;
    if target.disabled {
        return None;
    }
    let forecast = target.policy.forecast(
        delivery.key,
        &delivery.progress,
        &plan,
        delivery.retryable,
        outcome,
        app.now(),
    );
    Some(ForecastAnswer {
        assume,
        attempts: forecast.attempts.iter().map(planned).collect(),
        ends_at: forecast.ends_at,
        reason: forecast.dead,
    })
}

fn planned(attempt: &ForecastAttempt) -> PlanAnswer {
    PlanAnswer {
        number: attempt.number,
        planned_at: attempt.due_at,
        tier: attempt.tier,
        delay_ms: attempt.delay_ms,
        delay_cause: attempt.cause,
    }
}

fn statuses(query: &mut Query) -> Vec<DeliveryStatus> {
    let mut statuses = Vec::new();
    for word in query.list("status") {
        match word.parse::<DeliveryStatus>() {
            Ok(status) => statuses.push(status),
            Err(unknown) => query.fault("status", unknown.to_string()),
        }
    }
    statuses
}

fn answer(delivery: Delivery) -> DeliveryAnswer {
    let attempts = delivery.progress.attempts;
    DeliveryAnswer {
        id: delivery.id,
        tenant_id: delivery.tenant_id,
        event_id: delivery.event_id,
        destination_id: delivery.destination_id,
        topic: delivery.topic,
        status: delivery.status,
        reason: delivery.reason,
        category: delivery.category,
        attempts,
        next_attempt_at: delivery.plan.map(|plan| plan.due_at),
        next_attempt: delivery.plan.map(|plan| PlanAnswer {
            number: attempts.saturating_add(1),
            planned_at: plan.due_at,
            tier: plan.tier,
            delay_ms: u64::try_from(plan.delay.as_millis()).unwrap_or(u64::MAX),
            delay_cause: plan.cause,
        }),
        waiting: None,
        eligible_for_retry: delivery.retryable,
        created_at: delivery.created_at,
        ended_at: delivery.ended_at,
        last_attempt: delivery
            .last_attempt
            .map(|attempt| AttemptAnswer::new(*attempt, Include::default(), None, None)),
        forecast: None,
    }
}
