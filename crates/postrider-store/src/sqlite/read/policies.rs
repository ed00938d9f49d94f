//! Named retry policies and the log of their changes.

use postrider_core::time::Timestamp;
use rusqlite::{Connection, Row};

use crate::record::{NamedPolicy, PolicyChange};
use crate::sqlite::failure::Fault;

/// Every policy, in order of their names.
pub(in crate::sqlite) fn all(conn: &Connection) -> Result<Vec<NamedPolicy>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT name, policy, created_at, updated_at, revision FROM retry_policy ORDER BY name",
    )?;
    let mut found = statement.query([])?;
    let mut policies = Vec::new();
    while let Some(row) = found.next()? {
        policies.push(read(row)?);
    }
    Ok(policies)
}

/// One policy.
pub(in crate::sqlite) fn find(conn: &Connection, name: &str) -> Result<Option<NamedPolicy>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT name, policy, created_at, updated_at, revision FROM retry_policy WHERE name = ?1",
    )?;
    let mut found = statement.query([name])?;
    found.next()?.map(read).transpose()
}

/// The newest changes of a policy, newest first.
pub(in crate::sqlite) fn changes(
    conn: &Connection,
    name: &str,
    limit: usize,
) -> Result<Vec<PolicyChange>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT changed_at, old, new FROM retry_policy_change WHERE name = ?1 ORDER BY key DESC LIMIT ?2",
    )?;
    let mut found = statement.query((name, i64::try_from(limit).unwrap_or(i64::MAX)))?;
    let mut changes = Vec::new();
    while let Some(row) = found.next()? {
        changes.push(PolicyChange {
            at: Timestamp::from_millis(row.get(0)?),
            name: name.to_owned(),
            old: row.get(1)?,
            new: row.get(2)?,
        });
    }
    Ok(changes)
}

fn read(row: &Row<'_>) -> Result<NamedPolicy, Fault> {
    Ok(NamedPolicy {
        name: row.get(0)?,
        policy: row.get(1)?,
        created_at: Timestamp::from_millis(row.get(2)?),
        updated_at: Timestamp::from_millis(row.get(3)?),
        revision: row.get(4)?,
    })
}
