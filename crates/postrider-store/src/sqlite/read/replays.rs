//! Replays: what a scope holds, how far they have come, and which deliveries are next.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;
use postrider_core::delivery::DeliveryStatus;
use postrider_core::id::{DestinationKey, IdCodec, IdKind, ReplayKey, first_key_at};
use postrider_core::replay::ReplayState;
use postrider_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row};
use tokio::time::Instant;

use super::delivery_sources;
use super::letters::{self, Admission};
use super::walk::{self, Source, Span, select};
use crate::page::{Cursor, Direction, Page, PageRequest};
use crate::replay::{
    Replay, ReplayDestination, ReplayDetail, ReplayPreview, ReplayProgress, ReplayQuery, ReplayRest,
    ReplayScope, ReplaySpec, ReplayStep,
};
use crate::sqlite::failure::Fault;
use crate::sqlite::replay_spec;
use crate::sqlite::rows;
use crate::sqlite::schema::{self, meta};

/// `ReplayProgress` in the order of [`progress`].
const PROGRESS: &str = "total, queued, succeeded, failed, canceled, skipped";

fn progress(row: &Row<'_>, at: usize) -> rusqlite::Result<ReplayProgress> {
    let count = |place: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at + place)?.unsigned_abs());
    Ok(ReplayProgress {
        total: count(0)?,
        queued: count(1)?,
        succeeded: count(2)?,
        failed: count(3)?,
        canceled: count(4)?,
        skipped: count(5)?,
    })
}

/// What a scope holds, and the key up to which it does.
pub(in crate::sqlite) fn preview(
    conn: &Connection,
    ids: &IdCodec,
    scope: &ReplayScope,
) -> Result<(ReplayPreview, i64), Fault> {
    let (counts, upper) = match scope {
        ReplayScope::DeadLetters(filter) => {
            let upper = letters::highest(conn)?;
            (
                Admission::new(conn, ids, filter)?.by_destination(conn, upper)?,
                upper,
            )
        }
        ReplayScope::EverythingSince { destination, since } => {
            let count = accepted_since(conn, *destination, *since)?;
            let upper = conn
                .prepare_cached(
                    "SELECT coalesce((SELECT key + deliveries FROM event ORDER BY key DESC LIMIT 1), 0)",
                )?
                .query_row([], |row| row.get(0))?;
            (BTreeMap::from([(destination.0, count)]), upper)
        }
    };
    let mut preview = ReplayPreview::default();
    let mut is_live =
        conn.prepare_cached("SELECT 1 FROM destination WHERE key = ?1 AND deleted_at IS NULL")?;
    for (destination, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        if is_live.exists([destination])? {
            preview.total += count;
            preview.destinations.push((DestinationKey(destination), count));
        } else {
            preview.unreachable += count;
        }
    }
    Ok((preview, upper))
}

fn accepted_since(conn: &Connection, destination: DestinationKey, since: Timestamp) -> Result<u64, Fault> {
    let indexed = schema::number(conn, meta::EVENTS_INDEXED_UPTO)?.unwrap_or(0);
    let from = first_key_at(since);
    let count: i64 = conn
        .prepare_cached(
            "SELECT (SELECT count(*) FROM delivery_by_destination WHERE destination = ?1 AND key >= ?2 AND key <= ?3)
                + (SELECT count(*) FROM pending WHERE +destination = ?1 AND key >= max(?2, ?3 + 1))
                + (SELECT count(*) FROM history WHERE destination = ?1 AND key >= max(?2, ?3 + 1))",
        )?
        .query_row((destination.0, from, indexed), |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Keys of replays that cannot be read, of which the log was told. Lists are read all the time, so it is told once.
#[derive(Debug, Default)]
pub(in crate::sqlite) struct Unreadable(Mutex<HashSet<i64>>);

impl Unreadable {
    /// Whether it was not told of this one.
    fn is_news(&self, key: i64) -> bool {
        self.0.lock().insert(key)
    }
}

/// A page of replays. One that cannot be read is passed over, so that it stands in the way of no other.
pub(in crate::sqlite) fn list(
    conn: &Connection,
    ids: &IdCodec,
    query: &ReplayQuery,
    unreadable: &Unreadable,
    until: Instant,
) -> Result<Page<Replay>, Fault> {
    let all = select!(
        "SELECT key FROM replay WHERE key > ?1 AND key < ?2 AND ?4 = 0",
        "key",
        0,
        Span::ALL
    );
    let in_state = |state: &ReplayState| {
        select!(
            "SELECT key FROM replay WHERE key > ?1 AND key < ?2 AND state = ?4",
            "key",
            state.code().into(),
            Span::ALL
        )
    };
    let wanted = |state: &&ReplayState| query.states.contains(state);
    let mut sources: Vec<Source> = ReplayState::ALL.iter().filter(wanted).map(in_state).collect();
    if sources.is_empty() {
        sources.push(all);
    }
    walk::page(conn, &sources, Span::ALL, &query.page, until, |key| {
        let found = match by_key(conn, ids, ReplayKey(key)) {
            Err(Fault::Corrupt(error)) => {
                if unreadable.is_news(key) {
                    let id = ids.encode(IdKind::Replay, key);
                    tracing::warn!(replay = id, error, "passing over a replay that cannot be read");
                }
                None
            }
            found => found?,
        };
        Ok(found.filter(|replay| query.states.is_empty() || query.states.contains(&replay.state)))
    })
}

/// One replay.
pub(in crate::sqlite) fn by_key(
    conn: &Connection,
    ids: &IdCodec,
    key: ReplayKey,
) -> Result<Option<Replay>, Fault> {
    const DONE: &str = "(succeeded + failed + canceled + skipped)";
    let sql = format!(
        "SELECT spec, state, updated_at, ended_at, coalesce(sum(total), 0), coalesce(sum(queued), 0),
            coalesce(sum(succeeded), 0), coalesce(sum(failed), 0), coalesce(sum(canceled), 0), coalesce(sum(skipped), 0),
            coalesce(max(max(total - {DONE}, 0)), 0),
            coalesce(max(CASE WHEN {DONE} > 0 THEN max(total - {DONE}, 0) * 1000 / {DONE} END), 0)
         FROM replay LEFT JOIN replay_destination ON replay_destination.replay = replay.key
         WHERE replay.key = ?1 GROUP BY replay.key"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut found = statement.query([key.0])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let spec: String = row.get(0)?;
    Ok(Some(Replay {
        key,
        id: ids.encode(IdKind::Replay, key.0),
        spec: replay_spec::from_text(&spec)?,
        state: rows::word(row.get(1)?, ReplayState::from_code, "state")?,
        progress: progress(row, 4)?,
        rest: ReplayRest {
            most: row.get::<_, i64>(10)?.unsigned_abs(),
            most_per_thousand_done: row.get::<_, i64>(11)?.unsigned_abs(),
        },
        created_at: key.created_at(),
        updated_at: Timestamp::from_millis(row.get(2)?),
        ended_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis),
    }))
}

/// One replay with its destinations.
pub(in crate::sqlite) fn detail(
    conn: &Connection,
    ids: &IdCodec,
    id: &str,
) -> Result<Option<ReplayDetail>, Fault> {
    let Some(key) = ids.decode(IdKind::Replay, id) else {
        return Ok(None);
    };
    let Some(replay) = by_key(conn, ids, ReplayKey(key))? else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT destination.id, tenant.id, destination.key, is_walked, {PROGRESS}
         FROM replay_destination JOIN destination ON destination.key = replay_destination.destination
            JOIN tenant ON tenant.key = destination.tenant
         WHERE replay = ?1 ORDER BY replay_destination.destination"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let destinations = statement
        .query_map([key], |row| {
            Ok(ReplayDestination {
                destination_id: row.get(0)?,
                tenant_id: row.get(1)?,
                destination: DestinationKey(row.get(2)?),
                is_walked: row.get(3)?,
                progress: progress(row, 4)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(Some(ReplayDetail { replay, destinations }))
}

/// A replay's part for one destination, as it is now.
#[derive(Debug, Clone)]
pub(in crate::sqlite) struct Part {
    pub(in crate::sqlite) state: ReplayState,
    pub(in crate::sqlite) spec: ReplaySpec,
    upper: i64,
    pub(in crate::sqlite) cursor: i64,
    pub(in crate::sqlite) is_walked: bool,
    pub(in crate::sqlite) progress: ReplayProgress,
}

/// Reads a part; `None` when there is none.
pub(in crate::sqlite) fn part(
    conn: &Connection,
    replay: ReplayKey,
    destination: DestinationKey,
) -> Result<Option<Part>, Fault> {
    let sql = format!(
        "SELECT state, spec, upper, cursor, is_walked, {PROGRESS}
         FROM replay_destination JOIN replay ON replay.key = replay_destination.replay
         WHERE replay = ?1 AND destination = ?2"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut found = statement.query((replay.0, destination.0))?;
    let Some(row) = found.next()? else { return Ok(None) };
    let spec: String = row.get(1)?;
    Ok(Some(Part {
        state: rows::word(row.get(0)?, ReplayState::from_code, "state")?,
        spec: replay_spec::from_text(&spec)?,
        upper: row.get(2)?,
        cursor: row.get(3)?,
        is_walked: row.get(4)?,
        progress: progress(row, 5)?,
    }))
}

/// The next deliveries of a part.
#[derive(Debug, Clone)]
pub(in crate::sqlite) struct Candidates {
    /// The part as it was when they were looked for.
    pub(in crate::sqlite) part: Part,
    /// Serials of dead letters, or keys of deliveries, by the scope.
    pub(in crate::sqlite) keys: Vec<i64>,
    /// Rows of the scope that are nothing to replay.
    pub(in crate::sqlite) passed: u64,
    /// Where the next step begins; `None` when everything was looked at.
    pub(in crate::sqlite) next: Option<i64>,
}

/// Looks for the next deliveries of a part; `None` when there is no such part.
pub(in crate::sqlite) fn candidates(
    conn: &Connection,
    ids: &IdCodec,
    step: &ReplayStep,
    until: Instant,
) -> Result<Option<Candidates>, Fault> {
    let Some(part) = part(conn, step.replay, step.destination)? else {
        return Ok(None);
    };
    let room = u64::from(step.max_outstanding).saturating_sub(part.progress.outstanding());
    let limit = usize::try_from(room.min(step.limit.into())).unwrap_or(0);
    let mut candidates = Candidates {
        keys: Vec::new(),
        passed: 0,
        next: Some(part.cursor),
        part,
    };
    let part = &candidates.part;
    if part.state != ReplayState::Running || part.is_walked || limit == 0 {
        return Ok(Some(candidates));
    }
    let page = PageRequest {
        limit,
        direction: Direction::Ascending,
        cursor: Cursor::After(part.cursor),
    };
    let span = Span::upto(part.upper);
    let page = match &part.spec.scope {
        ReplayScope::DeadLetters(filter) => {
            let admission = Admission::new(conn, ids, filter)?;
            let sources = admission.sources_of(step.destination.0);
            walk::page(conn, &sources, span, &page, until, |serial| {
                let row = letters::by_serial(conn, serial)?;
                let wanted =
                    row.is_some_and(|row| row.destination == step.destination.0 && admission.admits(&row));
                Ok(wanted.then_some(serial))
            })?
        }
        ReplayScope::EverythingSince { since, .. } => {
            let span = span.and(Span::after(first_key_at(*since) - 1));
            let indexed = schema::number(conn, meta::EVENTS_INDEXED_UPTO)?.unwrap_or(0);
            let sources: Vec<Source> = delivery_sources::of_destination(step.destination.0, indexed).into();
            let mut passed = 0;
            let page = walk::page(conn, &sources, span, &page, until, |key| {
                let wanted = has_ended_otherwise(conn, key)?;
                passed += u64::from(!wanted);
                Ok(wanted.then_some(key))
            })?;
            candidates.passed = passed;
            page
        }
    };
    candidates.keys = page.rows;
    candidates.next = page.next;
    Ok(Some(candidates))
}

/// Whether a delivery is delivered or dead: what is pending comes anyway, and what was canceled is not wanted.
fn has_ended_otherwise(conn: &Connection, key: i64) -> Result<bool, Fault> {
    let status: Option<i64> = conn
        .prepare_cached("SELECT status FROM history WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    let Some(status) = status else { return Ok(false) };
    let status = rows::word(status, DeliveryStatus::from_code, "status")?;
    Ok(matches!(status, DeliveryStatus::Succeeded | DeliveryStatus::Dead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replay_that_cannot_be_read_is_told_of_once() {
        let unreadable = Unreadable::default();
        let news = [1, 2, 1, 2].map(|key| unreadable.is_news(key));
        assert_eq!(news, [true, true, false, false]);
    }
}
