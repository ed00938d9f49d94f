//! Alerts: at most a few thousand rows, so a page walks them all.

use postrider_core::alert::{AlertKind, AlertState, Severity};
use postrider_core::id::{AlertKey, DestinationKey, first_key_at};
use postrider_core::time::Timestamp;
use rusqlite::{Connection, Row};

use crate::alerts::{Alert, AlertQuery, AlertSubject, DeadLetterLevel};
use crate::page::{Cursor, Direction, Page};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

const COLUMNS: &str = "key, kind, destination, tenant_id, destination_id, severity, since, updated_at, cleared_at, \
     value, threshold, text, todo, version, published";

/// Added to the key of one that fires, so that its position is above all that are cleared: keys are 43 bits of
/// milliseconds over 20, and the uppermost bit is free until the year 2109.
const FIRING: i64 = 1 << 62;

/// A page by position.
pub(in crate::sqlite) fn page(conn: &Connection, query: &AlertQuery) -> Result<Page<Alert>, Fault> {
    let request = query.page;
    let mut found = all(conn, "")?;
    found.retain(|alert| is_wanted(query, alert));
    found.sort_unstable_by_key(position);
    let backward = matches!(request.cursor, Cursor::Before(_));
    // The way from the cursor on.
    let upward = (request.direction == Direction::Ascending) != backward;
    let is_beyond = |alert: &Alert| match request.cursor {
        Cursor::Start => true,
        Cursor::After(at) | Cursor::Before(at) if upward => position(alert) > at,
        Cursor::After(at) | Cursor::Before(at) => position(alert) < at,
    };
    found.retain(is_beyond);
    if !upward {
        found.reverse();
    }
    let has_more = found.len() > request.limit;
    found.truncate(request.limit);
    if backward {
        found.reverse();
    }
    let is_start = matches!(request.cursor, Cursor::Start);
    let next = found.last().map(position).filter(|_| has_more || backward);
    let prev = found.first().map(position);
    let prev = prev.filter(|_| if backward { has_more } else { !is_start });
    Ok(Page {
        rows: found,
        next,
        prev,
    })
}

/// Those that fire, and those whose last version is not published.
pub(in crate::sqlite) fn open(conn: &Connection) -> Result<Vec<Alert>, Fault> {
    all(
        conn,
        "WHERE cleared_at IS NULL OR published < version ORDER BY key",
    )
}

/// Dead letters by destination, those with the most first.
pub(in crate::sqlite) fn dead_letter_levels(
    conn: &Connection,
    since: Timestamp,
) -> Result<Vec<DeadLetterLevel>, Fault> {
    // The index has both columns, and a serial is the time of death.
    let mut statement = conn.prepare_cached(
        "SELECT destination, count(*), sum(serial >= ?1) FROM dead GROUP BY destination ORDER BY 2 DESC, 1",
    )?;
    let mut found = statement.query([first_key_at(since)])?;
    let mut levels = Vec::new();
    while let Some(row) = found.next()? {
        levels.push(DeadLetterLevel {
            destination: DestinationKey(row.get(0)?),
            depth: row.get::<_, i64>(1)?.unsigned_abs(),
            recent: row.get::<_, i64>(2)?.unsigned_abs(),
        });
    }
    Ok(levels)
}

fn position(alert: &Alert) -> i64 {
    match alert.state() {
        AlertState::Firing => alert.key.0 | FIRING,
        AlertState::Cleared => alert.key.0,
    }
}

fn is_wanted(query: &AlertQuery, alert: &Alert) -> bool {
    let has = |wanted: &[String], field: fn(&AlertSubject) -> &String| {
        let subject = alert.subject.as_ref().map(field);
        wanted.is_empty() || subject.is_some_and(|id| wanted.contains(id))
    };
    (query.kinds.is_empty() || query.kinds.contains(&alert.kind))
        && query.state.is_none_or(|state| alert.state() == state)
        && has(&query.tenant_ids, |subject| &subject.tenant_id)
        && has(&query.destination_ids, |subject| &subject.destination_id)
}

fn all(conn: &Connection, rest: &str) -> Result<Vec<Alert>, Fault> {
    let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM alert {rest}"))?;
    let mut found = statement.query([])?;
    let mut alerts = Vec::new();
    while let Some(row) = found.next()? {
        alerts.push(read(row)?);
    }
    Ok(alerts)
}

fn read(row: &Row<'_>) -> Result<Alert, Fault> {
    let time = |at: usize| row.get(at).map(Timestamp::from_millis);
    let destination: Option<i64> = row.get(2)?;
    let subject = match destination {
        None => None,
        Some(key) => Some(AlertSubject {
            destination: DestinationKey(key),
            tenant_id: row.get(3)?,
            destination_id: row.get(4)?,
        }),
    };
    Ok(Alert {
        key: AlertKey(row.get(0)?),
        kind: rows::word(row.get(1)?, AlertKind::from_code, "kind of alert")?,
        subject,
        severity: rows::word(row.get(5)?, Severity::from_code, "severity")?,
        since: time(6)?,
        updated_at: time(7)?,
        cleared_at: row.get::<_, Option<i64>>(8)?.map(Timestamp::from_millis),
        value: row.get::<_, i64>(9)?.unsigned_abs(),
        threshold: row.get::<_, i64>(10)?.unsigned_abs(),
        text: row.get(11)?,
        todo: row.get(12)?,
        version: row.get(13)?,
        published: row.get(14)?,
    })
}
