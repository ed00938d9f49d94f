//! Reading: a few connections that only read, each statement bounded in time.
//!
//! WAL readers see one committed state and never wait for the writer. They must not hold it for long, or the log could not
//! be reset; so every read is one short transaction, and one that runs into its limit is interrupted.

pub(super) mod attempts;
pub(super) mod deliveries;
mod delivery_sources;
pub(super) mod directory;
pub(super) mod events;
mod filter;
pub(super) mod lane;
mod lookup;
pub(super) mod policies;
pub(super) mod protection;
pub(super) mod stats;
mod walk;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::failure::Fault;
use super::open::open_reader;
use crate::error::StoreError;

/// Between interrupts of a read that is over its limit.
const INTERRUPT_EVERY: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Readers {
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    time_limit: Duration,
}

/// A connection on loan; it goes back whatever becomes of its borrower.
struct Loan {
    conn: Option<Connection>,
    idle: Arc<Mutex<Vec<Connection>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.idle.lock().push(conn);
        }
    }
}

impl Readers {
    pub(super) fn open(
        path: &Path,
        count: usize,
        cache_kib: u32,
        time_limit: Duration,
    ) -> Result<Self, Fault> {
        let count = count.max(1);
        let idle = (0..count)
            .map(|_| open_reader(path, cache_kib))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            idle: Arc::new(Mutex::new(idle)),
            permits: Arc::new(Semaphore::new(count)),
            time_limit,
        })
    }

    /// Runs `read` on a blocking thread, in one transaction, for at most the time limit.
    pub(super) async fn run<A, F>(&self, read: F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
    {
        self.run_within(self.time_limit, read).await
    }

    /// The same for a walk that can stop early: it gets the instant at which it should, before it is interrupted.
    pub(super) async fn walk<A, F>(&self, read: F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: FnOnce(&Connection, Instant) -> Result<A, Fault> + Send + 'static,
    {
        let share = self.time_limit / 2;
        self.run(move |conn| read(conn, Instant::now() + share)).await
    }

    /// The same for what is done once at start, when nothing goes without it, however long it takes.
    pub(super) async fn run_unbounded<A, F>(&self, read: F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
    {
        self.run_within(Duration::MAX, read).await
    }

    async fn run_within<A, F>(&self, time_limit: Duration, read: F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let conn = self.idle.lock().pop().ok_or(StoreError::Closed)?;
        let interrupt = conn.get_interrupt_handle();
        let loan = Loan {
            conn: Some(conn),
            idle: Arc::clone(&self.idle),
            _permit: permit,
        };
        let mut job = tokio::task::spawn_blocking(move || {
            let answer = loan.conn.as_ref().map(|conn| in_transaction(conn, read));
            (answer, loan)
        });
        let finished = match tokio::time::timeout(time_limit, &mut job).await {
            Ok(finished) => finished,
            Err(_) => loop {
                // An interrupt between two statements is forgotten, so it is repeated until it hits one.
                interrupt.interrupt();
                if let Ok(finished) = tokio::time::timeout(INTERRUPT_EVERY, &mut job).await {
                    break finished;
                }
            },
        };
        match finished {
            Ok((Some(answer), _loan)) => answer.map_err(|fault| fault.to_store_error()),
            Ok((None, _)) => Err(StoreError::Closed),
            Err(error) => Err(StoreError::Unavailable(error.into())),
        }
    }

    /// Refuses further reads and closes the connections as they come back.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle.lock().clear();
    }
}

fn in_transaction<A>(
    conn: &Connection,
    read: impl FnOnce(&Connection) -> Result<A, Fault>,
) -> Result<A, Fault> {
    conn.prepare_cached("BEGIN")?.execute([])?;
    let answer = read(conn);
    let ended = conn
        .prepare_cached("COMMIT")
        .and_then(|mut commit| commit.execute([]));
    if ended.is_err() && !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endless_read_is_stopped_and_its_connection_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE t(x)")
            .unwrap();
        let readers = Readers::open(&path, 1, 100, Duration::from_millis(1)).unwrap();
        let endless = readers
            .run(|conn| {
                let sql =
                    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
                Ok(conn.query_row(sql, [], |row| row.get::<_, i64>(0))?)
            })
            .await;
        assert!(matches!(endless, Err(StoreError::TooSlow)), "{endless:?}");
        let after = readers
            .run_unbounded(|conn| {
                Ok(conn.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))?)
            })
            .await;
        assert_eq!(after.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_reader_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE t(x)")
            .unwrap();
        let readers = Readers::open(&path, 1, 100, Duration::from_secs(5)).unwrap();
        let written = readers
            .run(|conn| Ok(conn.execute("INSERT INTO t VALUES (1)", [])?))
            .await;
        assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    }
}
