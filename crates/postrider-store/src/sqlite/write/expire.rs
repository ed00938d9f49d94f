//! Retention: what is older than its kind is kept, removed in small steps.
//!
//! Events and attempts are walked once, in the order of their keys; a mark says how far. What must stay, because a delivery
//! of it is pending or dead, is passed over: events are noted and looked at again in later rounds, attempts go
//! with a later attempt of their delivery, or with its event.

use postrider_core::id::{DeliveryKey, first_key_at};
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::{Work, remove};
use crate::letter::{Expired, RetentionKind};
use crate::sqlite::failure::Fault;
use crate::sqlite::schema::{self, meta};

/// Where the rounds over what was passed over go on. In memory only: after a restart a round begins anew.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::sqlite) struct Rounds {
    kept_event: i64,
    context: i64,
}

/// One step.
pub(in crate::sqlite) fn expire(
    work: &mut Work<'_>,
    kind: RetentionKind,
    before: Timestamp,
    limit: u32,
) -> Result<Expired, Fault> {
    let horizon = first_key_at(before);
    let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
    let expired = match kind {
        RetentionKind::Events => events(work, horizon, limit),
        RetentionKind::Attempts => attempts(work, horizon, limit),
        RetentionKind::DeadLetters => dead_letters(work, horizon, limit),
    }?;
    if expired.removed > 0 {
        remove::note_keys(work)?;
    }
    Ok(expired)
}

struct EventRow {
    key: i64,
    tenant: i64,
    deliveries: i64,
    id: Option<String>,
}

fn events(work: &mut Work<'_>, horizon: i64, limit: usize) -> Result<Expired, Fault> {
    let mark = schema::number(work.conn, meta::EVENTS_EXPIRED_UPTO)?.unwrap_or(0);
    let found = event_rows(
        work,
        "SELECT key, tenant, deliveries, id FROM event WHERE key > ?1 AND key < ?2 ORDER BY key LIMIT ?3",
        (mark, horizon, limit),
    )?;
    let mut expired = Expired::default();
    let mut left = limit;
    let mut upto = mark;
    for event in &found {
        if left == 0 {
            break;
        }
        if is_needed(work, event)? {
            work.conn
                .prepare_cached("INSERT OR IGNORE INTO retention_kept(event) VALUES (?1)")?
                .execute([event.key])?;
            left -= 1;
        } else if remove_event(work, event, &mut left)? {
            expired.removed += 1;
        } else {
            break;
        }
        upto = event.key;
    }
    if upto != mark {
        schema::put_number(work.conn, meta::EVENTS_EXPIRED_UPTO, upto)?;
    }
    let is_through = found.len() < limit && found.last().is_none_or(|last| last.key == upto);
    expired.more = !is_through;
    if is_through && left > 0 {
        let (removed, more) = kept_events(work, horizon, left)?;
        expired.removed += removed;
        expired.more = more;
    }
    Ok(expired)
}

/// Looks again at events that were passed over; answers how many were removed, and whether the round goes on.
fn kept_events(work: &mut Work<'_>, horizon: i64, limit: usize) -> Result<(u64, bool), Fault> {
    let found = event_rows(
        work,
        "SELECT event.key, tenant, deliveries, id FROM retention_kept JOIN event ON event.key = retention_kept.event
         WHERE retention_kept.event > ?1 AND retention_kept.event < ?2 ORDER BY retention_kept.event LIMIT ?3",
        (work.rounds.kept_event, horizon, limit),
    )?;
    let mut removed = 0;
    let mut left = limit;
    for event in &found {
        if left == 0 {
            return Ok((removed, true));
        }
        if is_needed(work, event)? {
            left -= 1;
        } else if remove_event(work, event, &mut left)? {
            work.conn
                .prepare_cached("DELETE FROM retention_kept WHERE event = ?1")?
                .execute([event.key])?;
            removed += 1;
        } else {
            return Ok((removed, true));
        }
        work.rounds.kept_event = event.key;
    }
    let more = found.len() == limit;
    if !more {
        work.rounds.kept_event = 0;
    }
    Ok((removed, more))
}

fn event_rows(work: &Work<'_>, sql: &str, range: (i64, i64, usize)) -> Result<Vec<EventRow>, Fault> {
    let (low, high, limit) = range;
    let mut statement = work.conn.prepare_cached(sql)?;
    let rows = statement.query_map((low, high, i64::try_from(limit).unwrap_or(i64::MAX)), |row| {
        Ok(EventRow {
            key: row.get(0)?,
            tenant: row.get(1)?,
            deliveries: row.get(2)?,
            id: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether a delivery of the event is pending or dead.
fn is_needed(work: &Work<'_>, event: &EventRow) -> Result<bool, Fault> {
    let needed = work
        .conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM pending WHERE key > ?1 AND key <= ?2)
                OR EXISTS (SELECT 1 FROM dead WHERE key > ?1 AND key <= ?2)",
        )?
        .query_row((event.key, event.key.saturating_add(event.deliveries)), |row| {
            row.get(0)
        })?;
    Ok(needed)
}

/// Removes an event whose deliveries have all ended well or were canceled, or as many of its deliveries as are `left`; answers
/// whether it is gone.
fn remove_event(work: &mut Work<'_>, event: &EventRow, left: &mut usize) -> Result<bool, Fault> {
    let deliveries: Vec<i64> = work
        .conn
        .prepare_cached("SELECT key FROM history WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3")?
        .query_map(
            (
                event.key,
                event.key.saturating_add(event.deliveries),
                i64::try_from(*left).unwrap_or(i64::MAX),
            ),
            |row| row.get(0),
        )?
        .collect::<Result<_, _>>()?;
    let may_have_more = deliveries.len() == *left;
    for key in deliveries {
        let rows = remove::delivery(work, DeliveryKey(key))?;
        *left = left.saturating_sub(rows);
    }
    if may_have_more && *left == 0 {
        return Ok(false);
    }
    work.conn
        .prepare_cached("DELETE FROM event WHERE key = ?1")?
        .execute([event.key])?;
    work.conn
        .prepare_cached("DELETE FROM event_by_tenant WHERE tenant = ?1 AND key = ?2")?
        .execute((event.tenant, event.key))?;
    if let Some(id) = &event.id {
        work.conn
            .prepare_cached("DELETE FROM event_id WHERE id = ?1 AND tenant = ?2 AND event = ?3")?
            .execute((id, event.tenant, event.key))?;
    }
    *left = left.saturating_sub(1);
    Ok(true)
}

fn attempts(work: &mut Work<'_>, horizon: i64, limit: usize) -> Result<Expired, Fault> {
    let mark = schema::number(work.conn, meta::ATTEMPTS_EXPIRED_UPTO)?.unwrap_or(0);
    let found: Vec<(i64, i64)> = work
        .conn
        .prepare_cached(
            "SELECT key, delivery FROM attempt WHERE key > ?1 AND key < ?2 ORDER BY key LIMIT ?3",
        )?
        .query_map((mark, horizon, i64::try_from(limit).unwrap_or(i64::MAX)), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<Result<_, _>>()?;
    let mut removed = 0;
    for (key, delivery) in &found {
        let needed = work
            .conn
            .prepare_cached(
                "SELECT 1 FROM pending WHERE key = ?1 UNION ALL SELECT 1 FROM dead WHERE key = ?1 LIMIT 1",
            )?
            .query_row([delivery], |_| Ok(()))
            .optional()?;
        if needed.is_none() {
            removed += remove::attempts(work, Some(*key))? as u64;
        }
    }
    if let Some((last, _)) = found.last() {
        schema::put_number(work.conn, meta::ATTEMPTS_EXPIRED_UPTO, *last)?;
    }
    Ok(Expired {
        removed,
        more: found.len() == limit,
    })
}

fn dead_letters(work: &mut Work<'_>, horizon: i64, limit: usize) -> Result<Expired, Fault> {
    let serials: Vec<i64> = work
        .conn
        .prepare_cached("SELECT serial FROM dead WHERE serial < ?1 ORDER BY serial LIMIT ?2")?
        .query_map((horizon, i64::try_from(limit).unwrap_or(i64::MAX)), |row| {
            row.get(0)
        })?
        .collect::<Result<_, _>>()?;
    let removed = remove::letters(work, &serials)?;
    let more = serials.len() == limit;
    let more = more || forget_contexts(work, limit)?;
    Ok(Expired { removed, more })
}

/// Removes contexts that nothing refers to any more; answers whether the round goes on.
fn forget_contexts(work: &mut Work<'_>, limit: usize) -> Result<bool, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found: Vec<i64> = work
        .conn
        .prepare_cached("SELECT key FROM dead_context WHERE key > ?1 ORDER BY key LIMIT ?2")?
        .query_map((work.rounds.context, limit), |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for key in &found {
        work.conn
            .prepare_cached(
                "DELETE FROM dead_context WHERE key = ?1
                    AND NOT EXISTS (SELECT 1 FROM dead WHERE dead.context = ?1)
                    AND NOT EXISTS (SELECT 1 FROM pending WHERE pending.context = ?1)",
            )?
            .execute([key])?;
    }
    let more = i64::try_from(found.len()).unwrap_or(i64::MAX) == limit;
    work.rounds.context = found.last().copied().filter(|_| more).unwrap_or(0);
    Ok(more)
}
