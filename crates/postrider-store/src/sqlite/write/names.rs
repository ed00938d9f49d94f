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
}

impl Names {
    pub(super) fn load(conn: &Connection) -> Result<Self, Fault> {
        let mut statement =
            conn.prepare_cached("SELECT key, tenant, id FROM destination WHERE deleted_at IS NULL")?;
        let destinations = statement
            .query_map([], |row| {
                Ok((
                    row.get(0)?,
                    LiveDestination {
                        tenant: row.get(1)?,
                        id: row.get(2)?,
                    },
                ))
            })?
            .collect::<Result<_, _>>()?;
        Ok(Self {
            tenants: HashMap::new(),
            topics: HashMap::new(),
            destinations,
        })
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
