//! Canceling what a deleted destination left pending.
//!
//! A deletion marks the destination, and from then on nothing of it is due. A million pending rows would hold everybody up
//! if they were moved at once, so the writer moves a few between batches; the mark says which destinations are not
//! finished, also after a crash. Readers show those rows as canceled already.

use postrider_core::time::Timestamp;
use rusqlite::Connection;

use super::Work;
use super::settle::{Ended, end};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

/// Rows moved in one step: about a millisecond of the writer.
const STEP_ROWS: usize = 500;

/// Destinations that were deleted and still may have pending rows.
pub(super) fn unswept(conn: &Connection) -> Result<Vec<i64>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT key FROM destination INDEXED BY destination_unswept WHERE deleted_at IS NOT NULL AND swept = 0
         ORDER BY key DESC",
    )?;
    let keys = statement
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(keys)
}

/// Deletes a destination; its pending rows wait for [`step`].
pub(super) fn mark_deleted(work: &mut Work<'_>, destination: i64, now: Timestamp) -> Result<(), Fault> {
    work.conn
        .prepare_cached("UPDATE destination SET deleted_at = ?2, credentials = x'' WHERE key = ?1")?
        .execute((destination, now.as_millis()))?;
    work.conn
        .prepare_cached("DELETE FROM protection WHERE destination = ?1")?
        .execute([destination])?;
    work.names.deleted(destination);
    work.unswept.push(destination);
    Ok(())
}

/// Moves some pending rows of deleted destinations to the history, as canceled when the destination was deleted.
pub(in crate::sqlite) fn step(work: &mut Work<'_>) -> Result<(), Fault> {
    let mut left = STEP_ROWS;
    while let Some(&destination) = work.unswept.last() {
        let moved = cancel_some(work, destination, left)?;
        if moved == left {
            return Ok(());
        }
        left -= moved;
        work.conn
            .prepare_cached("UPDATE destination SET swept = 1 WHERE key = ?1")?
            .execute([destination])?;
        work.unswept.pop();
    }
    Ok(())
}

fn cancel_some(work: &mut Work<'_>, destination: i64, limit: usize) -> Result<usize, Fault> {
    let deleted_at: i64 = work
        .conn
        .prepare_cached("SELECT deleted_at FROM destination WHERE key = ?1")?
        .query_row([destination], |row| row.get(0))?;
    let sql = format!(
        "SELECT {} FROM pending WHERE destination = ?1 LIMIT ?2",
        rows::PENDING_COLUMNS
    );
    let mut deliveries = Vec::with_capacity(limit);
    {
        let mut statement = work.conn.prepare_cached(&sql)?;
        let mut found = statement.query((destination, i64::try_from(limit).unwrap_or(i64::MAX)))?;
        while let Some(row) = found.next()? {
            deliveries.push(rows::pending(row)?);
        }
    }
    for delivery in &deliveries {
        work.conn
            .prepare_cached("DELETE FROM pending WHERE key = ?1")?
            .execute([delivery.key.0])?;
        work.effects.pending -= 1;
        work.effects.ended.canceled += 1;
        end(
            work,
            delivery,
            &Ended::canceled(delivery.progress, delivery.last_attempt),
            Timestamp::from_millis(deleted_at),
        )?;
    }
    Ok(deliveries.len())
}
