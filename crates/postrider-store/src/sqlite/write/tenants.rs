//! Changes of tenants.
//!
//! A row in `tenant` is an id's integer and stays for ever; it is a tenant while it has a `serial`, which also gives the
//! order of creation.

use postrider_core::id::{DestinationKey, TenantKey};
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::{Work, sweep};
use crate::record::{Metadata, Tenant, Upserted};
use crate::sqlite::failure::Fault;
use crate::sqlite::json;
use crate::sqlite::schema::{self, meta};

/// Creates the tenant or replaces its metadata.
pub(in crate::sqlite) fn upsert(
    work: &mut Work<'_>,
    id: &str,
    metadata: Option<&Metadata>,
    now: Timestamp,
) -> Result<Upserted, Fault> {
    let key = work.names.tenant(work.conn, id)?;
    let text = metadata.map(json::from_map);
    let created_at: Option<i64> = work
        .conn
        .prepare_cached("SELECT created_at FROM tenant WHERE key = ?1 AND serial IS NOT NULL")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    let tenant = Tenant {
        key: TenantKey(key),
        id: id.to_owned(),
        metadata: metadata.cloned(),
        created_at: created_at.map_or(now, Timestamp::from_millis),
        updated_at: now,
    };
    if created_at.is_some() {
        work.conn
            .prepare_cached("UPDATE tenant SET metadata = ?2, updated_at = ?3 WHERE key = ?1")?
            .execute((key, text, now.as_millis()))?;
        return Ok(Upserted::Updated(tenant));
    }
    work.conn
        .prepare_cached(
            "UPDATE tenant SET metadata = ?2, created_at = ?3, updated_at = ?3,
                serial = 1 + max(coalesce((SELECT max(serial) FROM tenant), 0), coalesce((SELECT value FROM meta WHERE name = ?4), 0))
             WHERE key = ?1",
        )?
        .execute((key, text, now.as_millis(), meta::LAST_FREED_SERIAL))?;
    Ok(Upserted::Created(tenant))
}

/// Deletes the tenant and its destinations; answers their keys.
pub(in crate::sqlite) fn delete(
    work: &mut Work<'_>,
    id: &str,
    now: Timestamp,
) -> Result<Option<Vec<DestinationKey>>, Fault> {
    let found: Option<(i64, i64)> = work
        .conn
        .prepare_cached("SELECT key, serial FROM tenant WHERE id = ?1 AND serial IS NOT NULL")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((key, serial)) = found else {
        return Ok(None);
    };
    let last_freed = schema::number(work.conn, meta::LAST_FREED_SERIAL)?;
    if serial > last_freed.unwrap_or(0) {
        schema::put_number(work.conn, meta::LAST_FREED_SERIAL, serial)?;
    }
    work.conn
        .prepare_cached(
            "UPDATE tenant SET serial = NULL, metadata = NULL, created_at = NULL, updated_at = NULL WHERE key = ?1",
        )?
        .execute([key])?;
    let keys: Vec<i64> = work
        .conn
        .prepare_cached("SELECT key FROM destination WHERE tenant = ?1 AND deleted_at IS NULL ORDER BY key")?
        .query_map([key], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for &destination in &keys {
        sweep::mark_deleted(work, destination, now)?;
    }
    sweep::step(work)?;
    Ok(Some(keys.into_iter().map(DestinationKey).collect()))
}
