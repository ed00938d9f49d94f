//! What is known about receivers: kept states of their protection, and how much waits for one.

use postrider_core::dispatcher::Protection;
use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;
use rusqlite::Connection;

use crate::record::Backlog;
use crate::sqlite::failure::Fault;

/// Everything that is kept.
pub(in crate::sqlite) fn all(conn: &Connection) -> Result<Vec<(DestinationKey, Protection)>, Fault> {
    let mut statement = conn.prepare_cached("SELECT destination, state FROM protection")?;
    let mut rows = statement.query([])?;
    let mut kept = Vec::new();
    while let Some(row) = rows.next()? {
        let key = DestinationKey(row.get(0)?);
        let text: String = row.get(1)?;
        match serde_json::from_str(&text) {
            Ok(protection) => kept.push((key, protection)),
            // To be without is safe: the evidence is gathered again.
            Err(error) => {
                tracing::warn!(destination = %key, %error, "passing over a state that cannot be read");
            }
        }
    }
    Ok(kept)
}

/// How much waits for a destination, counted up to `at_most`.
pub(in crate::sqlite) fn backlog(
    conn: &Connection,
    destination: DestinationKey,
    at_most: u32,
) -> Result<Backlog, Fault> {
    let counted: i64 = conn
        .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM pending WHERE destination = ?1 LIMIT ?2)")?
        .query_row((destination.0, i64::from(at_most) + 1), |row| row.get(0))?;
    let first_due_at: Option<i64> = conn
        .prepare_cached("SELECT min(due_at) FROM pending WHERE destination = ?1")?
        .query_row([destination.0], |row| row.get(0))?;
    Ok(Backlog {
        pending: counted.min(i64::from(at_most)).unsigned_abs(),
        more: counted > i64::from(at_most),
        first_due_at: first_due_at.map(Timestamp::from_millis),
    })
}
