//! What the engine reads: which destinations have work, their next deliveries, and what these send.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::id::{DeliveryKey, DestinationKey, EventKey, IdCodec, IdKind};
use postrider_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};

use crate::record::{DueDelivery, DuePage, DueQuery, Payload};
use crate::sqlite::failure::Fault;
use crate::sqlite::{json, rows};

/// Destinations that have pending deliveries, deleted ones excepted.
pub(in crate::sqlite) fn destinations_with_pending(conn: &Connection) -> Result<Vec<DestinationKey>, Fault> {
    // One seek a destination, however many rows it has.
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE found(destination) AS (
            SELECT min(destination) FROM pending
            UNION ALL
            SELECT (SELECT min(destination) FROM pending WHERE destination > found.destination)
            FROM found WHERE found.destination IS NOT NULL)
         SELECT found.destination FROM found JOIN destination ON destination.key = found.destination
         WHERE destination.deleted_at IS NULL",
    )?;
    let keys = statement
        .query_map([], |row| Ok(DestinationKey(row.get(0)?)))?
        .collect::<Result<_, _>>()?;
    Ok(keys)
}

/// The earliest-due pending deliveries of a destination, except those named.
pub(in crate::sqlite) fn due(conn: &Connection, ids: &IdCodec, query: &DueQuery) -> Result<DuePage, Fault> {
    let mut page = DuePage {
        rows: Vec::new(),
        more: false,
        replays_passed: false,
    };
    let is_live = conn
        .prepare_cached("SELECT 1 FROM destination WHERE key = ?1 AND deleted_at IS NULL")?
        .exists([query.destination.0])?;
    if !is_live {
        return Ok(page);
    }
    // The index alone gives the keys in order, so rows that are skipped are not read.
    let mut keys =
        conn.prepare_cached("SELECT key FROM pending WHERE destination = ?1 ORDER BY due_at, key")?;
    let by_key = format!("SELECT {} FROM pending WHERE key = ?1", rows::PENDING_COLUMNS);
    let mut by_key = conn.prepare_cached(&by_key)?;
    let mut found = keys.query([query.destination.0])?;
    let mut bytes_left = query.max_payload_bytes;
    while let Some(row) = found.next()? {
        let key: i64 = row.get(0)?;
        if query.skip.contains(&DeliveryKey(key)) {
            continue;
        }
        if page.rows.len() >= query.limit {
            page.more = true;
            break;
        }
        let mut one = by_key.query([key])?;
        let Some(row) = one.next()? else { continue };
        let delivery = rows::pending(row)?;
        if delivery.replayed && !query.replays {
            page.replays_passed = true;
            continue;
        }
        let payload = match data_bytes(conn, delivery.event, bytes_left)? {
            Some(bytes) if bytes <= bytes_left => {
                bytes_left -= bytes;
                payload(conn, ids, delivery.event)?.map(Arc::new)
            }
            // The rest is sent later than this one, so its payloads would only be held for longer.
            Some(_) => {
                bytes_left = 0;
                None
            }
            None => None,
        };
        page.rows.push(DueDelivery { delivery, payload });
    }
    Ok(page)
}

/// The size of what an event sends, which SQLite knows without reading it; `None` when it is gone or nothing may be read.
fn data_bytes(conn: &Connection, event: EventKey, bytes_left: usize) -> Result<Option<usize>, Fault> {
    if bytes_left == 0 {
        return Ok(None);
    }
    let mut statement = conn.prepare_cached("SELECT length(data) FROM event WHERE key = ?1")?;
    let found: Option<u32> = statement.query_row([event.0], |row| row.get(0)).optional()?;
    Ok(found.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)))
}

/// What an event sends; `None` when it is gone.
pub(in crate::sqlite) fn payload(
    conn: &Connection,
    ids: &IdCodec,
    event: EventKey,
) -> Result<Option<Payload>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT event.id, topic.name, event.time, event.metadata, event.data
         FROM event JOIN topic ON topic.key = event.topic WHERE event.key = ?1",
    )?;
    let found = statement
        .query_row([event.0], |row| {
            let id: Option<String> = row.get(0)?;
            let topic: String = row.get(1)?;
            let time: Option<i64> = row.get(2)?;
            let metadata: Option<String> = row.get(3)?;
            let data: Vec<u8> = row.get(4)?;
            Ok((id, topic, time, metadata, data))
        })
        .optional()?;
    let Some((id, topic, time, metadata, data)) = found else {
        return Ok(None);
    };
    Ok(Some(Payload {
        event_id: id.unwrap_or_else(|| ids.encode(IdKind::Event, event.0)),
        topic,
        time: time.map_or(event.accepted_at(), Timestamp::from_millis),
        metadata: metadata
            .as_deref()
            .map(json::to_map)
            .transpose()?
            .unwrap_or_default(),
        data: Bytes::from(data),
    }))
}
