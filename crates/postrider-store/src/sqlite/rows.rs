//! Columns to values and back, for rows that several files read or write.

use std::time::Duration;

use postrider_core::delivery::{DelayCause, PendingDelivery, Plan, Progress, Tier};
use postrider_core::id::{AttemptKey, ContextKey, DeliveryKey, DestinationKey, EventKey, TenantKey};
use postrider_core::time::Timestamp;
use rusqlite::Row;

use super::failure::Fault;

const RETRYABLE: i64 = 1;
const REPLAYED: i64 = 2;

/// The columns of [`pending`], in its order.
pub(super) const PENDING_COLUMNS: &str = "key, event, tenant, destination, flags, due_at, delay_ns, tier, cause, \
     attempts, scheduled, immediate, last_delay_ns, window_start, last_attempt, context";

/// `flags` of a delivery.
pub(super) fn flags(retryable: bool, replayed: bool) -> i64 {
    i64::from(retryable) * RETRYABLE + i64::from(replayed) * REPLAYED
}

/// Whether `flags` say that failures are retried.
pub(super) const fn is_retryable(flags: i64) -> bool {
    flags & RETRYABLE != 0
}

/// Whether `flags` say that it is part of a replay.
pub(super) const fn is_replayed(flags: i64) -> bool {
    flags & REPLAYED != 0
}

/// Reads a row of `pending` that was selected as [`PENDING_COLUMNS`].
pub(super) fn pending(row: &Row<'_>) -> Result<PendingDelivery, Fault> {
    let event = EventKey(row.get(1)?);
    let flags: i64 = row.get(4)?;
    let tier = word(row.get(7)?, Tier::from_code, "tier")?;
    let cause = word(row.get(8)?, DelayCause::from_code, "cause")?;
    Ok(PendingDelivery {
        key: DeliveryKey(row.get(0)?),
        event,
        tenant: TenantKey(row.get(2)?),
        destination: DestinationKey(row.get(3)?),
        plan: Plan {
            due_at: Timestamp::from_millis(row.get(5)?),
            delay: from_nanos(row.get(6)?),
            tier,
            cause,
        },
        progress: progress(row, 9, event)?,
        retryable: flags & RETRYABLE != 0,
        replayed: flags & REPLAYED != 0,
        last_attempt: row.get::<_, Option<i64>>(14)?.map(AttemptKey),
        context: row.get::<_, Option<i64>>(15)?.map(ContextKey),
    })
}

/// Reads `attempts, scheduled, immediate, last_delay_ns, window_start` from column `at` on.
pub(super) fn progress(row: &Row<'_>, at: usize, event: EventKey) -> Result<Progress, Fault> {
    let window_start = row
        .get::<_, Option<i64>>(at + 4)?
        .map_or(event.accepted_at(), Timestamp::from_millis);
    Ok(Progress {
        attempts: row.get(at)?,
        scheduled: row.get(at + 1)?,
        immediate: row.get(at + 2)?,
        last_delay: from_nanos(row.get(at + 3)?),
        window_start,
    })
}

/// `window_start` as stored: absent when it is the event's acceptance, which is the rule.
pub(super) fn window_start(progress: &Progress, event: EventKey) -> Option<i64> {
    (progress.window_start != event.accepted_at()).then_some(progress.window_start.as_millis())
}

/// Nanoseconds as stored: up to 292 years.
pub(super) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// The inverse of [`nanos`].
pub(super) fn from_nanos(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// A word by its stored code.
pub(super) fn word<T>(code: i64, from_code: fn(u8) -> Option<T>, column: &str) -> Result<T, Fault> {
    u8::try_from(code)
        .ok()
        .and_then(from_code)
        .ok_or_else(|| Fault::corrupt(format!("column {column} holds the unknown code {code}")))
}
