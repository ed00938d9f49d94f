//! Lists of events.

use bytes::Bytes;
use postrider_core::delivery::DeliveryStatus;
use postrider_core::id::{EventKey, IdCodec, IdKind};
use rusqlite::Connection;
use tokio::time::Instant;

use super::filter::{self, Among};
use super::lookup::{EventHead, Lookup};
use super::walk::{self, Source, Span, select};
use crate::page::Page;
use crate::record::{Event, EventDelivery, EventQuery};
use crate::sqlite::failure::Fault;
use crate::sqlite::schema::{self, meta};
use crate::sqlite::{json, rows};

/// A page of events.
pub(in crate::sqlite) fn events(
    conn: &Connection,
    ids: &IdCodec,
    query: &EventQuery,
    until: Instant,
) -> Result<Page<Event>, Fault> {
    let tenants = filter::tenants(conn, &query.tenant_ids)?;
    let topics = filter::topics(conn, &query.topics)?;
    let destinations = filter::destinations(conn, &query.destination_ids, &tenants)?;
    let named = filter::events(conn, ids, &query.ids, &tenants)?;
    let ahead = schema::number(conn, meta::EVENT_TIME_AHEAD_MS)?.unwrap_or(0);
    let behind = schema::number(conn, meta::EVENT_TIME_BEHIND_MS)?.unwrap_or(0);
    let span = Span::of_times(&query.time, ahead, behind);
    let sources = sources(conn, named, &destinations, &tenants)?;
    let mut lookup = Lookup::new(conn, ids);
    walk::heavy_page(conn, &sources, span, &query.page, until, |key| {
        let key = EventKey(key);
        let Some(head) = lookup.event(key)? else {
            return Ok(None);
        };
        let wanted = filter::admits(&tenants, head.tenant)
            && filter::admits(&topics, head.topic)
            && walk::is_within(&query.time, head.time)
            && goes_to(conn, key, &head, &destinations)?;
        if !wanted {
            return Ok(None);
        }
        let event = read(&mut lookup, key, head, query.with_data)?;
        let bytes = event.data.len();
        Ok(Some((event, bytes)))
    })
}

fn sources(
    conn: &Connection,
    named: Option<Vec<EventKey>>,
    destinations: &Among,
    tenants: &Among,
) -> Result<Vec<Source>, Fault> {
    let indexed = schema::number(conn, meta::EVENTS_INDEXED_UPTO)?.unwrap_or(0);
    if let Some(keys) = named {
        return Ok(vec![Source::Keys(keys.into_iter().map(|key| key.0).collect())]);
    }
    if let Some(keys) = filter::few(destinations) {
        return Ok(keys
            .into_iter()
            .flat_map(|key| with_delivery_to(key, indexed))
            .collect());
    }
    if let Some(keys) = filter::few(tenants) {
        return Ok(keys.into_iter().flat_map(|key| of_tenant(key, indexed)).collect());
    }
    Ok(vec![select!(
        "SELECT key FROM event WHERE key > ?1 AND key < ?2 AND ?4 = 0",
        "key",
        0,
        Span::ALL
    )])
}

fn of_tenant(tenant: i64, indexed: i64) -> [Source; 2] {
    [
        select!(
            "SELECT key FROM event_by_tenant WHERE tenant = ?4 AND key > ?1 AND key < ?2",
            "key",
            tenant,
            Span::upto(indexed)
        ),
        select!(
            "SELECT key FROM event WHERE tenant = ?4 AND key > ?1 AND key < ?2",
            "key",
            tenant,
            Span::after(indexed)
        ),
    ]
}

/// Spans are of events here. Their deliveries have the keys that follow, at most 2^20 of them.
fn with_delivery_to(destination: i64, indexed: i64) -> [Source; 3] {
    [
        select!(
            "SELECT event FROM delivery_by_destination
             WHERE destination = ?4 AND key > ?1 AND key < ?2 + min(1048576, 9223372036854775807 - ?2)
                AND event > ?1 AND event < ?2",
            "key",
            destination,
            Span::upto(indexed)
        ),
        select!(
            "SELECT event FROM pending
             WHERE +destination = ?4 AND key > ?1 AND key < ?2 + min(1048576, 9223372036854775807 - ?2)
                AND event > ?1 AND event < ?2",
            "key",
            destination,
            Span::after(indexed)
        ),
        select!(
            "SELECT event FROM history
             WHERE destination = ?4 AND key > ?1 AND key < ?2 + min(1048576, 9223372036854775807 - ?2)
                AND event > ?1 AND event < ?2",
            "key",
            destination,
            Span::after(indexed)
        ),
    ]
}

fn goes_to(conn: &Connection, key: EventKey, head: &EventHead, among: &Among) -> Result<bool, Fault> {
    let Some(wanted) = among else { return Ok(true) };
    let mut found = false;
    each_delivery(conn, key, head, |_, destination, _| {
        found |= wanted.contains(&destination);
        Ok(())
    })?;
    Ok(found)
}

/// Calls `see` with key, destination and stored status of each delivery of an event, in order.
fn each_delivery(
    conn: &Connection,
    event: EventKey,
    head: &EventHead,
    mut see: impl FnMut(i64, i64, DeliveryStatus) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT key, destination, 0 FROM pending WHERE key > ?1 AND key <= ?2
         UNION ALL
         SELECT key, destination, status FROM history WHERE key > ?1 AND key <= ?2
         ORDER BY 1",
    )?;
    let mut found = statement.query((event.0, event.0.saturating_add(head.deliveries)))?;
    while let Some(row) = found.next()? {
        let status = rows::word(row.get(2)?, DeliveryStatus::from_code, "status")?;
        see(row.get(0)?, row.get(1)?, status)?;
    }
    Ok(())
}

/// One event; `None` when it is gone.
pub(super) fn by_key(lookup: &mut Lookup<'_>, key: EventKey) -> Result<Option<Event>, Fault> {
    match lookup.event(key)? {
        Some(head) => read(lookup, key, head, true).map(Some),
        None => Ok(None),
    }
}

fn read(lookup: &mut Lookup<'_>, key: EventKey, head: EventHead, with_data: bool) -> Result<Event, Fault> {
    let conn = lookup.conn;
    let (metadata, data): (Option<String>, Option<Vec<u8>>) = conn
        .prepare_cached("SELECT metadata, CASE WHEN ?2 THEN data END FROM event WHERE key = ?1")?
        .query_row((key.0, with_data), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut deliveries = Vec::with_capacity(usize::try_from(head.deliveries).unwrap_or(0));
    each_delivery(conn, key, &head, |delivery, destination, status| {
        let id = lookup.ids.encode(IdKind::Delivery, delivery);
        let destination = lookup.destination(destination)?;
        let is_swept_later = status == DeliveryStatus::Pending && destination.deleted_at.is_some();
        deliveries.push(EventDelivery {
            id,
            destination_id: destination.id.clone(),
            status: if is_swept_later {
                DeliveryStatus::Canceled
            } else {
                status
            },
        });
        Ok(())
    })?;
    Ok(Event {
        key,
        tenant_id: lookup.tenant(head.tenant)?,
        topic: lookup.topic(head.topic)?,
        time: head.time,
        accepted_at: key.accepted_at(),
        metadata: metadata
            .as_deref()
            .map(json::to_map)
            .transpose()?
            .unwrap_or_default(),
        data: Bytes::from(data.unwrap_or_default()),
        retryable: head.retryable,
        deliveries,
        id: head.id,
    })
}
