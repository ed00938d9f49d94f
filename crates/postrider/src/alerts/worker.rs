//! The task: takes notices at once and looks at all levels every ten seconds; keeps, logs, counts and publishes what is new.

use std::collections::VecDeque;
use std::time::Duration;

use postrider_core::alert::{AlertKind, RecentQuantile, Told};
use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;
use postrider_store::StoreError;
use postrider_store::alerts::{Alert, AlertSubject};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::book::{Book, Reading, Slot};
use super::notice::{Notice, What};
use super::{AlertsConfig, Parts, levels, operator, shape};
use crate::telemetry::metrics::{Published, SUCCESS_BOUNDS_MS};
use crate::telemetry::supervisor::stopped;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A look that takes long (millions of dead letters) is followed by so many times as long without one.
const REST_FACTOR: u32 = 20;
/// A store that does not do it is asked again after this.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Alerts that are published together.
const MAX_BATCH: usize = 100;

/// The task's state.
pub(super) struct Worker {
    parts: Parts,
    config: AlertsConfig,
    book: Book,
    times: RecentQuantile,
    /// Taken, and not looked at yet.
    notices: VecDeque<Notice>,
    /// Kept, and not at the webhook yet.
    unpublished: Vec<Alert>,
}

impl Worker {
    pub(super) fn new(parts: Parts, config: AlertsConfig) -> Self {
        Self {
            parts,
            config,
            book: Book::default(),
            times: RecentQuantile::new(SUCCESS_BOUNDS_MS.to_vec()),
            notices: VecDeque::new(),
            unpublished: Vec::new(),
        }
    }

    /// Runs until `stop` is true.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = stopped(&mut stop) => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&mut self) {
        while let Err(error) = self.restore().await {
            tracing::warn!(%error, "failed to read the alerts that fire; trying again");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let mut next_look = Instant::now();
        loop {
            match self.turn(&mut next_look).await {
                Ok(()) => {
                    let notices = self.parts.notices.clone();
                    tokio::select! {
                        () = notices.arrived() => {}
                        () = sleep_until(next_look) => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to keep alerts; trying again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn restore(&mut self) -> Result<(), StoreError> {
        let open = self.parts.store.open_alerts().await?;
        self.unpublished = open
            .iter()
            .filter(|alert| alert.published < alert.version)
            .cloned()
            .collect();
        self.book = Book::restore(open);
        self.count();
        Ok(())
    }

    async fn turn(&mut self, next_look: &mut Instant) -> Result<(), StoreError> {
        self.keep().await?;
        if self.notices.is_empty() {
            let (notices, dropped) = self.parts.notices.take();
            self.notices = notices;
            if dropped > 0 {
                tracing::warn!(dropped, "notices of the engine came faster than they were taken");
            }
        }
        while let Some(notice) = self.notices.pop_front() {
            let now = self.parts.clock.now();
            self.take(notice, now).await?;
        }
        if Instant::now() >= *next_look {
            let began = Instant::now();
            self.look().await?;
            *next_look = Instant::now() + LOOK_EVERY.max(began.elapsed() * REST_FACTOR);
        }
        self.publish().await
    }

    /// Takes in what the engine noticed.
    async fn take(&mut self, notice: Notice, now: Timestamp) -> Result<(), StoreError> {
        let thresholds = &self.config.thresholds;
        let of = |kind| Slot::of(kind, notice.destination);
        let (slot, value, threshold, detail) = match notice.what {
            What::BreakerOpened(reason) if thresholds.breaker_open => {
                (of(AlertKind::BreakerOpen), 1, 1, Some(reason))
            }
            What::BreakerClosed if thresholds.breaker_open => (of(AlertKind::BreakerOpen), 0, 1, None),
            What::Failing(failures, last) if thresholds.consecutive_failures > 0 => {
                let alarming = thresholds.consecutive_failures;
                let slot = of(AlertKind::ConsecutiveFailures);
                (slot, failures.into(), alarming, last)
            }
            What::Exhausted(last) if thresholds.retries_exhausted => {
                (of(AlertKind::RetriesExhausted), 1, 1, last)
            }
            What::BreakerOpened(_) | What::BreakerClosed | What::Failing(..) | What::Exhausted(_) => {
                return Ok(());
            }
        };
        let reading = Reading {
            slot,
            value,
            threshold,
            detail,
        };
        let Some(subject) = self.subject(notice.destination) else {
            return Ok(());
        };
        if slot.kind == AlertKind::RetriesExhausted {
            self.book.happened(&reading, Some(&subject), now);
        } else {
            self.book.observe(&reading, Some(&subject), now);
        }
        self.keep().await
    }

    /// Looks at everything.
    async fn look(&mut self) -> Result<(), StoreError> {
        let now = self.parts.clock.now();
        let thresholds = &self.config.thresholds;
        let readings = levels::read(&self.parts, thresholds, &self.book, &mut self.times, now).await;
        self.book.rest(now);
        for slot in self.book.slots() {
            let is_gone = slot.destination.is_some_and(|key| self.subject(key).is_none());
            if is_gone || self.is_off(slot) {
                self.book.clear(slot, now);
            }
        }
        for reading in readings {
            let subject = match reading.slot.destination {
                None => None,
                // Deleted meanwhile.
                Some(key) => match self.subject(key) {
                    None => continue,
                    some => some,
                },
            };
            self.book.observe(&reading, subject.as_ref(), now);
        }
        self.keep().await
    }

    /// Whether the configuration wants no alert of this kind (any more).
    fn is_off(&self, slot: Slot) -> bool {
        let thresholds = &self.config.thresholds;
        match (slot.kind, slot.destination) {
            (AlertKind::DeadLetterDepth, None) => thresholds.dead_letters == 0,
            (AlertKind::DeadLetterDepth, Some(_)) => thresholds.dead_letters_per_destination == 0,
            (AlertKind::DeadLetterGrowth, None) => thresholds.dead_letter_growth == 0,
            (AlertKind::DeadLetterGrowth, Some(_)) => thresholds.dead_letter_growth_per_destination == 0,
            (AlertKind::TimeToSuccessP99, _) => thresholds.time_to_success_p99.is_zero(),
            (AlertKind::OldestDueAge, _) => thresholds.oldest_due_age.is_zero(),
            (AlertKind::BreakerOpen, _) => !thresholds.breaker_open,
            (AlertKind::DestinationDisabled, _) => !thresholds.destination_disabled,
            (AlertKind::RetriesExhausted, _) => !thresholds.retries_exhausted,
            (AlertKind::ConsecutiveFailures, _) => thresholds.consecutive_failures == 0,
        }
    }

    fn subject(&self, destination: DestinationKey) -> Option<AlertSubject> {
        let target = self.parts.directory.target(destination)?;
        Some(AlertSubject {
            destination,
            tenant_id: target.tenant_id.clone(),
            destination_id: target.id.clone(),
        })
    }

    /// Writes what is new, then tells it.
    async fn keep(&mut self) -> Result<(), StoreError> {
        let news = self.book.news();
        if news.is_empty() {
            return Ok(());
        }
        let is_published = self.config.webhook.is_none();
        let batch: Vec<Alert> = news
            .iter()
            .map(|(_, alert)| match is_published || is_own(alert) {
                true => Alert {
                    published: alert.version,
                    ..alert.clone()
                },
                false => alert.clone(),
            })
            .collect();
        let now = self.parts.clock.now();
        let keys = self.parts.store.keep_alerts(batch, now).await?;
        for alert in self.book.kept(&keys) {
            log(&alert);
            if !is_published && !is_own(&alert) {
                self.unpublished.push(alert);
            }
        }
        self.count();
        Ok(())
    }

    fn count(&self) {
        for kind in AlertKind::ALL {
            let firing = self.book.firing(*kind).count();
            self.parts.metrics.alerts_firing(*kind, firing);
        }
    }

    /// Hands over to the webhook what it does not have, and notes that it has it.
    async fn publish(&mut self) -> Result<(), StoreError> {
        if self.config.webhook.is_none() {
            self.unpublished.clear();
        }
        while !self.unpublished.is_empty() {
            let count = self.unpublished.len().min(MAX_BATCH);
            let Parts { store, directory, .. } = &self.parts;
            let events = self.unpublished[..count]
                .iter()
                .map(|alert| operator::event(alert, directory, store.ids()))
                .collect();
            let now = self.parts.clock.now();
            let accepted = store.accept(events, now).await?;
            let news = accepted.iter().filter(|accepted| !accepted.duplicate).count();
            self.parts.metrics.published(Published::Accepted, news as u64);
            let versions = self.unpublished[..count]
                .iter()
                .map(|alert| (alert.key, alert.version))
                .collect();
            store.note_published(versions).await?;
            for alert in self.unpublished.drain(..count) {
                self.book.published(&alert);
            }
        }
        Ok(())
    }
}

/// About the operator's own webhook, which does not get it.
fn is_own(alert: &Alert) -> bool {
    let subject = alert.subject.as_ref();
    subject.is_some_and(|subject| subject.tenant_id == operator::TENANT)
}

fn log(alert: &Alert) {
    let subject = alert.subject.as_ref();
    let (kind, severity) = (alert.kind.as_str(), alert.severity.as_str());
    let tenant_id = subject.map(|subject| subject.tenant_id.as_str());
    let destination_id = subject.map(|subject| subject.destination_id.as_str());
    let (since, value, threshold) = (alert.since, alert.value, alert.threshold);
    let text = alert.text.as_str();
    match shape::told(alert) {
        told @ (Told::Raised | Told::Worsened) => tracing::warn!(
            kind, severity, tenant_id, destination_id, %since, value, threshold, text,
            todo = alert.todo.as_str(), "alert {told}"
        ),
        Told::Cleared => tracing::info!(
            kind, severity, tenant_id, destination_id, %since, value, threshold, text, "alert cleared"
        ),
    }
}
