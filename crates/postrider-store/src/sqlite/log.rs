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
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
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
    /// Since when something waits for a flush. A process that died may have left something: that waits at first.
    waits_since: Option<Instant>,
    /// What the connection had changed when the transaction began.
    changes: u64,
    /// A flush failed that older commits needed. The system may have dropped their pages: what is written after them would be
    /// unreachable if it had, so nothing is until the log begins anew.
    is_torn: bool,
    /// The last try to copy it failed.
    stays: bool,
}

impl Log {
    /// Where the log of the database at `path` is.
    pub(super) fn path(path: &Path) -> PathBuf {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        log.into()
    }

    /// Of the database at `path`.
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: Self::path(path),
            current: None,
            waits_since: Some(Instant::now()),
            changes: 0,
            is_torn: false,
            stays: false,
        }
    }

    /// Before a transaction begins: has its commit do what `wanted` says, or flush because something has waited for too long.
    /// Answers which.
    pub(super) fn prepare(&mut self, conn: &Connection, wanted: Flush) -> Result<Flush, Fault> {
        self.mend(conn)?;
        self.changes = conn.total_changes();
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

    /// A transaction that was so prepared was committed. One that changed nothing flushed nothing.
    pub(super) fn committed(&mut self, conn: &Connection, flush: Flush) {
        if conn.total_changes() == self.changes {
            return;
        }
        match flush {
            Flush::Now => self.waits_since = None,
            Flush::Later => {
                self.waits_since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// A flush of the log failed, of this commit or before its copy.
    pub(super) fn failed(&mut self) {
        self.is_torn |= self.waits_since.is_some();
    }

    /// After a failed flush: the log begins anew. Does nothing otherwise.
    pub(super) fn mend(&mut self, conn: &Connection) -> Result<(), Fault> {
        if self.is_torn {
            begin_anew(conn)?;
            self.is_torn = false;
            self.waits_since = None;
        }
        Ok(())
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

    /// Flushes what waits.
    pub(super) fn flush(&mut self) {
        if self.waits_since.take().is_none() {
            return;
        }
        // Any handle of a file flushes all of it.
        match File::open(&self.path) {
            Ok(log) => {
                if let Err(error) = log.sync_data() {
                    tracing::error!(%error, "the store's log could not be flushed; nothing is written until it could begin anew");
                    self.is_torn = true;
                }
            }
            // It was copied whole, and the connection that did so has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "the store's log could not be opened for a flush; trying again");
                self.waits_since = Some(Instant::now());
            }
        }
    }

    /// Copies a log of which at least `pages` are new into the database, so that it can be overwritten from its start; while
    /// operations wait (`is_busy`), twice as many. A log that could not begin anew because of readers, and is four times as long,
    /// is copied after each commit: the next finds it copied whole. Never waits for readers. What fails is tried again after the
    /// next commit.
    pub(super) fn keep_short(&mut self, conn: &Connection, pages: u32, is_busy: bool) {
        let limit = i64::from(pages) * if is_busy { 2 } else { 1 };
        let copied = length(conn).and_then(|Length { all, new }| {
            if new >= limit || (new > 0 && all >= 4 * i64::from(pages)) {
                conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?
                    .query_row([], |_| Ok(()))?;
            }
            Ok(())
        });
        if copied
            .as_ref()
            .is_err_and(|fault| fault.code() == Some(ErrorCode::SystemIoFailure))
        {
            self.failed();
        }
        let stays = copied.is_err();
        if let Err(fault) = copied
            && !self.stays
        {
            tracing::warn!(error = %fault, "the store's log could not be copied into the database; it grows until that works");
        }
        self.stays = stays;
    }
}

/// Pages of the log.
struct Length {
    all: i64,
    /// Those that the database does not have.
    new: i64,
}

fn length(conn: &Connection) -> Result<Length, Fault> {
    let mut statement = conn.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    Ok(statement.query_row([], |row| {
        let (all, copied): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(Length {
            all,
            new: all - copied,
        })
    })?)
}

/// Copies all of the log, as the system has it (most file systems keep pages in memory whose flush failed), and empties it. Waits
/// for readers.
fn begin_anew(conn: &Connection) -> Result<(), Fault> {
    let is_busy: bool = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if is_busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(busy, None).into());
    }
    tracing::info!("the store's log begins anew");
    Ok(())
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
        let mut log = Log::new(&path);
        assert_eq!(log.patience(IDLE), LATEST, "what a process left that died");
        log.flush();
        (directory, conn, log)
    }

    fn commit(conn: &Connection, log: &mut Log, wanted: Flush) {
        let flush = log.prepare(conn, wanted).unwrap();
        conn.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        log.committed(conn, flush);
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
        commit(&conn, &mut log, Flush::Later);
        tokio::time::advance(Duration::from_millis(19)).await;
        commit(&conn, &mut log, Flush::Later);
        assert_eq!(log.prepare(&conn, Flush::Later).unwrap(), Flush::Later);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(
            log.prepare(&conn, Flush::Later).unwrap(),
            Flush::Now,
            "the first has waited for 20 ms"
        );
        assert_eq!(level(&conn), 2);
        commit(&conn, &mut log, Flush::Now);
        assert_eq!(log.prepare(&conn, Flush::Later).unwrap(), Flush::Later);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_result_is_flushed_20_ms_later() {
        let (_directory, conn, mut log) = database();
        assert_eq!(log.patience(IDLE), IDLE);
        commit(&conn, &mut log, Flush::Later);
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
        let (_directory, conn, mut log) = database();
        commit(&conn, &mut log, Flush::Later);
        commit(&conn, &mut log, Flush::Now);
        assert_eq!(log.patience(IDLE), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_without_a_change_flushes_nothing() {
        let (_directory, conn, mut log) = database();
        commit(&conn, &mut log, Flush::Later);
        let flush = log.prepare(&conn, Flush::Now).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
        log.committed(&conn, flush);
        assert_eq!(log.patience(IDLE), LATEST, "the result still waits");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_flush_the_log_begins_anew_before_anything_is_written() {
        let (directory, conn, mut log) = database();
        let size = || {
            let log = directory.path().join("flush.db-wal");
            std::fs::metadata(log).unwrap().len()
        };
        commit(&conn, &mut log, Flush::Now);
        log.failed();
        commit(&conn, &mut log, Flush::Later);
        let before = size();
        commit(&conn, &mut log, Flush::Later);
        assert!(size() > before, "nothing waited when that one failed");
        log.failed();
        let reader = Connection::open(directory.path().join("flush.db")).unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let refused = log.prepare(&conn, Flush::Now).unwrap_err();
        assert!(refused.blames_environment(), "a reader is at it: {refused}");
        reader.execute_batch("COMMIT").unwrap();
        log.prepare(&conn, Flush::Now).unwrap();
        assert_eq!(size(), 0);
        assert_eq!(log.patience(IDLE), IDLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_is_copied_when_it_is_long_and_twice_as_long_while_others_wait() {
        let (_directory, conn, mut log) = database();
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
        let new = |conn: &Connection| length(conn).unwrap().new;
        while new(&conn) < 10 {
            commit(&conn, &mut log, Flush::Later);
        }
        log.keep_short(&conn, 11, false);
        log.keep_short(&conn, 10, true);
        assert_eq!(new(&conn), 10);
        log.keep_short(&conn, 10, false);
        assert_eq!(new(&conn), 0);
        while new(&conn) < 20 {
            commit(&conn, &mut log, Flush::Later);
        }
        log.keep_short(&conn, 10, true);
        assert_eq!(new(&conn), 0);
    }

    /// A reader that begins while the log is copied keeps it from beginning anew; then the next commits must find it copied.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_readers_kept_long_begins_anew_as_soon_as_they_let_it() {
        let (directory, conn, mut log) = database();
        conn.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
        let reader = Connection::open(directory.path().join("flush.db")).unwrap();
        let mut commits = |count: usize| {
            for _ in 0..count {
                commit(&conn, &mut log, Flush::Later);
                log.keep_short(&conn, 10, false);
            }
            length(&conn).unwrap().all
        };
        commits(5);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        assert!(commits(100) > 40, "the reader needs what it began with");
        reader.execute_batch("COMMIT").unwrap();
        assert!(commits(3) <= 3);
    }
}
