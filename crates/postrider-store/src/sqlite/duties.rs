//! The writer's work that nobody waits for: listing rows, and sweeping what deletions left.
//!
//! In small steps, each its own transaction, between batches and when there is nothing else to do.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::Fault;
use super::log::Flush;
use super::write::{Work, index, sweep};
use super::writer::Writer;

/// Rows without a listing that start a step of listing although there is other work: as many as a step lists.
const LISTING_BACKLOG: usize = 8_000;
/// Steps of listing after one batch, so that operations that wait are not held up.
const LISTING_STEPS: usize = 2;
/// After a failure, for example of the disk, these rest this long.
const REST: Duration = Duration::from_secs(1);
/// The log tells of failures this often at most.
const TELL: Duration = Duration::from_secs(10);

/// What is left to do.
pub(super) struct Duties {
    rests_until: Option<Instant>,
    /// When the log last told of a failure.
    told_at: Option<Instant>,
    /// Rows that may be without a listing. After a start nobody knows, so it is not zero.
    unlisted_events: usize,
    unlisted_attempts: usize,
}

impl Duties {
    pub(super) const fn new() -> Self {
        Self {
            rests_until: None,
            told_at: None,
            unlisted_events: 1,
            unlisted_attempts: 1,
        }
    }

    /// How long the queue may stay empty before these have their turn.
    pub(super) fn patience(&self, work: &Work<'_>, idle: Duration) -> Duration {
        if self.rests_until.is_none() && !work.unswept.is_empty() {
            Duration::ZERO
        } else {
            idle
        }
    }

    /// A little of each, when enough of it has gathered.
    pub(super) fn after_batch(&mut self, work: &mut Work<'_>, writer: &Writer) {
        self.unlisted_events += std::mem::take(&mut work.effects.unlisted_events);
        self.unlisted_attempts += std::mem::take(&mut work.effects.unlisted_attempts);
        for _ in 0..LISTING_STEPS {
            if self.unlisted_events.max(self.unlisted_attempts) < LISTING_BACKLOG || !self.list(work, writer)
            {
                break;
            }
        }
        self.sweep(work, writer);
    }

    /// A step of everything that is left.
    pub(super) fn when_idle(&mut self, work: &mut Work<'_>, writer: &Writer) {
        if self.unlisted_events + self.unlisted_attempts > 0 {
            self.list(work, writer);
        }
        self.sweep(work, writer);
    }

    /// One step of listing; answers whether it was made.
    fn list(&mut self, work: &mut Work<'_>, writer: &Writer) -> bool {
        let (mut events, mut attempts) = (0, 0);
        let done = self.step(work, writer, |work| {
            events = index::list_events(work.conn)?;
            attempts = index::list_attempts(work.conn)?;
            Ok(())
        });
        if done {
            // The estimates only say when it is worth while; a step without rows is the proof that nothing is left.
            self.unlisted_events = if events == 0 {
                0
            } else {
                self.unlisted_events.saturating_sub(events).max(1)
            };
            self.unlisted_attempts = if attempts == 0 {
                0
            } else {
                self.unlisted_attempts.saturating_sub(attempts).max(1)
            };
        }
        done
    }

    fn sweep(&mut self, work: &mut Work<'_>, writer: &Writer) {
        if !work.unswept.is_empty() {
            self.step(work, writer, sweep::step);
        }
    }

    fn step(
        &mut self,
        work: &mut Work<'_>,
        writer: &Writer,
        apply: impl FnOnce(&mut Work<'_>) -> Result<(), Fault>,
    ) -> bool {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        self.rests_until = None;
        if let Some(failed) = writer.commit(work, Flush::Later, apply) {
            let now = Instant::now();
            if self.told_at.is_none_or(|at| now.duration_since(at) >= TELL) {
                self.told_at = Some(now);
                tracing::warn!(error = %failed.fault, "background work of the store waits; trying until it works");
            }
            self.rests_until = Some(now + REST);
            return false;
        }
        writer.publish(work);
        true
    }
}
