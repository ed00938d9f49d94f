//! The one thread that writes.
//!
//! It takes everything that waits, applies it in one transaction, commits, announces what was accepted, and answers the
//! waiters: one flush of the disk for hundreds of operations. Between batches it lists rows and sweeps deletions in small
//! steps. It reads no clock: keys get the time that callers brought.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postrider_core::id::IdCodec;
use rusqlite::{Connection, ErrorCode};
use tokio::time::Instant;

use super::duties::Duties;
use super::failure::Fault;
use super::file::{DatabaseFile, GONE};
use super::queue::{Operation, Queue, Taken};
use super::write::{Effects, Work};
use crate::error::StoreError;
use crate::feed::Feed;
use crate::record::Ended;
use crate::seal::SealKey;

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

/// What the thread needs.
pub(super) struct Writer {
    pub(super) conn: Connection,
    pub(super) ids: IdCodec,
    pub(super) seal: SealKey,
    pub(super) queue: Arc<Queue>,
    pub(super) feed: Feed,
    pub(super) counters: Arc<Counters>,
    pub(super) lock: File,
    pub(super) file: DatabaseFile,
}

/// Refuses everything once the writer is gone, and says so when nobody had asked it to go: after a panic.
struct Abandon(Arc<Queue>);

impl Drop for Abandon {
    fn drop(&mut self) {
        if self.0.abandon() {
            tracing::error!(
                "the store's writer stopped: nothing can be written until the program is restarted"
            );
        }
    }
}

impl Writer {
    /// Works until the queue is closed and empty. Then the database is closed and the directory free.
    pub(super) fn run(self) {
        let abandon = Abandon(Arc::clone(&self.queue));
        if let Err(fault) = self.work() {
            tracing::error!(error = %fault, "the store's writer stopped");
        }
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(%error, "closing the database");
        }
        drop(abandon);
        drop(self.lock);
    }

    fn work(&self) -> Result<(), Fault> {
        let mut work = Work::new(&self.conn, self.ids.clone(), self.seal.clone())?;
        let mut duties = Duties::new();
        let mut last_batch = 0;
        let mut is_gone = false;
        loop {
            let patience = if is_gone {
                IDLE
            } else {
                duties.patience(&work, IDLE)
            };
            let linger = if last_batch >= LINGER_FROM {
                LINGER
            } else {
                Duration::ZERO
            };
            let Taken {
                mut operations,
                closed,
            } = self.queue.take(patience, linger, last_batch / 2, BATCH_ROWS);
            last_batch = operations.len();
            is_gone = self.file.is_gone();
            if operations.is_empty() && closed {
                return Ok(());
            }
            if is_gone {
                for operation in operations {
                    operation.answer(Some(StoreError::Unavailable(GONE.into())));
                }
                continue;
            }
            if operations.is_empty() {
                duties.when_idle(&mut work, self);
                continue;
            }
            if let Some(failed) = self.transaction(&mut work, &mut operations) {
                self.apart(&mut work, operations, &failed);
            } else {
                self.publish(&mut work);
                for operation in operations {
                    operation.answer(None);
                }
            }
            duties.after_batch(&mut work, self);
        }
    }

    /// One transaction for all; answers why it was rolled back, if it was.
    fn transaction(&self, work: &mut Work<'_>, operations: &mut [Box<dyn Operation>]) -> Option<Failed> {
        let started = Instant::now();
        let count = operations.len() as u64;
        let failed = self.commit(work, |work| {
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
        apply: impl FnOnce(&mut Work<'_>) -> Result<(), Fault>,
    ) -> Option<Failed> {
        if work.is_stale
            && let Err(fault) = self.recover(work)
        {
            return Some(Failed {
                fault,
                in_commit: false,
            });
        }
        let applied = self.statement("BEGIN IMMEDIATE").and_then(|()| apply(work));
        let failed = match applied {
            Ok(()) => self.statement("COMMIT").err().map(|fault| Failed {
                fault,
                in_commit: true,
            }),
            Err(fault) => Some(Failed {
                fault,
                in_commit: false,
            }),
        }?;
        work.is_stale = true;
        if let Err(fault) = self.recover(work) {
            tracing::error!(error = %fault, "failed to forget a transaction that was rolled back; nothing is written until that works");
        }
        Some(failed)
    }

    /// Ends what is left of a failed transaction, and forgets what it taught.
    fn recover(&self, work: &mut Work<'_>) -> Result<(), Fault> {
        // SQLite may have rolled back by itself; then there is nothing left to do.
        if !self.conn.is_autocommit() {
            self.statement("ROLLBACK")?;
        }
        work.forget()
    }

    fn statement(&self, sql: &str) -> Result<(), Fault> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// After a rollback: when the disk is to blame, everybody hears of it; when one operation is, only that one does.
    fn apart(&self, work: &mut Work<'_>, operations: Vec<Box<dyn Operation>>, failed: &Failed) {
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
            let failed = self.transaction(work, std::slice::from_mut(&mut operation));
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
