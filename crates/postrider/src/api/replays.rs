//! Replays: dead letters sent again as a job, with its progress.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use postrider_core::dispatcher::DEFAULT_REPLAY_RATE;
use postrider_core::replay::{MAX_RATE_PER_SECOND, ReplayConfig, ReplayState};
use postrider_core::time::Timestamp;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::replay::{
    ReplayChanged, ReplayCreated, ReplayPreview, ReplayQuery, ReplayScope, ReplaySpec,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::cursor::List;
use super::dead_letters::change::check_all;
use super::dead_letters::filter;
use super::error::ApiError;
use super::extract::{Body, Segments};
use super::json::{Fields, parse_object};
use super::query::{Models, Query, pagination};
use super::replay_answer::ReplayAnswer;
use super::{App, Shared};

/// Destinations that a dry run lists.
const MAX_LISTED: usize = 100;

/// A new replay, and what it leaves out.
#[derive(Debug, Serialize)]
struct MadeAnswer {
    #[serde(flatten)]
    replay: ReplayAnswer,
    /// Dead letters that were meant, but whose destinations are deleted.
    unreachable: u64,
}

/// `POST /replays`
pub(super) async fn create(State(app): State<Shared>, Body(body): Body) -> Result<Response, ApiError> {
    let mut fields: Fields<'_> = parse_object(&body)?;
    let mut faults = Vec::new();
    let dry_run = fields.take("dry_run").boolean("dry_run", &mut faults) == Some(true);
    let all = fields.take("all").boolean("all", &mut faults) == Some(true);
    let since = fields.take("since").filled_instant("since", &mut faults);
    let (rate_per_second, config) = terms(&mut fields, &mut faults);
    let filter = filter::from_body(&mut fields, &mut faults);
    fields.refuse_others(&mut faults);
    if faults.is_empty() {
        match since {
            None => check_all(all, filter.is_empty(), &mut faults),
            Some(since) => {
                check_everything(all, &filter, config, &mut faults);
                if since > app.now() {
                    faults.push("since must not be in the future".to_owned());
                }
            }
        }
    }
    if !faults.is_empty() {
        return Err(ApiError::validation(faults));
    }
    let scope = match since {
        None => ReplayScope::DeadLetters(filter),
        Some(since) => everything(&app, &filter, since)?,
    };
    if dry_run {
        let preview = app.store.preview_replay(scope).await?;
        return Ok(Json(previewed(&app, &preview)).into_response());
    }
    let spec = ReplaySpec {
        scope,
        config,
        rate_per_second,
    };
    let made = start(&app, spec).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// `POST /dead-letters/{delivery_id}/replay`: a replay of one, in the same way.
pub(super) async fn create_one(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
    Body(body): Body,
) -> Result<Response, ApiError> {
    let body = if body.trim_ascii().is_empty() {
        &b"{}"[..]
    } else {
        &body
    };
    let mut fields: Fields<'_> = parse_object(body)?;
    let mut faults = Vec::new();
    let (rate_per_second, config) = terms(&mut fields, &mut faults);
    fields.refuse_others(&mut faults);
    if !faults.is_empty() {
        return Err(ApiError::validation(faults));
    }
    let filter = DeadLetterFilter {
        ids: vec![id],
        ..DeadLetterFilter::default()
    };
    let scope = ReplayScope::DeadLetters(filter);
    // One, found by its id: nothing is counted.
    let preview = app.store.preview_replay(scope.clone()).await?;
    match (preview.total, preview.unreachable) {
        (0, 0) => return Err(ApiError::not_found("dead letter not found")),
        (0, _) => {
            let text =
                "the dead letter's destination is deleted: it can be exported or purged, not sent again";
            return Err(ApiError::new(StatusCode::CONFLICT, text));
        }
        _ => {}
    }
    let spec = ReplaySpec {
        scope,
        config,
        rate_per_second,
    };
    let made = start(&app, spec).await?;
    Ok((StatusCode::CREATED, Json(made.replay)).into_response())
}

fn terms(fields: &mut Fields<'_>, faults: &mut Vec<String>) -> (u32, ReplayConfig) {
    let rate = fields.take_nullable("rate_per_second");
    let rate = rate.count("rate_per_second", 1, MAX_RATE_PER_SECOND, faults);
    let config = match fields.take_nullable("config").filled_text("config", faults) {
        None => ReplayConfig::Current,
        Some(word) => word.parse().unwrap_or_else(|unknown| {
            faults.push(format!("config {unknown}"));
            ReplayConfig::Current
        }),
    };
    (rate.unwrap_or(DEFAULT_REPLAY_RATE.get()), config)
}

/// With `since`, exactly one destination is named, and nothing else: everything of it is sent.
fn check_everything(all: bool, filter: &DeadLetterFilter, config: ReplayConfig, faults: &mut Vec<String>) {
    let others = DeadLetterFilter {
        tenant_ids: Vec::new(),
        destination_ids: Vec::new(),
        ..filter.clone()
    };
    if filter.destination_ids.len() != 1 {
        faults.push("destination_id must name exactly one destination when there is since".to_owned());
    }
    if filter.tenant_ids.len() != 1 {
        faults.push("tenant_id must name the destination's tenant when there is since".to_owned());
    }
    if !others.is_empty() {
        faults.push(
            "since must not be combined with a filter other than tenant_id and destination_id".to_owned(),
        );
    }
    if all {
        faults.push("all must not be true when there is since".to_owned());
    }
    if config == ReplayConfig::Original {
        let text = "config must be current when there is since: what was delivered has kept no configuration";
        faults.push(text.to_owned());
    }
}

fn everything(app: &App, filter: &DeadLetterFilter, since: Timestamp) -> Result<ReplayScope, ApiError> {
    let named = filter.tenant_ids.first().zip(filter.destination_ids.first());
    let entry = named.and_then(|(tenant, destination)| app.directory.destination(tenant, destination));
    let entry = entry.ok_or_else(|| ApiError::not_found("destination not found"))?;
    Ok(ReplayScope::EverythingSince {
        destination: entry.record.key,
        since,
    })
}

async fn start(app: &App, spec: ReplaySpec) -> Result<MadeAnswer, ApiError> {
    match app.store.create_replay(spec, app.now()).await? {
        ReplayCreated::Created { replay, unreachable } => {
            app.replays.notify_one();
            Ok(MadeAnswer {
                replay: ReplayAnswer::new(app, replay),
                unreachable,
            })
        }
        ReplayCreated::LimitReached => {
            let text = "as many replays are running or paused as there may be: wait for one, or cancel one";
            Err(ApiError::new(StatusCode::CONFLICT, text))
        }
    }
}

fn previewed(app: &App, preview: &ReplayPreview) -> Value {
    let destinations: Vec<Value> = preview
        .destinations
        .iter()
        .take(MAX_LISTED)
        .filter_map(|(key, count)| {
            let entry = app.directory.entry(*key)?;
            Some(json!({
                "tenant_id": entry.target.tenant_id, "destination_id": entry.record.id, "count": count,
                "disabled": entry.target.disabled,
            }))
        })
        .collect();
    json!({
        "dry_run": true,
        "count": preview.total,
        "unreachable": preview.unreachable,
        "destinations": destinations,
    })
}

/// `GET /replays`
pub(super) async fn list(
    State(app): State<Shared>,
    mut query: Query,
) -> Result<Json<Models<ReplayAnswer>>, ApiError> {
    let ids = app.store.ids();
    let page = query.page(List::Replays, ids)?;
    let mut states = Vec::new();
    for word in query.list("state") {
        match word.parse::<ReplayState>() {
            Ok(state) => states.push(state),
            Err(unknown) => query.fault("state", unknown.to_string()),
        }
    }
    query.finish()?;
    let found = app.store.replays(ReplayQuery { states, page }).await?;
    let pagination = pagination(List::Replays, ids, "time", page, &found);
    let models = found
        .rows
        .into_iter()
        .map(|replay| ReplayAnswer::new(&app, replay));
    Ok(Json(Models {
        models: models.collect(),
        pagination,
    }))
}

/// `GET /replays/{replay_id}`
pub(super) async fn get(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<ReplayAnswer>, ApiError> {
    let detail = app.store.replay(&id).await?;
    let detail = detail.ok_or_else(|| ApiError::not_found("replay not found"))?;
    Ok(Json(ReplayAnswer::detailed(&app, detail)))
}

/// `POST /replays/{replay_id}/pause`
pub(super) async fn pause(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<ReplayAnswer>, ApiError> {
    change(&app, &id, ReplayState::Paused).await
}

/// `POST /replays/{replay_id}/resume`
pub(super) async fn resume(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<ReplayAnswer>, ApiError> {
    change(&app, &id, ReplayState::Running).await
}

/// `POST /replays/{replay_id}/cancel`
pub(super) async fn cancel(
    State(app): State<Shared>,
    Segments(id): Segments<String>,
) -> Result<Json<ReplayAnswer>, ApiError> {
    change(&app, &id, ReplayState::Canceled).await
}

async fn change(app: &App, id: &str, state: ReplayState) -> Result<Json<ReplayAnswer>, ApiError> {
    match app.store.change_replay(id, state, app.now()).await? {
        ReplayChanged::Changed(replay) => {
            app.replays.notify_one();
            Ok(Json(ReplayAnswer::new(app, replay)))
        }
        ReplayChanged::Refused(replay) => {
            let error = ApiError::new(StatusCode::CONFLICT, "the replay has ended");
            Err(error.with_data(json!({ "state": replay.state })))
        }
        ReplayChanged::Missing => Err(ApiError::not_found("replay not found")),
    }
}
