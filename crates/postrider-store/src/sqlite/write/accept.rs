//! Accepting events: the event, its deliveries, and the memory of its id, in one go.

use std::sync::Arc;

use postrider_core::delivery::{DeliveryStatus, PendingDelivery, Plan, Progress};
use postrider_core::id::{DeliveryKey, DestinationKey, EventKey, IdKind, TenantKey};
use postrider_core::time::Timestamp;
use rusqlite::OptionalExtension as _;

use super::letters::Letter;
use super::settle::{Ended, end};
use super::{Work, letters};
use crate::record::{Accepted, DueDelivery, NewDelivery, NewEvent, Payload};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

/// An event and what its caller prepared, so that the writer does not have to.
pub(in crate::sqlite) struct Prepared {
    pub(in crate::sqlite) event: NewEvent,
    /// Its metadata as JSON text, absent when there are none.
    pub(in crate::sqlite) metadata: Option<String>,
}

/// Stores `events`; each answer is in the place of its event.
pub(in crate::sqlite) fn accept(
    work: &mut Work<'_>,
    events: &[Prepared],
    now: Timestamp,
) -> Result<Vec<Accepted>, Fault> {
    events
        .iter()
        .map(|prepared| accept_one(work, prepared, now))
        .collect()
}

fn accept_one(work: &mut Work<'_>, prepared: &Prepared, now: Timestamp) -> Result<Accepted, Fault> {
    let event = &prepared.event;
    let tenant = work.names.tenant(work.conn, &event.tenant_id)?;
    if let Some(id) = &event.id
        && let Some(first) = published_before(work, tenant, id)?
    {
        let destination_ids = destination_ids(work, first)?;
        return Ok(Accepted {
            id: id.clone(),
            duplicate: true,
            destination_ids,
        });
    }
    let (key, destinations) = insert_event(work, prepared, tenant, now)?;
    let id = event
        .id
        .clone()
        .unwrap_or_else(|| work.ids.encode(IdKind::Event, key.0));
    let mut destination_ids = Vec::with_capacity(destinations.len());
    let mut payload = None;
    for (new, delivery) in destinations.iter().zip(key.0 + 1..) {
        if let Some(live) = work.names.destinations.get(&new.destination.0) {
            destination_ids.push(live.id.to_string());
        }
        let delivery = PendingDelivery {
            key: DeliveryKey(delivery),
            event: key,
            tenant: TenantKey(tenant),
            destination: new.destination,
            plan: Plan::first(now),
            progress: Progress::new(key.accepted_at()),
            retryable: event.retryable,
            replayed: false,
            last_attempt: None,
            context: None,
        };
        if let Some(reason) = new.dead {
            let context = letters::intern(work, new.context.as_ref(), now)?;
            let letter = Letter::unattempted(reason, context);
            end(
                work,
                &delivery,
                &Ended::dead(letter, delivery.progress, None),
                now,
            )?;
            work.effects.ended.add_dead(reason, 1);
            continue;
        }
        if new.discarded {
            end(work, &delivery, &Ended::canceled(delivery.progress, None), now)?;
            work.effects.ended.canceled += 1;
            continue;
        }
        insert_pending(work, &delivery)?;
        let payload = payload.get_or_insert_with(|| Arc::new(payload_of(event, &id, key)));
        work.effects.accepted.push(DueDelivery {
            delivery,
            payload: Some(Arc::clone(payload)),
        });
    }
    Ok(Accepted {
        id,
        duplicate: false,
        destination_ids,
    })
}

/// Writes the event's own rows; answers its key and those of its destinations that are not deleted.
fn insert_event<'e>(
    work: &mut Work<'_>,
    prepared: &'e Prepared,
    tenant: i64,
    now: Timestamp,
) -> Result<(EventKey, Vec<&'e NewDelivery>), Fault> {
    let event = &prepared.event;
    let topic = work.names.topic(work.conn, &event.topic)?;
    let destinations: Vec<&NewDelivery> = event
        .destinations
        .iter()
        .filter(|new| work.names.destinations.contains_key(&new.destination.0))
        .collect();
    let key = EventKey(work.keys.take(now, 1 + destinations.len()));
    if let Some(time) = event.time {
        work.event_skew.note(work.conn, time, key.accepted_at())?;
    }
    work.hot.insert_event.execute((
        key.0,
        tenant,
        topic,
        i64::try_from(destinations.len()).unwrap_or(i64::MAX),
        event.retryable,
        event.time.map(Timestamp::as_millis),
        event.id.as_deref(),
        prepared.metadata.as_deref(),
        &event.data[..],
    ))?;
    if let Some(id) = &event.id {
        work.hot.insert_event_id.execute((id, tenant, key.0))?;
    }
    work.effects.unlisted_events += 1 + destinations.len();
    Ok((key, destinations))
}

fn insert_pending(work: &mut Work<'_>, delivery: &PendingDelivery) -> Result<(), Fault> {
    work.hot.insert_pending.execute((
        delivery.key.0,
        delivery.event.0,
        delivery.tenant.0,
        delivery.destination.0,
        rows::flags(delivery.retryable, delivery.replayed),
        delivery.plan.due_at.as_millis(),
    ))?;
    work.effects.pending += 1;
    Ok(())
}

fn payload_of(event: &NewEvent, id: &str, key: EventKey) -> Payload {
    Payload {
        event_id: id.to_owned(),
        topic: event.topic.clone(),
        time: event.time.unwrap_or(key.accepted_at()),
        metadata: event.metadata.clone(),
        data: event.data.clone(),
    }
}

/// Whether an event was accepted before its tenant was created (again): it is not this tenant's, and hides none of its events.
fn is_older_than_tenant(work: &Work<'_>, tenant: i64, event: EventKey) -> Result<bool, Fault> {
    let created_at: Option<i64> = work
        .conn
        .prepare_cached("SELECT created_at FROM tenant WHERE key = ?1")?
        .query_row([tenant], |row| row.get(0))?;
    Ok(created_at.is_some_and(|created_at| event.accepted_at().as_millis() < created_at))
}

/// The event that this tenant, since it was created, has published with this id: chosen by it, or issued by us and given back.
pub(super) fn published_before(
    work: &mut Work<'_>,
    tenant: i64,
    id: &str,
) -> Result<Option<EventKey>, Fault> {
    if let Some(key) = work.ids.decode(IdKind::Event, id) {
        let owner: Option<i64> = work
            .hot
            .event_tenant
            .query_row([key], |row| row.get(0))
            .optional()?;
        if owner == Some(tenant) && !is_older_than_tenant(work, tenant, EventKey(key))? {
            return Ok(Some(EventKey(key)));
        }
    }
    let found = work
        .hot
        .find_event_id
        .query_row((id, tenant), |row| row.get(0))
        .optional()?;
    match found.map(EventKey) {
        Some(event) if !is_older_than_tenant(work, tenant, event)? => Ok(Some(event)),
        _ => Ok(None),
    }
}

/// Public ids of the destinations of an event, in the order of its deliveries.
fn destination_ids(work: &Work<'_>, event: EventKey) -> Result<Vec<String>, Fault> {
    let mut statement = work.conn.prepare_cached(
        "WITH sent(key, destination) AS (
            SELECT key, destination FROM pending WHERE key > ?1 AND key <= ?1 + (SELECT deliveries FROM event WHERE key = ?1)
            UNION ALL
            SELECT key, destination FROM history WHERE key > ?1 AND key <= ?1 + (SELECT deliveries FROM event WHERE key = ?1))
         SELECT destination.id FROM sent JOIN destination ON destination.key = sent.destination ORDER BY sent.key",
    )?;
    let ids = statement
        .query_map([event.0], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(ids)
}

/// The key of the delivery of `event` to `destination`.
pub(super) fn delivery_to(
    work: &Work<'_>,
    event: EventKey,
    destination: DestinationKey,
) -> Result<Option<(DeliveryKey, DeliveryStatus)>, Fault> {
    let mut statement = work.conn.prepare_cached(
        "SELECT key, 0 FROM pending WHERE key > ?1 AND key <= ?1 + (SELECT deliveries FROM event WHERE key = ?1)
            AND +destination = ?2
         UNION ALL
         SELECT key, status FROM history WHERE key > ?1 AND key <= ?1 + (SELECT deliveries FROM event WHERE key = ?1)
            AND +destination = ?2",
    )?;
    let found: Option<(i64, i64)> = statement
        .query_row((event.0, destination.0), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        Some((key, code)) => Ok(Some((
            DeliveryKey(key),
            rows::word(code, DeliveryStatus::from_code, "status")?,
        ))),
        None => Ok(None),
    }
}
