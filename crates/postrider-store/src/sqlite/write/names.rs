//! Texts that rows name by integers, remembered by the writer: tenants, topics, destinations.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};

use crate::sqlite::failure::Fault;

/// Texts of each kind that are remembered; beyond, the memory starts anew, since anybody can publish any text.
const MAX_REMEMBERED: usize = 100_000;

/// A destination that is not deleted.
#[derive(Debug, Clone)]
pub(in crate::sqlite) struct LiveDestination {
    pub(in crate::sqlite) tenant: i64,
    pub(in crate::sqlite) id: Box<str>,
}

/// What the writer remembers.
pub(in crate::sqlite) struct Names {
    tenants: HashMap<Box<str>, i64>,
    topics: HashMap<Box<str>, i64>,
    pub(in crate::sqlite) destinations: HashMap<i64, LiveDestination>,
    /// How many of `destinations` each tenant has.
    live_counts: HashMap<i64, u32>,
    /// Whether `destinations` holds what is not committed yet.
    uncommitted: bool,
}

impl Names {
    pub(super) fn load(conn: &Connection) -> Result<Self, Fault> {
        let destinations = live_destinations(conn)?;
        Ok(Self {
            tenants: HashMap::new(),
            topics: HashMap::new(),
            live_counts: count(&destinations),
            destinations,
            uncommitted: false,
        })
    }

    /// How many destinations a tenant has.
    pub(super) fn live_count(&self, tenant: i64) -> u32 {
        self.live_counts.get(&tenant).copied().unwrap_or(0)
    }

    /// A destination was created in the open transaction.
    pub(super) fn created(&mut self, key: i64, destination: LiveDestination) {
        self.uncommitted = true;
        *self.live_counts.entry(destination.tenant).or_default() += 1;
        self.destinations.insert(key, destination);
    }

    /// A destination was deleted in the open transaction.
    pub(super) fn deleted(&mut self, key: i64) {
        self.uncommitted = true;
        if let Some(gone) = self.destinations.remove(&key)
            && let Some(count) = self.live_counts.get_mut(&gone.tenant)
        {
            *count = count.saturating_sub(1);
        }
    }

    /// The transaction was committed.
    pub(in crate::sqlite) fn keep(&mut self) {
        self.uncommitted = false;
    }

    /// The transaction was rolled back.
    pub(super) fn forget(&mut self, conn: &Connection) -> Result<(), Fault> {
        self.tenants.clear();
        self.topics.clear();
        if self.uncommitted {
            self.destinations = live_destinations(conn)?;
            self.live_counts = count(&self.destinations);
            self.uncommitted = false;
        }
        Ok(())
    }

    /// The integer of a tenant's id, given one if it has none. That makes no tenant of it.
    pub(super) fn tenant(&mut self, conn: &Connection, id: &str) -> Result<i64, Fault> {
        const FIND: &str = "SELECT key FROM tenant WHERE id = ?1";
        const ADD: &str = "INSERT INTO tenant(id) VALUES (?1)";
        intern(&mut self.tenants, conn, id, FIND, ADD)
    }

    /// The integer of a topic, given one if it has none.
    pub(super) fn topic(&mut self, conn: &Connection, name: &str) -> Result<i64, Fault> {
        const FIND: &str = "SELECT key FROM topic WHERE name = ?1";
        const ADD: &str = "INSERT INTO topic(name) VALUES (?1)";
        intern(&mut self.topics, conn, name, FIND, ADD)
    }
}

fn count(destinations: &HashMap<i64, LiveDestination>) -> HashMap<i64, u32> {
    let mut counts = HashMap::new();
    for live in destinations.values() {
        *counts.entry(live.tenant).or_default() += 1;
    }
    counts
}

fn live_destinations(conn: &Connection) -> Result<HashMap<i64, LiveDestination>, Fault> {
    let mut statement =
        conn.prepare_cached("SELECT key, tenant, id FROM destination WHERE deleted_at IS NULL")?;
    let found = statement.query_map([], |row| {
        Ok((
            row.get(0)?,
            LiveDestination {
                tenant: row.get(1)?,
                id: row.get(2)?,
            },
        ))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn intern(
    known: &mut HashMap<Box<str>, i64>,
    conn: &Connection,
    text: &str,
    find: &str,
    add: &str,
) -> Result<i64, Fault> {
    if let Some(&key) = known.get(text) {
        return Ok(key);
    }
    let found = conn
        .prepare_cached(find)?
        .query_row([text], |row| row.get(0))
        .optional()?;
    let key = match found {
        Some(key) => key,
        None => conn.prepare_cached(add)?.insert([text])?,
    };
    if known.len() >= MAX_REMEMBERED {
        known.clear();
    }
    known.insert(text.into(), key);
    Ok(key)
}
