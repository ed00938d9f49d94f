//! A replay as it is answered, with its progress.

use postrider_core::replay::{MAX_RATE_PER_SECOND, ReplayConfig, ReplayState};
use postrider_core::time::Timestamp;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::replay::{Replay, ReplayDestination, ReplayDetail, ReplayProgress, ReplayScope};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::App;

/// Parts that one answer lists.
const MAX_DESTINATIONS: usize = 100;

/// A replay.
#[derive(Debug, Serialize)]
pub(super) struct ReplayAnswer {
    id: String,
    state: ReplayState,
    /// What was asked for.
    filter: Value,
    config: ReplayConfig,
    rate_per_second: u32,
    #[serde(flatten)]
    progress: ProgressAnswer,
    /// How long the rest takes; none while it does not run.
    eta_seconds: Option<u64>,
    created_at: Timestamp,
    updated_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// The first so many; only in the answer for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    destinations: Option<Vec<PartAnswer>>,
}

#[derive(Debug, Serialize)]
struct ProgressAnswer {
    /// Deliveries when it was created.
    total: u64,
    /// Of these, finished in one way or another.
    done: u64,
    /// Sent or about to be, and not finished.
    outstanding: u64,
    succeeded: u64,
    /// Dead again.
    failed: u64,
    canceled: u64,
    /// Not dead any more, or gone, when their turn came.
    skipped: u64,
}

#[derive(Debug, Serialize)]
struct PartAnswer {
    tenant_id: String,
    destination_id: String,
    #[serde(flatten)]
    progress: ProgressAnswer,
}

impl From<ReplayProgress> for ProgressAnswer {
    fn from(progress: ReplayProgress) -> Self {
        Self {
            total: progress.total,
            done: done(&progress),
            outstanding: progress.outstanding(),
            succeeded: progress.succeeded,
            failed: progress.failed,
            canceled: progress.canceled,
            skipped: progress.skipped,
        }
    }
}

fn done(progress: &ReplayProgress) -> u64 {
    progress.succeeded + progress.failed + progress.canceled + progress.skipped
}

impl ReplayAnswer {
    /// Without its parts.
    pub(super) fn new(app: &App, replay: Replay) -> Self {
        Self {
            eta_seconds: eta(&replay, app.now()),
            id: replay.id,
            state: replay.state,
            filter: scope(app, &replay.spec.scope),
            config: replay.spec.config,
            rate_per_second: replay.spec.rate_per_second,
            progress: replay.progress.into(),
            created_at: replay.created_at,
            updated_at: replay.updated_at,
            ended_at: replay.ended_at,
            destinations: None,
        }
    }

    /// With its parts.
    pub(super) fn detailed(app: &App, detail: ReplayDetail) -> Self {
        let ReplayDetail { replay, destinations } = detail;
        Self {
            destinations: Some(destinations.iter().take(MAX_DESTINATIONS).map(part).collect()),
            ..Self::new(app, replay)
        }
    }
}

fn part(part: &ReplayDestination) -> PartAnswer {
    PartAnswer {
        tenant_id: part.tenant_id.clone(),
        destination_id: part.destination_id.clone(),
        progress: part.progress.into(),
    }
}

/// Seconds that the rest of a running replay takes: at its rate, or as fast as its slowest destination went since it last began
/// to run, when that is slower. How much was done before a pause is not kept, so it counts as done since: after a pause a
/// slow receiver is taken for a faster one, and the time that the replay stood still for none.
fn eta(replay: &Replay, now: Timestamp) -> Option<u64> {
    if replay.state != ReplayState::Running {
        return None;
    }
    let rate = replay.spec.rate_per_second.clamp(1, MAX_RATE_PER_SECOND);
    let planned = replay.rest.most.div_ceil(u64::from(rate));
    let runs_for = now.since(replay.updated_at).as_secs();
    let observed = replay.rest.most_per_thousand_done.saturating_mul(runs_for) / 1_000;
    Some(planned.max(observed))
}

fn scope(app: &App, scope: &ReplayScope) -> Value {
    match scope {
        ReplayScope::DeadLetters(filter) => written(filter),
        ReplayScope::EverythingSince { destination, since } => {
            let entry = app.directory.entry(*destination);
            json!({
                "tenant_id": entry.as_ref().map(|entry| &entry.target.tenant_id),
                "destination_id": entry.as_ref().map(|entry| &entry.record.id),
                "since": since,
            })
        }
    }
}

/// The filter in the words in which it was asked for; `all` when it admits everything.
fn written(filter: &DeadLetterFilter) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| {
        if value.as_array().is_none_or(|items| !items.is_empty()) && !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
    };
    add("tenant_id", json!(filter.tenant_ids));
    add("destination_id", json!(filter.destination_ids));
    add("topic", json!(filter.topics));
    add("reason", json!(filter.reasons));
    add("category", json!(filter.categories));
    add("code", json!(filter.codes));
    add("text", json!(filter.text));
    add("id", json!(filter.ids));
    let bounds = [
        ("gte", filter.died.gte),
        ("gt", filter.died.gt),
        ("lte", filter.died.lte),
        ("lt", filter.died.lt),
    ];
    let bounds: Map<String, Value> = bounds
        .into_iter()
        .filter_map(|(name, at)| at.map(|at| (name.to_owned(), json!(at))))
        .collect();
    add(
        "died_at",
        if bounds.is_empty() {
            Value::Null
        } else {
            bounds.into()
        },
    );
    if fields.is_empty() {
        json!({ "all": true })
    } else {
        fields.into()
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::id::ReplayKey;
    use postrider_store::replay::{ReplayRest, ReplaySpec};

    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_rate_and_experience_say() {
        let replay = |state, most, most_per_thousand_done| Replay {
            key: ReplayKey(0),
            id: "rpl_1".to_owned(),
            spec: ReplaySpec {
                scope: ReplayScope::DeadLetters(DeadLetterFilter::default()),
                config: ReplayConfig::Current,
                rate_per_second: 50,
            },
            state,
            progress: ReplayProgress::default(),
            rest: ReplayRest {
                most,
                most_per_thousand_done,
            },
            created_at: Timestamp::from_millis(0),
            // Resumed after an hour.
            updated_at: Timestamp::from_millis(3_600_000),
            ended_at: None,
        };
        let after = |seconds: i64| Timestamp::from_millis(3_600_000 + seconds * 1_000);
        let running = |most, per_thousand| replay(ReplayState::Running, most, per_thousand);
        assert_eq!(eta(&running(500, 0), after(0)), Some(10));
        assert_eq!(eta(&running(501, 0), after(0)), Some(11));
        // 400 left, 100 done in 2 s and in 20 s.
        assert_eq!(eta(&running(400, 4_000), after(2)), Some(8), "as fast as it may");
        assert_eq!(
            eta(&running(400, 4_000), after(20)),
            Some(80),
            "the receiver takes 5 a second"
        );
        assert_eq!(eta(&running(0, 0), after(10)), Some(0));
        for state in [ReplayState::Paused, ReplayState::Done, ReplayState::Canceled] {
            assert_eq!(eta(&replay(state, 500, 0), after(0)), None, "{state}");
        }
    }
}
