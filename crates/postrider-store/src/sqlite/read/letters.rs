//! Dead letters: which a filter admits, as lists, counts and one in full.

use std::collections::{BTreeMap, HashMap, HashSet};

use postrider_core::delivery::DeadReason;
use postrider_core::id::{ContextKey, DeliveryKey, DestinationKey, EventKey, IdCodec, IdKind, key_time};
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row};
use tokio::time::Instant;

use super::events;
use super::filter::{self, Among};
use super::lookup::Lookup;
use super::walk::{self, Source, Span, select};
use crate::letter::{
    DeadContext, DeadLetter, DeadLetterDetail, DeadLetterFilter, DeadLetterGroup, DeadLetterQuery,
};
use crate::page::{Cursor, Direction, Page, PageRequest, TimeRange};
use crate::seal::SealKey;
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;

const COLUMNS: &str =
    "serial, key, event, tenant, destination, topic, reason, category, code, error, context";
const COUNT_ONE: &str =
    "SELECT count(*) FROM dead INDEXED BY dead_destination WHERE destination = ?1 AND serial <= ?2";
const COUNT_ALL: &str = "SELECT destination, count(*) FROM dead INDEXED BY dead_destination
     WHERE serial <= ?1 GROUP BY destination";
/// [`COLUMNS`] without the last error.
const COUNTED: &str = "serial, key, event, tenant, destination, topic, reason, category, code, NULL, context";
const HOUR_MS: i64 = 3_600_000;

/// A row of `dead`.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) serial: i64,
    key: DeliveryKey,
    event: EventKey,
    tenant: i64,
    pub(super) destination: i64,
    topic: i64,
    reason: i64,
    category: i64,
    code: Option<u16>,
    error: Option<String>,
    context: Option<i64>,
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        serial: row.get(0)?,
        key: DeliveryKey(row.get(1)?),
        event: EventKey(row.get(2)?),
        tenant: row.get(3)?,
        destination: row.get(4)?,
        topic: row.get(5)?,
        reason: row.get(6)?,
        category: row.get(7)?,
        code: row.get(8)?,
        error: row.get(9)?,
        context: row.get(10)?,
    })
}

/// A filter with its names as the integers that rows hold.
pub(super) struct Admission {
    tenants: Among,
    destinations: Among,
    topics: Among,
    reasons: Among,
    categories: Among,
    codes: Vec<u16>,
    died: TimeRange,
    text: Option<String>,
    /// Serials of the dead letters that are named, ascending.
    named: Option<Vec<i64>>,
}

impl Admission {
    pub(super) fn new(conn: &Connection, ids: &IdCodec, filter: &DeadLetterFilter) -> Result<Self, Fault> {
        let tenants = filter::tenants(conn, &filter.tenant_ids)?;
        let destinations = filter::destinations(conn, &filter.destination_ids, &tenants)?;
        let codes = |codes: Vec<u8>| (!codes.is_empty()).then(|| codes.into_iter().map(i64::from).collect());
        Ok(Self {
            topics: filter::topics(conn, &filter.topics)?,
            reasons: codes(filter.reasons.iter().map(|reason| reason.code()).collect()),
            categories: codes(filter.categories.iter().map(|category| category.code()).collect()),
            codes: filter.codes.clone(),
            died: filter.died,
            text: filter.text.as_ref().map(|text| text.to_lowercase()),
            named: named(conn, ids, &filter.ids)?,
            tenants,
            destinations,
        })
    }

    pub(super) fn admits(&self, row: &Stored) -> bool {
        filter::admits(&self.tenants, row.tenant)
            && filter::admits(&self.destinations, row.destination)
            && filter::admits(&self.topics, row.topic)
            && filter::admits(&self.reasons, row.reason)
            && filter::admits(&self.categories, row.category)
            && (self.codes.is_empty() || row.code.is_some_and(|code| self.codes.contains(&code)))
            && self
                .named
                .as_ref()
                .is_none_or(|named| named.binary_search(&row.serial).is_ok())
            && walk::is_within(&self.died, key_time(row.serial))
            && self.text.as_ref().is_none_or(|text| {
                let error = row.error.as_deref().unwrap_or_default();
                error.to_lowercase().contains(text.as_str())
            })
    }

    /// Serials of deaths within the range.
    pub(super) fn span(&self) -> Span {
        Span::of_times(&self.died, 0, 0)
    }

    /// Sources that hold every dead letter that is admitted.
    pub(super) fn sources(&self) -> Vec<Source> {
        if let Some(named) = &self.named {
            return vec![Source::Keys(named.clone())];
        }
        if let Some(keys) = filter::few(&self.destinations) {
            return keys.into_iter().map(of_destination).collect();
        }
        if let Some(keys) = filter::few(&self.tenants) {
            return keys.into_iter().map(of_tenant).collect();
        }
        vec![select!(
            "SELECT serial FROM dead WHERE serial > ?1 AND serial < ?2 AND ?4 = 0",
            "serial",
            0,
            Span::ALL
        )]
    }

    /// The same for one destination.
    pub(super) fn sources_of(&self, destination: i64) -> Vec<Source> {
        match &self.named {
            Some(named) => vec![Source::Keys(named.clone())],
            None => vec![of_destination(destination)],
        }
    }

    /// How many are admitted up to a serial, by destination.
    pub(super) fn by_destination(&self, conn: &Connection, upper: i64) -> Result<BTreeMap<i64, u64>, Fault> {
        if let Some(wanted) = self.destinations_alone(conn)? {
            return count_destinations(conn, &wanted, upper);
        }
        let mut counts = BTreeMap::new();
        self.each(conn, upper, |row| {
            *counts.entry(row.destination).or_default() += 1;
        })?;
        Ok(counts)
    }

    /// The destinations whose every dead letter is admitted, when nothing else tells dead letters apart.
    fn destinations_alone(&self, conn: &Connection) -> Result<Option<Among>, Fault> {
        let Self {
            tenants,
            destinations,
            topics,
            reasons,
            categories,
            codes,
            died,
            text,
            named,
        } = self;
        let is_otherwise_open = [topics, reasons, categories].into_iter().all(Option::is_none)
            && codes.is_empty()
            && *died == TimeRange::default()
            && text.is_none()
            && named.is_none();
        if !is_otherwise_open {
            return Ok(None);
        }
        let Some(tenants) = tenants.as_ref().filter(|_| destinations.is_none()) else {
            return Ok(Some(destinations.clone()));
        };
        let mut statement = conn.prepare_cached("SELECT key FROM destination WHERE tenant = ?1")?;
        let mut keys = HashSet::new();
        for tenant in tenants {
            let mut found = statement.query([tenant])?;
            while let Some(row) = found.next()? {
                keys.insert(row.get(0)?);
            }
        }
        Ok(Some(Some(keys)))
    }

    /// Shows `see` every dead letter that is admitted up to a serial, destinations or tenants one after the other. Its last
    /// error is there only when the filter asks for one.
    fn each(&self, conn: &Connection, upper: i64, mut see: impl FnMut(&Stored)) -> Result<(), Fault> {
        let span = self.span().and(Span::upto(upper));
        // Long texts are most of what a count of millions would decode.
        let columns = if self.text.is_some() { COLUMNS } else { COUNTED };
        let mut pass = |rows: &mut rusqlite::Rows<'_>| -> Result<(), Fault> {
            while let Some(row) = rows.next()? {
                let row = stored(row)?;
                if self.admits(&row) {
                    see(&row);
                }
            }
            Ok(())
        };
        if let Some(named) = &self.named {
            let mut statement =
                conn.prepare_cached(&format!("SELECT {columns} FROM dead WHERE serial = ?1"))?;
            return named
                .iter()
                .filter(|serial| **serial <= upper)
                .try_for_each(|serial| pass(&mut statement.query([serial])?));
        }
        let scoped = |column: &str| {
            format!(
                "SELECT {columns} FROM dead INDEXED BY dead_{column}
                 WHERE {column} = ?3 AND serial > ?1 AND serial < ?2"
            )
        };
        let destinations = filter::few(&self.destinations).map(|keys| (scoped("destination"), keys));
        let tenants = || filter::few(&self.tenants).map(|keys| (scoped("tenant"), keys));
        if let Some((sql, keys)) = destinations.or_else(tenants) {
            let mut statement = conn.prepare_cached(&sql)?;
            return keys
                .into_iter()
                .try_for_each(|key| pass(&mut statement.query((span.low, span.high, key))?));
        }
        let sql = format!("SELECT {columns} FROM dead WHERE serial > ?1 AND serial < ?2");
        pass(&mut conn.prepare_cached(&sql)?.query((span.low, span.high))?)
    }
}

fn named(conn: &Connection, ids: &IdCodec, named: &[String]) -> Result<Option<Vec<i64>>, Fault> {
    if named.is_empty() {
        return Ok(None);
    }
    let mut statement = conn.prepare_cached("SELECT serial FROM dead WHERE key = ?1")?;
    let mut serials = Vec::new();
    for key in named.iter().filter_map(|id| ids.decode(IdKind::Delivery, id)) {
        serials.extend(
            statement
                .query_row([key], |row| row.get::<_, i64>(0))
                .optional()?,
        );
    }
    serials.sort_unstable();
    serials.dedup();
    Ok(Some(serials))
}

fn of_destination(destination: i64) -> Source {
    select!(
        "SELECT serial FROM dead INDEXED BY dead_destination WHERE destination = ?4 AND serial > ?1 AND serial < ?2",
        "serial",
        destination,
        Span::ALL
    )
}

fn of_tenant(tenant: i64) -> Source {
    select!(
        "SELECT serial FROM dead INDEXED BY dead_tenant WHERE tenant = ?4 AND serial > ?1 AND serial < ?2",
        "serial",
        tenant,
        Span::ALL
    )
}

/// One dead letter by its serial.
pub(super) fn by_serial(conn: &Connection, serial: i64) -> Result<Option<Stored>, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM dead WHERE serial = ?1");
    Ok(conn
        .prepare_cached(&sql)?
        .query_row([serial], stored)
        .optional()?)
}

/// A page of dead letters.
pub(in crate::sqlite) fn list(
    conn: &Connection,
    ids: &IdCodec,
    query: &DeadLetterQuery,
    until: Instant,
) -> Result<Page<DeadLetter>, Fault> {
    let admission = Admission::new(conn, ids, &query.filter)?;
    let mut lookup = Lookup::new(conn, ids);
    walk::page(
        conn,
        &admission.sources(),
        admission.span(),
        &query.page,
        until,
        |serial| match by_serial(conn, serial)? {
            Some(row) if admission.admits(&row) => read(&mut lookup, row),
            _ => Ok(None),
        },
    )
}

/// Serials of the next dead letters that a filter admits, at most `limit`, after one serial and up to another; and where the
/// following ones begin.
pub(in crate::sqlite) fn serials(
    conn: &Connection,
    ids: &IdCodec,
    filter: &DeadLetterFilter,
    (after, upper): (i64, i64),
    limit: u32,
    until: Instant,
) -> Result<(Vec<i64>, Option<i64>), Fault> {
    let admission = Admission::new(conn, ids, filter)?;
    let page = PageRequest {
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        direction: Direction::Ascending,
        cursor: Cursor::After(after),
    };
    let span = admission.span().and(Span::upto(upper));
    let page = walk::page(conn, &admission.sources(), span, &page, until, |serial| {
        let row = by_serial(conn, serial)?;
        Ok(row.filter(|row| admission.admits(row)).map(|row| row.serial))
    })?;
    Ok((page.rows, page.next))
}

/// How many a filter admits up to a serial.
pub(in crate::sqlite) fn count(
    conn: &Connection,
    ids: &IdCodec,
    filter: &DeadLetterFilter,
    upper: i64,
) -> Result<u64, Fault> {
    let counts = Admission::new(conn, ids, filter)?.by_destination(conn, upper)?;
    Ok(counts.into_values().sum())
}

/// Counts from the index alone.
fn count_destinations(conn: &Connection, wanted: &Among, upper: i64) -> Result<BTreeMap<i64, u64>, Fault> {
    let mut counts = BTreeMap::new();
    let mut add = |destination: i64, count: i64| {
        if count > 0 {
            counts.insert(destination, count.unsigned_abs());
        }
    };
    if let Some(keys) = filter::few(wanted) {
        let mut statement = conn.prepare_cached(COUNT_ONE)?;
        for key in keys {
            add(key, statement.query_row((key, upper), |row| row.get(0))?);
        }
        return Ok(counts);
    }
    let mut statement = conn.prepare_cached(COUNT_ALL)?;
    let mut found = statement.query([upper])?;
    while let Some(row) = found.next()? {
        let destination = row.get(0)?;
        if filter::admits(wanted, destination) {
            add(destination, row.get(1)?);
        }
    }
    Ok(counts)
}

/// The highest serial of all.
pub(in crate::sqlite) fn highest(conn: &Connection) -> Result<i64, Fault> {
    let mut statement = conn.prepare_cached("SELECT coalesce(max(serial), 0) FROM dead")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

/// What is counted of a group.
#[derive(Clone, Copy)]
struct Tally {
    count: u64,
    first: i64,
    last: i64,
    last_hour: u64,
}

/// Counts by destination, category and code, the largest first.
pub(in crate::sqlite) fn summary(
    conn: &Connection,
    ids: &IdCodec,
    filter: &DeadLetterFilter,
    now: Timestamp,
) -> Result<Vec<DeadLetterGroup>, Fault> {
    let hour_ago = now.as_millis() - HOUR_MS;
    let mut tallies: HashMap<(i64, i64, i64, Option<u16>), Tally> = HashMap::new();
    Admission::new(conn, ids, filter)?.each(conn, i64::MAX, |row| {
        let group = (row.tenant, row.destination, row.category, row.code);
        let tally = tallies.entry(group).or_insert(Tally {
            count: 0,
            first: row.serial,
            last: row.serial,
            last_hour: 0,
        });
        tally.count += 1;
        tally.first = tally.first.min(row.serial);
        tally.last = tally.last.max(row.serial);
        tally.last_hour += u64::from(key_time(row.serial).as_millis() > hour_ago);
    })?;
    let mut lookup = Lookup::new(conn, ids);
    let mut groups = Vec::with_capacity(tallies.len());
    for ((tenant, destination, category, code), tally) in tallies {
        groups.push(DeadLetterGroup {
            tenant_id: lookup.tenant(tenant)?,
            destination: DestinationKey(destination),
            destination_id: lookup.destination(destination)?.id.clone(),
            category: rows::word(category, Category::from_code, "category")?,
            code,
            count: tally.count,
            first_died_at: key_time(tally.first),
            last_died_at: key_time(tally.last),
            last_hour: tally.last_hour,
        });
    }
    groups.sort_by_key(|group| {
        (
            std::cmp::Reverse(group.count),
            group.destination,
            group.category,
            group.code,
        )
    });
    Ok(groups)
}

/// One dead letter in full, by the id of its delivery.
pub(in crate::sqlite) fn detail(
    conn: &Connection,
    ids: &IdCodec,
    seal: &SealKey,
    id: &str,
) -> Result<Option<DeadLetterDetail>, Fault> {
    let Some(key) = ids.decode(IdKind::Delivery, id) else {
        return Ok(None);
    };
    let sql = format!("SELECT {COLUMNS} FROM dead WHERE key = ?1");
    let found = conn.prepare_cached(&sql)?.query_row([key], stored).optional()?;
    let Some(row) = found else { return Ok(None) };
    let mut lookup = Lookup::new(conn, ids);
    let Some(event) = events::by_key(&mut lookup, row.event)? else {
        return Ok(None);
    };
    let context = match row.context {
        Some(key) => context(conn, seal, ContextKey(key))?,
        None => None,
    };
    let letter = read(&mut lookup, row)?;
    Ok(letter.map(|letter| DeadLetterDetail {
        letter,
        event,
        context,
    }))
}

/// What was in force.
pub(in crate::sqlite) fn context(
    conn: &Connection,
    seal: &SealKey,
    key: ContextKey,
) -> Result<Option<DeadContext>, Fault> {
    let mut statement = conn.prepare_cached("SELECT digest, text FROM dead_context WHERE key = ?1")?;
    let found: Option<(Vec<u8>, Vec<u8>)> = statement
        .query_row([key.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((digest, sealed)) = found else {
        return Ok(None);
    };
    let text = seal
        .open(&digest, &sealed)
        .ok()
        .and_then(|text| String::from_utf8(text).ok())
        .ok_or_else(|| Fault::corrupt("a dead letter's context does not open with this seal key"))?;
    Ok(Some(DeadContext::new(text)))
}

/// `None` when its event is gone.
fn read(lookup: &mut Lookup<'_>, row: Stored) -> Result<Option<DeadLetter>, Fault> {
    let Some(event) = lookup.event(row.event)? else {
        return Ok(None);
    };
    let attempts: Option<u32> = lookup
        .conn
        .prepare_cached("SELECT attempts FROM history WHERE key = ?1")?
        .query_row([row.key.0], |row| row.get(0))
        .optional()?;
    Ok(Some(DeadLetter {
        serial: row.serial,
        key: row.key,
        id: lookup.ids.encode(IdKind::Delivery, row.key.0),
        event_id: event.id,
        topic: lookup.topic(event.topic)?,
        tenant_id: lookup.tenant(row.tenant)?,
        destination: DestinationKey(row.destination),
        destination_id: lookup.destination(row.destination)?.id.clone(),
        reason: rows::word(row.reason, DeadReason::from_code, "reason")?,
        category: rows::word(row.category, Category::from_code, "category")?,
        code: row.code,
        error: row.error,
        attempts: attempts.unwrap_or(0),
        created_at: row.key.created_at(),
        died_at: key_time(row.serial),
        context: row.context.map(ContextKey),
    }))
}
