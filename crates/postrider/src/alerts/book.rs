//! Which alerts fire: the machines of core, each with what is kept of it.
//!
//! It takes numbers and answers nothing; what is to be kept and told gathers in [`Book::news`]. An alert's key comes from
//! the store, so an alert that is new must not change again before [`Book::kept`] has said its key.

use std::collections::HashMap;

use postrider_core::alert::{
    AlertKind, Firing, Level, Recurrence, Subject, Threshold, Told, Transition, Wording,
};
use postrider_core::id::{AlertKey, DestinationKey};
use postrider_core::time::Timestamp;
use postrider_store::alerts::{Alert, AlertSubject};

/// Alerts of one kind that fire at once; the store keeps ten thousand in all.
const MAX_FIRING: usize = 1_000;

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot {
    pub(super) kind: AlertKind,
    /// Whose; `None` for all together.
    pub(super) destination: Option<DestinationKey>,
}

impl Slot {
    pub(super) const fn overall(kind: AlertKind) -> Self {
        Self {
            kind,
            destination: None,
        }
    }

    pub(super) const fn of(kind: AlertKind, destination: DestinationKey) -> Self {
        Self {
            kind,
            destination: Some(destination),
        }
    }
}

/// A number that was seen.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) slot: Slot,
    pub(super) value: u64,
    /// From which value on it is alarming; not zero.
    pub(super) threshold: u64,
    /// What is known of the cause, in words.
    pub(super) detail: Option<String>,
}

#[derive(Debug)]
enum Machine {
    Level(Level),
    Recurrence(Recurrence),
}

#[derive(Debug)]
struct Entry {
    machine: Machine,
    /// As it was last kept, or is about to be.
    alert: Alert,
}

/// All alerts that fire.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: HashMap<Slot, Entry>,
    news: Vec<(Slot, Alert)>,
}

impl Book {
    /// As it was kept.
    pub(super) fn restore(open: impl IntoIterator<Item = Alert>) -> Self {
        let mut book = Self::default();
        for alert in open {
            if alert.cleared_at.is_some() {
                continue;
            }
            let firing = Firing {
                since: alert.since,
                told_at: alert.updated_at,
                value: alert.value,
                severity: alert.severity,
            };
            let machine = match alert.kind {
                AlertKind::RetriesExhausted => Machine::Recurrence(Recurrence::restore(firing)),
                _ => Machine::Level(Level::restore(firing)),
            };
            book.entries.insert(slot(&alert), Entry { machine, alert });
        }
        book
    }

    /// What fires of a kind.
    pub(super) fn firing(&self, kind: AlertKind) -> impl Iterator<Item = Slot> {
        self.entries.keys().filter(move |slot| slot.kind == kind).copied()
    }

    /// Everything that fires.
    pub(super) fn slots(&self) -> Vec<Slot> {
        self.entries.keys().copied().collect()
    }

    /// Takes in a number. `subject` names the slot's destination.
    pub(super) fn observe(&mut self, reading: &Reading, subject: Option<&AlertSubject>, now: Timestamp) {
        let threshold = Threshold::of(reading.slot.kind, reading.threshold);
        let entry = self.entries.get_mut(&reading.slot);
        let transition = match entry {
            Some(Entry {
                machine: Machine::Level(level),
                ..
            }) => level.observe(reading.value, now, &threshold),
            Some(_) => None,
            None => {
                let mut level = Level::default();
                let raised = level.observe(reading.value, now, &threshold);
                return self.raise(raised, Machine::Level(level), reading, subject);
            }
        };
        self.tell(transition, reading, subject);
    }

    /// It happened once more.
    pub(super) fn happened(&mut self, reading: &Reading, subject: Option<&AlertSubject>, now: Timestamp) {
        let transition = match self.entries.get_mut(&reading.slot) {
            Some(Entry {
                machine: Machine::Recurrence(recurrence),
                ..
            }) => recurrence.happened(reading.value, now),
            Some(_) => None,
            None => {
                let mut recurrence = Recurrence::default();
                let raised = recurrence.happened(reading.value, now);
                return self.raise(raised, Machine::Recurrence(recurrence), reading, subject);
            }
        };
        self.tell(transition, reading, subject);
    }

    /// Clears what has been quiet for long enough.
    pub(super) fn rest(&mut self, now: Timestamp) {
        for slot in self.slots() {
            if let Some(Entry {
                machine: Machine::Recurrence(recurrence),
                ..
            }) = self.entries.get_mut(&slot)
                && let Some(cleared) = recurrence.rest(now)
            {
                self.close(slot, &cleared);
            }
        }
    }

    /// Clears an alert whose subject is gone.
    pub(super) fn clear(&mut self, slot: Slot, now: Timestamp) {
        let cleared = match self.entries.get_mut(&slot).map(|entry| &mut entry.machine) {
            Some(Machine::Level(level)) => level.clear(now),
            Some(Machine::Recurrence(recurrence)) => recurrence.clear(now),
            None => None,
        };
        if let Some(cleared) = cleared {
            self.close(slot, &cleared);
        }
    }

    /// What changed and is not kept yet, in order.
    pub(super) fn news(&self) -> &[(Slot, Alert)] {
        &self.news
    }

    /// It is kept under these keys, one for each of [`Book::news`]; answers it with them.
    pub(super) fn kept(&mut self, keys: &[AlertKey]) -> Vec<Alert> {
        let news = std::mem::take(&mut self.news);
        let mut kept = Vec::with_capacity(news.len());
        for ((slot, mut alert), key) in news.into_iter().zip(keys) {
            alert.key = *key;
            if let Some(entry) = self.entries.get_mut(&slot) {
                entry.alert.key = *key;
            }
            kept.push(alert);
        }
        kept
    }

    /// The webhook has this version.
    pub(super) fn published(&mut self, alert: &Alert) {
        if let Some(entry) = self.entries.get_mut(&slot(alert))
            && entry.alert.key == alert.key
        {
            entry.alert.published = alert.version;
        }
    }

    fn raise(
        &mut self,
        raised: Option<Transition>,
        machine: Machine,
        reading: &Reading,
        subject: Option<&AlertSubject>,
    ) {
        let Some(Transition { firing, .. }) = raised else {
            return;
        };
        if self.firing(reading.slot.kind).count() >= MAX_FIRING {
            return;
        }
        let Wording { text, todo } = wording(reading, firing.value, subject);
        let alert = Alert {
            key: AlertKey(0),
            kind: reading.slot.kind,
            subject: subject.cloned(),
            severity: firing.severity,
            since: firing.since,
            updated_at: firing.told_at,
            cleared_at: None,
            value: firing.value,
            threshold: reading.threshold,
            text,
            todo,
            version: 1,
            published: 0,
        };
        self.news.push((reading.slot, alert.clone()));
        self.entries.insert(reading.slot, Entry { machine, alert });
    }

    fn tell(&mut self, transition: Option<Transition>, reading: &Reading, subject: Option<&AlertSubject>) {
        let Some(transition) = transition else { return };
        if transition.told == Told::Cleared {
            return self.close(reading.slot, &transition);
        }
        let Some(entry) = self.entries.get_mut(&reading.slot) else {
            return;
        };
        let firing = transition.firing;
        let Wording { text, todo } = wording(reading, firing.value, subject);
        entry.alert = Alert {
            severity: firing.severity,
            updated_at: firing.told_at,
            value: firing.value,
            threshold: reading.threshold,
            text,
            todo,
            version: entry.alert.version.saturating_add(1),
            ..entry.alert.clone()
        };
        self.news.push((reading.slot, entry.alert.clone()));
    }

    fn close(&mut self, slot: Slot, cleared: &Transition) {
        let Some(Entry { alert, .. }) = self.entries.remove(&slot) else {
            return;
        };
        let over = Alert {
            updated_at: cleared.firing.told_at,
            cleared_at: Some(cleared.firing.told_at),
            version: alert.version.saturating_add(1),
            ..alert
        };
        self.news.push((slot, over));
    }
}

fn slot(alert: &Alert) -> Slot {
    Slot {
        kind: alert.kind,
        destination: alert.subject.as_ref().map(|subject| subject.destination),
    }
}

fn wording(reading: &Reading, value: u64, subject: Option<&AlertSubject>) -> Wording {
    let whom = subject.map_or(Subject::Overall, |subject| Subject::Destination {
        tenant_id: &subject.tenant_id,
        destination_id: &subject.destination_id,
    });
    let detail = reading.detail.as_deref();
    Wording::of(reading.slot.kind, whom, value, reading.threshold, detail)
}
