//! Listing tables, written behind the hot path.
//!
//! They scatter over their tenants and destinations, so keeping them in the hot transaction would cost a third of the
//! throughput. Keys are given in commit order, so one mark says what is listed: rows up to it are in the tables, those after
//! it are found by their key. Mark and rows move in one transaction, so a crash neither loses nor repeats any.

use postrider_core::delivery::PendingDelivery;
use rusqlite::{Connection, OptionalExtension as _};

use crate::sqlite::failure::Fault;
use crate::sqlite::schema::{self, meta};

/// Events or attempts listed in one step. Each destination in a step costs a page of the log, whether it gets one row or
/// ten, so a step is as large as the pause it makes allows.
pub(in crate::sqlite) const STEP_ROWS: i64 = 4_000;

/// Lists the next events and their deliveries; answers how many rows that were, 0 when nothing is left.
pub(in crate::sqlite) fn list_events(conn: &Connection) -> Result<usize, Fault> {
    let from = schema::number(conn, meta::EVENTS_INDEXED_UPTO)?.unwrap_or(0);
    let upto = end_of_step(conn, from)?;
    let Some(upto) = upto else { return Ok(0) };
    let events = conn
        .prepare_cached(
            "INSERT INTO event_by_tenant(tenant, key)
             SELECT tenant, key FROM event WHERE key > ?1 AND key <= ?2 ORDER BY tenant, key",
        )?
        .execute((from, upto))?;
    let deliveries = conn
        .prepare_cached(
            "INSERT INTO delivery_by_destination(destination, key, event)
             SELECT destination, key, event FROM pending WHERE key > ?1 AND key <= ?2
             UNION ALL
             SELECT destination, key, event FROM history WHERE key > ?1 AND key <= ?2
             ORDER BY 1, 2",
        )?
        .execute((from, upto))?;
    schema::put_number(conn, meta::EVENTS_INDEXED_UPTO, upto)?;
    Ok(events + deliveries)
}

/// Lists one delivery whose key was passed already.
pub(super) fn list_delivery(conn: &Connection, delivery: &PendingDelivery) -> Result<(), Fault> {
    conn.prepare_cached(
        "INSERT OR IGNORE INTO delivery_by_destination(destination, key, event) VALUES (?1, ?2, ?3)",
    )?
    .execute((delivery.destination.0, delivery.key.0, delivery.event.0))?;
    Ok(())
}

/// The last key of the events that make one step: bounded in deliveries too, since an event may have thousands.
fn end_of_step(conn: &Connection, from: i64) -> Result<Option<i64>, Fault> {
    let mut statement =
        conn.prepare_cached("SELECT key, deliveries FROM event WHERE key > ?1 ORDER BY key LIMIT ?2")?;
    let mut count = conn.prepare_cached(
        "SELECT count(*) FROM (
            SELECT key FROM pending WHERE key > ?1 AND key <= ?2
            UNION ALL SELECT key FROM history WHERE key > ?1 AND key <= ?2 LIMIT ?3)",
    )?;
    let mut found = statement.query((from, STEP_ROWS))?;
    let (mut upto, mut rows) = (None, 0);
    while let Some(row) = found.next()?
        && rows < 2 * STEP_ROWS
    {
        let (key, deliveries): (i64, i64) = (row.get(0)?, row.get(1)?);
        upto = Some(key + deliveries);
        // An imported event keeps room for many more deliveries than it has, so those that are there are counted.
        let last = key + deliveries;
        let there: i64 = count.query_row((key, last, 2 * STEP_ROWS), |row| row.get(0))?;
        rows += 1 + there;
    }
    Ok(upto)
}

/// Lists the next attempts; answers how many, 0 when nothing is left.
pub(in crate::sqlite) fn list_attempts(conn: &Connection) -> Result<usize, Fault> {
    let from = schema::number(conn, meta::ATTEMPTS_INDEXED_UPTO)?.unwrap_or(0);
    let upto: Option<i64> = conn
        .prepare_cached(
            "SELECT max(key) FROM (SELECT key FROM attempt WHERE key > ?1 ORDER BY key LIMIT ?2)",
        )?
        .query_row((from, STEP_ROWS), |row| row.get(0))
        .optional()?
        .flatten();
    let Some(upto) = upto else { return Ok(0) };
    let rows = conn
        .prepare_cached(
            "INSERT INTO attempt_by_destination(destination, key)
             SELECT destination, key FROM attempt WHERE key > ?1 AND key <= ?2 ORDER BY destination, key",
        )?
        .execute((from, upto))?;
    conn.prepare_cached(
        "INSERT INTO attempt_by_tenant(tenant, key)
         SELECT tenant, key FROM attempt WHERE key > ?1 AND key <= ?2 ORDER BY tenant, key",
    )?
    .execute((from, upto))?;
    schema::put_number(conn, meta::ATTEMPTS_INDEXED_UPTO, upto)?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_imported_events_keep_does_not_shorten_a_step() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE event(key INTEGER PRIMARY KEY, deliveries INTEGER);
             CREATE TABLE pending(key INTEGER PRIMARY KEY);
             CREATE TABLE history(key INTEGER PRIMARY KEY);",
        )
        .unwrap();
        for n in 0..100 {
            let key = n * 2_000;
            conn.execute("INSERT INTO event VALUES (?1, 1024)", [key])
                .unwrap();
            conn.execute("INSERT INTO history VALUES (?1)", [key + 1])
                .unwrap();
        }
        assert_eq!(end_of_step(&conn, -1).unwrap(), Some(99 * 2_000 + 1_024));
    }

    #[test]
    fn a_step_ends_after_an_event_with_very_many_deliveries() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE event(key INTEGER PRIMARY KEY, deliveries INTEGER);
             CREATE TABLE pending(key INTEGER PRIMARY KEY);
             CREATE TABLE history(key INTEGER PRIMARY KEY);
             INSERT INTO event VALUES (0, 9000), (10000, 1);
             WITH RECURSIVE place(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM place WHERE n < 9000)
             INSERT INTO pending SELECT n FROM place;",
        )
        .unwrap();
        assert_eq!(end_of_step(&conn, -1).unwrap(), Some(9_000));
    }
}
