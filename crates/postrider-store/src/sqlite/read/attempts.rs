//! Lists of attempts.

use postrider_core::delivery::DeliveryStatus;
use postrider_core::id::{AttemptKey, EventKey, IdCodec, IdKind};
use postrider_core::outcome::ErrorKind;
use postrider_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row};
use tokio::time::Instant;

use super::filter::{self, Among};
use super::lookup::Lookup;
use super::walk::{self, Source, Span, select};
use crate::page::Page;
use crate::record::{Attempt, AttemptQuery};
use crate::sqlite::detail::{Columns, Detail};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;
use crate::sqlite::schema::{self, meta};

/// A page of attempts.
pub(in crate::sqlite) fn attempts(
    conn: &Connection,
    ids: &IdCodec,
    query: &AttemptQuery,
    until: Instant,
) -> Result<Page<Attempt>, Fault> {
    let tenants = filter::tenants(conn, &query.tenant_ids)?;
    let topics = filter::topics(conn, &query.topics)?;
    let destinations = filter::destinations(conn, &query.destination_ids, &tenants)?;
    let chains = chains(conn, ids, query, &tenants, &destinations)?;
    let ahead = schema::number(conn, meta::ATTEMPT_TIME_AHEAD_MS)?.unwrap_or(0);
    let behind = schema::number(conn, meta::ATTEMPT_TIME_BEHIND_MS)?.unwrap_or(0);
    let span = Span::of_times(&query.time, ahead, behind);
    let sources = sources(conn, chains, &destinations, &tenants)?;
    let mut lookup = Lookup::new(conn, ids);
    walk::heavy_page(conn, &sources, span, &query.page, until, |key| {
        let Some(head) = head(conn, key)? else {
            return Ok(None);
        };
        let is_success = head.status.is_some_and(|status| (200..300).contains(&status));
        let wanted = filter::admits(&tenants, head.tenant)
            && filter::admits(&destinations, head.destination)
            && query.successful.is_none_or(|successful| successful == is_success)
            && walk::is_within(&query.time, head.started_at);
        if !wanted {
            return Ok(None);
        }
        let Some(event) = lookup.event(head.event)? else {
            return Ok(None);
        };
        if !filter::admits(&topics, event.topic) {
            return Ok(None);
        }
        let Some(attempt) = read(&mut lookup, head)? else {
            return Ok(None);
        };
        let mut bytes = attempt.recorded.response_body.len();
        if query.with_event_data {
            bytes += lookup.data_bytes(head.event)?;
        }
        Ok(Some((attempt, bytes)))
    })
}

/// One attempt by key; `None` when it or its event is gone.
pub(super) fn attempt(lookup: &mut Lookup<'_>, key: AttemptKey) -> Result<Option<Attempt>, Fault> {
    match head(lookup.conn, key.0)? {
        Some(head) => read(lookup, head),
        None => Ok(None),
    }
}

/// One attempt by id.
pub(in crate::sqlite) fn by_id(conn: &Connection, ids: &IdCodec, id: &str) -> Result<Option<Attempt>, Fault> {
    let Some(key) = ids.decode(IdKind::Attempt, id) else {
        return Ok(None);
    };
    attempt(&mut Lookup::new(conn, ids), AttemptKey(key))
}

fn sources(
    conn: &Connection,
    chains: Option<Vec<i64>>,
    destinations: &Among,
    tenants: &Among,
) -> Result<Vec<Source>, Fault> {
    let indexed = schema::number(conn, meta::ATTEMPTS_INDEXED_UPTO)?.unwrap_or(0);
    if let Some(keys) = chains {
        return Ok(vec![Source::Keys(keys)]);
    }
    if let Some(keys) = filter::few(destinations) {
        return Ok(keys
            .into_iter()
            .flat_map(|key| of_destination(key, indexed))
            .collect());
    }
    if let Some(keys) = filter::few(tenants) {
        return Ok(keys.into_iter().flat_map(|key| of_tenant(key, indexed)).collect());
    }
    Ok(vec![select!(
        "SELECT key FROM attempt WHERE key > ?1 AND key < ?2 AND ?4 = 0",
        "key",
        0,
        Span::ALL
    )])
}

fn of_destination(destination: i64, indexed: i64) -> [Source; 2] {
    [
        select!(
            "SELECT key FROM attempt_by_destination WHERE destination = ?4 AND key > ?1 AND key < ?2",
            "key",
            destination,
            Span::upto(indexed)
        ),
        select!(
            "SELECT key FROM attempt WHERE destination = ?4 AND key > ?1 AND key < ?2",
            "key",
            destination,
            Span::after(indexed)
        ),
    ]
}

fn of_tenant(tenant: i64, indexed: i64) -> [Source; 2] {
    [
        select!(
            "SELECT key FROM attempt_by_tenant WHERE tenant = ?4 AND key > ?1 AND key < ?2",
            "key",
            tenant,
            Span::upto(indexed)
        ),
        select!(
            "SELECT key FROM attempt WHERE tenant = ?4 AND key > ?1 AND key < ?2",
            "key",
            tenant,
            Span::after(indexed)
        ),
    ]
}

/// Attempts of named deliveries or events, ascending: each names the one before it. `None` when none is named.
fn chains(
    conn: &Connection,
    ids: &IdCodec,
    query: &AttemptQuery,
    tenants: &Among,
    destinations: &Among,
) -> Result<Option<Vec<i64>>, Fault> {
    let events = filter::events(conn, ids, &query.event_ids, tenants)?;
    let mut ends = Vec::new();
    if query.delivery_ids.is_empty() {
        let Some(events) = &events else { return Ok(None) };
        for event in events {
            ends.extend(ends_of_event(conn, *event, destinations)?);
        }
    } else {
        let mut statement = conn.prepare_cached(
            "SELECT last_attempt, event FROM pending WHERE key = ?1
             UNION ALL SELECT last_attempt, event FROM history WHERE key = ?1",
        )?;
        for key in query
            .delivery_ids
            .iter()
            .filter_map(|id| ids.decode(IdKind::Delivery, id))
        {
            let found: Option<(Option<i64>, i64)> = statement
                .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if let Some((last, event)) = found
                && events
                    .as_ref()
                    .is_none_or(|events| events.contains(&EventKey(event)))
            {
                ends.extend(last);
            }
        }
    }
    let mut prev = conn.prepare_cached("SELECT prev FROM attempt WHERE key = ?1")?;
    let mut keys = Vec::new();
    for end in ends {
        let mut at = Some(end);
        while let Some(key) = at {
            keys.push(key);
            at = prev
                .query_row([key], |row| row.get::<_, Option<i64>>(0))
                .optional()?
                .flatten();
        }
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(Some(keys))
}

fn ends_of_event(conn: &Connection, event: EventKey, destinations: &Among) -> Result<Vec<i64>, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT destination, last_attempt FROM pending
            WHERE key > ?1 AND key <= ?1 + (SELECT deliveries FROM event WHERE key = ?1)
         UNION ALL
         SELECT destination, last_attempt FROM history
            WHERE key > ?1 AND key <= ?1 + (SELECT deliveries FROM event WHERE key = ?1)",
    )?;
    let mut found = statement.query([event.0])?;
    let mut ends = Vec::new();
    while let Some(row) = found.next()? {
        if filter::admits(destinations, row.get(0)?) {
            ends.extend(row.get::<_, Option<i64>>(1)?);
        }
    }
    Ok(ends)
}

#[derive(Debug, Clone, Copy)]
struct Head {
    key: i64,
    delivery: i64,
    event: EventKey,
    tenant: i64,
    destination: i64,
    number: u32,
    started_at: Timestamp,
    status: Option<u16>,
    error: Option<i64>,
    status_after: i64,
}

fn head(conn: &Connection, key: i64) -> Result<Option<Head>, Fault> {
    let read = |row: &Row<'_>| {
        Ok(Head {
            key,
            delivery: row.get(0)?,
            event: EventKey(row.get(1)?),
            tenant: row.get(2)?,
            destination: row.get(3)?,
            number: row.get(4)?,
            started_at: Timestamp::from_millis(row.get(5)?),
            status: row.get(6)?,
            error: row.get(7)?,
            status_after: row.get(8)?,
        })
    };
    let mut statement = conn.prepare_cached(
        "SELECT delivery, event, tenant, destination, number, started_at, status, error, status_after
         FROM attempt WHERE key = ?1",
    )?;
    Ok(statement.query_row([key], read).optional()?)
}

fn read(lookup: &mut Lookup<'_>, head: Head) -> Result<Option<Attempt>, Fault> {
    let Some(event) = lookup.event(head.event)? else {
        return Ok(None);
    };
    let detail: Vec<u8> = lookup
        .conn
        .prepare_cached("SELECT detail FROM attempt WHERE key = ?1")?
        .query_row([head.key], |row| row.get(0))?;
    let columns = Columns {
        number: head.number,
        started_at: head.started_at,
        status: head.status,
        error: head
            .error
            .map(|code| rows::word(code, ErrorKind::from_code, "error"))
            .transpose()?,
    };
    let (recorded, retry) = Detail::decode(&detail, columns)?;
    let destination = lookup.destination(head.destination)?.clone();
    Ok(Some(Attempt {
        key: AttemptKey(head.key),
        id: lookup.ids.encode(IdKind::Attempt, head.key),
        delivery_id: lookup.ids.encode(IdKind::Delivery, head.delivery),
        event_id: event.id,
        topic: lookup.topic(event.topic)?,
        tenant_id: lookup.tenant(head.tenant)?,
        destination_id: destination.id,
        destination_kind: destination.kind,
        recorded,
        left: rows::word(head.status_after, DeliveryStatus::from_code, "status_after")?,
        retry,
    }))
}
