//! The tables, and the ordered steps that bring any older database to them.
//!
//! Rows are appended in the order of their integer keys, so that a commit touches few pages: `event` and `attempt` only
//! grow at their end, `pending` is small and its rows move to `history` when they are final. Tables named `*_by_*`
//! are listing indexes. They scatter, so no accept or settle waits for them: see [`super::write::index`].

mod alerts;
mod dead_letters;

use rusqlite::{Connection, OptionalExtension as _};

use super::failure::Fault;
use crate::seal::SealKey;

/// "Post", big-endian: tells our files from other programs' SQLite databases.
pub(super) const APPLICATION_ID: i32 = 0x506f_7374;

/// Steps in order; a database at version `n` has had the first `n`. Never edited once released.
pub(super) const MIGRATIONS: &[Step] = &[
    Step::Sql(TABLES),
    Step::Sql(RETRY_POLICIES),
    Step::Sql(PROTECTION),
    Step::Run(dead_letters::tables),
    Step::Run(dead_letters::seal_headers),
    Step::Sql(alerts::TABLES),
];

/// One step of the migration.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Statements.
    Sql(&'static str),
    /// What statements alone cannot do.
    Run(fn(&Connection, &SealKey) -> Result<(), Fault>),
}

/// The version that this program writes.
pub(super) fn current_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

const TABLES: &str = r"
CREATE TABLE tenant(
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    serial INTEGER UNIQUE,
    metadata TEXT,
    created_at INTEGER,
    updated_at INTEGER
) STRICT;

CREATE TABLE topic(
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE destination(
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    topics TEXT NOT NULL,
    filter TEXT,
    config TEXT NOT NULL,
    credentials BLOB NOT NULL,
    delivery_metadata TEXT,
    metadata TEXT,
    retry_policy TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    disabled_at INTEGER,
    disabled_reason TEXT,
    revision INTEGER NOT NULL,
    deleted_at INTEGER,
    swept INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX destination_live ON destination(tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX destination_name ON destination(id);
CREATE INDEX destination_unswept ON destination(key) WHERE deleted_at IS NOT NULL AND swept = 0;

CREATE TABLE event(
    key INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    topic INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    retryable INTEGER NOT NULL,
    time INTEGER,
    id TEXT,
    metadata TEXT,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE event_id(
    id TEXT NOT NULL,
    tenant INTEGER NOT NULL,
    event INTEGER NOT NULL,
    PRIMARY KEY(id, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE pending(
    key INTEGER PRIMARY KEY,
    event INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    delay_ns INTEGER NOT NULL DEFAULT 0,
    tier INTEGER NOT NULL DEFAULT 1,
    cause INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    scheduled INTEGER NOT NULL DEFAULT 0,
    immediate INTEGER NOT NULL DEFAULT 0,
    last_delay_ns INTEGER NOT NULL DEFAULT 0,
    window_start INTEGER,
    last_attempt INTEGER
) STRICT;
CREATE INDEX pending_due ON pending(destination, due_at);

CREATE TABLE history(
    key INTEGER PRIMARY KEY,
    event INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    status INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    reason INTEGER,
    category INTEGER,
    attempts INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    immediate INTEGER NOT NULL,
    last_delay_ns INTEGER NOT NULL,
    window_start INTEGER,
    last_attempt INTEGER
) STRICT;

CREATE TABLE dead(
    key INTEGER PRIMARY KEY,
    tenant INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    category INTEGER NOT NULL
) STRICT;
CREATE INDEX dead_tenant ON dead(tenant);
CREATE INDEX dead_destination ON dead(destination);

CREATE TABLE attempt(
    key INTEGER PRIMARY KEY,
    delivery INTEGER NOT NULL,
    event INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    prev INTEGER,
    number INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    status INTEGER,
    error INTEGER,
    status_after INTEGER NOT NULL,
    detail BLOB NOT NULL
) STRICT;

CREATE TABLE event_by_tenant(
    tenant INTEGER NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY(tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE delivery_by_destination(
    destination INTEGER NOT NULL,
    key INTEGER NOT NULL,
    event INTEGER NOT NULL,
    PRIMARY KEY(destination, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt_by_tenant(
    tenant INTEGER NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY(tenant, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt_by_destination(
    destination INTEGER NOT NULL,
    key INTEGER NOT NULL,
    PRIMARY KEY(destination, key)
) STRICT, WITHOUT ROWID;
";

const RETRY_POLICIES: &str = r#"
CREATE TABLE retry_policy(
    name TEXT PRIMARY KEY,
    policy TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE retry_policy_change(
    key INTEGER PRIMARY KEY,
    changed_at INTEGER NOT NULL,
    name TEXT NOT NULL,
    old TEXT,
    new TEXT
) STRICT;
CREATE INDEX retry_policy_change_name ON retry_policy_change(name, key);

CREATE INDEX destination_policy_name ON destination(retry_policy)
    WHERE substr(retry_policy, 1, 1) = '"' AND deleted_at IS NULL;
"#;

const PROTECTION: &str = "
CREATE TABLE protection(
    destination INTEGER PRIMARY KEY,
    state TEXT NOT NULL
) STRICT;
";

/// Where the deferred indexes, the skews and the liveness check keep their numbers.
const INITIAL_META: &[(&str, i64)] = &[
    (meta::EVENTS_INDEXED_UPTO, 0),
    (meta::ATTEMPTS_INDEXED_UPTO, 0),
    (meta::EVENT_TIME_AHEAD_MS, 0),
    (meta::EVENT_TIME_BEHIND_MS, 0),
    (meta::ATTEMPT_TIME_AHEAD_MS, 0),
    (meta::ATTEMPT_TIME_BEHIND_MS, 0),
    (meta::LAST_FREED_SERIAL, 0),
    (meta::PINGS, 0),
];

/// Names of the rows in `meta`.
pub(super) mod meta {
    pub(in crate::sqlite) const SCHEMA_VERSION: &str = "schema_version";
    /// 16 random bytes, drawn once: the seed of the public ids.
    pub(in crate::sqlite) const ID_SEED: &str = "id_seed";
    /// A known text, sealed: tells a wrong key at once.
    pub(in crate::sqlite) const SEAL_CHECK: &str = "seal_check";
    /// Listing tables of events and deliveries hold everything up to this key.
    pub(in crate::sqlite) const EVENTS_INDEXED_UPTO: &str = "events_indexed_upto";
    /// Listing tables of attempts hold everything up to this key.
    pub(in crate::sqlite) const ATTEMPTS_INDEXED_UPTO: &str = "attempts_indexed_upto";
    /// No key up to this one is free: noted whenever rows are removed for good.
    pub(in crate::sqlite) const KEYS_GIVEN_UPTO: &str = "keys_given_upto";
    /// Retention has removed, or noted to look at again, every event up to this key.
    pub(in crate::sqlite) const EVENTS_EXPIRED_UPTO: &str = "events_expired_upto";
    /// Retention has removed every attempt up to this key that a later one or its event will not take along.
    pub(in crate::sqlite) const ATTEMPTS_EXPIRED_UPTO: &str = "attempts_expired_upto";
    /// The most by which an event's own time ever was later than its acceptance.
    pub(in crate::sqlite) const EVENT_TIME_AHEAD_MS: &str = "event_time_ahead_ms";
    /// The most by which an event's own time ever was earlier than its acceptance.
    pub(in crate::sqlite) const EVENT_TIME_BEHIND_MS: &str = "event_time_behind_ms";
    /// The most by which an attempt's start ever was later than its settling.
    pub(in crate::sqlite) const ATTEMPT_TIME_AHEAD_MS: &str = "attempt_time_ahead_ms";
    /// The most by which an attempt's start ever was earlier than its settling.
    pub(in crate::sqlite) const ATTEMPT_TIME_BEHIND_MS: &str = "attempt_time_behind_ms";
    /// The highest serial of a deleted tenant: none is given twice, or a cursor would skip or repeat.
    pub(in crate::sqlite) const LAST_FREED_SERIAL: &str = "last_freed_serial";
    /// Grows with each liveness check.
    pub(in crate::sqlite) const PINGS: &str = "pings";
}

/// The version of an existing database; `None` for one without tables.
pub(super) fn version(conn: &Connection) -> Result<Option<i64>, Fault> {
    let has_meta = conn
        .query_row(
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'",
            [],
            |_| Ok(()),
        )
        .optional()?;
    if has_meta.is_none() {
        return Ok(None);
    }
    number(conn, meta::SCHEMA_VERSION)
}

/// Creates the tables, with `origin` in `meta`, or brings them from `version` to the current one, in one transaction.
pub(super) fn migrate(
    conn: &mut Connection,
    version: Option<i64>,
    origin: &[(&'static str, Vec<u8>)],
    seal: &SealKey,
) -> Result<(), Fault> {
    if version == Some(current_version()) {
        return Ok(());
    }
    // What a step takes out of a row, a secret for example, is overwritten also where the row was.
    conn.execute_batch("PRAGMA secure_delete = ON")?;
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if version.is_none() {
        tx.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION_ID};
             CREATE TABLE meta(name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;"
        ))?;
    }
    apply(&tx, version, MIGRATIONS, seal)?;
    if version.is_none() {
        for (name, value) in INITIAL_META {
            put_number(&tx, name, *value)?;
        }
        for (name, value) in origin {
            put_bytes(&tx, name, value)?;
        }
    }
    tx.commit()?;
    conn.execute_batch("PRAGMA secure_delete = OFF; PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

/// Applies the steps that a database at `version` has not had, and notes the new version.
fn apply(conn: &Connection, version: Option<i64>, steps: &[Step], seal: &SealKey) -> Result<(), Fault> {
    let done = usize::try_from(version.unwrap_or(0)).unwrap_or(usize::MAX);
    for step in steps.iter().skip(done) {
        match step {
            Step::Sql(statements) => conn.execute_batch(statements)?,
            Step::Run(run) => run(conn, seal)?,
        }
    }
    put_number(
        conn,
        meta::SCHEMA_VERSION,
        i64::try_from(steps.len()).unwrap_or(i64::MAX),
    )
}

/// A number kept in `meta`.
pub(super) fn number(conn: &Connection, name: &str) -> Result<Option<i64>, Fault> {
    let mut statement = conn.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// Keeps a number in `meta`.
pub(super) fn put_number(conn: &Connection, name: &str, value: i64) -> Result<(), Fault> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO meta(name, value) VALUES (?1, ?2) ON CONFLICT(name) DO UPDATE SET value = excluded.value",
    )?;
    statement.execute((name, value))?;
    Ok(())
}

/// Proves that a write can be committed.
pub(super) fn count_ping(conn: &Connection) -> Result<(), Fault> {
    conn.prepare_cached("UPDATE meta SET value = value + 1 WHERE name = ?1")?
        .execute([meta::PINGS])?;
    Ok(())
}

/// Bytes kept in `meta`.
pub(super) fn bytes(conn: &Connection, name: &str) -> Result<Option<Vec<u8>>, Fault> {
    let mut statement = conn.prepare_cached("SELECT value FROM meta WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// Keeps bytes in `meta`.
fn put_bytes(conn: &Connection, name: &str, value: &[u8]) -> Result<(), Fault> {
    conn.execute("INSERT INTO meta(name, value) VALUES (?1, ?2)", (name, value))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealKey {
        SealKey::new(&[7; 32])
    }

    fn fresh() -> Connection {
        let mut conn = Connection::open_in_memory().unwrap();
        assert_eq!(version(&conn).unwrap(), None);
        migrate(&mut conn, None, &[], &key()).unwrap();
        conn
    }

    #[test]
    fn a_fresh_database_is_current_and_migrating_again_changes_nothing() {
        let mut conn = fresh();
        assert_eq!(version(&conn).unwrap(), Some(current_version()));
        put_number(&conn, meta::PINGS, 5).unwrap();
        migrate(&mut conn, Some(current_version()), &[], &key()).unwrap();
        assert_eq!(number(&conn, meta::PINGS).unwrap(), Some(5));
        let id: i32 = conn
            .query_row("PRAGMA application_id", [], |row| row.get(0))
            .unwrap();
        assert_eq!(id, APPLICATION_ID);
    }

    #[test]
    fn an_older_database_gets_the_steps_that_it_lacks_in_order() {
        let conn = fresh();
        let later = [
            Step::Sql("CREATE TABLE later(x INTEGER) STRICT"),
            Step::Sql("ALTER TABLE later ADD COLUMN y INTEGER"),
        ];
        let steps = [MIGRATIONS, &later].concat();
        let newest = Some(current_version() + 2);
        apply(&conn, version(&conn).unwrap(), &steps, &key()).unwrap();
        assert_eq!(version(&conn).unwrap(), newest);
        conn.execute("INSERT INTO later(x, y) VALUES (1, 2)", []).unwrap();
        apply(&conn, version(&conn).unwrap(), &steps, &key()).unwrap();
        assert_eq!(version(&conn).unwrap(), newest, "none is applied twice");
    }
}
