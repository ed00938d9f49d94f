//! Dead letters that come back from an archive.

use postrider_core::delivery::{DeliveryStatus, PendingDelivery, Plan, Progress};
use postrider_core::id::{AttemptKey, DeliveryKey, DestinationKey, EventKey, IdKind, TenantKey};
use postrider_core::outcome::ErrorKind;
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::accept::{delivery_to, published_before};
use super::letters::{self, Letter};
use super::settle::{Ended, end};
use super::{Work, index};
use crate::letter::{Imported, ImportedLetter};
use crate::sqlite::detail::Detail;
use crate::sqlite::failure::Fault;
use crate::sqlite::json;
use crate::sqlite::schema::{self, meta};

/// Deliveries that an imported event has room for: its other dead letters may come in a later batch.
const ROOM: i64 = 1_024;

/// Takes letters back; each answer is in the place of its letter.
pub(in crate::sqlite) fn import(
    work: &mut Work<'_>,
    letters: &[ImportedLetter],
    now: Timestamp,
) -> Result<Vec<Imported>, Fault> {
    letters
        .iter()
        .map(|letter| import_one(work, letter, now))
        .collect()
}

fn import_one(work: &mut Work<'_>, letter: &ImportedLetter, now: Timestamp) -> Result<Imported, Fault> {
    let tenant: Option<i64> = work
        .conn
        .prepare_cached("SELECT key FROM tenant WHERE id = ?1 AND serial IS NOT NULL")?
        .query_row([&letter.tenant_id], |row| row.get(0))
        .optional()?;
    let Some(tenant) = tenant else {
        return Ok(Imported::TenantMissing);
    };
    let destination: Option<i64> = work
        .conn
        .prepare_cached("SELECT key FROM destination WHERE tenant = ?1 AND id = ?2 AND deleted_at IS NULL")?
        .query_row((tenant, &letter.destination_id), |row| row.get(0))
        .optional()?;
    let Some(destination) = destination.map(DestinationKey) else {
        return Ok(Imported::DestinationMissing);
    };
    let event = match published_before(work, tenant, &letter.event_id)? {
        Some(event) if is_same(work, event, letter)? => event,
        Some(_) => return Ok(Imported::EventDiffers),
        None => insert_event(work, letter, tenant, now)?,
    };
    if delivery_to(work, event, destination)?.is_some() {
        return Ok(Imported::Duplicate);
    }
    let Some(key) = free_place(work, event)? else {
        return Ok(Imported::NoPlace);
    };
    let attempts = u32::try_from(letter.attempts.len()).unwrap_or(u32::MAX);
    let mut delivery = PendingDelivery {
        key,
        event,
        tenant: TenantKey(tenant),
        destination,
        plan: Plan::first(key.created_at()),
        progress: Progress {
            attempts,
            scheduled: attempts,
            ..Progress::new(event.accepted_at())
        },
        retryable: letter.retryable,
        replayed: false,
        last_attempt: None,
        context: None,
    };
    delivery.last_attempt = insert_attempts(work, letter, &delivery, now)?;
    let context = letters::intern(work, letter.context.as_ref(), now)?;
    let told = match letter.attempts.last() {
        Some(last) => Letter::told_by(last, letter.reason, context).in_category(letter.category),
        None => Letter::unattempted(letter.reason, context).in_category(letter.category),
    };
    let ended = Ended::dead(told, delivery.progress, delivery.last_attempt);
    end(work, &delivery, &ended, now)?;
    list(work, &delivery)?;
    Ok(Imported::Imported(work.ids.encode(IdKind::Delivery, key.0)))
}

/// Whether the event that is there is the letter's: the same topic, metadata and bytes.
fn is_same(work: &Work<'_>, event: EventKey, letter: &ImportedLetter) -> Result<bool, Fault> {
    let same: Option<bool> = work
        .conn
        .prepare_cached(
            // Lengths first: they are known without reading the bytes.
            "SELECT length(event.data) = length(?2) AND event.data = ?2 AND event.metadata IS ?3 AND topic.name = ?4
             FROM event JOIN topic ON topic.key = event.topic WHERE event.key = ?1",
        )?
        .query_row(
            (event.0, &letter.data[..], metadata_text(letter), &letter.topic),
            |row| row.get(0),
        )
        .optional()?;
    Ok(same.unwrap_or(false))
}

/// As events have it: absent when there are none.
fn metadata_text(letter: &ImportedLetter) -> Option<String> {
    (!letter.metadata.is_empty()).then(|| json::from_map(&letter.metadata))
}

fn insert_event(
    work: &mut Work<'_>,
    letter: &ImportedLetter,
    tenant: i64,
    now: Timestamp,
) -> Result<EventKey, Fault> {
    let topic = work.names.topic(work.conn, &letter.topic)?;
    let room = usize::try_from(ROOM).unwrap_or(0);
    let key = EventKey(work.keys.take(now, 1 + room));
    work.event_skew.note(work.conn, letter.time, key.accepted_at())?;
    let metadata = metadata_text(letter);
    work.hot.insert_event.execute((
        key.0,
        tenant,
        topic,
        ROOM,
        letter.retryable,
        Some(letter.time.as_millis()),
        Some(letter.event_id.as_str()),
        metadata.as_deref(),
        &letter.data[..],
    ))?;
    work.hot
        .insert_event_id
        .execute((&letter.event_id, tenant, key.0))?;
    work.effects.unlisted_events += 2;
    Ok(key)
}

/// The first key of an event's deliveries that none has: of one that was purged, or room that was left.
fn free_place(work: &Work<'_>, event: EventKey) -> Result<Option<DeliveryKey>, Fault> {
    let places: Option<i64> = work
        .conn
        .prepare_cached("SELECT deliveries FROM event WHERE key = ?1")?
        .query_row([event.0], |row| row.get(0))
        .optional()?;
    let last = event.0.saturating_add(places.unwrap_or(0));
    let mut taken = work.conn.prepare_cached(
        "SELECT key FROM pending WHERE key > ?1 AND key <= ?2
         UNION ALL SELECT key FROM history WHERE key > ?1 AND key <= ?2 ORDER BY 1",
    )?;
    let mut found = taken.query((event.0, last))?;
    let mut place = event.0 + 1;
    while let Some(row) = found.next()?
        && row.get::<_, i64>(0)? == place
    {
        place += 1;
    }
    Ok((place <= last).then_some(DeliveryKey(place)))
}

fn insert_attempts(
    work: &mut Work<'_>,
    letter: &ImportedLetter,
    delivery: &PendingDelivery,
    now: Timestamp,
) -> Result<Option<AttemptKey>, Fault> {
    let mut last: Option<AttemptKey> = None;
    for (at, attempt) in letter.attempts.iter().enumerate() {
        let key = AttemptKey(work.keys.take(now, 1));
        work.attempt_skew
            .note(work.conn, attempt.started_at, key.settled_at())?;
        let status_after = if at + 1 == letter.attempts.len() {
            DeliveryStatus::Dead
        } else {
            DeliveryStatus::Pending
        };
        work.hot.insert_attempt.execute((
            key.0,
            delivery.key.0,
            delivery.event.0,
            delivery.tenant.0,
            delivery.destination.0,
            last.map(|last| last.0),
            attempt.number,
            attempt.started_at.as_millis(),
            attempt.status,
            attempt.error.map(ErrorKind::code),
            status_after.code(),
            Detail::encode(attempt, None),
        ))?;
        work.effects.unlisted_attempts += 1;
        last = Some(key);
    }
    Ok(last)
}

/// A delivery whose place was listed already is listed here; others are when their event is.
fn list(work: &Work<'_>, delivery: &PendingDelivery) -> Result<(), Fault> {
    let listed = schema::number(work.conn, meta::EVENTS_INDEXED_UPTO)?.unwrap_or(0);
    if delivery.key.0 <= listed {
        index::list_delivery(work.conn, delivery)?;
    }
    Ok(())
}
