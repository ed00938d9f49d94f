//! The one thread that writes.
//!
//! It takes everything that waits, applies it in one transaction, commits, announces what was accepted, and answers the
//! waiters: one flush of the disk for hundreds of operations, and none for those that nobody was promised. Between batches it
//! lists rows, sweeps deletions in small steps, and copies the log. It reads no clock: keys get the time that callers brought.
//!
//! One that dies (a panic) leaves nothing half done: its transaction is rolled back with its connection. It is started again
//! with a fresh one, by whoever attends to the store.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::id::IdCodec;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::SqliteConfig;
use super::duties::Duties;
use super::failure::Fault;
use super::file::{DatabaseFile, GONE};
use super::log::Flush;
use super::open::open_writer;
use super::queue::{Operation, Queue, Taken};
use super::read;
use super::write::{Effects, Work};
use crate::error::StoreError;
use crate::feed::Feed;
use crate::record::Ended;

/// Rows that one transaction takes from the queue.
const BATCH_ROWS: usize = 4_096;
/// After this long without work, everything is listed.
const IDLE: Duration = Duration::from_secs(1);
/// Operations of the last batch from which on it pays to wait a little for more.
const LINGER_FROM: usize = 4;
const LINGER: Duration = Duration::from_millis(1);

/// What the writer counts for everybody.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) pending: AtomicI64,
    pub(super) dead: AtomicI64,
    pub(super) ended: Mutex<Ended>,
    pub(super) commits: AtomicU64,
    pub(super) operations: AtomicU64,
    pub(super) commit_nanos: AtomicU64,
}

impl Counters {
    /// Counts what the database holds.
    pub(super) fn count(&self, conn: &Connection) -> Result<(), Fault> {
        let (pending, dead) = read::stats::counts(conn)?;
        self.pending.store(pending, Ordering::Relaxed);
        self.dead.store(dead, Ordering::Relaxed);
        Ok(())
    }
}

/// Where the writer's thread stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    /// It is about to work.
    Starts,
    Works,
    /// Why it died, or could not be started.
    Died(String),
}

/// What the thread needs beside its connection. It outlives the thread, which can be started again with it.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) config: SqliteConfig,
    pub(super) ids: IdCodec,
    pub(super) queue: Arc<Queue>,
    pub(super) feed: Feed,
    pub(super) counters: Arc<Counters>,
    pub(super) life: watch::Sender<Life>,
    pub(super) file: DatabaseFile,
}

impl Writer {
    /// Works until the queue is closed and empty; then the database is closed. One that dies refuses what waits and says why: it
    /// can be run again, with a fresh connection (`None`).
    pub(super) fn run(&self, conn: Option<Connection>) {
        let worked = catch_unwind(AssertUnwindSafe(|| self.work_to_the_end(conn)));
        let why = match worked {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault.to_string(),
            Err(panic) => panic_text(panic.as_ref()).to_owned(),
        };
        tracing::error!(
            reason = why,
            "the store's writer died: nothing is written until it is started again"
        );
        self.queue.abandon();
        self.life.send_replace(Life::Died(why));
    }

    fn work_to_the_end(&self, conn: Option<Connection>) -> Result<(), Fault> {
        let conn = match conn {
            Some(conn) => conn,
            None => self.begin_again()?,
        };
        self.work(&conn)?;
        if let Err((_, error)) = conn.close() {
            tracing::warn!(%error, "closing the database");
        }
        Ok(())
    }

    /// A fresh connection. The last commit of the one before may not have been counted, nor told to the engine: so what is
    /// pending or dead is counted anew, and the engine looks at everything pending that it does not hold.
    ///
    /// What it does hold it is not told again: a delivery that this commit rescheduled or withdrew goes as it was planned before,
    /// although its caller got [`StoreError::Unknown`]; and those that this commit ended are missing in [`Counters::ended`].
    fn begin_again(&self) -> Result<Connection, Fault> {
        if self.file.is_gone() {
            return Err(Fault::corrupt(GONE));
        }
        let conn = open_writer(&self.config)?;
        self.counters.count(&conn)?;
        for destination in read::lane::destinations_with_pending(&conn)? {
            self.feed.spilled(destination);
        }
        tracing::info!("the store's writer was started again");
        Ok(conn)
    }

    fn work(&self, conn: &Connection) -> Result<(), Fault> {
        let mut work = Work::new(conn, self.ids.clone(), self.config.seal_key.clone())?;
        // A commit may be there whose flush failed, or did not come before the process ended: nobody is told that it is there before
        // it is safe.
        work.log.flush();
        work.log.keep_short(conn, 1, false);
        self.queue.reopen();
        self.life.send_replace(Life::Works);
        let mut duties = Duties::new();
        let mut last_batch = 0;
        let mut is_gone = false;
        loop {
            let idle = if is_gone {
                IDLE
            } else {
                duties.patience(&work, IDLE)
            };
            let patience = work.log.patience(idle);
            let linger = if last_batch >= LINGER_FROM {
                LINGER
            } else {
                Duration::ZERO
            };
            let Taken {
                mut operations,
                flush,
                closed,
            } = self.queue.take(patience, linger, last_batch / 2, BATCH_ROWS);
            last_batch = operations.len();
            is_gone = self.file.is_gone();
            if operations.is_empty() && (closed || patience < idle) {
                work.log.flush();
                if closed {
                    return work.log.mend(conn);
                }
                continue;
            }
            if is_gone {
                for operation in operations {
                    operation.answer(Some(StoreError::Unavailable(GONE.into())));
                }
                continue;
            }
            if operations.is_empty() {
                if let Err(fault) = work.log.mend(conn) {
                    tracing::error!(error = %fault, "the store's log cannot begin anew; trying again");
                }
                duties.when_idle(&mut work, self);
                self.keep_log_short(&mut work);
                continue;
            }
            if let Some(failed) = self.transaction(&mut work, flush, &mut operations) {
                self.apart(&mut work, flush, operations, &failed);
            } else {
                self.publish(&mut work);
                for operation in operations {
                    operation.answer(None);
                }
            }
            duties.after_batch(&mut work, self);
            self.keep_log_short(&mut work);
        }
    }

    fn keep_log_short(&self, work: &mut Work<'_>) {
        let is_busy = self.queue.len() > 0;
        work.log
            .keep_short(work.conn, self.config.wal_autocheckpoint, is_busy);
    }

    /// One transaction for all; answers why it was rolled back, if it was.
    fn transaction(
        &self,
        work: &mut Work<'_>,
        flush: Flush,
        operations: &mut [Box<dyn Operation>],
    ) -> Option<Failed> {
        let started = Instant::now();
        let count = operations.len() as u64;
        let failed = self.commit(work, flush, |work| {
            operations
                .iter_mut()
                .try_for_each(|operation| operation.apply(work))
        });
        if failed.is_none() {
            let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.counters.commit_nanos.fetch_add(took, Ordering::Relaxed);
            self.counters.commits.fetch_add(1, Ordering::Relaxed);
            self.counters.operations.fetch_add(count, Ordering::Relaxed);
        }
        failed
    }

    /// Applies and commits, or rolls back whole and forgets; answers why. Does nothing as long as an earlier transaction
    /// cannot be forgotten.
    pub(super) fn commit(
        &self,
        work: &mut Work<'_>,
        flush: Flush,
        apply: impl FnOnce(&mut Work<'_>) -> Result<(), Fault>,
    ) -> Option<Failed> {
        if work.is_stale
            && let Err(fault) = recover(work)
        {
            return Some(Failed {
                fault,
                in_commit: false,
            });
        }
        let applied = work.log.prepare(work.conn, flush).and_then(|flush| {
            statement(work.conn, "BEGIN IMMEDIATE")?;
            apply(work)?;
            Ok(flush)
        });
        let failed = match applied {
            Ok(flush) => match statement(work.conn, "COMMIT") {
                Ok(()) => {
                    work.log.committed(work.conn, flush);
                    None
                }
                Err(fault) => {
                    if fault.code() == Some(ErrorCode::SystemIoFailure) {
                        work.log.failed();
                    }
                    Some(Failed {
                        fault,
                        in_commit: true,
                    })
                }
            },
            Err(fault) => Some(Failed {
                fault,
                in_commit: false,
            }),
        }?;
        work.is_stale = true;
        if let Err(fault) = recover(work) {
            tracing::error!(error = %fault, "failed to forget a transaction that was rolled back; nothing is written until that works");
        }
        Some(failed)
    }

    /// After a rollback: when the disk is to blame, everybody hears of it; when one operation is, only that one does.
    fn apart(&self, work: &mut Work<'_>, flush: Flush, operations: Vec<Box<dyn Operation>>, failed: &Failed) {
        if failed.fault.blames_environment() {
            // Whoever waits for it hears of it, and a full disk fails every one.
            tracing::debug!(error = %failed.fault, operations = operations.len(), "a transaction was rolled back");
        } else {
            tracing::warn!(error = %failed.fault, operations = operations.len(), "a transaction was rolled back");
        }
        let alone = operations.len() == 1;
        if failed.in_commit || failed.fault.blames_environment() || alone {
            for operation in operations {
                operation.answer(Some(failed.to_store_error()));
            }
            return;
        }
        for mut operation in operations {
            let failed = self.transaction(work, flush, std::slice::from_mut(&mut operation));
            if failed.is_none() {
                self.publish(work);
            }
            operation.answer(failed.map(|failed| failed.to_store_error()));
        }
    }

    /// Announces and counts what was committed.
    pub(super) fn publish(&self, work: &mut Work<'_>) {
        work.names.keep();
        let Effects {
            accepted,
            rescheduled,
            withdrawn,
            pending,
            dead,
            ended,
            ..
        } = &mut work.effects;
        self.counters
            .pending
            .fetch_add(std::mem::take(pending), Ordering::Relaxed);
        self.counters
            .dead
            .fetch_add(std::mem::take(dead), Ordering::Relaxed);
        let ended = std::mem::take(ended);
        if ended != Ended::default() {
            self.counters.ended.lock().add(&ended);
        }
        if !accepted.is_empty() {
            self.feed.accepted(accepted.drain(..));
        }
        for delivery in rescheduled.drain(..) {
            self.feed.rescheduled(delivery);
        }
        for (delivery, destination) in withdrawn.drain(..) {
            self.feed.withdrawn(delivery, destination);
        }
    }
}

/// A transaction that was rolled back.
pub(super) struct Failed {
    pub(super) fault: Fault,
    in_commit: bool,
}

impl Failed {
    fn to_store_error(&self) -> StoreError {
        match self.fault.code() {
            // The log may hold the commit although its flush failed: a restart could find it.
            Some(ErrorCode::SystemIoFailure) if self.in_commit => {
                StoreError::Unknown(self.fault.to_string().into())
            }
            _ => self.fault.to_store_error(),
        }
    }
}

/// Ends what is left of a failed transaction, and forgets what it taught.
fn recover(work: &mut Work<'_>) -> Result<(), Fault> {
    // SQLite may have rolled back by itself; then there is nothing left to do.
    if !work.conn.is_autocommit() {
        statement(work.conn, "ROLLBACK")?;
    }
    work.forget()
}

fn statement(conn: &Connection, sql: &str) -> Result<(), Fault> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked without a text")
}
