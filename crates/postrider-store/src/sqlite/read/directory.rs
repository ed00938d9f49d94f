//! Tenants and destinations.

use postrider_core::id::{DestinationKey, TenantKey};
use postrider_core::time::Timestamp;
use rusqlite::{Connection, Row};

use crate::page::{Cursor, Direction, Page};
use crate::record::{Destination, Disabled, Tenant, TenantQuery};
use crate::seal::SealKey;
use crate::sqlite::failure::Fault;
use crate::sqlite::{credentials, json};

const TENANT_COLUMNS: &str = "key, id, metadata, created_at, updated_at";

/// One tenant by id.
pub(in crate::sqlite) fn tenant(conn: &Connection, id: &str) -> Result<Option<Tenant>, Fault> {
    let sql = format!("SELECT {TENANT_COLUMNS} FROM tenant WHERE id = ?1 AND serial IS NOT NULL");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut found = statement.query([id])?;
    found.next()?.map(read_tenant).transpose()
}

/// A page of tenants in order of creation, and how many match in all.
pub(in crate::sqlite) fn tenants(
    conn: &Connection,
    query: &TenantQuery,
) -> Result<(Page<Tenant>, u64), Fault> {
    let (mut matching, total) = if query.ids.is_empty() {
        from_order(conn, query)?
    } else {
        by_ids(conn, query)?
    };
    // Both answer one row more than the page holds, nearest to the cursor first.
    let limit = query.page.limit;
    let has_more = matching.len() > limit;
    matching.truncate(limit);
    let is_backward = matches!(query.page.cursor, Cursor::Before(_));
    if is_backward {
        matching.reverse();
    }
    let at_edge = matches!(query.page.cursor, Cursor::Start);
    let next = matching
        .last()
        .map(|(serial, _)| *serial)
        .filter(|_| has_more || is_backward);
    let prev = matching
        .first()
        .map(|(serial, _)| *serial)
        .filter(|_| if is_backward { has_more } else { !at_edge });
    let rows = matching.into_iter().map(|(_, tenant)| tenant).collect();
    Ok((Page { rows, next, prev }, total))
}

/// Bounds of serials and the order in which to walk away from the cursor.
fn walk(query: &TenantQuery) -> (i64, i64, &'static str) {
    let ascending = query.page.direction == Direction::Ascending;
    let (after, ascending) = match query.page.cursor {
        Cursor::Start => (None, ascending),
        Cursor::After(key) => (Some(key), ascending),
        Cursor::Before(key) => (Some(key), !ascending),
    };
    match (after, ascending) {
        (None, true) => (0, i64::MAX, "ASC"),
        (Some(key), true) => (key, i64::MAX, "ASC"),
        (None, false) => (0, i64::MAX, "DESC"),
        (Some(key), false) => (0, key, "DESC"),
    }
}

type Numbered = Vec<(i64, Tenant)>;

fn from_order(conn: &Connection, query: &TenantQuery) -> Result<(Numbered, u64), Fault> {
    let (low, high, order) = walk(query);
    let sql = format!(
        "SELECT {TENANT_COLUMNS}, serial FROM tenant WHERE serial > ?1 AND serial < ?2 ORDER BY serial {order} LIMIT ?3"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let limit = i64::try_from(query.page.limit)
        .unwrap_or(i64::MAX)
        .saturating_add(1);
    let mut found = statement.query((low, high, limit))?;
    let mut tenants = Vec::new();
    while let Some(row) = found.next()? {
        tenants.push((row.get(5)?, read_tenant(row)?));
    }
    let total: i64 = conn
        .prepare_cached("SELECT count(serial) FROM tenant")?
        .query_row([], |row| row.get(0))?;
    Ok((tenants, total.unsigned_abs()))
}

fn by_ids(conn: &Connection, query: &TenantQuery) -> Result<(Numbered, u64), Fault> {
    let (low, high, order) = walk(query);
    let sql = format!("SELECT {TENANT_COLUMNS}, serial FROM tenant WHERE id = ?1 AND serial IS NOT NULL");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut tenants = Vec::new();
    for id in &query.ids {
        let mut found = statement.query([id])?;
        if let Some(row) = found.next()? {
            tenants.push((row.get::<_, i64>(5)?, read_tenant(row)?));
        }
    }
    tenants.sort_by_key(|(serial, _)| *serial);
    tenants.dedup_by_key(|(serial, _)| *serial);
    let total = tenants.len() as u64;
    tenants.retain(|(serial, _)| low < *serial && *serial < high);
    if order == "DESC" {
        tenants.reverse();
    }
    tenants.truncate(query.page.limit.saturating_add(1));
    Ok((tenants, total))
}

fn read_tenant(row: &Row<'_>) -> Result<Tenant, Fault> {
    let metadata: Option<String> = row.get(2)?;
    Ok(Tenant {
        key: TenantKey(row.get(0)?),
        id: row.get(1)?,
        metadata: metadata.as_deref().map(json::to_map).transpose()?,
        created_at: Timestamp::from_millis(row.get(3)?),
        updated_at: Timestamp::from_millis(row.get(4)?),
    })
}

/// Every tenant and destination that is not deleted.
pub(in crate::sqlite) fn all(
    conn: &Connection,
    seal: &SealKey,
) -> Result<(Vec<Tenant>, Vec<Destination>), Fault> {
    let sql = format!("SELECT {TENANT_COLUMNS} FROM tenant WHERE serial IS NOT NULL ORDER BY serial");
    let mut statement = conn.prepare_cached(&sql)?;
    let mut found = statement.query([])?;
    let mut tenants = Vec::new();
    while let Some(row) = found.next()? {
        tenants.push(read_tenant(row)?);
    }
    let mut statement = conn.prepare_cached(
        "SELECT key, tenant, id, kind, topics, filter, config, credentials, delivery_metadata, metadata, retry_policy,
            created_at, updated_at, disabled_at, disabled_reason, revision
         FROM destination WHERE deleted_at IS NULL ORDER BY key",
    )?;
    let mut found = statement.query([])?;
    let mut destinations = Vec::new();
    while let Some(row) = found.next()? {
        destinations.push(read_destination(row, seal)?);
    }
    Ok((tenants, destinations))
}

fn read_destination(row: &Row<'_>, seal: &SealKey) -> Result<Destination, Fault> {
    let tenant: i64 = row.get(1)?;
    let id: String = row.get(2)?;
    let (topics, config): (String, String) = (row.get(4)?, row.get(6)?);
    let sealed: Vec<u8> = row.get(7)?;
    let mut config = json::to_map(&config)?;
    let credentials = credentials::open(seal, tenant, &id, &sealed, &mut config)?;
    let (delivery_metadata, metadata): (Option<String>, Option<String>) = (row.get(8)?, row.get(9)?);
    let disabled_at: Option<i64> = row.get(13)?;
    let disabled_reason: Option<String> = row.get(14)?;
    Ok(Destination {
        key: DestinationKey(row.get(0)?),
        tenant: TenantKey(tenant),
        kind: row.get(3)?,
        topics: json::to_list(&topics)?,
        filter: row.get(5)?,
        config,
        credentials,
        delivery_metadata: delivery_metadata.as_deref().map(json::to_map).transpose()?,
        metadata: metadata.as_deref().map(json::to_map).transpose()?,
        retry_policy: row.get(10)?,
        created_at: Timestamp::from_millis(row.get(11)?),
        updated_at: Timestamp::from_millis(row.get(12)?),
        disabled: disabled_at.map(|at| Disabled {
            at: Timestamp::from_millis(at),
            reason: disabled_reason.unwrap_or_default(),
        }),
        revision: row.get(15)?,
        id,
    })
}
