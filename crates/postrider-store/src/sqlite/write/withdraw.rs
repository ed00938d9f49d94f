//! Pending deliveries that somebody ends by hand.

use postrider_core::delivery::{DeadReason, DeliveryStatus};
use postrider_core::id::{DeliveryKey, IdKind};
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::Work;
use super::letters::{self, Letter};
use super::retry::find_pending;
use super::settle::{Ended, end};
use crate::letter::{DeadContext, Withdrawn};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

/// What it becomes.
#[derive(Debug, Clone)]
pub(in crate::sqlite) enum End {
    /// A dead letter.
    Dead(Option<DeadContext>),
    /// Canceled.
    Canceled,
}

/// Ends a pending delivery, and has the engine forget it.
pub(in crate::sqlite) fn withdraw(
    work: &mut Work<'_>,
    id: &str,
    what: &End,
    now: Timestamp,
) -> Result<Withdrawn, Fault> {
    let Some(key) = work.ids.decode(IdKind::Delivery, id).map(DeliveryKey) else {
        return Ok(Withdrawn::Missing);
    };
    let Some(delivery) = find_pending(work, key)? else {
        let status: Option<i64> = work
            .conn
            .prepare_cached("SELECT status FROM history WHERE key = ?1")?
            .query_row([key.0], |row| row.get(0))
            .optional()?;
        return Ok(match status {
            Some(code) => Withdrawn::NotPending(rows::word(code, DeliveryStatus::from_code, "status")?),
            None => Withdrawn::Missing,
        });
    };
    if !work.names.destinations.contains_key(&delivery.destination.0) {
        return Ok(Withdrawn::NotPending(DeliveryStatus::Canceled));
    }
    let ended = match what {
        End::Canceled => {
            work.effects.ended.canceled += 1;
            Ended::canceled(delivery.progress, delivery.last_attempt)
        }
        End::Dead(context) => {
            let context = match delivery.context {
                Some(key) => Some(key),
                None => letters::intern(work, context.as_ref(), now)?,
            };
            let reason = DeadReason::Manual;
            let letter = match delivery.last_attempt {
                Some(last) => letters::told_by_last(work, last, reason, context)?,
                None => Letter::unattempted(reason, context),
            };
            work.effects.ended.add_dead(reason, 1);
            Ended::dead(letter, delivery.progress, delivery.last_attempt)
        }
    };
    work.hot.delete_pending.execute([key.0])?;
    work.effects.pending -= 1;
    work.effects.withdrawn.push((key, delivery.destination));
    end(work, &delivery, &ended, now)?;
    Ok(Withdrawn::Done)
}
