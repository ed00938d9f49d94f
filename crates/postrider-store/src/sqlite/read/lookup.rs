//! Names for integers while a page is read: each is asked for once.

use std::collections::HashMap;

use postrider_core::id::{EventKey, IdCodec, IdKind};
use postrider_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};

use crate::sqlite::failure::Fault;

/// What every row of an event's shows.
#[derive(Debug, Clone)]
pub(super) struct EventHead {
    pub(super) tenant: i64,
    pub(super) topic: i64,
    pub(super) id: String,
    pub(super) time: Timestamp,
    pub(super) retryable: bool,
    pub(super) deliveries: i64,
}

/// A destination, deleted or not.
#[derive(Debug, Clone)]
pub(super) struct DestinationHead {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) deleted_at: Option<Timestamp>,
}

/// See the module.
pub(super) struct Lookup<'c> {
    pub(super) conn: &'c Connection,
    pub(super) ids: &'c IdCodec,
    tenants: HashMap<i64, String>,
    topics: HashMap<i64, String>,
    destinations: HashMap<i64, DestinationHead>,
    last_event: Option<(EventKey, EventHead)>,
}

impl<'c> Lookup<'c> {
    pub(super) fn new(conn: &'c Connection, ids: &'c IdCodec) -> Self {
        Self {
            conn,
            ids,
            tenants: HashMap::new(),
            topics: HashMap::new(),
            destinations: HashMap::new(),
            last_event: None,
        }
    }

    pub(super) fn tenant(&mut self, key: i64) -> Result<String, Fault> {
        name(
            &mut self.tenants,
            self.conn,
            key,
            "SELECT id FROM tenant WHERE key = ?1",
        )
    }

    pub(super) fn topic(&mut self, key: i64) -> Result<String, Fault> {
        name(
            &mut self.topics,
            self.conn,
            key,
            "SELECT name FROM topic WHERE key = ?1",
        )
    }

    pub(super) fn destination(&mut self, key: i64) -> Result<&DestinationHead, Fault> {
        if !self.destinations.contains_key(&key) {
            let found = self
                .conn
                .prepare_cached("SELECT id, kind, deleted_at FROM destination WHERE key = ?1")?
                .query_row([key], |row| {
                    let deleted_at: Option<i64> = row.get(2)?;
                    let deleted_at = deleted_at.map(Timestamp::from_millis);
                    Ok(DestinationHead {
                        id: row.get(0)?,
                        kind: row.get(1)?,
                        deleted_at,
                    })
                })
                .optional()?;
            let head = found.ok_or_else(|| Fault::corrupt(format!("destination {key} is missing")))?;
            self.destinations.insert(key, head);
        }
        self.destinations
            .get(&key)
            .ok_or_else(|| Fault::corrupt("a destination was not kept"))
    }

    /// The size of an event's data, which SQLite knows without reading it.
    pub(super) fn data_bytes(&self, key: EventKey) -> Result<usize, Fault> {
        let mut statement = self
            .conn
            .prepare_cached("SELECT length(data) FROM event WHERE key = ?1")?;
        let found: Option<u32> = statement.query_row([key.0], |row| row.get(0)).optional()?;
        Ok(found.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    /// An event without its content; `None` when it is gone.
    pub(super) fn event(&mut self, key: EventKey) -> Result<Option<EventHead>, Fault> {
        if let Some((last, head)) = &self.last_event
            && *last == key
        {
            return Ok(Some(head.clone()));
        }
        let found = self
            .conn
            .prepare_cached(
                "SELECT tenant, topic, id, time, retryable, deliveries FROM event WHERE key = ?1",
            )?
            .query_row([key.0], |row| {
                let id: Option<String> = row.get(2)?;
                let time: Option<i64> = row.get(3)?;
                Ok(EventHead {
                    tenant: row.get(0)?,
                    topic: row.get(1)?,
                    id: id.unwrap_or_else(|| self.ids.encode(IdKind::Event, key.0)),
                    time: time.map_or(key.accepted_at(), Timestamp::from_millis),
                    retryable: row.get(4)?,
                    deliveries: row.get(5)?,
                })
            })
            .optional()?;
        self.last_event = found.clone().map(|head| (key, head));
        Ok(found)
    }
}

fn name(known: &mut HashMap<i64, String>, conn: &Connection, key: i64, sql: &str) -> Result<String, Fault> {
    if let Some(name) = known.get(&key) {
        return Ok(name.clone());
    }
    let found: Option<String> = conn
        .prepare_cached(sql)?
        .query_row([key], |row| row.get(0))
        .optional()?;
    let name = found.ok_or_else(|| Fault::corrupt(format!("the name of {key} is missing")))?;
    known.insert(key, name.clone());
    Ok(name)
}
