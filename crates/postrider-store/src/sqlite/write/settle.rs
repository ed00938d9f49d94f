//! Settling judged attempts: the attempt's row and the delivery's new state, in one transaction.

use postrider_core::delivery::{DeadReason, DeliveryStatus, PendingDelivery, Plan, Progress};
use postrider_core::id::{AttemptKey, ContextKey};
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::letters::Letter;
use super::retry::read_pending;
use super::{Work, letters, replays};
use crate::record::{NewAttempt, Next, Settlement};
use crate::sqlite::detail::Detail;
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

/// How a delivery ended.
pub(super) struct Ended {
    status: DeliveryStatus,
    category: Option<Category>,
    /// What the dead letter says.
    letter: Option<Letter>,
    progress: Progress,
    last_attempt: Option<AttemptKey>,
}

impl Ended {
    pub(super) const fn dead(letter: Letter, progress: Progress, last_attempt: Option<AttemptKey>) -> Self {
        Self {
            status: DeliveryStatus::Dead,
            category: Some(letter.category),
            letter: Some(letter),
            progress,
            last_attempt,
        }
    }

    pub(super) const fn canceled(progress: Progress, last_attempt: Option<AttemptKey>) -> Self {
        Self {
            status: DeliveryStatus::Canceled,
            category: None,
            letter: None,
            progress,
            last_attempt,
        }
    }

    const fn succeeded(progress: Progress, last_attempt: Option<AttemptKey>) -> Self {
        Self {
            status: DeliveryStatus::Succeeded,
            category: Some(Category::Success),
            letter: None,
            progress,
            last_attempt,
        }
    }
}

/// Records a batch.
pub(in crate::sqlite) fn settle(
    work: &mut Work<'_>,
    batch: &[Settlement],
    now: Timestamp,
) -> Result<(), Fault> {
    batch
        .iter()
        .try_for_each(|settlement| settle_one(work, settlement, now))
}

/// What settling has to know of the row as it is now.
struct Row {
    last_attempt: Option<AttemptKey>,
    attempts: u32,
    window_start: Timestamp,
    replayed: bool,
    context: Option<ContextKey>,
}

fn settle_one(work: &mut Work<'_>, settlement: &Settlement, now: Timestamp) -> Result<(), Fault> {
    let delivery = &settlement.delivery;
    let Some(row) = find(work, delivery)? else {
        return settle_ended(work, settlement, now);
    };
    // Attempts that were settled after `delivery` was read; its own progress does not count them.
    let missed = row.attempts.saturating_sub(delivery.progress.attempts);
    let counted = |progress: Progress| Progress {
        attempts: progress.attempts.saturating_add(missed),
        ..progress
    };
    let is_overtaken = row.window_start != delivery.progress.window_start;
    match settlement.next {
        Next::Retry(..) | Next::Dead(..) | Next::Canceled if is_overtaken => overtaken(work, settlement, now),
        Next::Retry(plan, progress) if work.names.destinations.contains_key(&delivery.destination.0) => {
            let status = DeliveryStatus::Pending;
            let last = record(work, settlement, row.last_attempt, status, Some(plan), now)?;
            retry(work, delivery, &plan, &counted(progress), last)
        }
        next => {
            work.hot.delete_pending.execute([delivery.key.0])?;
            work.effects.pending -= 1;
            let progress = counted(match settlement.attempt {
                Some(_) => delivery.progress.attempted(&delivery.plan),
                None => delivery.progress,
            });
            let mut ended = match next {
                Next::Succeeded => Ended::succeeded(progress, None),
                Next::Dead(reason, category) => {
                    let letter = letter(work, settlement, &row, reason, category, now)?;
                    Ended::dead(letter, progress, None)
                }
                Next::Canceled => Ended::canceled(progress, None),
                // A retry for a destination that was deleted meanwhile will not be made.
                Next::Retry(..) => {
                    work.effects.ended.canceled += 1;
                    Ended::canceled(progress, None)
                }
            };
            ended.last_attempt = record(work, settlement, row.last_attempt, ended.status, None, now)?;
            // It may have been put into a replay while this attempt was out.
            let delivery = PendingDelivery {
                replayed: row.replayed,
                ..*delivery
            };
            end(work, &delivery, &ended, now)
        }
    }
}

/// What the dead letter of a settlement says. One that ends without an attempt is told by the last that was made.
fn letter(
    work: &mut Work<'_>,
    settlement: &Settlement,
    row: &Row,
    reason: DeadReason,
    category: Category,
    now: Timestamp,
) -> Result<Letter, Fault> {
    let context = match row.context {
        Some(key) => Some(key),
        None => letters::intern(work, settlement.context.as_ref(), now)?,
    };
    let told = match (&settlement.attempt, row.last_attempt) {
        (Some(attempt), _) => Letter::told_by(attempt, reason, context).in_category(category),
        (None, Some(last)) => letters::told_by_last(work, last, reason, context)?,
        (None, None) => Letter::unattempted(reason, context).in_category(category),
    };
    Ok(told)
}

fn find(work: &mut Work<'_>, delivery: &PendingDelivery) -> Result<Option<Row>, Fault> {
    let found = work.hot.find_pending.query_row([delivery.key.0], |row| {
        let window_start: Option<i64> = row.get(2)?;
        Ok(Row {
            last_attempt: row.get::<_, Option<i64>>(0)?.map(AttemptKey),
            attempts: row.get(1)?,
            window_start: window_start.map_or(delivery.event.accepted_at(), Timestamp::from_millis),
            replayed: rows::is_replayed(row.get(3)?),
            context: row.get::<_, Option<i64>>(4)?.map(ContextKey),
        })
    });
    Ok(found.optional()?)
}

/// The delivery got a fresh window by hand while this attempt was out: that plan is newer than the verdict, and stands.
/// Of the attempt, only that it was made is kept.
fn overtaken(work: &mut Work<'_>, settlement: &Settlement, now: Timestamp) -> Result<(), Fault> {
    let current = read_pending(work, settlement.delivery.key)?;
    let status = DeliveryStatus::Pending;
    let last = record(
        work,
        settlement,
        current.last_attempt,
        status,
        Some(current.plan),
        now,
    )?;
    let attempts = current.progress.attempts + u32::from(settlement.attempt.is_some());
    work.conn
        .prepare_cached("UPDATE pending SET last_attempt = ?2, attempts = ?3 WHERE key = ?1")?
        .execute((current.key.0, last.map(|key| key.0), attempts))?;
    Ok(())
}

fn retry(
    work: &mut Work<'_>,
    delivery: &PendingDelivery,
    plan: &Plan,
    progress: &Progress,
    last_attempt: Option<AttemptKey>,
) -> Result<(), Fault> {
    work.hot.retry_pending.execute((
        delivery.key.0,
        plan.due_at.as_millis(),
        rows::nanos(plan.delay),
        plan.tier.code(),
        plan.cause.code(),
        progress.attempts,
        progress.scheduled,
        progress.immediate,
        rows::nanos(progress.last_delay),
        rows::window_start(progress, delivery.event),
        last_attempt.map(|key| key.0),
    ))?;
    Ok(())
}

/// A delivery that is no longer pending: its attempt is recorded all the same, and a success is the truth whatever was
/// decided meanwhile.
fn settle_ended(work: &mut Work<'_>, settlement: &Settlement, now: Timestamp) -> Result<(), Fault> {
    let key = settlement.delivery.key;
    let found: Option<(i64, Option<i64>)> = work
        .conn
        .prepare_cached("SELECT status, last_attempt FROM history WHERE key = ?1")?
        .query_row([key.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((code, prev)) = found else { return Ok(()) };
    let before = rows::word(code, DeliveryStatus::from_code, "status")?;
    let succeeded = settlement.next == Next::Succeeded;
    let status = if succeeded {
        DeliveryStatus::Succeeded
    } else {
        before
    };
    let last = record(work, settlement, prev.map(AttemptKey), status, None, now)?;
    let attempts = settlement.delivery.progress.attempts + u32::from(settlement.attempt.is_some());
    work.conn
        .prepare_cached("UPDATE history SET last_attempt = ?2, attempts = max(attempts, ?3) WHERE key = ?1")?
        .execute((key.0, last.map(|key| key.0), attempts))?;
    if succeeded && before != DeliveryStatus::Succeeded {
        work.conn
            .prepare_cached(
                "UPDATE history SET status = ?2, reason = NULL, category = ?3, ended_at = ?4 WHERE key = ?1",
            )?
            .execute((key.0, status.code(), Category::Success.code(), now.as_millis()))?;
        if before == DeliveryStatus::Dead {
            letters::exhume(work, key)?;
        }
    }
    Ok(())
}

/// Writes the attempt, if there was one; answers the delivery's last attempt.
fn record(
    work: &mut Work<'_>,
    settlement: &Settlement,
    prev: Option<AttemptKey>,
    status_after: DeliveryStatus,
    retry: Option<Plan>,
    now: Timestamp,
) -> Result<Option<AttemptKey>, Fault> {
    let Some(attempt) = &settlement.attempt else {
        return Ok(prev);
    };
    let delivery = &settlement.delivery;
    let key = AttemptKey(work.keys.take(now, 1));
    let NewAttempt {
        number,
        started_at,
        status,
        error,
        ..
    } = attempt;
    work.attempt_skew.note(work.conn, *started_at, key.settled_at())?;
    work.hot.insert_attempt.execute((
        key.0,
        delivery.key.0,
        delivery.event.0,
        delivery.tenant.0,
        delivery.destination.0,
        prev.map(|prev| prev.0),
        number,
        started_at.as_millis(),
        status,
        error.map(postrider_core::outcome::ErrorKind::code),
        status_after.code(),
        Detail::encode(attempt, retry.as_ref()),
    ))?;
    work.effects.unlisted_attempts += 1;
    Ok(Some(key))
}

/// Writes the final state of a delivery whose pending row is gone or never was.
pub(super) fn end(
    work: &mut Work<'_>,
    delivery: &PendingDelivery,
    ended: &Ended,
    now: Timestamp,
) -> Result<(), Fault> {
    work.hot.insert_history.execute((
        delivery.key.0,
        delivery.event.0,
        delivery.tenant.0,
        delivery.destination.0,
        rows::flags(delivery.retryable, delivery.replayed),
        ended.status.code(),
        now.as_millis(),
        ended.letter.as_ref().map(|letter| letter.reason.code()),
        ended.category.map(Category::code),
        ended.progress.attempts,
        ended.progress.scheduled,
        ended.progress.immediate,
        rows::nanos(ended.progress.last_delay),
        rows::window_start(&ended.progress, delivery.event),
        ended.last_attempt.map(|key| key.0),
    ))?;
    if let Some(letter) = &ended.letter {
        letters::bury(work, delivery, letter, now)?;
    }
    if delivery.replayed {
        replays::item_ended(work, delivery.key, ended.status, now)?;
    }
    Ok(())
}
