//! The embedded backend: one SQLite file, one thread that writes, a few connections that read.
//!
//! All SQL of the program is in this folder. [`write`](self) functions run on the writer's thread inside its transaction;
//! `read` functions run on blocking threads, each in its own short transaction.

mod alerts;
mod credentials;
mod dead_letters;
mod detail;
mod duties;
mod failure;
mod file;
mod json;
mod log;
mod open;
mod queue;
mod read;
mod replay_spec;
mod rows;
mod schema;
mod store;
mod write;
mod writer;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::id::IdCodec;
use rusqlite::Connection;
use tokio::sync::watch;

use self::file::DatabaseFile;
pub use self::open::{OpenError, check_seal_key, inspect};
use self::queue::{Bounds, Class, Queue, Weight};
use self::read::Readers;
use self::read::replays::Unreadable;
use self::write::Work;
use self::writer::{Counters, Life, Writer};
use crate::error::StoreError;
use crate::feed::Feed;
use crate::seal::SealKey;

/// How the embedded store is set up.
#[derive(Debug, Clone)]
pub struct SqliteConfig {
    /// Data directory; made when it is not there, with mode 0700.
    pub dir: PathBuf,
    /// Seals secrets.
    pub seal_key: SealKey,
    /// Pages of 8 KiB in the log that start a checkpoint, twice as many while work waits: fewer make shorter stalls, more make
    /// higher throughput.
    pub wal_autocheckpoint: u32,
    /// Connections for reading by people; the engine has two of its own.
    pub readers: usize,
    /// The longest that one read may take.
    pub read_time_limit: Duration,
    /// Rows that may wait for the writer; more are refused as busy.
    pub queue_rows: usize,
    /// Payload bytes that may wait for the writer.
    pub queue_bytes: usize,
    /// The writer's page cache at most.
    pub writer_cache_kib: u32,
    /// Each reader's page cache at most.
    pub reader_cache_kib: u32,
    /// The most pages of 8 KiB that the database may have; `None` for as many as the disk holds.
    pub max_pages: Option<u32>,
    /// Wait for the writer on a blocking thread. For tests with paused time, whose runtime takes a wait for a foreign
    /// thread for idleness and would move the clock.
    pub blocking_waits: bool,
}

impl SqliteConfig {
    /// The defaults, for a data directory and a key.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, seal_key: SealKey) -> Self {
        Self {
            dir: dir.into(),
            seal_key,
            wal_autocheckpoint: 2_000,
            readers: 3,
            read_time_limit: Duration::from_secs(5),
            queue_rows: 16_384,
            queue_bytes: 64 << 20,
            writer_cache_kib: 16_384,
            reader_cache_kib: 8_192,
            max_pages: None,
            blocking_waits: false,
        }
    }
}

/// The embedded [`crate::Store`].
#[derive(Debug)]
pub struct SqliteStore {
    ids: IdCodec,
    seal: SealKey,
    feed: Feed,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    readers: Readers,
    writer: Arc<Writer>,
    /// `None` once the store is closed.
    tenure: Mutex<Option<Tenure>>,
    unreadable_replays: Arc<Unreadable>,
    blocking_waits: bool,
}

/// What the store has until it is closed.
#[derive(Debug)]
struct Tenure {
    /// The writer's; `None` while the last one is dead and no other could be started.
    thread: Option<JoinHandle<()>>,
    /// Keeps the directory, whether the writer is dead or alive.
    lock: File,
}

impl Tenure {
    /// Waits for the thread, whose queue was closed; then the directory is free.
    fn end(self) {
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's writer panicked");
        }
        drop(self.lock);
    }
}

impl SqliteStore {
    /// Opens or creates the database in `config.dir`, which no other process may use meanwhile. Blocks for the time that
    /// a recovery after a crash takes: milliseconds.
    ///
    /// # Errors
    /// When the directory or its content cannot be used; nothing was changed then.
    pub fn open(config: SqliteConfig) -> Result<Arc<Self>, OpenError> {
        let opened = open::open(&config)?;
        let failed = |reason: String| OpenError::Failed {
            path: opened.path.clone(),
            reason,
        };
        let readers = Readers::open(
            &opened.path,
            config.readers,
            config.reader_cache_kib,
            config.read_time_limit,
        )
        .map_err(|fault| failed(fault.to_string()))?;
        let counters = Arc::new(Counters::default());
        counters
            .count(&opened.conn)
            .map_err(|fault| failed(fault.to_string()))?;
        // What the writer has to remember is read now, too, so that nobody starts with one that cannot.
        Work::new(&opened.conn, opened.ids.clone(), config.seal_key.clone())
            .map(drop)
            .map_err(|fault| failed(fault.to_string()))?;
        let bounds = Bounds {
            rows: config.queue_rows,
            bytes: config.queue_bytes,
        };
        let queue = Arc::new(Queue::new(bounds));
        let feed = Feed::default();
        let writer = Arc::new(Writer {
            file: DatabaseFile::at(&opened.path).map_err(|error| failed(error.to_string()))?,
            config: config.clone(),
            ids: opened.ids.clone(),
            queue: Arc::clone(&queue),
            feed: feed.clone(),
            counters: Arc::clone(&counters),
            life: watch::Sender::new(Life::Starts),
        });
        let thread = start(Arc::clone(&writer), Some(opened.conn)).map_err(|error| OpenError::Failed {
            path: opened.path,
            reason: error.to_string(),
        })?;
        Ok(Arc::new(Self {
            ids: opened.ids,
            seal: config.seal_key,
            feed,
            queue,
            counters,
            readers,
            writer,
            tenure: Mutex::new(Some(Tenure {
                thread: Some(thread),
                lock: opened.lock,
            })),
            unreadable_replays: Arc::default(),
            blocking_waits: config.blocking_waits,
        }))
    }

    /// Starts the writer again if it died. It stays dead, and can be started later, when there is no thread for it.
    fn start_again(&self, start: impl FnOnce(Arc<Writer>, Option<Connection>) -> io::Result<JoinHandle<()>>) {
        let mut tenure = self.tenure.lock();
        let Some(tenure) = tenure.as_mut() else { return };
        let life = &self.writer.life;
        if !matches!(*life.borrow(), Life::Died(_)) {
            return;
        }
        // It has said why as the last thing that it did, so this does not wait.
        if tenure.thread.take().is_some_and(|dead| dead.join().is_err()) {
            tracing::error!("the store's writer panicked");
        }
        life.send_replace(Life::Starts);
        match start(Arc::clone(&self.writer), None) {
            Ok(thread) => tenure.thread = Some(thread),
            Err(error) => {
                let why = format!("its thread cannot be started: {error}");
                life.send_replace(Life::Died(why));
            }
        }
    }

    /// Has the writer run `run` in its next transaction; answers after the commit.
    async fn write<A, F>(&self, class: Class, weight: Weight, run: F) -> Result<A, StoreError>
    where
        A: Send + 'static,
        F: FnMut(&mut Work<'_>) -> Result<A, failure::Fault> + Send + 'static,
    {
        let waiter = self.queue.push(class, weight, run)?;
        let answered = if self.blocking_waits {
            let waited = tokio::task::spawn_blocking(move || waiter.blocking_recv()).await;
            waited.map_err(|error| StoreError::Unknown(error.into()))?
        } else {
            waiter.await
        };
        // The writer answers everything that it takes; only its death, before or after the commit, drops a waiter.
        answered.map_err(|_| StoreError::Unknown("the store's writer died".into()))?
    }
}

fn start(writer: Arc<Writer>, conn: Option<Connection>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("postrider-store".to_owned())
        .spawn(move || writer.run(conn))
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        self.readers.close();
        if let Some(tenure) = self.tenure.lock().take() {
            tenure.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use postrider_core::id::DestinationKey;
    use postrider_core::time::Timestamp;

    use super::failure::Fault;
    use super::*;
    use crate::Store as _;

    const CHANGE: Weight = Weight { rows: 1, bytes: 0 };

    /// One operation that cannot be done does not take its neighbours in the same transaction with it.
    #[tokio::test]
    async fn a_poisoned_operation_fails_alone() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config).unwrap();
        // The writer cannot begin while another connection has the lock, so all of these share a transaction.
        let other = Connection::open(directory.path().join("postrider.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let topic = |name: &'static str| {
            store
                .queue
                .push(Class::Intake, CHANGE, move |work: &mut Work<'_>| {
                    work.conn.execute("INSERT INTO topic(name) VALUES (?1)", [name])?;
                    if name == "poison" {
                        Err(Fault::corrupt("poison"))
                    } else {
                        Ok(())
                    }
                })
        };
        let waiters = ["a", "poison", "b"].map(|name| topic(name).unwrap());
        other.execute_batch("COMMIT").unwrap();
        let mut done = Vec::new();
        for waiter in waiters {
            done.push(waiter.await.unwrap().is_ok());
        }
        assert_eq!(done, [true, false, true]);
        let mut names = other.prepare("SELECT name FROM topic ORDER BY name").unwrap();
        let names: Vec<String> = names
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(names, ["a", "b"]);
        store.close().await;
    }

    #[tokio::test]
    async fn nothing_is_written_while_a_rolled_back_transaction_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config).unwrap();
        let other = Connection::open(directory.path().join("postrider.db")).unwrap();
        // Without `meta` the writer cannot read again what it has to remember.
        let hidden: Result<(), _> = store
            .write(Class::Progress, CHANGE, |work| {
                work.conn
                    .execute_batch("ROLLBACK; ALTER TABLE meta RENAME TO hidden")?;
                Err(Fault::corrupt("poison"))
            })
            .await;
        assert!(matches!(hidden, Err(StoreError::Corrupt(_))), "{hidden:?}");
        let topic = |work: &mut Work<'_>| {
            work.conn.execute("INSERT INTO topic(name) VALUES ('a')", [])?;
            Ok(())
        };
        let refused = store.write(Class::Progress, CHANGE, topic).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        other.execute_batch("ALTER TABLE hidden RENAME TO meta").unwrap();
        store.write(Class::Progress, CHANGE, topic).await.unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn nothing_is_acknowledged_while_the_database_is_not_where_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config).unwrap();
        store.ping().await.unwrap();
        let (path, aside) = (
            directory.path().join("postrider.db"),
            directory.path().join("aside"),
        );
        std::fs::rename(&path, &aside).unwrap();
        let removed = store.ping().await;
        assert!(matches!(removed, Err(StoreError::Unavailable(_))), "{removed:?}");
        std::fs::copy(&aside, &path).unwrap();
        let replaced = store.ping().await.unwrap_err();
        let cause = std::error::Error::source(&replaced).unwrap().to_string();
        assert_eq!(cause, file::GONE);
        std::fs::rename(&aside, &path).unwrap();
        store.ping().await.unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn a_dead_writer_is_noticed_and_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config).unwrap();
        // Half of what it does must not stay.
        let died: Result<(), _> = store
            .write(Class::Progress, CHANGE, |work| {
                work.conn.execute("INSERT INTO topic(name) VALUES ('half')", [])?;
                panic!("a defect in an operation")
            })
            .await;
        assert!(matches!(died, Err(StoreError::Unknown(_))), "{died:?}");
        let ping = store.ping().await;
        assert!(matches!(ping, Err(StoreError::Unavailable(_))), "{ping:?}");
        let new = store.upsert_tenant("acme", None, Timestamp::EPOCH).await;
        assert!(matches!(new, Err(StoreError::Unavailable(_))), "{new:?}");
        assert_eq!(
            store.tenant("acme").await.unwrap(),
            None,
            "what is there can be read"
        );
        assert_eq!(store.death().await, "a defect in an operation");
        assert!(store.revive().await);
        store.upsert_tenant("acme", None, Timestamp::EPOCH).await.unwrap();
        let topics = |work: &mut Work<'_>| {
            let count: i64 = work
                .conn
                .query_row("SELECT count(*) FROM topic", [], |row| row.get(0))?;
            Ok(count)
        };
        assert_eq!(store.write(Class::Progress, CHANGE, topics).await.unwrap(), 0);
        // And again.
        let died: Result<(), _> = store
            .write(Class::Progress, CHANGE, |_| panic!("another defect"))
            .await;
        assert!(matches!(died, Err(StoreError::Unknown(_))), "{died:?}");
        assert_eq!(store.death().await, "another defect");
        store.close().await;
        assert!(!store.revive().await, "what is closed stays closed");
        let reopened = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        SqliteStore::open(reopened).unwrap().close().await;
    }

    #[tokio::test]
    async fn results_wait_for_no_flush_unless_somebody_who_was_promised_shares_their_commit() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config).unwrap();
        let level = |work: &mut Work<'_>| -> Result<i64, Fault> {
            Ok(work.conn.query_row("PRAGMA synchronous", [], |row| row.get(0))?)
        };
        let (normal, full) = (1, 2);
        for (class, wanted) in [
            (Class::Intake, full),
            (Class::Progress, full),
            (Class::Result, normal),
        ] {
            let found = store.write(class, CHANGE, level).await.unwrap();
            assert_eq!(found, wanted, "{class:?}");
        }
        // While the writer is busy with this one, the next gather and share a transaction.
        let (began, begin) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel();
        let busy = store.queue.push(Class::Result, CHANGE, move |_: &mut Work<'_>| {
            began.send(()).unwrap();
            wait.recv().unwrap();
            Ok(())
        });
        begin.recv().unwrap();
        let classes = [Class::Result, Class::Intake, Class::Result];
        let waiters = classes.map(|class| store.queue.push(class, CHANGE, level).unwrap());
        go_on.send(()).unwrap();
        busy.unwrap().await.unwrap().unwrap();
        let mut found = Vec::new();
        for waiter in waiters {
            found.push(waiter.await.unwrap().unwrap());
        }
        assert_eq!(found, [full; 3]);
        store.close().await;
    }

    /// As after a commit whose writer died before it could tell anybody.
    #[tokio::test]
    async fn what_a_dying_writer_may_not_have_told_is_told_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config).unwrap();
        let insert = |work: &mut Work<'_>| {
            work.conn.execute_batch(
                "INSERT INTO tenant(key, id) VALUES (1, 'acme');
                 INSERT INTO destination(key, tenant, id, kind, topics, config, credentials, created_at, updated_at, revision)
                 VALUES (2, 1, 'des_1', 'webhook', '[]', '{}', x'', 0, 0, 1);
                 INSERT INTO pending(key, event, tenant, destination, flags, due_at) VALUES (4, 3, 1, 2, 0, 0);",
            )?;
            Ok(())
        };
        store.write(Class::Progress, CHANGE, insert).await.unwrap();
        assert_eq!(store.stats(Timestamp::EPOCH).await.unwrap().pending, 0);
        assert!(store.feed().take().is_empty());
        let died: Result<(), _> = store
            .write(Class::Progress, CHANGE, |_| panic!("before it told anybody"))
            .await;
        assert!(matches!(died, Err(StoreError::Unknown(_))), "{died:?}");
        assert_eq!(store.death().await, "before it told anybody");
        assert!(store.revive().await);
        let arrivals = store.feed().take();
        assert_eq!(arrivals.spilled, HashSet::from([DestinationKey(2)]));
        assert_eq!(store.stats(Timestamp::EPOCH).await.unwrap().pending, 1);
        store.close().await;
    }

    #[tokio::test]
    async fn a_writer_that_gets_no_thread_keeps_the_directory_and_is_started_later() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config.clone()).unwrap();
        let died: Result<(), _> = store.write(Class::Progress, CHANGE, |_| panic!("a defect")).await;
        assert!(matches!(died, Err(StoreError::Unknown(_))), "{died:?}");
        assert_eq!(store.death().await, "a defect");
        for _ in 0..2 {
            store.start_again(|_, _| Err(io::Error::other("no thread is left")));
            let why = "its thread cannot be started: no thread is left";
            assert_eq!(store.death().await, why);
            let other = SqliteStore::open(config.clone()).map(drop);
            assert!(matches!(other, Err(OpenError::InUse { .. })), "{other:?}");
        }
        assert!(store.revive().await);
        assert!(store.revive().await, "one that works stays as it is");
        store.ping().await.unwrap();
        store.close().await;
        SqliteStore::open(config).unwrap().close().await;
    }

    #[tokio::test]
    async fn a_writer_that_finds_no_database_dies_again_until_it_is_back() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(config).unwrap();
        let died: Result<(), _> = store.write(Class::Progress, CHANGE, |_| panic!("a defect")).await;
        assert!(matches!(died, Err(StoreError::Unknown(_))), "{died:?}");
        assert_eq!(store.death().await, "a defect");
        let [path, aside] = ["postrider.db", "aside"].map(|name| directory.path().join(name));
        std::fs::rename(&path, &aside).unwrap();
        assert!(!store.revive().await);
        assert_eq!(store.death().await, file::GONE);
        std::fs::rename(&aside, &path).unwrap();
        assert!(store.revive().await);
        store.ping().await.unwrap();
        store.close().await;
    }

    #[tokio::test]
    async fn a_database_that_the_writer_cannot_work_with_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let config = SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]));
        SqliteStore::open(config.clone()).unwrap().close().await;
        let other = Connection::open(directory.path().join("postrider.db")).unwrap();
        other
            .execute_batch("ALTER TABLE attempt RENAME TO hidden")
            .unwrap();
        let opened = SqliteStore::open(config.clone());
        let refused = opened.map(drop).unwrap_err();
        assert!(matches!(&refused, OpenError::Failed { .. }), "{refused:?}");
        other
            .execute_batch("ALTER TABLE hidden RENAME TO attempt")
            .unwrap();
        SqliteStore::open(config).unwrap().close().await;
    }
}
