//! Retry policies: those with a name, and a look at what one would do.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_core::delivery::DeadReason;
use postrider_core::outcome::Outcome;
use postrider_core::policy::{Effective, Instants, Preset, PreviewAttempt, Range, RawPolicy, assume};
use postrider_core::time::Timestamp;
use postrider_store::record::{NamedPolicy, PolicyChange, PolicyDeleted, PolicyPut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::error::ApiError;
use super::extract::{Body, Segments};
use super::json::{Sent, is_too_deep, parse_object, raw, text};
use super::query::Query;
use super::{App, Shared};
use crate::directory::compile::policy_faults;
use crate::directory::policies::MAX_POLICIES;

/// Bytes of a policy's JSON text.
pub(super) const MAX_POLICY_BYTES: usize = 16 << 10;
const MAX_CHANGES: usize = 100;
/// What a receiver is assumed to do when nobody says.
const USUAL_FAILURE: &str = "500";

/// A policy with a name.
#[derive(Debug, Serialize)]
pub(super) struct PolicyAnswer {
    name: String,
    preset: bool,
    /// As it is written.
    policy: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective: Option<EffectiveAnswer>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    stored: Option<StoredAnswer>,
}

#[derive(Debug, Serialize)]
struct StoredAnswer {
    created_at: Timestamp,
    updated_at: Timestamp,
    revision: i64,
}

/// What a policy amounts to. When it is no longer valid, because the global policy below it has changed: the global one,
/// which stands in for it, and what is wrong.
#[derive(Debug, Serialize)]
pub(super) struct EffectiveAnswer {
    #[serde(flatten)]
    effective: Effective,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

/// What a destination with this `retry_policy` does. `None` when not even the global policy is valid.
pub(super) fn effective(app: &App, text: Option<&str>) -> Option<EffectiveAnswer> {
    match app.directory.effective_policy(text) {
        Ok(effective) => Some(EffectiveAnswer {
            effective,
            problems: Vec::new(),
        }),
        Err(problems) => Some(EffectiveAnswer {
            effective: app.directory.effective_policy(None).ok()?,
            problems: policy_faults(&problems).collect(),
        }),
    }
}

/// `GET /retry-policies`: presets first, then those that were put, by name; and the global one.
pub(super) async fn list(State(app): State<Shared>) -> Result<Json<Value>, ApiError> {
    let mut models = Preset::ALL
        .iter()
        .map(|preset| preset_answer(*preset))
        .collect::<Result<Vec<_>, _>>()?;
    for stored in app.store.retry_policies().await? {
        models.push(answer(stored)?);
    }
    Ok(Json(json!({ "models": models, "global": effective(&app, None) })))
}

/// `GET /retry-policies/{name}`
pub(super) async fn get(
    State(app): State<Shared>,
    Segments(name): Segments<String>,
) -> Result<Json<PolicyAnswer>, ApiError> {
    let mut found = if let Ok(preset) = name.parse() {
        preset_answer(preset)?
    } else {
        let stored = app.store.retry_policies().await?;
        let found = stored.into_iter().find(|stored| stored.name == name);
        answer(found.ok_or_else(missing)?)?
    };
    found.effective = effective(&app, Some(&json!(name).to_string()));
    Ok(Json(found))
}

/// `PUT /retry-policies/{name}`: the body is the policy.
pub(super) async fn put(
    State(app): State<Shared>,
    Segments(name): Segments<String>,
    Body(body): Body,
) -> Result<(StatusCode, Json<PolicyAnswer>), ApiError> {
    let policy = RawPolicy::read(policy_text(&body)?);
    let policy = policy.map_err(|unread| app.directory.refuse_policy(&name, unread))?;
    let (status, stored) = match app.directory.put_policy(name, policy, app.now()).await? {
        PolicyPut::Created(stored) => (StatusCode::CREATED, stored),
        PolicyPut::Updated(stored) => (StatusCode::OK, stored),
        PolicyPut::LimitReached => {
            return Err(ApiError::bad_request(format!(
                "there are {MAX_POLICIES} retry policies already"
            )));
        }
    };
    app.engine.policies_changed();
    let effective = effective(&app, Some(&json!(stored.name).to_string()));
    let mut answer = answer(stored)?;
    answer.effective = effective;
    Ok((status, Json(answer)))
}

/// `DELETE /retry-policies/{name}`: refused while a destination uses it.
pub(super) async fn delete(
    State(app): State<Shared>,
    Segments(name): Segments<String>,
) -> Result<Json<Value>, ApiError> {
    if name.parse::<Preset>().is_ok() {
        return Err(ApiError::bad_request("a preset cannot be deleted"));
    }
    match app.directory.delete_policy(name, app.now()).await? {
        PolicyDeleted::Deleted => Ok(Json(json!({ "success": true }))),
        PolicyDeleted::Missing => Err(missing()),
        PolicyDeleted::InUse(destinations) => {
            let error = ApiError::new(StatusCode::CONFLICT, "the retry policy is in use");
            Err(error.with_data(json!({ "destinations_count": destinations })))
        }
    }
}

/// `GET /retry-policies/{name}/changes`: newest first, also of one that was deleted.
pub(super) async fn changes(
    State(app): State<Shared>,
    Segments(name): Segments<String>,
    mut query: Query,
) -> Result<Json<Value>, ApiError> {
    #[derive(Serialize)]
    struct ChangeAnswer {
        at: Timestamp,
        /// Absent when it was created.
        old: Option<Box<RawValue>>,
        /// Absent when it was deleted.
        new: Option<Box<RawValue>>,
    }
    let limit = match query.one("limit").map(str::parse::<usize>) {
        None => MAX_CHANGES,
        Some(Ok(limit)) if (1..=MAX_CHANGES).contains(&limit) => limit,
        Some(_) => {
            query.fault("limit", format!("must be between 1 and {MAX_CHANGES}"));
            MAX_CHANGES
        }
    };
    query.finish()?;
    let found = app.store.retry_policy_changes(&name, limit).await?;
    let is_known = !found.is_empty() || name.parse::<Preset>().is_ok();
    if !is_known {
        return Err(missing());
    }
    let models = found
        .into_iter()
        .map(|PolicyChange { at, old, new, .. }| {
            Ok(ChangeAnswer {
                at,
                old: old.map(stored_text).transpose()?,
                new: new.map(stored_text).transpose()?,
            })
        })
        .collect::<Result<Vec<_>, ApiError>>()?;
    Ok(Json(json!({ "models": models })))
}

#[derive(Debug, Deserialize)]
struct PreviewBody<'a> {
    #[serde(default, borrow)]
    policy: Sent<'a>,
    #[serde(default, borrow)]
    assume: Sent<'a>,
    #[serde(default, borrow)]
    from: Sent<'a>,
}

/// Every attempt that a policy would make.
#[derive(Debug, Serialize)]
pub(super) struct PreviewAnswer {
    #[serde(flatten)]
    effective: Effective,
    assume: String,
    from: Timestamp,
    attempts: Vec<PreviewAttemptAnswer>,
    /// Why there are no more.
    ends: Option<DeadReason>,
    /// From the first attempt to the last.
    window: RangeAnswer,
}

#[derive(Debug, Serialize)]
struct PreviewAttemptAnswer {
    #[serde(flatten)]
    attempt: PreviewAttempt,
    at: Instants,
}

#[derive(Debug, Serialize)]
struct RangeAnswer {
    #[serde(flatten)]
    range: Range,
    at: Instants,
}

/// `POST /retry-policies/preview`
pub(super) async fn preview(
    State(app): State<Shared>,
    Body(body): Body,
) -> Result<Json<PreviewAnswer>, ApiError> {
    let body: PreviewBody<'_> = if body.trim_ascii().is_empty() {
        parse_object(b"{}")?
    } else {
        parse_object(&body)?
    };
    let mut faults = Vec::new();
    let effective = app.directory.effective_policy(body.policy.value());
    let effective = effective
        .map_err(|problems| {
            faults.extend(problems.iter().map(|problem| match problem.field.as_str() {
                "retry_policy" => format!("policy {}", problem.message),
                field => format!("policy.{field} {}", problem.message),
            }));
        })
        .ok();
    let word = match body.assume.value() {
        None => USUAL_FAILURE.to_owned(),
        Some(text) => text.trim_matches('"').to_owned(),
    };
    let outcome = read_outcome(&word)
        .map_err(|fault| faults.push(format!("assume {fault}")))
        .ok();
    let from = body
        .from
        .instant("from", &mut faults)
        .unwrap_or_else(|| app.now());
    let (Some(effective), Some(outcome), true) = (effective, outcome, faults.is_empty()) else {
        return Err(ApiError::validation(faults));
    };
    let preview = effective.policy.preview(&outcome);
    Ok(Json(PreviewAnswer {
        assume: word,
        from,
        attempts: preview
            .attempts
            .into_iter()
            .map(|attempt| PreviewAttemptAnswer {
                attempt,
                at: attempt.offset.instants(from),
            })
            .collect(),
        ends: preview.ends,
        window: RangeAnswer {
            range: preview.window,
            at: preview.window.instants(from),
        },
        effective,
    }))
}

/// The outcome that `?assume=` names, and the word for it; `500` when it is not there.
pub(super) fn assumed(query: &mut Query) -> (String, Outcome) {
    let word = query.one("assume").unwrap_or(USUAL_FAILURE).to_owned();
    let outcome = read_outcome(&word).unwrap_or_else(|fault| {
        query.fault("assume", fault);
        Outcome::status(500)
    });
    (word, outcome)
}

fn read_outcome(word: &str) -> Result<Outcome, String> {
    assume(word).map_err(|problem| problem.message)
}

fn policy_text(body: &[u8]) -> Result<&str, ApiError> {
    let text = text(body)?;
    if body.len() > MAX_POLICY_BYTES || is_too_deep(text) {
        let fault = format!("the policy must have at most {MAX_POLICY_BYTES} bytes and 100 levels");
        return Err(ApiError::validation(vec![fault]));
    }
    let _: serde::de::IgnoredAny = parse_object(body)?;
    Ok(text)
}

fn preset_answer(preset: Preset) -> Result<PolicyAnswer, ApiError> {
    Ok(PolicyAnswer {
        name: preset.as_str().to_owned(),
        preset: true,
        policy: raw(&preset.raw())?,
        effective: None,
        stored: None,
    })
}

fn answer(stored: NamedPolicy) -> Result<PolicyAnswer, ApiError> {
    Ok(PolicyAnswer {
        name: stored.name,
        preset: false,
        policy: stored_text(stored.policy)?,
        effective: None,
        stored: Some(StoredAnswer {
            created_at: stored.created_at,
            updated_at: stored.updated_at,
            revision: stored.revision,
        }),
    })
}

fn stored_text(text: String) -> Result<Box<RawValue>, ApiError> {
    RawValue::from_string(text).map_err(ApiError::internal)
}

fn missing() -> ApiError {
    ApiError::not_found("retry policy not found")
}
