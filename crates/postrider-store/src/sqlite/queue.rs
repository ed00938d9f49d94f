//! The writer's queue: bounded in rows and bytes, emptied many operations at a time.
//!
//! One lock for a whole batch is cheaper than one for each operation, and the writer learns how much waits without
//! taking it. Must not know what an operation does.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::failure::Fault;
use super::log::Flush;
use super::write::Work;
use crate::error::StoreError;

/// One intent for the writer. It may be applied again when a batch was rolled back because of another.
pub(super) trait Operation: Send {
    /// Writes to the open transaction.
    fn apply(&mut self, work: &mut Work<'_>) -> Result<(), Fault>;
    /// Tells the waiter, after the commit or instead of it.
    fn answer(self: Box<Self>, failure: Option<StoreError>);
}

/// An operation made of a function.
struct Task<A, F> {
    run: F,
    answer: Option<A>,
    waiter: oneshot::Sender<Result<A, StoreError>>,
}

impl<A, F> Operation for Task<A, F>
where
    A: Send,
    F: FnMut(&mut Work<'_>) -> Result<A, Fault> + Send,
{
    fn apply(&mut self, work: &mut Work<'_>) -> Result<(), Fault> {
        self.answer = Some((self.run)(work)?);
        Ok(())
    }

    fn answer(self: Box<Self>, failure: Option<StoreError>) {
        let result = match (failure, self.answer) {
            (None, Some(answer)) => Ok(answer),
            (failure, _) => Err(failure.unwrap_or(StoreError::Closed)),
        };
        // A waiter that is gone (a client that disconnected) changes nothing about what was committed.
        let _ = self.waiter.send(result);
    }
}

/// How much an operation weighs in the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight {
    /// Rows that it will write, roughly.
    pub(super) rows: usize,
    /// Payload bytes that it keeps in memory.
    pub(super) bytes: usize,
}

/// Who may use the last part of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// New work: refused first.
    Intake,
    /// Work that finishes or removes other work, and operators' changes: has as much room again.
    Progress,
    /// How attempts ended: the same room, and its commit need not wait for the disk, since it would only be done again.
    Result,
}

/// Bounds of the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// What the writer took.
pub(super) struct Taken {
    pub(super) operations: Vec<Box<dyn Operation>>,
    /// When their commit must be on the disk.
    pub(super) flush: Flush,
    /// No more will come.
    pub(super) closed: bool,
}

#[derive(Default)]
struct Waiting {
    operations: Vec<(Box<dyn Operation>, Class, Weight)>,
    rows: usize,
    bytes: usize,
    /// Operations from which on the writer wants to be woken; zero while it is awake.
    wake_at: usize,
    closed: bool,
    /// The writer died and is not started again yet.
    deserted: bool,
}

impl Waiting {
    /// Why nothing more is taken.
    fn refusal(&self) -> Option<StoreError> {
        if self.closed {
            Some(StoreError::Closed)
        } else if self.deserted {
            Some(StoreError::Unavailable("the store's writer died".into()))
        } else {
            None
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

/// See the module.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    bounds: Bounds,
}

impl Queue {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            bounds,
        }
    }

    /// Queues `run`; its answer arrives after the commit.
    pub(super) fn push<A, F>(
        &self,
        class: Class,
        weight: Weight,
        run: F,
    ) -> Result<oneshot::Receiver<Result<A, StoreError>>, StoreError>
    where
        A: Send + 'static,
        F: FnMut(&mut Work<'_>) -> Result<A, Fault> + Send + 'static,
    {
        let (waiter, receiver) = oneshot::channel();
        let operation = Box::new(Task {
            run,
            answer: None,
            waiter,
        });
        let share = match class {
            Class::Intake => 1,
            Class::Progress | Class::Result => 2,
        };
        let mut waiting = self.waiting.lock();
        if let Some(refusal) = waiting.refusal() {
            return Err(refusal);
        }
        // Whatever its size, one operation is always taken: otherwise a single large one could never pass.
        let full = waiting.rows + weight.rows > self.bounds.rows * share
            || waiting.bytes + weight.bytes > self.bounds.bytes * share;
        if full && !waiting.operations.is_empty() {
            return Err(StoreError::Busy);
        }
        waiting.rows += weight.rows;
        waiting.bytes += weight.bytes;
        waiting.operations.push((operation, class, weight));
        let wake = waiting.wake_at > 0 && waiting.operations.len() >= waiting.wake_at;
        drop(waiting);
        if wake {
            self.arrived.notify_one();
        }
        Ok(receiver)
    }

    /// Waits up to `idle` for the first operation, then up to `linger` for `wanted` of them; takes at most `max_rows`
    /// worth of rows (but at least one operation).
    pub(super) fn take(&self, idle: Duration, linger: Duration, wanted: usize, max_rows: usize) -> Taken {
        let mut waiting = self.waiting.lock();
        if waiting.operations.is_empty() && !waiting.closed {
            self.sleep(&mut waiting, 1, idle);
        }
        let count = waiting.operations.len();
        if !linger.is_zero() && count > 0 && count < wanted && !waiting.closed {
            self.sleep(&mut waiting, wanted, linger);
        }
        let mut rows = 0;
        let mut bytes = 0;
        let mut count = 0;
        let mut flush = Flush::Later;
        for (_, class, weight) in &waiting.operations {
            if count > 0 && rows + weight.rows > max_rows {
                break;
            }
            rows += weight.rows;
            bytes += weight.bytes;
            count += 1;
            if *class != Class::Result {
                flush = Flush::Now;
            }
        }
        waiting.rows -= rows;
        waiting.bytes -= bytes;
        let operations = waiting
            .operations
            .drain(..count)
            .map(|(operation, ..)| operation)
            .collect();
        Taken {
            operations,
            flush,
            closed: waiting.closed && waiting.operations.is_empty(),
        }
    }

    /// Operations that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().operations.len()
    }

    /// Refuses further operations; those that wait are still done.
    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Takes operations again, unless it is closed: there is a writer again.
    pub(super) fn reopen(&self) {
        self.waiting.lock().deserted = false;
    }

    /// Refuses further operations and those that wait, until it is opened again: the writer died.
    pub(super) fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        waiting.deserted = true;
        waiting.rows = 0;
        waiting.bytes = 0;
        let dropped = std::mem::take(&mut waiting.operations);
        let refused: Vec<_> = dropped
            .into_iter()
            .map(|(operation, ..)| (operation, waiting.refusal()))
            .collect();
        drop(waiting);
        for (operation, refusal) in refused {
            operation.answer(refusal);
        }
    }

    fn sleep(&self, waiting: &mut MutexGuard<'_, Waiting>, wake_at: usize, at_most: Duration) {
        waiting.wake_at = wake_at;
        self.arrived.wait_for(waiting, at_most);
        waiting.wake_at = 0;
    }
}
