//! The write-ahead log: which commits wait until it is on the disk, and when it is copied into the database.
//!
//! A commit that somebody was promised waits for the disk (`synchronous = FULL`): when it returns, the log is flushed, with
//! everything that was written to it before. One that only says how attempts ended, or repeats what other rows say, does not
//! (`NORMAL`): the system has it, so a `kill -9` loses nothing, and when the power fails within [`LATEST`], those attempts are
//! made again, as if they had been in flight. SQLite lets a connection change this between transactions
//! (<https://www.sqlite.org/pragma.html#pragma_synchronous>), and flushes the log before it copies from it either way.
//!
//! SQLite would copy a log that has become long at the end of a commit, before its waiters are answered. Here the writer
//! does, after it has answered and when nothing waits.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::Instant;

use super::failure::Fault;

/// The longest that a commit waits for its flush, as long as the disk keeps up.
pub(super) const LATEST: Duration = Duration::from_millis(20);

/// When a commit must be on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// When it returns.
    Now,
    /// With the next that is flushed, or within [`LATEST`]: what it holds would only be done again.
    Later,
}

/// The log of the writer's database.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// What the connection's commits do; unknown at first.
    current: Option<Flush>,
    /// Since when something waits for a flush.
    waits_since: Option<Instant>,
    /// The last try to copy it failed.
    stays: bool,
}

impl Log {
    /// Of the database at `path`.
    pub(super) fn new(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        Self {
            path: log.into(),
            current: None,
            waits_since: None,
            stays: false,
        }
    }

    /// Before a transaction begins: has its commit do what `wanted` says, or flush because something has waited for too long.
    /// Answers which.
    pub(super) fn prepare(&mut self, conn: &Connection, wanted: Flush) -> Result<Flush, Fault> {
        let flush = if self.is_due() { Flush::Now } else { wanted };
        if self.current != Some(flush) {
            // Unknown again if this fails.
            self.current = None;
            let level = match flush {
                Flush::Now => "FULL",
                Flush::Later => "NORMAL",
            };
            // It acts when it is prepared, so it must not come from a cache of statements.
            conn.pragma_update(None, "synchronous", level)?;
            self.current = Some(flush);
        }
        Ok(flush)
    }

    /// A transaction that was so prepared was committed.
    pub(super) fn committed(&mut self, flush: Flush) {
        match flush {
            Flush::Now => self.waits_since = None,
            Flush::Later => {
                self.waits_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// How long the queue may stay empty before something is due.
    pub(super) fn patience(&self, idle: Duration) -> Duration {
        self.waits_since
            .map_or(idle, |since| idle.min(LATEST.saturating_sub(since.elapsed())))
    }

    /// Whether something has waited for as long as it may.
    pub(super) fn is_due(&self) -> bool {
        self.waits_since.is_some_and(|since| since.elapsed() >= LATEST)
    }

    /// Flushes what waits. What that fails for is given up: it is not tried again, since a second flush of the same pages says
    /// nothing about the first.
    pub(super) fn flush(&mut self) {
        if self.waits_since.take().is_none() {
            return;
        }
        // Any handle of a file flushes all of it.
        let flushed = File::open(&self.path).and_then(|log| log.sync_data());
        if let Err(error) = flushed {
            tracing::warn!(%error, "the store's log could not be flushed: results of the last attempts may be lost when the power fails");
        }
    }

    /// Copies a log of at least `pages` into the database, so that it can be overwritten from its start; while operations wait
    /// (`is_busy`), only one that is twice as long. Never waits for readers. What fails is tried again after the next commit.
    pub(super) fn keep_short(&mut self, conn: &Connection, pages: u32, is_busy: bool) {
        let limit = i64::from(pages) * if is_busy { 2 } else { 1 };
        let copied = not_copied(conn).and_then(|length| {
            if length >= limit {
                conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?
                    .query_row([], |_| Ok(()))?;
            }
            Ok(())
        });
        let stays = copied.is_err();
        if let Err(fault) = copied
            && !self.stays
        {
            tracing::warn!(error = %fault, "the store's log could not be copied into the database; it grows until that works");
        }
        self.stays = stays;
    }
}

/// Pages of the log that the database does not have.
fn not_copied(conn: &Connection) -> Result<i64, Fault> {
    let mut statement = conn.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    Ok(statement.query_row([], |row| {
        let (length, copied): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(length - copied)
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(1);

    fn level(conn: &Connection) -> i64 {
        conn.query_row("PRAGMA synchronous", [], |row| row.get(0))
            .unwrap()
    }

    fn database() -> (tempfile::TempDir, Connection, Log) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("flush.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(x INTEGER) STRICT")
            .unwrap();
        let log = Log::new(&path);
        (directory, conn, log)
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_waits_for_the_disk_and_a_result_does_not() {
        let (_directory, conn, mut log) = database();
        assert_eq!(log.prepare(&conn, Flush::Later).unwrap(), Flush::Later);
        assert_eq!(level(&conn), 1, "NORMAL");
        assert_eq!(log.prepare(&conn, Flush::Now).unwrap(), Flush::Now);
        assert_eq!(level(&conn), 2, "FULL");
        assert_eq!(log.prepare(&conn, Flush::Later).unwrap(), Flush::Later);
        assert_eq!(level(&conn), 1, "NORMAL again");
    }

    #[tokio::test(start_paused = true)]
    async fn results_that_do_not_end_are_flushed_every_20_ms() {
        let (_directory, conn, mut log) = database();
        log.committed(Flush::Later);
        tokio::time::advance(Duration::from_millis(19)).await;
        log.committed(Flush::Later);
        assert_eq!(log.prepare(&conn, Flush::Later).unwrap(), Flush::Later);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(
            log.prepare(&conn, Flush::Later).unwrap(),
            Flush::Now,
            "the first has waited for 20 ms"
        );
        assert_eq!(level(&conn), 2);
        log.committed(Flush::Now);
        assert_eq!(log.prepare(&conn, Flush::Later).unwrap(), Flush::Later);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_result_is_flushed_20_ms_later() {
        let (_directory, _conn, mut log) = database();
        assert_eq!(log.patience(IDLE), IDLE);
        log.committed(Flush::Later);
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(log.patience(IDLE), Duration::from_millis(15));
        assert_eq!(log.patience(Duration::ZERO), Duration::ZERO);
        assert!(!log.is_due());
        tokio::time::advance(Duration::from_millis(15)).await;
        assert!(log.is_due());
        assert_eq!(log.patience(IDLE), Duration::ZERO);
        log.flush();
        assert!(!log.is_due());
        assert_eq!(log.patience(IDLE), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_includes_what_waited() {
        let (_directory, _conn, mut log) = database();
        log.committed(Flush::Later);
        log.committed(Flush::Now);
        assert_eq!(log.patience(IDLE), IDLE);
    }
}
