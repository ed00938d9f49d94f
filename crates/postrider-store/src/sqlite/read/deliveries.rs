//! Lists of deliveries.

use postrider_core::delivery::{DeadReason, DeliveryStatus, Plan, Progress};
use postrider_core::id::{AttemptKey, DeliveryKey, DestinationKey, EventKey, IdCodec, IdKind};
use postrider_core::outcome::{Category, ErrorKind, Outcome};
use postrider_core::time::Timestamp;
use rusqlite::Connection;
use tokio::time::Instant;

use super::attempts;
use super::delivery_sources::sources;
use super::filter;
use super::lookup::{EventHead, Lookup};
use super::walk::{self, Span};
use crate::page::Page;
use crate::record::{Attempt, Delivery, DeliveryQuery};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

/// A page of deliveries.
pub(in crate::sqlite) fn deliveries(
    conn: &Connection,
    ids: &IdCodec,
    query: &DeliveryQuery,
    until: Instant,
) -> Result<Page<Delivery>, Fault> {
    let tenants = filter::tenants(conn, &query.tenant_ids)?;
    let topics = filter::topics(conn, &query.topics)?;
    let destinations = filter::destinations(conn, &query.destination_ids, &tenants)?;
    let events = filter::events(conn, ids, &query.event_ids, &tenants)?;
    let sources = sources(conn, events.as_deref(), &destinations, &tenants, &query.statuses)?;
    // The time of a delivery is the time in its key.
    let span = Span::of_times(&query.time, 0, 0);
    let mut lookup = Lookup::new(conn, ids);
    walk::page(conn, &sources, span, &query.page, until, |key| {
        let Some(row) = row(&mut lookup, DeliveryKey(key))? else {
            return Ok(None);
        };
        let wanted = filter::admits(&tenants, row.tenant)
            && filter::admits(&destinations, row.destination.0)
            && events.as_ref().is_none_or(|events| events.contains(&row.event))
            && (query.statuses.is_empty() || query.statuses.contains(&row.status))
            && walk::is_within(&query.time, row.key.created_at());
        if !wanted {
            return Ok(None);
        }
        match lookup.event(row.event)? {
            Some(event) if filter::admits(&topics, event.topic) => read(&mut lookup, row, event).map(Some),
            _ => Ok(None),
        }
    })
}

/// One delivery by id.
pub(in crate::sqlite) fn by_id(
    conn: &Connection,
    ids: &IdCodec,
    id: &str,
) -> Result<Option<Delivery>, Fault> {
    let Some(key) = ids.decode(IdKind::Delivery, id) else {
        return Ok(None);
    };
    let mut lookup = Lookup::new(conn, ids);
    let Some(row) = row(&mut lookup, DeliveryKey(key))? else {
        return Ok(None);
    };
    match lookup.event(row.event)? {
        Some(event) => read(&mut lookup, row, event).map(Some),
        None => Ok(None),
    }
}

/// A delivery as either table has it.
#[derive(Debug, Clone, Copy)]
struct Stored {
    key: DeliveryKey,
    event: EventKey,
    tenant: i64,
    destination: DestinationKey,
    retryable: bool,
    replayed: bool,
    status: DeliveryStatus,
    ended_at: Option<Timestamp>,
    reason: Option<DeadReason>,
    category: Option<Category>,
    progress: Progress,
    plan: Option<Plan>,
    last_attempt: Option<AttemptKey>,
}

fn row(lookup: &mut Lookup<'_>, key: DeliveryKey) -> Result<Option<Stored>, Fault> {
    match ended(lookup.conn, key)? {
        Some(ended) => Ok(Some(ended)),
        None => pending(lookup, key),
    }
}

fn ended(conn: &Connection, key: DeliveryKey) -> Result<Option<Stored>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT event, tenant, destination, flags, status, ended_at, reason, category, attempts, scheduled, immediate,
            last_delay_ns, window_start, last_attempt
         FROM history WHERE key = ?1",
    )?;
    let mut found = statement.query([key.0])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let event = EventKey(row.get(0)?);
    let (reason, category): (Option<i64>, Option<i64>) = (row.get(6)?, row.get(7)?);
    Ok(Some(Stored {
        key,
        event,
        tenant: row.get(1)?,
        destination: DestinationKey(row.get(2)?),
        retryable: rows::is_retryable(row.get(3)?),
        replayed: false,
        status: rows::word(row.get(4)?, DeliveryStatus::from_code, "status")?,
        ended_at: Some(Timestamp::from_millis(row.get(5)?)),
        reason: reason
            .map(|code| rows::word(code, DeadReason::from_code, "reason"))
            .transpose()?,
        category: category
            .map(|code| rows::word(code, Category::from_code, "category"))
            .transpose()?,
        progress: rows::progress(row, 8, event)?,
        plan: None,
        last_attempt: row.get::<_, Option<i64>>(13)?.map(AttemptKey),
    }))
}

fn pending(lookup: &mut Lookup<'_>, key: DeliveryKey) -> Result<Option<Stored>, Fault> {
    let sql = format!("SELECT {} FROM pending WHERE key = ?1", rows::PENDING_COLUMNS);
    let mut statement = lookup.conn.prepare_cached(&sql)?;
    let mut found = statement.query([key.0])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let delivery = rows::pending(row)?;
    // Rows of a deleted destination are moved to the history step by step; they are canceled from the first moment.
    let deleted_at = lookup.destination(delivery.destination.0)?.deleted_at;
    let is_pending = deleted_at.is_none();
    Ok(Some(Stored {
        key,
        event: delivery.event,
        tenant: delivery.tenant.0,
        destination: delivery.destination,
        retryable: delivery.retryable,
        replayed: delivery.replayed && is_pending,
        status: if is_pending {
            DeliveryStatus::Pending
        } else {
            DeliveryStatus::Canceled
        },
        ended_at: deleted_at,
        reason: None,
        category: None,
        progress: delivery.progress,
        plan: is_pending.then_some(delivery.plan),
        last_attempt: delivery.last_attempt,
    }))
}

fn read(lookup: &mut Lookup<'_>, stored: Stored, event: EventHead) -> Result<Delivery, Fault> {
    let last_attempt = match stored.last_attempt {
        Some(key) => attempts::attempt(lookup, key)?.map(Box::new),
        None => None,
    };
    Ok(Delivery {
        key: stored.key,
        id: lookup.ids.encode(IdKind::Delivery, stored.key.0),
        event_id: event.id,
        topic: lookup.topic(event.topic)?,
        tenant_id: lookup.tenant(stored.tenant)?,
        destination: stored.destination,
        destination_id: lookup.destination(stored.destination.0)?.id.clone(),
        status: stored.status,
        reason: stored.reason,
        category: stored
            .category
            .or_else(|| last_attempt.as_deref().and_then(category)),
        progress: stored.progress,
        plan: stored.plan,
        retryable: stored.retryable,
        replayed: stored.replayed,
        created_at: stored.key.created_at(),
        ended_at: stored.ended_at,
        last_attempt,
    })
}

fn category(attempt: &Attempt) -> Option<Category> {
    let status = attempt
        .recorded
        .status
        .map(|status| Outcome::status(status).category());
    status.or_else(|| attempt.recorded.error.map(ErrorKind::category))
}
