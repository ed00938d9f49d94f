//! The names in a filter, as the integers that rows hold.

use std::collections::HashSet;

use postrider_core::id::{EventKey, IdCodec, IdKind};
use rusqlite::{Connection, OptionalExtension as _};

use crate::sqlite::failure::Fault;

/// Up to so many values, each is a source of its own; beyond, the whole list is walked.
pub(super) const MAX_SOURCES: usize = 64;

/// A set of integers to be among; `None` when the filter is not given.
pub(super) type Among = Option<HashSet<i64>>;

/// Whether the filter lets `key` pass.
pub(super) fn admits(among: &Among, key: i64) -> bool {
    among.as_ref().is_none_or(|keys| keys.contains(&key))
}

/// The values of a filter that is given and short enough for a source each.
pub(super) fn few(among: &Among) -> Option<Vec<i64>> {
    let keys = among.as_ref().filter(|keys| keys.len() <= MAX_SOURCES)?;
    let mut keys: Vec<i64> = keys.iter().copied().collect();
    keys.sort_unstable();
    Some(keys)
}

/// Integers of tenants, also of those that never were more than a name.
pub(super) fn tenants(conn: &Connection, ids: &[String]) -> Result<Among, Fault> {
    interned(conn, ids, "SELECT key FROM tenant WHERE id = ?1")
}

/// Integers of topics.
pub(super) fn topics(conn: &Connection, names: &[String]) -> Result<Among, Fault> {
    interned(conn, names, "SELECT key FROM topic WHERE name = ?1")
}

/// Keys of destinations with these public ids, deleted ones too, of the given tenants.
pub(super) fn destinations(conn: &Connection, ids: &[String], tenants: &Among) -> Result<Among, Fault> {
    if ids.is_empty() {
        return Ok(None);
    }
    let mut statement = conn.prepare_cached("SELECT key, tenant FROM destination WHERE id = ?1")?;
    let mut keys = HashSet::new();
    for id in ids {
        let mut found = statement.query([id])?;
        while let Some(row) = found.next()? {
            if admits(tenants, row.get(1)?) {
                keys.insert(row.get(0)?);
            }
        }
    }
    Ok(Some(keys))
}

/// Keys of events with these public ids, of the given tenants; ascending. An id that was chosen may name one in each tenant.
pub(super) fn events(
    conn: &Connection,
    codec: &IdCodec,
    ids: &[String],
    tenants: &Among,
) -> Result<Option<Vec<EventKey>>, Fault> {
    if ids.is_empty() {
        return Ok(None);
    }
    let mut chosen = conn.prepare_cached("SELECT event, tenant FROM event_id WHERE id = ?1")?;
    let mut keys = Vec::new();
    for id in ids {
        if let Some(key) = codec.decode(IdKind::Event, id) {
            let tenant: Option<i64> = conn
                .prepare_cached("SELECT tenant FROM event WHERE key = ?1 AND id IS NULL")?
                .query_row([key], |row| row.get(0))
                .optional()?;
            if tenant.is_some_and(|tenant| admits(tenants, tenant)) {
                keys.push(EventKey(key));
            }
        }
        let mut found = chosen.query([id])?;
        while let Some(row) = found.next()? {
            if admits(tenants, row.get(1)?) {
                keys.push(EventKey(row.get(0)?));
            }
        }
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(Some(keys))
}

fn interned(conn: &Connection, texts: &[String], sql: &str) -> Result<Among, Fault> {
    if texts.is_empty() {
        return Ok(None);
    }
    let mut statement = conn.prepare_cached(sql)?;
    let mut keys = HashSet::new();
    for text in texts {
        keys.extend(
            statement
                .query_row([text], |row| row.get::<_, i64>(0))
                .optional()?,
        );
    }
    Ok(Some(keys))
}
