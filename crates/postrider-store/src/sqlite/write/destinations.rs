//! Changes of destinations.

use postrider_core::id::{DestinationKey, TenantKey};
use postrider_core::time::Timestamp;
use rusqlite::{OptionalExtension as _, named_params};

use super::names::LiveDestination;
use super::{Work, sweep};
use crate::record::{Changed, Created, Destination};
use crate::sqlite::credentials;
use crate::sqlite::failure::Fault;
use crate::sqlite::json;

/// Creates a destination, unless its id is taken or its tenant has `max_per_tenant`.
pub(in crate::sqlite) fn create(
    work: &mut Work<'_>,
    new: &Destination,
    max_per_tenant: u32,
) -> Result<Created, Fault> {
    let tenant = new.tenant.0;
    let has_tenant = work
        .conn
        .prepare_cached("SELECT 1 FROM tenant WHERE key = ?1 AND serial IS NOT NULL")?
        .exists([tenant])?;
    if !has_tenant {
        return Ok(Created::TenantMissing);
    }
    let exists = work
        .conn
        .prepare_cached("SELECT 1 FROM destination WHERE tenant = ?1 AND id = ?2 AND deleted_at IS NULL")?
        .exists((tenant, &new.id))?;
    if exists {
        return Ok(Created::Exists);
    }
    if work.names.live_count(tenant) >= max_per_tenant {
        return Ok(Created::LimitReached);
    }
    let sealed = credentials::seal(&work.seal, tenant, &new.id, &new.credentials, &new.config)?;
    let key = work
        .conn
        .prepare_cached(
            "INSERT INTO destination(tenant, id, kind, topics, filter, config, credentials, delivery_metadata, metadata,
                retry_policy, created_at, updated_at, disabled_at, disabled_reason, revision)
             VALUES (:tenant, :id, :kind, :topics, :filter, :config, :credentials, :delivery_metadata, :metadata,
                :retry_policy, :created_at, :updated_at, :disabled_at, :disabled_reason, 1)",
        )?
        .insert(named_params! {
            ":tenant": tenant,
            ":id": new.id,
            ":kind": new.kind,
            ":topics": json::from_list(&new.topics),
            ":filter": new.filter,
            ":config": json::from_map(&credentials::shown(&new.config)),
            ":credentials": sealed,
            ":delivery_metadata": new.delivery_metadata.as_ref().map(json::from_map),
            ":metadata": new.metadata.as_ref().map(json::from_map),
            ":retry_policy": new.retry_policy,
            ":created_at": new.created_at.as_millis(),
            ":updated_at": new.updated_at.as_millis(),
            ":disabled_at": new.disabled.as_ref().map(|disabled| disabled.at.as_millis()),
            ":disabled_reason": new.disabled.as_ref().map(|disabled| &disabled.reason),
        })?;
    work.names.created(
        key,
        LiveDestination {
            tenant,
            id: new.id.as_str().into(),
        },
    );
    Ok(Created::Created(Destination {
        key: DestinationKey(key),
        revision: 1,
        ..new.clone()
    }))
}

/// Replaces a destination's content, if its revision is still the given one. Owner, id and time of creation stay.
pub(in crate::sqlite) fn change(work: &mut Work<'_>, changed: &Destination) -> Result<Changed, Fault> {
    let found: Option<(i64, i64, String, i64)> = work
        .conn
        .prepare_cached(
            "SELECT revision, tenant, id, created_at FROM destination WHERE key = ?1 AND deleted_at IS NULL",
        )?
        .query_row([changed.key.0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((revision, tenant, id, created_at)) = found else {
        return Ok(Changed::Missing);
    };
    if revision != changed.revision {
        return Ok(Changed::Conflict);
    }
    let changed = Destination {
        tenant: TenantKey(tenant),
        id,
        created_at: Timestamp::from_millis(created_at),
        revision: revision + 1,
        ..changed.clone()
    };
    let sealed = credentials::seal(
        &work.seal,
        tenant,
        &changed.id,
        &changed.credentials,
        &changed.config,
    )?;
    work.conn
        .prepare_cached(
            "UPDATE destination SET kind = :kind, topics = :topics, filter = :filter, config = :config,
                credentials = :credentials, delivery_metadata = :delivery_metadata, metadata = :metadata,
                retry_policy = :retry_policy, updated_at = :updated_at, disabled_at = :disabled_at,
                disabled_reason = :disabled_reason, revision = :revision
             WHERE key = :key",
        )?
        .execute(named_params! {
            ":kind": changed.kind,
            ":topics": json::from_list(&changed.topics),
            ":filter": changed.filter,
            ":config": json::from_map(&credentials::shown(&changed.config)),
            ":credentials": sealed,
            ":delivery_metadata": changed.delivery_metadata.as_ref().map(json::from_map),
            ":metadata": changed.metadata.as_ref().map(json::from_map),
            ":retry_policy": changed.retry_policy,
            ":updated_at": changed.updated_at.as_millis(),
            ":disabled_at": changed.disabled.as_ref().map(|disabled| disabled.at.as_millis()),
            ":disabled_reason": changed.disabled.as_ref().map(|disabled| &disabled.reason),
            ":revision": changed.revision,
            ":key": changed.key.0,
        })?;
    Ok(Changed::Changed(changed))
}

/// Deletes a destination; answers whether it was there.
pub(in crate::sqlite) fn delete(
    work: &mut Work<'_>,
    tenant: TenantKey,
    key: DestinationKey,
    now: Timestamp,
) -> Result<bool, Fault> {
    let is_there = work
        .names
        .destinations
        .get(&key.0)
        .is_some_and(|live| live.tenant == tenant.0);
    if is_there {
        sweep::mark_deleted(work, key.0, now)?;
        sweep::step(work)?;
    }
    Ok(is_there)
}
