//! Where a list of deliveries walks, by the narrowest of its filters.

use postrider_core::delivery::DeliveryStatus;
use postrider_core::id::EventKey;
use rusqlite::{Connection, OptionalExtension as _};

use super::filter::{self, Among};
use super::walk::{Source, Span, select};
use crate::sqlite::failure::Fault;
use crate::sqlite::schema::{self, meta};

/// Pending or dead rows of a destination or tenant that are sorted by key; beyond, its whole list is walked, in which many
/// are wanted then.
const MAX_SORTED: i64 = 20_000;

/// Sources that hold every delivery the filters admit; the walk still applies them all.
pub(super) fn sources(
    conn: &Connection,
    events: Option<&[EventKey]>,
    destinations: &Among,
    tenants: &Among,
    statuses: &[DeliveryStatus],
) -> Result<Vec<Source>, Fault> {
    let indexed = schema::number(conn, meta::EVENTS_INDEXED_UPTO)?.unwrap_or(0);
    if let Some(events) = events {
        let mut sources = Vec::new();
        for event in events {
            sources.extend(of_event(conn, *event)?);
        }
        return Ok(sources);
    }
    let only = match statuses {
        [only] => Some(*only),
        _ => None,
    };
    if let Some(keys) = filter::few(destinations) {
        let mut sources = Vec::new();
        for key in keys {
            match only {
                Some(DeliveryStatus::Dead) if has_few(conn, DEAD_OF_DESTINATION, key)? => {
                    sources.push(dead_of_destination(key));
                }
                Some(DeliveryStatus::Pending) if has_few(conn, PENDING_OF_DESTINATION, key)? => {
                    sources.push(pending_of_destination(key));
                }
                _ => sources.extend(of_destination(key, indexed)),
            }
        }
        return Ok(sources);
    }
    if let Some(keys) = filter::few(tenants) {
        let mut sources = Vec::new();
        for key in keys {
            match only {
                Some(DeliveryStatus::Dead) if has_few(conn, DEAD_OF_TENANT, key)? => {
                    sources.push(dead_of_tenant(key));
                }
                _ => sources.extend(of_tenant(key, indexed)),
            }
        }
        return Ok(sources);
    }
    Ok(match only {
        Some(DeliveryStatus::Dead) => vec![dead()],
        Some(DeliveryStatus::Pending) => vec![pending(Span::ALL)],
        _ => vec![pending(Span::ALL), history(Span::ALL)],
    })
}

fn pending(span: Span) -> Source {
    select!(
        "SELECT key FROM pending WHERE key > ?1 AND key < ?2 AND ?4 = 0",
        "key",
        0,
        span
    )
}

fn history(span: Span) -> Source {
    select!(
        "SELECT key FROM history WHERE key > ?1 AND key < ?2 AND ?4 = 0",
        "key",
        0,
        span
    )
}

fn dead() -> Source {
    select!(
        "SELECT key FROM dead WHERE key > ?1 AND key < ?2 AND ?4 = 0",
        "key",
        0,
        Span::ALL
    )
}

fn dead_of_destination(destination: i64) -> Source {
    select!(
        "SELECT key FROM dead INDEXED BY dead_destination WHERE destination = ?4 AND key > ?1 AND key < ?2",
        "key",
        destination,
        Span::ALL
    )
}

fn dead_of_tenant(tenant: i64) -> Source {
    select!(
        "SELECT key FROM dead INDEXED BY dead_tenant WHERE tenant = ?4 AND key > ?1 AND key < ?2",
        "key",
        tenant,
        Span::ALL
    )
}

fn of_event(conn: &Connection, event: EventKey) -> Result<Vec<Source>, Fault> {
    let deliveries: Option<i64> = conn
        .prepare_cached("SELECT deliveries FROM event WHERE key = ?1")?
        .query_row([event.0], |row| row.get(0))
        .optional()?;
    let Some(deliveries) = deliveries else {
        return Ok(Vec::new());
    };
    let span = Span::after(event.0).and(Span::upto(event.0.saturating_add(deliveries)));
    Ok(vec![pending(span), history(span)])
}

const PENDING_OF_DESTINATION: &str =
    "SELECT count(*) FROM (SELECT 1 FROM pending WHERE destination = ?1 LIMIT ?2)";
const DEAD_OF_DESTINATION: &str =
    "SELECT count(*) FROM (SELECT 1 FROM dead INDEXED BY dead_destination WHERE destination = ?1 LIMIT ?2)";
const DEAD_OF_TENANT: &str =
    "SELECT count(*) FROM (SELECT 1 FROM dead INDEXED BY dead_tenant WHERE tenant = ?1 LIMIT ?2)";

fn has_few(conn: &Connection, sql: &str, key: i64) -> Result<bool, Fault> {
    let count: i64 = conn
        .prepare_cached(sql)?
        .query_row((key, MAX_SORTED + 1), |row| row.get(0))?;
    Ok(count <= MAX_SORTED)
}

fn pending_of_destination(destination: i64) -> Source {
    select!(
        "SELECT key FROM pending INDEXED BY pending_due WHERE destination = ?4 AND key > ?1 AND key < ?2",
        "key",
        destination,
        Span::ALL
    )
}

pub(super) fn of_destination(destination: i64, indexed: i64) -> [Source; 3] {
    [
        select!(
            "SELECT key FROM delivery_by_destination WHERE destination = ?4 AND key > ?1 AND key < ?2",
            "key",
            destination,
            Span::upto(indexed)
        ),
        select!(
            "SELECT key FROM pending WHERE +destination = ?4 AND key > ?1 AND key < ?2",
            "key",
            destination,
            Span::after(indexed)
        ),
        select!(
            "SELECT key FROM history WHERE destination = ?4 AND key > ?1 AND key < ?2",
            "key",
            destination,
            Span::after(indexed)
        ),
    ]
}

/// Deliveries of a tenant follow their events, which are listed by tenant. The walk may begin among those of one event, so
/// it looks one event back. The pluses keep the bounds of the walk from being taken for the range of an event's deliveries.
fn of_tenant(tenant: i64, indexed: i64) -> [Source; 4] {
    [
        select!(
            "SELECT delivery.key FROM event_by_tenant AS listed
                CROSS JOIN event ON event.key = listed.key
                CROSS JOIN pending AS delivery ON delivery.key > event.key AND delivery.key <= event.key + event.deliveries
             WHERE listed.tenant = ?4 AND listed.key < ?2
                AND listed.key >= coalesce(
                    (SELECT max(key) FROM event_by_tenant WHERE tenant = ?4 AND key <= ?1), 0)
                AND +delivery.key > ?1 AND +delivery.key < ?2",
            "listed.key" then "delivery.key",
            tenant,
            Span::upto(indexed)
        ),
        select!(
            "SELECT delivery.key FROM event_by_tenant AS listed
                CROSS JOIN event ON event.key = listed.key
                CROSS JOIN history AS delivery ON delivery.key > event.key AND delivery.key <= event.key + event.deliveries
             WHERE listed.tenant = ?4 AND listed.key < ?2
                AND listed.key >= coalesce(
                    (SELECT max(key) FROM event_by_tenant WHERE tenant = ?4 AND key <= ?1), 0)
                AND +delivery.key > ?1 AND +delivery.key < ?2",
            "listed.key" then "delivery.key",
            tenant,
            Span::upto(indexed)
        ),
        select!(
            "SELECT key FROM pending WHERE tenant = ?4 AND key > ?1 AND key < ?2",
            "key",
            tenant,
            Span::after(indexed)
        ),
        select!(
            "SELECT key FROM history WHERE tenant = ?4 AND key > ?1 AND key < ?2",
            "key",
            tenant,
            Span::after(indexed)
        ),
    ]
}
