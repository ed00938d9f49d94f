//! Changes of named retry policies, each with its entry in the log.

use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::Work;
use crate::record::{NamedPolicy, PolicyDeleted, PolicyPut};
use crate::sqlite::failure::Fault;
use crate::sqlite::read::policies::find;

/// Changes that the log keeps, of all policies together.
const LOGGED: i64 = 10_000;

/// Creates a policy, unless there are `max`, or replaces its text.
pub(in crate::sqlite) fn put(
    work: &mut Work<'_>,
    name: &str,
    policy: &str,
    max: u32,
    now: Timestamp,
) -> Result<PolicyPut, Fault> {
    let Some(found) = find(work.conn, name)? else {
        return create(work, name, policy, max, now);
    };
    if found.policy == policy {
        return Ok(PolicyPut::Updated(found));
    }
    let put = NamedPolicy {
        policy: policy.to_owned(),
        updated_at: now,
        revision: found.revision + 1,
        ..found
    };
    work.conn
        .prepare_cached(
            "UPDATE retry_policy SET policy = ?2, updated_at = ?3, revision = ?4 WHERE name = ?1",
        )?
        .execute((name, policy, now.as_millis(), put.revision))?;
    log(work, name, Some(&found.policy), Some(policy), now)?;
    Ok(PolicyPut::Updated(put))
}

fn create(
    work: &mut Work<'_>,
    name: &str,
    policy: &str,
    max: u32,
    now: Timestamp,
) -> Result<PolicyPut, Fault> {
    let count: i64 = work
        .conn
        .prepare_cached("SELECT count(*) FROM retry_policy")?
        .query_row([], |row| row.get(0))?;
    if count >= i64::from(max) {
        return Ok(PolicyPut::LimitReached);
    }
    work.conn
        .prepare_cached(
            "INSERT INTO retry_policy(name, policy, created_at, updated_at, revision) VALUES (?1, ?2, ?3, ?3, 1)",
        )?
        .execute((name, policy, now.as_millis()))?;
    log(work, name, None, Some(policy), now)?;
    Ok(PolicyPut::Created(NamedPolicy {
        name: name.to_owned(),
        policy: policy.to_owned(),
        created_at: now,
        updated_at: now,
        revision: 1,
    }))
}

/// Deletes a policy that no destination names.
pub(in crate::sqlite) fn delete(
    work: &mut Work<'_>,
    name: &str,
    now: Timestamp,
) -> Result<PolicyDeleted, Fault> {
    let users: i64 = work
        .conn
        .prepare_cached(
            "SELECT count(*) FROM destination
             WHERE retry_policy = ?1 AND substr(retry_policy, 1, 1) = '\"' AND deleted_at IS NULL",
        )?
        .query_row([format!("\"{name}\"")], |row| row.get(0))?;
    let old: Option<String> = work
        .conn
        .prepare_cached("SELECT policy FROM retry_policy WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    let Some(old) = old else {
        return Ok(PolicyDeleted::Missing);
    };
    if users > 0 {
        return Ok(PolicyDeleted::InUse(users.unsigned_abs()));
    }
    work.conn
        .prepare_cached("DELETE FROM retry_policy WHERE name = ?1")?
        .execute([name])?;
    log(work, name, Some(&old), None, now)?;
    Ok(PolicyDeleted::Deleted)
}

fn log(
    work: &Work<'_>,
    name: &str,
    old: Option<&str>,
    new: Option<&str>,
    now: Timestamp,
) -> Result<(), Fault> {
    let key = work
        .conn
        .prepare_cached(
            "INSERT INTO retry_policy_change(changed_at, name, old, new) VALUES (?1, ?2, ?3, ?4)",
        )?
        .insert((now.as_millis(), name, old, new))?;
    work.conn
        .prepare_cached("DELETE FROM retry_policy_change WHERE key <= ?1")?
        .execute([key - LOGGED])?;
    Ok(())
}
