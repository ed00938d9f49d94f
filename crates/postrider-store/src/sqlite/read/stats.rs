//! Numbers that the database itself has to be asked for.

use postrider_core::time::Timestamp;
use rusqlite::Connection;

use crate::sqlite::failure::Fault;

/// Pending deliveries and dead letters: a walk over two small trees, done once at start.
pub(in crate::sqlite) fn counts(conn: &Connection) -> Result<(i64, i64), Fault> {
    let pending = conn.query_row("SELECT count(*) FROM pending", [], |row| row.get(0))?;
    let dead = conn.query_row("SELECT count(*) FROM dead", [], |row| row.get(0))?;
    Ok((pending, dead))
}

/// The earliest due time of all pending deliveries of destinations that are not deleted, if it is not after `now`.
pub(in crate::sqlite) fn oldest_due_at(
    conn: &Connection,
    now: Timestamp,
) -> Result<Option<Timestamp>, Fault> {
    // Two seeks a destination, however many rows it has.
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE found(destination) AS (
            SELECT min(destination) FROM pending
            UNION ALL
            SELECT (SELECT min(destination) FROM pending WHERE destination > found.destination)
            FROM found WHERE found.destination IS NOT NULL)
         SELECT min((SELECT min(due_at) FROM pending WHERE pending.destination = found.destination))
         FROM found JOIN destination ON destination.key = found.destination
         WHERE destination.deleted_at IS NULL",
    )?;
    let oldest: Option<i64> = statement.query_row([], |row| row.get(0))?;
    Ok(oldest.map(Timestamp::from_millis).filter(|due_at| *due_at <= now))
}
