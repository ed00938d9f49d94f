//! The step that gives dead letters an order of their own, a context, and what replays and retention keep.

use postrider_core::outcome::ErrorKind;
use postrider_core::time::Timestamp;
use rusqlite::Connection;

use crate::seal::SealKey;
use crate::sqlite::detail::{Columns, Detail};
use crate::sqlite::failure::Fault;
use crate::sqlite::rows;
use crate::sqlite::write::letters::error_line;
use crate::sqlite::{credentials, json};

const TABLES: &str = "
DROP INDEX dead_tenant;
DROP INDEX dead_destination;
ALTER TABLE dead RENAME TO dead_before;

CREATE TABLE dead(
    serial INTEGER PRIMARY KEY,
    key INTEGER NOT NULL UNIQUE,
    event INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    topic INTEGER NOT NULL,
    reason INTEGER NOT NULL,
    category INTEGER NOT NULL,
    code INTEGER,
    error TEXT,
    context INTEGER
) STRICT;

CREATE TABLE dead_context(
    key INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    text BLOB NOT NULL
) STRICT;

ALTER TABLE pending ADD COLUMN context INTEGER;
CREATE INDEX pending_context ON pending(context) WHERE context IS NOT NULL;

CREATE TABLE replay(
    key INTEGER PRIMARY KEY,
    spec TEXT NOT NULL,
    state INTEGER NOT NULL,
    upper INTEGER NOT NULL,
    unfinished INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;
CREATE INDEX replay_state ON replay(state, key);

CREATE TABLE replay_destination(
    replay INTEGER NOT NULL,
    destination INTEGER NOT NULL,
    total INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    is_walked INTEGER NOT NULL DEFAULT 0,
    queued INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    canceled INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY(replay, destination)
) STRICT, WITHOUT ROWID;

CREATE TABLE replay_item(
    delivery INTEGER PRIMARY KEY,
    replay INTEGER NOT NULL,
    destination INTEGER NOT NULL
) STRICT;

CREATE TABLE retention_kept(
    event INTEGER PRIMARY KEY
) STRICT;
";

/// Serials are strictly increasing in the order of deaths, also when many died in one millisecond: the n-th is n more than
/// the highest that an earlier one would need.
const CARRY_OVER: &str = "
INSERT INTO dead(serial, key, event, tenant, destination, topic, reason, category, code)
SELECT place + max((ended_at << 20) - place) OVER (ORDER BY place), key, event, tenant, destination, topic, reason,
    category, status
FROM (
    SELECT row_number() OVER (ORDER BY history.ended_at, history.key) AS place, history.ended_at, history.key,
        history.event, history.tenant, history.destination, coalesce(event.topic, 0) AS topic,
        coalesce(history.reason, 1) AS reason, dead_before.category, attempt.status
    FROM dead_before
        JOIN history ON history.key = dead_before.key
        LEFT JOIN event ON event.key = history.event
        LEFT JOIN attempt ON attempt.key = history.last_attempt
);
DROP TABLE dead_before;
CREATE INDEX dead_destination ON dead(destination, serial);
CREATE INDEX dead_tenant ON dead(tenant, serial);
CREATE INDEX dead_context_users ON dead(context) WHERE context IS NOT NULL;
";

/// Makes the tables, and takes over the dead letters that there are.
pub(super) fn tables(conn: &Connection, _seal: &SealKey) -> Result<(), Fault> {
    conn.execute_batch(TABLES)?;
    conn.execute_batch(CARRY_OVER)?;
    let mut letters = conn.prepare(
        "SELECT dead.serial, attempt.number, attempt.started_at, attempt.status, attempt.error, attempt.detail
         FROM dead JOIN history ON history.key = dead.key JOIN attempt ON attempt.key = history.last_attempt",
    )?;
    let mut update = conn.prepare("UPDATE dead SET error = ?2 WHERE serial = ?1")?;
    let mut found = letters.query([])?;
    while let Some(row) = found.next()? {
        let error: Option<i64> = row.get(4)?;
        let columns = Columns {
            number: row.get(1)?,
            started_at: Timestamp::from_millis(row.get(2)?),
            status: row.get(3)?,
            error: error
                .map(|code| rows::word(code, ErrorKind::from_code, "error"))
                .transpose()?,
        };
        let (attempt, _) = Detail::decode(&row.get::<_, Vec<u8>>(5)?, columns)?;
        update.execute((row.get::<_, i64>(0)?, error_line(&attempt)))?;
    }
    Ok(())
}

/// Takes custom headers out of the configuration that is kept in clear, and seals them with the credentials.
pub(super) fn seal_headers(conn: &Connection, seal: &SealKey) -> Result<(), Fault> {
    let mut destinations =
        conn.prepare("SELECT key, tenant, id, config, credentials, deleted_at IS NULL FROM destination")?;
    let mut found = destinations.query([])?;
    let mut update = conn.prepare("UPDATE destination SET config = ?2, credentials = ?3 WHERE key = ?1")?;
    while let Some(row) = found.next()? {
        let (key, tenant, id): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let mut config = json::to_map(&row.get::<_, String>(3)?)?;
        let mut sealed: Vec<u8> = row.get(4)?;
        if row.get(5)? {
            let credentials = credentials::open(seal, tenant, &id, &sealed, &mut config)?;
            sealed = credentials::seal(seal, tenant, &id, &credentials, &config)?;
        }
        update.execute((key, json::from_map(&credentials::shown(&config)), sealed))?;
    }
    Ok(())
}
