//! How destinations fare: what stops them, until when, and why, in words too.
//!
//! The engine's loop answers from memory; only the page of one destination asks the store as well, how much waits.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use postrider_core::breaker::BreakerState;
use postrider_core::dispatcher::{LaneView, Rank, Standing};
use postrider_core::id::{DestinationKey, IdCodec, IdKind};
use postrider_core::pulse::Vitals;
use postrider_core::time::Timestamp;
use postrider_store::record::Backlog;
use serde::Serialize;
use serde_json::{Value, json};

use super::destinations::find;
use super::error::ApiError;
use super::extract::Segments;
use super::query::Query;
use super::{App, Shared};
use crate::directory::Entry;

/// Pending deliveries are counted no further.
const MAX_COUNTED: u32 = 100_000;
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// A destination's health as it is answered.
#[derive(Debug, Serialize)]
struct HealthAnswer<'a> {
    tenant_id: &'a str,
    destination_id: &'a str,
    status: Standing,
    explanation: String,
    until: Option<Timestamp>,
    breaker: BreakerAnswer<'a>,
    hold_until: Option<Timestamp>,
    window: WindowAnswer,
    rate_limit_per_second: Option<NonZeroU32>,
    tenant_rate_limit_per_second: Option<NonZeroU32>,
    recent: RecentAnswer,
    in_flight: u32,
    pending: PendingAnswer,
    oldest_due_at: Option<Timestamp>,
    oldest_due_age_ms: u64,
    consecutive_failures: u32,
    failing_since: Option<Timestamp>,
    disabled_at: Option<Timestamp>,
    disabled_reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct BreakerAnswer<'a> {
    state: BreakerState,
    trigger: Option<&'static str>,
    reason: Option<&'a str>,
    opened_at: Option<Timestamp>,
    next_probe_at: Option<Timestamp>,
    failed_probes: u32,
}

#[derive(Debug, Serialize)]
struct WindowAnswer {
    size: u32,
    ceiling: u32,
    baseline_ms: Option<u64>,
}

/// The attempts of the time over which the breaker looks back.
#[derive(Debug, Serialize)]
struct RecentAnswer {
    attempts: u32,
    failures: u32,
    /// Of 1.
    failure_rate: Option<f64>,
    p50_ms: Option<u64>,
    p95_ms: Option<u64>,
    p99_ms: Option<u64>,
}

impl From<Vitals> for RecentAnswer {
    fn from(vitals: Vitals) -> Self {
        let Vitals {
            attempts, failures, ..
        } = vitals;
        let rate = f64::from(failures) / f64::from(attempts);
        Self {
            attempts,
            failures,
            failure_rate: (attempts > 0).then_some((rate * 1_000.0).round() / 1_000.0),
            p50_ms: vitals.p50.map(millis),
            p95_ms: vitals.p95.map(millis),
            p99_ms: vitals.p99.map(millis),
        }
    }
}

#[derive(Debug, Serialize)]
struct PendingAnswer {
    in_memory: usize,
    /// All, counted up to a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_store: Option<u64>,
    /// Whether there are more than these numbers say.
    more: bool,
}

impl<'a> HealthAnswer<'a> {
    fn new(entry: &'a Entry, view: &'a LaneView, backlog: Option<Backlog>, now: Timestamp) -> Self {
        let disabled = entry.record.disabled.as_ref();
        let opening = view.opening.as_ref();
        let first_due = backlog.map_or(view.next_due_at, |backlog| backlog.first_due_at);
        let oldest_due_at = first_due.filter(|due| *due <= now);
        Self {
            tenant_id: &entry.target.tenant_id,
            destination_id: &entry.record.id,
            status: disabled.map_or(view.standing, |_| Standing::Disabled),
            explanation: explanation(entry, view),
            until: view.until.filter(|_| disabled.is_none()),
            breaker: BreakerAnswer {
                state: view.breaker,
                trigger: opening.map(|opening| opening.reason.kind.as_str()),
                reason: opening.map(|opening| opening.reason.text.as_str()),
                opened_at: opening.map(|opening| opening.opened_at),
                next_probe_at: view.next_probe_at().filter(|_| disabled.is_none()),
                failed_probes: opening.map_or(0, |opening| opening.failed_probes),
            },
            hold_until: view.hold_until,
            window: WindowAnswer {
                size: view.window,
                ceiling: view.ceiling,
                baseline_ms: view.baseline.map(millis),
            },
            rate_limit_per_second: entry.target.rate_limit,
            tenant_rate_limit_per_second: entry.target.share.rate_limit,
            recent: view.vitals.into(),
            in_flight: view.in_flight,
            pending: PendingAnswer {
                in_memory: view.queued,
                in_store: backlog.map(|backlog| backlog.pending),
                more: backlog.map_or(view.more_in_store, |backlog| backlog.more),
            },
            oldest_due_at,
            oldest_due_age_ms: oldest_due_at.map_or(0, |due| millis(now.since(due))),
            consecutive_failures: view.failures,
            failing_since: view.failing_since,
            disabled_at: disabled.map(|disabled| disabled.at),
            disabled_reason: disabled.map(|disabled| disabled.reason.as_str()),
        }
    }

    fn into_value(self) -> Result<Value, ApiError> {
        serde_json::to_value(self).map_err(ApiError::internal)
    }
}

/// `GET /tenants/{tenant_id}/destinations/{destination_id}/health`
pub(super) async fn get(
    State(app): State<Shared>,
    Segments((tenant_id, id)): Segments<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let entry = find(&app, &tenant_id, &id)?;
    let view = app.engine.view(entry.record.key).await?;
    one(&app, &entry, &view).await
}

/// `POST /tenants/{tenant_id}/destinations/{destination_id}/breaker/reset`: closes the breaker, ends a hold, forgets the
/// failures in a row.
pub(super) async fn reset(
    State(app): State<Shared>,
    Segments((tenant_id, id)): Segments<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let entry = find(&app, &tenant_id, &id)?;
    let view = app.engine.reset(entry.record.key).await?;
    one(&app, &entry, &view).await
}

/// Where a destination stands in the list: the worse, the earlier; among equals by age.
type Place = (Reverse<Rank>, DestinationKey);

/// `GET /destinations/health`: the destinations of all tenants, worst first. Those that fail or are stopped, then the
/// disabled ones, then others that something waits for, then the rest.
pub(super) async fn list(State(app): State<Shared>, mut query: Query) -> Result<Json<Value>, ApiError> {
    let limit = limit(&mut query);
    let after = after(&query, app.store.ids())?;
    query.finish()?;
    let ranks: HashMap<_, _> = app.engine.ranks().await?.into_iter().collect();
    let rank = |key, disabled| {
        let known: Rank = ranks.get(&key).copied().unwrap_or_default();
        Reverse(if disabled {
            known.max(Rank::DISABLED)
        } else {
            known
        })
    };
    let all = app.directory.all().into_iter();
    let places = all.map(|(key, disabled)| (rank(key, disabled), key));
    let mut places: Vec<Place> = places
        .filter(|place| after.is_none_or(|after| *place > after))
        .collect();
    let more = places.len() > limit;
    if more {
        places.select_nth_unstable(limit);
        places.truncate(limit);
    }
    places.sort_unstable();
    let next = places
        .last()
        .filter(|_| more)
        .map(|last| cursor(*last, app.store.ids()));
    let views = app
        .engine
        .views(places.iter().map(|(_, key)| *key).collect())
        .await?;
    let now = app.now();
    let models = views
        .iter()
        .filter_map(|view| Some((app.directory.entry(view.destination)?, view)))
        .map(|(entry, view)| HealthAnswer::new(&entry, view, None, now).into_value())
        .collect::<Result<Vec<_>, _>>()?;
    let pagination = json!({ "limit": limit, "next": next });
    Ok(Json(json!({ "models": models, "pagination": pagination })))
}

/// Prefix of the list's cursors.
const CURSOR: &str = "hlt_";

/// Rank and key, each as ids are encoded, so that only what was issued here decodes.
fn cursor((Reverse(rank), key): Place, ids: &IdCodec) -> String {
    let rank = i64::try_from(rank.as_u64()).unwrap_or(i64::MAX);
    let part = |kind: IdKind, key| ids.encode(kind, key).replacen(kind.prefix(), "", 1);
    format!(
        "{CURSOR}{}.{}",
        part(IdKind::Event, rank),
        part(IdKind::Delivery, key.0)
    )
}

fn after(query: &Query, ids: &IdCodec) -> Result<Option<Place>, ApiError> {
    let Some(text) = query.one("next") else {
        return Ok(None);
    };
    let decoded = text.strip_prefix(CURSOR).and_then(|parts| {
        let (rank, key) = parts.split_once('.')?;
        let part = |kind: IdKind, hex: &str| ids.decode(kind, &format!("{}{hex}", kind.prefix()));
        let rank = u64::try_from(part(IdKind::Event, rank)?).ok()?;
        Some((
            Reverse(Rank::from_u64(rank)),
            DestinationKey(part(IdKind::Delivery, key)?),
        ))
    });
    let invalid = || ApiError::bad_request("invalid next cursor");
    decoded.map(Some).ok_or_else(invalid)
}

async fn one(app: &App, entry: &Entry, view: &LaneView) -> Result<Json<Value>, ApiError> {
    let backlog = app.store.backlog(entry.record.key, MAX_COUNTED).await?;
    HealthAnswer::new(entry, view, Some(backlog), app.now())
        .into_value()
        .map(Json)
}

fn explanation(entry: &Entry, view: &LaneView) -> String {
    if let Some(disabled) = &entry.record.disabled {
        let (at, reason) = (disabled.at, &disabled.reason);
        return format!("Nothing is sent, because the destination is disabled since {at}: {reason}.");
    }
    match &entry.target.url {
        Err(reason) => format!("Nothing can be sent, because the destination is no longer valid: {reason}."),
        Ok(_) => view.explanation(),
    }
}

fn limit(query: &mut Query) -> usize {
    let Some(text) = query.one("limit") else {
        return DEFAULT_LIMIT;
    };
    match text.parse::<usize>() {
        Ok(limit) if limit >= 1 => limit.min(MAX_LIMIT),
        _ => {
            query.fault("limit", format!("must be a number from 1 to {MAX_LIMIT}"));
            DEFAULT_LIMIT
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
