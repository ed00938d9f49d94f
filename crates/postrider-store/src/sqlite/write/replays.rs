//! Replays: created, changed, stepped, and told how their deliveries ended.

use postrider_core::delivery::DeliveryStatus;
use postrider_core::id::{ContextKey, DeliveryKey, DestinationKey, IdKind, ReplayKey};
use postrider_core::replay::{ReplayConfig, ReplayState};
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::Work;
use super::retry::{Revival, revive};
use crate::replay::{
    Replay, ReplayChanged, ReplayCreated, ReplayPreview, ReplayScope, ReplaySpec, ReplayStep, ReplayStepped,
};
use crate::sqlite::failure::Fault;
use crate::sqlite::read::replays::{self, Candidates};
use crate::sqlite::{replay_spec, rows};

/// Replays that are running or paused at a time.
const MAX_OPEN: i64 = 100;
/// Replays that have ended and are kept.
const MAX_ENDED: i64 = 1_000;

/// Creates a replay of what was found in its scope.
pub(in crate::sqlite) fn create(
    work: &mut Work<'_>,
    spec: &ReplaySpec,
    found: &(ReplayPreview, i64),
    now: Timestamp,
) -> Result<ReplayCreated, Fault> {
    let (preview, upper) = found;
    let open: i64 = work
        .conn
        .prepare_cached("SELECT count(*) FROM replay WHERE state IN (?1, ?2)")?
        .query_row((ReplayState::Running.code(), ReplayState::Paused.code()), |row| {
            row.get(0)
        })?;
    if open >= MAX_OPEN {
        return Ok(ReplayCreated::LimitReached);
    }
    forget_oldest(work)?;
    let key = ReplayKey(work.keys.take(now, 1));
    let is_empty = preview.destinations.is_empty();
    let state = if is_empty {
        ReplayState::Done
    } else {
        ReplayState::Running
    };
    work.conn
        .prepare_cached(
            "INSERT INTO replay(key, spec, state, upper, unfinished, updated_at, ended_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            key.0,
            replay_spec::to_text(spec)?,
            state.code(),
            upper,
            i64::try_from(preview.destinations.len()).unwrap_or(i64::MAX),
            now.as_millis(),
            is_empty.then_some(now.as_millis()),
        ))?;
    for (destination, total) in &preview.destinations {
        work.conn
            .prepare_cached(
                "INSERT INTO replay_destination(replay, destination, total, cursor) VALUES (?1, ?2, ?3, 0)",
            )?
            .execute((key.0, destination.0, i64::try_from(*total).unwrap_or(i64::MAX)))?;
    }
    Ok(ReplayCreated::Created {
        replay: written(work, key)?,
        unreachable: preview.unreachable,
    })
}

fn forget_oldest(work: &Work<'_>) -> Result<(), Fault> {
    let ended = (
        ReplayState::Canceled.code(),
        ReplayState::Done.code(),
        MAX_ENDED - 1,
    );
    let oldest: Vec<i64> = work
        .conn
        .prepare_cached(
            "SELECT key FROM replay WHERE state IN (?1, ?2) ORDER BY key DESC LIMIT 10 OFFSET ?3",
        )?
        .query_map(ended, |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for key in oldest {
        for sql in [
            "DELETE FROM replay_destination WHERE replay = ?1",
            "DELETE FROM replay WHERE key = ?1",
        ] {
            work.conn.prepare_cached(sql)?.execute([key])?;
        }
    }
    Ok(())
}

fn written(work: &Work<'_>, key: ReplayKey) -> Result<Replay, Fault> {
    replays::by_key(work.conn, &work.ids, key)?
        .ok_or_else(|| Fault::corrupt("a replay vanished inside its transaction"))
}

/// Pauses, resumes or cancels a replay.
pub(in crate::sqlite) fn change(
    work: &mut Work<'_>,
    id: &str,
    state: ReplayState,
    now: Timestamp,
) -> Result<ReplayChanged, Fault> {
    let Some(key) = work.ids.decode(IdKind::Replay, id).map(ReplayKey) else {
        return Ok(ReplayChanged::Missing);
    };
    let Some(replay) = replays::by_key(work.conn, &work.ids, key)? else {
        return Ok(ReplayChanged::Missing);
    };
    if replay.state == state {
        return Ok(ReplayChanged::Changed(replay));
    }
    if !replay.state.is_open() || state == ReplayState::Done {
        return Ok(ReplayChanged::Refused(replay));
    }
    put_state(work, key, state, now)?;
    Ok(ReplayChanged::Changed(written(work, key)?))
}

fn put_state(work: &Work<'_>, key: ReplayKey, state: ReplayState, now: Timestamp) -> Result<(), Fault> {
    let ended_at = (!state.is_open()).then_some(now.as_millis());
    work.conn
        .prepare_cached("UPDATE replay SET state = ?2, updated_at = ?3, ended_at = ?4 WHERE key = ?1")?
        .execute((key.0, state.code(), now.as_millis(), ended_at))?;
    Ok(())
}

/// Makes pending what was found, unless the part has changed since.
pub(in crate::sqlite) fn step(
    work: &mut Work<'_>,
    step: &ReplayStep,
    found: &Candidates,
    now: Timestamp,
) -> Result<Option<ReplayStepped>, Fault> {
    let Some(part) = replays::part(work.conn, step.replay, step.destination)? else {
        return Ok(None);
    };
    let is_current = part.state == ReplayState::Running
        && !part.is_walked
        && part.cursor == found.part.cursor
        && part.progress.queued == found.part.progress.queued;
    let moves = !found.keys.is_empty() || found.next != Some(part.cursor);
    let mut moved = 0;
    if is_current && moves {
        let is_live = work.names.destinations.contains_key(&step.destination.0);
        for &candidate in &found.keys {
            if is_live && replay_one(work, step, &part.spec, candidate, now)? {
                moved += 1;
            }
        }
        let skipped = found.passed + (found.keys.len() as u64 - u64::from(moved));
        advance(work, step, found.next.filter(|_| is_live), moved, skipped)?;
        finish_part(work, step.replay, step.destination, now)?;
    }
    let part = replays::part(work.conn, step.replay, step.destination)?;
    Ok(part.map(|part| ReplayStepped {
        state: part.state,
        moved,
        is_walked: part.is_walked,
        progress: part.progress,
    }))
}

/// Makes one delivery pending; answers whether it is still there to be replayed.
fn replay_one(
    work: &mut Work<'_>,
    step: &ReplayStep,
    spec: &ReplaySpec,
    candidate: i64,
    now: Timestamp,
) -> Result<bool, Fault> {
    let sql = match spec.scope {
        ReplayScope::DeadLetters(_) => {
            "SELECT dead.key, history.status, dead.context FROM dead JOIN history ON history.key = dead.key
             WHERE dead.serial = ?1 AND EXISTS (SELECT 1 FROM event WHERE event.key = dead.event)"
        }
        ReplayScope::EverythingSince { .. } => {
            "SELECT history.key, history.status, dead.context FROM history LEFT JOIN dead ON dead.key = history.key
             WHERE history.key = ?1 AND EXISTS (SELECT 1 FROM event WHERE event.key = history.event)"
        }
    };
    let found: Option<(i64, i64, Option<i64>)> = work
        .conn
        .prepare_cached(sql)?
        .query_row([candidate], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((key, status, context)) = found else {
        return Ok(false);
    };
    let key = DeliveryKey(key);
    let status = rows::word(status, DeliveryStatus::from_code, "status")?;
    let revival = Revival {
        replayed: true,
        context: context
            .filter(|_| spec.config == ReplayConfig::Original)
            .map(ContextKey),
    };
    let delivery = revive(work, key, status, revival, now)?;
    work.conn
        .prepare_cached("INSERT INTO replay_item(delivery, replay, destination) VALUES (?1, ?2, ?3)")?
        .execute((key.0, step.replay.0, step.destination.0))?;
    work.effects.rescheduled.push(delivery);
    Ok(true)
}

/// Notes a step; `next` is where the following one begins, absent when there is none. What of the whole was neither made
/// pending nor passed over by then had vanished before its turn.
fn advance(
    work: &Work<'_>,
    step: &ReplayStep,
    next: Option<i64>,
    moved: u32,
    skipped: u64,
) -> Result<(), Fault> {
    work.conn
        .prepare_cached(
            "UPDATE replay_destination SET queued = queued + ?3, cursor = coalesce(?5, cursor), is_walked = ?5 IS NULL,
                skipped = CASE WHEN ?5 IS NULL THEN max(total - queued - ?3, 0) ELSE skipped + ?4 END
             WHERE replay = ?1 AND destination = ?2",
        )?
        .execute((
            step.replay.0,
            step.destination.0,
            moved,
            i64::try_from(skipped).unwrap_or(i64::MAX),
            next,
        ))?;
    Ok(())
}

/// A delivery that is part of a replay has ended: it leaves the replay, which counts it.
pub(super) fn item_ended(
    work: &mut Work<'_>,
    delivery: DeliveryKey,
    status: DeliveryStatus,
    now: Timestamp,
) -> Result<(), Fault> {
    let item: Option<(i64, i64)> = work
        .conn
        .prepare_cached("SELECT replay, destination FROM replay_item WHERE delivery = ?1")?
        .query_row([delivery.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((replay, destination)) = item else {
        return Ok(());
    };
    work.conn
        .prepare_cached("DELETE FROM replay_item WHERE delivery = ?1")?
        .execute([delivery.0])?;
    let one_if = |counted| i64::from(status == counted);
    work.conn
        .prepare_cached(
            "UPDATE replay_destination SET succeeded = succeeded + ?3, failed = failed + ?4, canceled = canceled + ?5
             WHERE replay = ?1 AND destination = ?2",
        )?
        .execute((
            replay,
            destination,
            one_if(DeliveryStatus::Succeeded),
            one_if(DeliveryStatus::Dead),
            one_if(DeliveryStatus::Canceled),
        ))?;
    finish_part(work, ReplayKey(replay), DestinationKey(destination), now)
}

/// Counts a part that has just become complete; the last one completes the replay. A part becomes so once: by the step that
/// looks at the last of it, or by the end of the last delivery after that.
fn finish_part(
    work: &Work<'_>,
    replay: ReplayKey,
    destination: DestinationKey,
    now: Timestamp,
) -> Result<(), Fault> {
    let is_complete = work
        .conn
        .prepare_cached(
            "SELECT 1 FROM replay_destination WHERE replay = ?1 AND destination = ?2 AND is_walked = 1
                AND queued <= succeeded + failed + canceled",
        )?
        .exists((replay.0, destination.0))?;
    if !is_complete {
        return Ok(());
    }
    work.conn
        .prepare_cached("UPDATE replay SET unfinished = unfinished - 1 WHERE key = ?1")?
        .execute([replay.0])?;
    let is_done = work
        .conn
        .prepare_cached("SELECT 1 FROM replay WHERE key = ?1 AND unfinished <= 0 AND state IN (?2, ?3)")?
        .exists((replay.0, ReplayState::Running.code(), ReplayState::Paused.code()))?;
    if is_done {
        put_state(work, replay, ReplayState::Done, now)?;
    }
    Ok(())
}
