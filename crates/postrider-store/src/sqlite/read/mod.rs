//! Reading: a few connections that only read, each statement bounded in time.
//!
//! WAL readers see one committed state and never wait for the writer. They must not hold it for long, or the log could not
//! be reset; so every read is one short transaction, and one that runs into its limit is interrupted.
//!
//! There are two pools, so that people who look at lists cannot keep deliveries waiting. In people's, a read that gets no
//! connection soon is refused as busy; the engine bounds its reads itself, and waits.

pub(super) mod alerts;
pub(super) mod attempts;
pub(super) mod deliveries;
mod delivery_sources;
pub(super) mod directory;
pub(super) mod events;
mod filter;
pub(super) mod lane;
pub(super) mod letters;
mod lookup;
pub(super) mod policies;
pub(super) mod protection;
pub(super) mod replays;
pub(super) mod stats;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::failure::Fault;
use super::open::open_reader;
use crate::error::StoreError;

/// Between interrupts of a read that is over its limit.
const INTERRUPT_EVERY: Duration = Duration::from_millis(5);

/// Connections of the engine.
const ENGINE_READERS: usize = 2;
/// The longest that people's read waits for a connection.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(super) struct Readers {
    people: Arc<Pool>,
    engine: Arc<Pool>,
    time_limit: Duration,
    max_wait: Duration,
}

/// As many connections as there are permits, at most. One that was closed is replaced when it is wanted.
#[derive(Debug)]
struct Pool {
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    path: PathBuf,
    cache_kib: u32,
}

/// A connection on loan. It goes back if it is as it was; one with an open transaction, which would show an old state for
/// ever and keep the log from being reset, or that a panic left, is closed.
struct Loan {
    conn: Option<Connection>,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        let is_sound = conn.is_autocommit() && !std::thread::panicking();
        let mut idle = self.pool.idle.lock();
        if is_sound && !self.pool.permits.is_closed() {
            idle.push(conn);
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
        Ok(Self {
            people: Arc::new(Pool::open(path, count.max(1), cache_kib)?),
            engine: Arc::new(Pool::open(path, ENGINE_READERS, cache_kib)?),
            time_limit,
            max_wait: MAX_WAIT,
        })
    }

    /// Runs `read` on a blocking thread, in one transaction, for at most the time limit. `Busy` when others have all
    /// connections for too long.
    pub(super) async fn run<A, F>(&self, read: F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
    {
        let borrowed = timeout(self.max_wait, Pool::borrow(&self.people)).await;
        let loan = borrowed.map_err(|_| StoreError::Busy)??;
        run_apart(loan, self.time_limit, read).await
    }

    /// The same for the engine, on its own connections, however long it waits for one.
    pub(super) async fn run_for_engine<A, F>(&self, read: F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
    {
        let loan = Pool::borrow(&self.engine).await?;
        run_apart(loan, self.time_limit, read).await
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
        let loan = Pool::borrow(&self.engine).await?;
        run_apart(loan, Duration::MAX, read).await
    }

    /// Refuses further reads and closes the connections, those on loan when they come back.
    pub(super) fn close(&self) {
        for pool in [&self.people, &self.engine] {
            pool.permits.close();
            pool.idle.lock().clear();
        }
    }
}

impl Pool {
    fn open(path: &Path, count: usize, cache_kib: u32) -> Result<Self, Fault> {
        let idle = (0..count)
            .map(|_| open_reader(path, cache_kib))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            idle: Mutex::new(idle),
            permits: Arc::new(Semaphore::new(count)),
            path: path.to_owned(),
            cache_kib,
        })
    }

    async fn borrow(self: &Arc<Self>) -> Result<Loan, StoreError> {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let idle = self.idle.lock().pop();
        let conn = match idle {
            Some(conn) => conn,
            None if self.permits.is_closed() => return Err(StoreError::Closed),
            None => {
                let pool = Arc::clone(self);
                tokio::task::spawn_blocking(move || open_reader(&pool.path, pool.cache_kib))
                    .await
                    .map_err(|error| StoreError::Unavailable(error.into()))??
            }
        };
        Ok(Loan {
            conn: Some(conn),
            pool: Arc::clone(self),
            _permit: permit,
        })
    }
}

/// Runs a read in a task of its own, so that its limit holds also when the caller is dropped meanwhile.
async fn run_apart<A, F>(loan: Loan, time_limit: Duration, read: F) -> Result<A, StoreError>
where
    A: Send + 'static,
    F: FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
{
    let bounded = tokio::spawn(run_bounded(loan, time_limit, read));
    bounded
        .await
        .unwrap_or_else(|error| Err(StoreError::Unavailable(error.into())))
}

async fn run_bounded<A, F>(loan: Loan, time_limit: Duration, read: F) -> Result<A, StoreError>
where
    A: Send + 'static,
    F: FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
{
    let interrupt = loan.conn.as_ref().map(Connection::get_interrupt_handle);
    let mut job = tokio::task::spawn_blocking(move || {
        let answer = loan.conn.as_ref().map(|conn| in_transaction(conn, read));
        (answer, loan)
    });
    let finished = match timeout(time_limit, &mut job).await {
        Ok(finished) => finished,
        Err(_) => loop {
            // An interrupt between two statements is forgotten, so it is repeated until it hits one.
            if let Some(interrupt) = &interrupt {
                interrupt.interrupt();
            }
            if let Ok(finished) = timeout(INTERRUPT_EVERY, &mut job).await {
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

    fn readers(directory: &tempfile::TempDir, time_limit: Duration) -> Readers {
        let path = directory.path().join("test.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE t(x)")
            .unwrap();
        Readers::open(&path, 1, 100, time_limit).unwrap()
    }

    fn endless(conn: &Connection) -> Result<i64, Fault> {
        let sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
        Ok(conn.query_row(sql, [], |row| row.get(0))?)
    }

    fn rows(conn: &Connection) -> Result<i64, Fault> {
        Ok(conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0))?)
    }

    /// Rows, on people's connections, without a limit.
    async fn unhurried(readers: &Readers) -> i64 {
        let loan = Pool::borrow(&readers.people).await.unwrap();
        run_apart(loan, Duration::MAX, rows).await.unwrap()
    }

    #[tokio::test]
    async fn an_endless_read_is_stopped_and_its_connection_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory, Duration::from_millis(1));
        let stopped = readers.run(endless).await;
        assert!(matches!(stopped, Err(StoreError::TooSlow)), "{stopped:?}");
        assert_eq!(unhurried(&readers).await, 0);
    }

    #[tokio::test]
    async fn people_who_look_do_not_keep_the_engine_waiting_and_are_refused_when_too_many_look() {
        let directory = tempfile::tempdir().unwrap();
        let mut readers = readers(&directory, Duration::from_secs(5));
        readers.max_wait = Duration::from_millis(1);
        let only_one = Pool::borrow(&readers.people).await.unwrap();
        let refused = readers.run(rows).await;
        assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
        assert_eq!(readers.run_for_engine(rows).await.unwrap(), 0);
        drop(only_one);
        assert_eq!(unhurried(&readers).await, 0);
    }

    #[tokio::test]
    async fn a_read_is_stopped_also_when_its_caller_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory, Duration::from_millis(1));
        tokio::select! {
            biased;
            answer = readers.run(endless) => panic!("{answer:?}"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(readers.people.permits.available_permits(), 0, "it began");
        assert_eq!(unhurried(&readers).await, 0);
    }

    #[tokio::test]
    async fn a_connection_that_is_not_as_it_was_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory, Duration::from_secs(5));
        let panicked = readers
            .run(|_| -> Result<(), Fault> { panic!("a defect in a read") })
            .await;
        assert!(
            matches!(panicked, Err(StoreError::Unavailable(_))),
            "{panicked:?}"
        );
        assert_eq!(readers.people.idle.lock().len(), 0);
        assert_eq!(unhurried(&readers).await, 0);
        assert_eq!(readers.people.idle.lock().len(), 1);

        let loan = Pool::borrow(&readers.people).await.unwrap();
        loan.conn.as_ref().unwrap().execute_batch("BEGIN").unwrap();
        drop(loan);
        assert_eq!(readers.people.idle.lock().len(), 0);
        assert_eq!(unhurried(&readers).await, 0);

        let loan = Pool::borrow(&readers.people).await.unwrap();
        readers.close();
        drop(loan);
        assert_eq!(readers.people.idle.lock().len(), 0, "closed when it came back");
        assert!(matches!(readers.run(rows).await, Err(StoreError::Closed)));
    }

    #[tokio::test]
    async fn a_reader_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let readers = readers(&directory, Duration::from_secs(5));
        let written = readers
            .run(|conn| Ok(conn.execute("INSERT INTO t VALUES (1)", [])?))
            .await;
        assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    }
}
