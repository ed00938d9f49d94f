//! Taking rows away for good: deliveries that have ended, their attempts, and their places in lists. The room is used again.

use postrider_core::id::DeliveryKey;
use rusqlite::OptionalExtension as _;

use super::{Work, letters};
use crate::sqlite::failure::Fault;
use crate::sqlite::schema::{self, meta};

/// Removes a delivery that has ended, with its attempts; answers how many rows that were.
pub(super) fn delivery(work: &mut Work<'_>, key: DeliveryKey) -> Result<usize, Fault> {
    let found: Option<(i64, Option<i64>)> = work
        .conn
        .prepare_cached("SELECT destination, last_attempt FROM history WHERE key = ?1")?
        .query_row([key.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((destination, last_attempt)) = found else {
        return Ok(0);
    };
    work.conn
        .prepare_cached("DELETE FROM history WHERE key = ?1")?
        .execute([key.0])?;
    work.conn
        .prepare_cached("DELETE FROM delivery_by_destination WHERE destination = ?1 AND key = ?2")?
        .execute((destination, key.0))?;
    Ok(1 + attempts(work, last_attempt)?)
}

/// Removes an attempt and those before it that are still there; answers how many. As each removal reaches back to the
/// beginning, what is left of a delivery's attempts is always the end of the chain, and can be found from its last.
pub(super) fn attempts(work: &Work<'_>, last: Option<i64>) -> Result<usize, Fault> {
    let mut find = work
        .conn
        .prepare_cached("SELECT prev, tenant, destination FROM attempt WHERE key = ?1")?;
    let mut removed = 0;
    let mut at = last;
    while let Some(key) = at {
        let found: Option<(Option<i64>, i64, i64)> = find
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((prev, tenant, destination)) = found else {
            break;
        };
        work.conn
            .prepare_cached("DELETE FROM attempt WHERE key = ?1")?
            .execute([key])?;
        work.conn
            .prepare_cached("DELETE FROM attempt_by_tenant WHERE tenant = ?1 AND key = ?2")?
            .execute((tenant, key))?;
        work.conn
            .prepare_cached("DELETE FROM attempt_by_destination WHERE destination = ?1 AND key = ?2")?
            .execute((destination, key))?;
        removed += 1;
        at = prev;
    }
    Ok(removed)
}

/// Notes that every key up to now was given, so that none of what is removed is given again after a restart.
pub(super) fn note_keys(work: &Work<'_>) -> Result<(), Fault> {
    schema::put_number(work.conn, meta::KEYS_GIVEN_UPTO, work.keys.last())
}

/// Removes the dead letters with these serials that are still there, with their deliveries; answers how many.
pub(in crate::sqlite) fn letters(work: &mut Work<'_>, serials: &[i64]) -> Result<u64, Fault> {
    let mut removed = 0;
    for serial in serials {
        let key: Option<i64> = work
            .conn
            .prepare_cached("SELECT key FROM dead WHERE serial = ?1")?
            .query_row([serial], |row| row.get(0))
            .optional()?;
        if let Some(key) = key.map(DeliveryKey) {
            letters::exhume(work, key)?;
            delivery(work, key)?;
            removed += 1;
        }
    }
    if removed > 0 {
        note_keys(work)?;
    }
    Ok(removed)
}
