//! Statements of the hot path, prepared once.

use rusqlite::{Connection, Statement};

use crate::sqlite::failure::Fault;

/// One for each row that accept and settle write.
pub(in crate::sqlite) struct Statements<'c> {
    pub(super) insert_event: Statement<'c>,
    pub(super) insert_pending: Statement<'c>,
    pub(super) find_event_id: Statement<'c>,
    pub(super) insert_event_id: Statement<'c>,
    pub(super) event_tenant: Statement<'c>,
    pub(super) delete_pending: Statement<'c>,
    pub(super) find_pending: Statement<'c>,
    pub(super) retry_pending: Statement<'c>,
    pub(super) insert_history: Statement<'c>,
    pub(super) insert_dead: Statement<'c>,
    pub(super) insert_attempt: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(conn: &'c Connection) -> Result<Self, Fault> {
        Ok(Self {
            insert_event: conn.prepare(
                "INSERT INTO event(key, tenant, topic, deliveries, retryable, time, id, metadata, data)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            insert_pending: conn.prepare(
                "INSERT INTO pending(key, event, tenant, destination, flags, due_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            find_event_id: conn.prepare("SELECT event FROM event_id WHERE id = ?1 AND tenant = ?2")?,
            insert_event_id: conn.prepare("INSERT OR REPLACE INTO event_id(id, tenant, event) VALUES (?1, ?2, ?3)")?,
            event_tenant: conn.prepare("SELECT tenant FROM event WHERE key = ?1 AND id IS NULL")?,
            // Without RETURNING, for which SQLite would make a temporary table each time.
            delete_pending: conn.prepare("DELETE FROM pending WHERE key = ?1")?,
            find_pending: conn
                .prepare("SELECT last_attempt, attempts, window_start, flags, context FROM pending WHERE key = ?1")?,
            retry_pending: conn.prepare(
                "UPDATE pending SET due_at = ?2, delay_ns = ?3, tier = ?4, cause = ?5, attempts = ?6, scheduled = ?7,
                    immediate = ?8, last_delay_ns = ?9, window_start = ?10, last_attempt = ?11
                 WHERE key = ?1",
            )?,
            insert_history: conn.prepare(
                "INSERT INTO history(key, event, tenant, destination, flags, status, ended_at, reason, category,
                    attempts, scheduled, immediate, last_delay_ns, window_start, last_attempt)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            )?,
            insert_dead: conn.prepare(
                "INSERT INTO dead(serial, key, event, tenant, destination, topic, reason, category, code, error, context)
                 VALUES (?1, ?2, ?3, ?4, ?5, coalesce((SELECT topic FROM event WHERE key = ?3), 0), ?6, ?7, ?8, ?9, ?10)",
            )?,
            insert_attempt: conn.prepare(
                "INSERT INTO attempt(key, delivery, event, tenant, destination, prev, number, started_at, status,
                    error, status_after, detail)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?,
        })
    }
}
