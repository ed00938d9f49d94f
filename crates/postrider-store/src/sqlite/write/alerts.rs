//! Keeps alerts, and no more than there may be.

use postrider_core::id::AlertKey;
use postrider_core::time::Timestamp;

use super::Work;
use crate::alerts::{Alert, MAX_ALERTS};
use crate::sqlite::failure::Fault;

/// Creates or replaces each; answers their keys.
pub(in crate::sqlite) fn keep(
    work: &mut Work<'_>,
    batch: &[Alert],
    now: Timestamp,
) -> Result<Vec<AlertKey>, Fault> {
    let keys = batch
        .iter()
        .map(|alert| put(work, alert, now))
        .collect::<Result<_, _>>()?;
    work.conn
        .prepare_cached(
            "DELETE FROM alert WHERE cleared_at IS NOT NULL
                AND key <= (SELECT key FROM alert ORDER BY key DESC LIMIT 1 OFFSET ?1)",
        )?
        .execute([i64::try_from(MAX_ALERTS).unwrap_or(i64::MAX)])?;
    Ok(keys)
}

/// Notes what the webhook has.
pub(in crate::sqlite) fn note_published(
    work: &mut Work<'_>,
    versions: &[(AlertKey, u32)],
) -> Result<(), Fault> {
    let mut update = work
        .conn
        .prepare_cached("UPDATE alert SET published = max(published, ?2) WHERE key = ?1")?;
    for (key, version) in versions {
        update.execute((key.0, version))?;
    }
    Ok(())
}

fn put(work: &mut Work<'_>, alert: &Alert, now: Timestamp) -> Result<AlertKey, Fault> {
    let key = match alert.key {
        AlertKey(0) => next_key(work, now)?,
        known => known,
    };
    let subject = alert.subject.as_ref();
    work.conn
        .prepare_cached(
            "INSERT OR REPLACE INTO alert(key, kind, destination, tenant_id, destination_id, severity, since,
                updated_at, cleared_at, value, threshold, text, todo, version, published)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?
        .execute(rusqlite::params![
            key.0,
            alert.kind.code(),
            subject.map(|subject| subject.destination.0),
            subject.map(|subject| &subject.tenant_id),
            subject.map(|subject| &subject.destination_id),
            alert.severity.code(),
            alert.since.as_millis(),
            alert.updated_at.as_millis(),
            alert.cleared_at.map(Timestamp::as_millis),
            stored(alert.value),
            stored(alert.threshold),
            alert.text,
            alert.todo,
            alert.version,
            alert.published,
        ])?;
    Ok(key)
}

/// Also after the clock went back while the server was down: no other table knows of the keys in this one.
fn next_key(work: &mut Work<'_>, now: Timestamp) -> Result<AlertKey, Fault> {
    let highest: Option<i64> = work
        .conn
        .prepare_cached("SELECT max(key) FROM alert")?
        .query_row([], |row| row.get(0))?;
    let taken = work.keys.take(now, 1);
    Ok(AlertKey(
        taken.max(highest.map_or(1, |key| key.saturating_add(1))),
    ))
}

fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
