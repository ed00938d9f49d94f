//! The numbers that are compared with thresholds, from where they are known.
//!
//! A number that cannot be had now (a read that took too long, an engine that is being started again) is left out: the
//! alerts about it stay as they are.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postrider_core::alert::{AlertKind, RecentQuantile};
use postrider_core::breaker::BreakerState;
use postrider_core::dispatcher::LaneView;
use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;
use postrider_store::StoreError;
use postrider_store::alerts::DeadLetterLevel;

use super::book::{Book, Reading, Slot};
use super::{Parts, Thresholds};

/// Destinations that are looked at beside those about which an alert fires: the worst.
const MAX_DESTINATIONS: usize = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);

/// All readings of this moment.
pub(super) async fn read(
    parts: &Parts,
    thresholds: &Thresholds,
    book: &Book,
    times: &mut RecentQuantile,
    now: Timestamp,
) -> Vec<Reading> {
    let mut readings = Vec::new();
    if let Err(error) = from_store(parts, thresholds, book, now, &mut readings).await {
        tracing::warn!(%error, "failed to read the levels of alerts; looking again");
    }
    if let Some(threshold) = millis(thresholds.time_to_success_p99) {
        let p99 = times.look(parts.metrics.times_to_success(), 99, now);
        let slot = Slot::overall(AlertKind::TimeToSuccessP99);
        readings.push(reading(slot, p99.unwrap_or(0), threshold, None));
    }
    from_engine(parts, thresholds, book, &mut readings).await;
    if thresholds.destination_disabled {
        from_directory(parts, book, &mut readings);
    }
    readings
}

async fn from_store(
    parts: &Parts,
    thresholds: &Thresholds,
    book: &Book,
    now: Timestamp,
    readings: &mut Vec<Reading>,
) -> Result<(), StoreError> {
    let stats = parts.store.stats(now).await?;
    if let Some(threshold) = millis(thresholds.oldest_due_age) {
        let age = stats.oldest_due_at.map_or(Duration::ZERO, |due| now.since(due));
        let slot = Slot::overall(AlertKind::OldestDueAge);
        readings.push(reading(slot, millis(age).unwrap_or(0), threshold, None));
    }
    let each = match stats.dead {
        0 => Vec::new(),
        _ => parts.store.dead_letter_levels(now.minus(HOUR)).await?,
    };
    parts
        .metrics
        .dead_letters_by_destination(each.iter().filter_map(|level| {
            let target = parts.directory.target(level.destination)?;
            Some((target.name.clone(), level.depth))
        }));
    let overall = [
        (
            AlertKind::DeadLetterDepth,
            each.iter().map(|level| level.depth).sum(),
            thresholds.dead_letters,
        ),
        (
            AlertKind::DeadLetterGrowth,
            each.iter().map(|level| level.recent).sum(),
            thresholds.dead_letter_growth,
        ),
    ];
    for (kind, value, threshold) in overall {
        if threshold > 0 {
            readings.push(reading(Slot::overall(kind), value, threshold, None));
        }
    }
    let by_destination = [
        (
            AlertKind::DeadLetterDepth,
            thresholds.dead_letters_per_destination,
            (|level| level.depth) as fn(&DeadLetterLevel) -> u64,
        ),
        (
            AlertKind::DeadLetterGrowth,
            thresholds.dead_letter_growth_per_destination,
            |level| level.recent,
        ),
    ];
    for (kind, threshold, value) in by_destination {
        if threshold > 0 {
            per_destination(kind, threshold, value, &each, book, readings);
        }
    }
    Ok(())
}

fn per_destination(
    kind: AlertKind,
    threshold: u64,
    value: fn(&DeadLetterLevel) -> u64,
    each: &[DeadLetterLevel],
    book: &Book,
    readings: &mut Vec<Reading>,
) {
    let by_key: HashMap<_, _> = each.iter().map(|level| (level.destination, level)).collect();
    let firing: Vec<_> = book.firing(kind).filter_map(|slot| slot.destination).collect();
    let worst = each.iter().take(MAX_DESTINATIONS).map(|level| level.destination);
    let looked_at: HashSet<_> = worst.chain(firing).collect();
    readings.extend(looked_at.into_iter().map(|key| {
        let level = by_key.get(&key).map_or(0, |level| value(level));
        reading(Slot::of(kind, key), level, threshold, None)
    }));
}

async fn from_engine(parts: &Parts, thresholds: &Thresholds, book: &Book, readings: &mut Vec<Reading>) {
    let Ok(mut views) = parts.engine.worst(MAX_DESTINATIONS).await else {
        return;
    };
    let known: HashSet<_> = views.iter().map(|view| view.destination).collect();
    let firing = [AlertKind::BreakerOpen, AlertKind::ConsecutiveFailures]
        .into_iter()
        .flat_map(|kind| book.firing(kind))
        .filter_map(|slot| slot.destination)
        .filter(|key| !known.contains(key));
    let others: HashSet<DestinationKey> = firing.collect();
    match parts.engine.views(others.into_iter().collect()).await {
        Ok(others) => views.extend(others),
        Err(_) => return,
    }
    for view in &views {
        if thresholds.breaker_open {
            readings.push(breaker(view));
        }
        if thresholds.consecutive_failures > 0 {
            let slot = Slot::of(AlertKind::ConsecutiveFailures, view.destination);
            let failures = u64::from(view.failures);
            readings.push(reading(slot, failures, thresholds.consecutive_failures, None));
        }
    }
}

fn breaker(view: &LaneView) -> Reading {
    let slot = Slot::of(AlertKind::BreakerOpen, view.destination);
    let is_open = view.breaker != BreakerState::Closed;
    let why = view.opening.as_ref().map(|opening| opening.reason.text.clone());
    reading(slot, u64::from(is_open), 1, why)
}

fn from_directory(parts: &Parts, book: &Book, readings: &mut Vec<Reading>) {
    let disabled = parts.directory.given_up(MAX_DESTINATIONS);
    let known: HashSet<_> = disabled.iter().map(|(key, _)| *key).collect();
    let slot = |key| Slot::of(AlertKind::DestinationDisabled, key);
    let others = book
        .firing(AlertKind::DestinationDisabled)
        .filter_map(|slot| slot.destination)
        .filter(|key| !known.contains(key));
    for key in others {
        let entry = parts.directory.entry(key);
        let still = entry.is_some_and(|entry| entry.record.disabled.is_some());
        readings.push(reading(slot(key), u64::from(still), 1, None));
    }
    for (key, reason) in disabled {
        readings.push(reading(slot(key), 1, 1, Some(reason)));
    }
}

fn reading(slot: Slot, value: u64, threshold: u64, detail: Option<String>) -> Reading {
    Reading {
        slot,
        value,
        threshold,
        detail,
    }
}

/// `None` for zero, which turns a threshold off.
fn millis(span: Duration) -> Option<u64> {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    (millis > 0).then_some(millis)
}
