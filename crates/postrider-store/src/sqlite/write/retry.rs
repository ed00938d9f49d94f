//! A delivery attempted again because somebody asked.

use postrider_core::delivery::{DelayCause, DeliveryStatus, PendingDelivery, Plan};
use postrider_core::id::{ContextKey, DeliveryKey, DestinationKey};
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::accept::{delivery_to, published_before};
use super::{Work, letters};
use crate::record::Retried;
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

/// Makes the delivery of an event to a destination due now, whatever its status, with a fresh window.
pub(in crate::sqlite) fn retry(
    work: &mut Work<'_>,
    tenant: Option<&str>,
    event_id: &str,
    destination: DestinationKey,
    now: Timestamp,
) -> Result<Retried, Fault> {
    let Some(live) = work.names.destinations.get(&destination.0) else {
        return Ok(Retried::NoDelivery);
    };
    let owner = live.tenant;
    // An id names an event only together with its tenant; without one, it is the destination's.
    let asked_for = match tenant {
        Some(id) => work
            .conn
            .prepare_cached("SELECT key FROM tenant WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?,
        None => Some(owner),
    };
    let Some(asked_for) = asked_for else {
        return Ok(Retried::EventMissing);
    };
    let Some(event) = published_before(work, asked_for, event_id)? else {
        return Ok(Retried::EventMissing);
    };
    let Some((key, status)) = delivery_to(work, event, destination)? else {
        return Ok(Retried::NoDelivery);
    };
    let delivery = match status {
        DeliveryStatus::Pending => reschedule(work, key, now)?,
        DeliveryStatus::Succeeded | DeliveryStatus::Dead | DeliveryStatus::Canceled => {
            revive(work, key, status, Revival::default(), now)?
        }
    };
    work.effects.rescheduled.push(delivery);
    Ok(Retried::Scheduled)
}

fn reschedule(work: &mut Work<'_>, key: DeliveryKey, now: Timestamp) -> Result<PendingDelivery, Fault> {
    work.conn
        .prepare_cached(
            "UPDATE pending SET due_at = ?2, delay_ns = 0, tier = ?3, cause = ?4, scheduled = 0, immediate = 0,
                last_delay_ns = 0, window_start = ?2 WHERE key = ?1",
        )?
        .execute((key.0, now.as_millis(), Plan::manual(now).tier.code(), DelayCause::Manual.code()))?;
    read_pending(work, key)
}

/// With what a delivery is made pending again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Revival {
    /// As part of a replay.
    pub(super) replayed: bool,
    /// With the configuration of this context.
    pub(super) context: Option<ContextKey>,
}

/// Makes a delivery that has ended pending, due now, with a fresh window.
pub(super) fn revive(
    work: &mut Work<'_>,
    key: DeliveryKey,
    status: DeliveryStatus,
    revival: Revival,
    now: Timestamp,
) -> Result<PendingDelivery, Fault> {
    work.conn
        .prepare_cached(
            "INSERT INTO pending(key, event, tenant, destination, flags, due_at, tier, cause, attempts, window_start,
                last_attempt, context)
             SELECT key, event, tenant, destination, (flags & ?5) | ?6, ?2, ?3, ?4, attempts, ?2, last_attempt, ?7
             FROM history WHERE key = ?1",
        )?
        .execute((
            key.0,
            now.as_millis(),
            Plan::manual(now).tier.code(),
            DelayCause::Manual.code(),
            rows::flags(true, false),
            rows::flags(false, revival.replayed),
            revival.context.map(|key| key.0),
        ))?;
    work.conn
        .prepare_cached("DELETE FROM history WHERE key = ?1")?
        .execute([key.0])?;
    work.effects.pending += 1;
    if status == DeliveryStatus::Dead {
        letters::exhume(work, key)?;
    }
    read_pending(work, key)
}

/// A pending row, if it is there.
pub(super) fn find_pending(work: &Work<'_>, key: DeliveryKey) -> Result<Option<PendingDelivery>, Fault> {
    let sql = format!("SELECT {} FROM pending WHERE key = ?1", rows::PENDING_COLUMNS);
    let mut statement = work.conn.prepare_cached(&sql)?;
    let mut found = statement.query([key.0])?;
    found.next()?.map(rows::pending).transpose()
}

/// A row that is there.
pub(super) fn read_pending(work: &Work<'_>, key: DeliveryKey) -> Result<PendingDelivery, Fault> {
    find_pending(work, key)?
        .ok_or_else(|| Fault::corrupt("a pending delivery vanished inside its transaction"))
}
