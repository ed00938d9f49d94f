//! Forgets what is older than its time: events, attempts, dead letters, in steps so small that nobody notices.
//!
//! A step is one short transaction between those of publishers, and the pause after it is longer than the step took, so that
//! a busy store gets more room by itself. Dead letters are written to the archive before they are deleted: a crash between the
//! two writes them once more, and an import drops repeats.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::time::Timestamp;
use postrider_store::letter::{DeadLetterFilter, RetentionKind};
use postrider_store::page::TimeRange;
use postrider_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::archive::{Archive, ArchiveError, Compressor};
use super::gather::{Gathered, Gatherer};
use crate::clock::Clock;
use crate::telemetry::health::{Health, WorkerState};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::supervisor::stopped;

/// Name of this part in `/healthz`.
pub const WORKER: &str = "retention";

/// Rows that one transaction removes, about.
const STEP: u32 = 100;
/// The least pause after a step; it also lasts at least four times as long as the step.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_FACTOR: u32 = 4;
/// The longest pause, also after a failure.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Tries to read one dead letter for the archive, pauses between them growing up to the longest.
const READ_TRIES: u32 = 12;
/// One look for what is old is followed by the next after a tenth of the shortest time that is kept, within these.
const LOOKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A file of the archive ends with the first dead letter of another millisecond after so many bytes, or so many letters.
const MAX_FILE_BYTES: usize = 16 << 20;
const MAX_FILE_LETTERS: usize = 10_000;

/// How long things are kept; `None` for ever.
#[derive(Debug, Clone, Default)]
pub struct RetentionConfig {
    /// Events, since they were accepted.
    pub events: Option<Duration>,
    /// Attempts, since they were settled.
    pub attempts: Option<Duration>,
    /// Dead letters, since they died.
    pub dead_letters: Option<Duration>,
    /// Where dead letters go before they are deleted.
    pub archive: Option<Archive>,
}

/// The part that forgets.
#[derive(Clone)]
pub struct Retention {
    /// Memory.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where a round that fails is told.
    pub health: Health,
    /// Where what is removed is counted.
    pub metrics: Arc<Metrics>,
    /// How long things are kept.
    pub config: RetentionConfig,
    /// Becomes true when the process is to end.
    pub stop: watch::Receiver<bool>,
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error("expire: {0}")]
    Store(#[from] StoreError),
    #[error("archive dead letters: {0}")]
    Archive(#[from] ArchiveError),
    #[error("compress dead letters: {0}")]
    Compress(#[from] std::io::Error),
    #[error("write a dead letter: {0}")]
    Line(#[from] serde_json::Error),
}

/// What goes into one file.
struct Batch {
    first: i64,
    last: i64,
    from: Timestamp,
    /// Everything that died before this is in the file.
    until: Timestamp,
    letters: usize,
    content: Compressor,
}

impl Retention {
    /// Runs until it is stopped.
    pub async fn run(self) {
        let RetentionConfig {
            events,
            attempts,
            dead_letters,
            ..
        } = &self.config;
        let kept = [events, attempts, dead_letters];
        let mut stop = self.stop.clone();
        let Some(shortest) = kept.into_iter().flatten().min() else {
            return stopped(&mut stop).await;
        };
        let pause = (*shortest / 10).clamp(LOOKS.0, LOOKS.1);
        loop {
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = self.round() => {}
            }
            tokio::select! {
                () = stopped(&mut stop) => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Everything that is old now. Dead letters come first: they hold their events.
    async fn round(&self) {
        let now = self.clock.now();
        let mut state = WorkerState::Healthy;
        if let Some(kept) = self.config.dead_letters
            && let Err(error) = self.dead_letters(now.minus(kept)).await
        {
            let cause = std::error::Error::source(&error).and_then(std::error::Error::source);
            let cause = cause.map(ToString::to_string);
            tracing::error!(%error, cause, "failed to forget dead letters; they stay until it works");
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            state = WorkerState::Degraded(format!("failed to {error}{cause}"));
        }
        // Attempts go with their events, so those come first.
        for (kind, kept) in [
            (RetentionKind::Events, self.config.events),
            (RetentionKind::Attempts, self.config.attempts),
        ] {
            if let Some(kept) = kept
                && let Err(error) = self.expire(kind, now.minus(kept)).await
            {
                tracing::error!(%error, ?kind, "failed to forget what is old; trying again");
                state = WorkerState::Degraded(format!("failed to forget what is old: {error}"));
            }
        }
        self.health.set(WORKER, state);
    }

    async fn dead_letters(&self, before: Timestamp) -> Result<(), Interrupted> {
        let Some(archive) = &self.config.archive else {
            return Ok(self.expire(RetentionKind::DeadLetters, before).await?);
        };
        while let Some(batch) = self.gather(before).await? {
            let Batch {
                first,
                last,
                from,
                until,
                letters,
                content,
            } = batch;
            let name = format!(
                "dead-letters-{}-{}-{first:016x}-{last:016x}.jsonl.zst",
                stamp(from),
                stamp(until)
            );
            archive.put(name.clone(), content.finish()?).await?;
            tracing::info!(letters, name, %archive, "archived dead letters");
            self.expire(RetentionKind::DeadLetters, until).await?;
        }
        Ok(())
    }

    /// The oldest dead letters, as many as fit into a file; `None` when there are none.
    async fn gather(&self, before: Timestamp) -> Result<Option<Batch>, Interrupted> {
        let filter = DeadLetterFilter {
            died: TimeRange {
                lt: Some(before),
                ..TimeRange::default()
            },
            ..DeadLetterFilter::default()
        };
        let mut gatherer = Gatherer::new(Arc::clone(&self.store), filter, i64::MAX);
        let mut batch: Option<Batch> = None;
        let mut text = Vec::new();
        while let Some(gathered) = next(&mut gatherer).await? {
            if let Some(full) = batch.as_mut().filter(|batch| batch.is_full())
                && gathered.died_at >= full.until
            {
                break;
            }
            text.clear();
            gathered.line.write(&mut text)?;
            if batch.is_none() {
                batch = Some(Batch {
                    first: gathered.serial,
                    last: gathered.serial,
                    from: gathered.died_at,
                    until: gathered.died_at,
                    letters: 0,
                    content: Compressor::new()?,
                });
            }
            if let Some(batch) = &mut batch {
                batch.content.write(&text)?;
                batch.last = gathered.serial;
                batch.until = gathered.died_at.plus(Duration::from_millis(1));
                batch.letters += 1;
            }
        }
        Ok(batch)
    }

    /// Steps until nothing is left, with pauses.
    async fn expire(&self, kind: RetentionKind, before: Timestamp) -> Result<(), StoreError> {
        let (started, mut removed) = (Instant::now(), 0);
        loop {
            let step = Instant::now();
            match self.store.expire(kind, before, STEP).await {
                Ok(expired) => {
                    removed += expired.removed;
                    self.metrics.forgotten(kind, expired.removed);
                    if !expired.more {
                        break;
                    }
                }
                // The writer has more than enough to do.
                Err(StoreError::Busy) => {
                    tokio::time::sleep(MAX_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep((step.elapsed() * PAUSE_FACTOR).clamp(PAUSE, MAX_PAUSE)).await;
        }
        if removed > 0 {
            tracing::info!(
                ?kind,
                removed,
                seconds = started.elapsed().as_secs(),
                "forgot what is old"
            );
        }
        Ok(())
    }
}

/// The next dead letter. A store that has too much to do is asked again, a bounded number of times, so that one busy moment
/// does not throw away a file that is nearly full.
async fn next(gatherer: &mut Gatherer) -> Result<Option<Gathered>, StoreError> {
    let mut pause = PAUSE;
    for _ in 1..READ_TRIES {
        match gatherer.next().await {
            Err(error) if error.is_transient() => {
                tokio::time::sleep(pause).await;
                pause = (pause * PAUSE_FACTOR).min(MAX_PAUSE);
            }
            answer => return answer,
        }
    }
    gatherer.next().await
}

impl Batch {
    const fn is_full(&self) -> bool {
        self.content.raw_bytes() >= MAX_FILE_BYTES || self.letters >= MAX_FILE_LETTERS
    }
}

/// `20260131T120000Z`: sorts, and is a name everywhere.
fn stamp(at: Timestamp) -> String {
    let text = at.to_string();
    let seconds = text.split('.').next().unwrap_or_default();
    format!("{}Z", seconds.replace(['-', ':'], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_names() {
        let at = Timestamp::parse("2026-01-31T12:34:56.789Z").unwrap_or_default();
        assert_eq!(stamp(at), "20260131T123456Z");
    }
}
