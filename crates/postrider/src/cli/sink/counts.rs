//! What the sink has seen. Counters are atomic, events are in a sharded map: thousands of requests a second pass here.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::capacity::Capacity;

const SHARDS: usize = 64;
const STATUSES: usize = 1000;

/// Counters and events.
pub(super) struct Counts {
    requests: AtomicU64,
    repeats: AtomicU64,
    repeats_after_success: AtomicU64,
    verified: AtomicU64,
    unverified: AtomicU64,
    hung: AtomicU64,
    resets: AtomicU64,
    connections: AtomicU64,
    open_connections: AtomicU64,
    in_flight: AtomicU64,
    max_in_flight: AtomicU64,
    capacity: Option<Capacity>,
    by_status: Vec<AtomicU64>,
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<Box<str>, Seen>>>,
}

/// One event at one path.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    requests: usize,
    successes: usize,
}

/// One request, until it is dropped.
pub(super) struct Arrival<'a> {
    /// From 0, in the order of arrival.
    pub(super) number: u64,
    /// Whether as many as the sink can take were there already.
    pub(super) is_too_many: bool,
    _in_flight: Gauge<'a>,
    _place: Option<super::capacity::Place<'a>>,
}

impl Counts {
    /// Nothing seen yet; `capacity` requests at once are not too many, or any number.
    pub(super) fn new(capacity: Option<u64>) -> Self {
        Self {
            requests: AtomicU64::new(0),
            repeats: AtomicU64::new(0),
            repeats_after_success: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            unverified: AtomicU64::new(0),
            hung: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open_connections: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            max_in_flight: AtomicU64::new(0),
            capacity: capacity.map(Capacity::new),
            by_status: std::iter::repeat_with(AtomicU64::default)
                .take(STATUSES)
                .collect(),
            hasher: RandomState::new(),
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
        }
    }

    /// A connection was opened; it is open until the answer is dropped.
    pub(super) fn connection(&self) -> Gauge<'_> {
        add(&self.connections);
        Gauge::new(&self.open_connections)
    }

    /// A request has begun.
    pub(super) fn request(&self) -> Arrival<'_> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let in_flight = Gauge::new(&self.in_flight);
        self.max_in_flight.fetch_max(in_flight.level, Ordering::Relaxed);
        let place = self.capacity.as_ref().map(Capacity::take);
        Arrival {
            number,
            is_too_many: place.as_ref().is_some_and(|place| place.is_too_many),
            _in_flight: in_flight,
            _place: place,
        }
    }

    /// A request of an event has arrived; how many had before.
    pub(super) fn arrived(&self, path: &str, id: &str) -> usize {
        if id.is_empty() {
            return 0;
        }
        let seen = self.seen(path, id, |seen| {
            seen.requests += 1;
            *seen
        });
        if seen.requests > 1 {
            add(&self.repeats);
        }
        if seen.successes > 0 {
            add(&self.repeats_after_success);
        }
        seen.requests - 1
    }

    /// An event was answered with 2xx.
    pub(super) fn delivered(&self, path: &str, id: &str) {
        if !id.is_empty() {
            self.seen(path, id, |seen| seen.successes += 1);
        }
    }

    pub(super) fn answered(&self, status: u16) {
        add(&self.by_status[usize::from(status).min(STATUSES - 1)]);
    }

    pub(super) fn verified(&self, good: bool) {
        add(if good { &self.verified } else { &self.unverified });
    }

    pub(super) fn hung(&self) {
        add(&self.hung);
    }

    pub(super) fn was_reset(&self) {
        add(&self.resets);
    }

    /// All counts.
    pub(super) fn stats(&self) -> Value {
        let by_status: BTreeMap<String, u64> = (0..STATUSES)
            .map(|status| (status.to_string(), read(&self.by_status[status])))
            .filter(|(_, count)| *count > 0)
            .collect();
        let (mut events, mut delivered) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock();
            events += shard.len();
            delivered += shard.values().filter(|seen| seen.successes > 0).count();
        }
        json!({
            "requests": read(&self.requests),
            "by_status": by_status,
            "events": events,
            "delivered_events": delivered,
            "repeats": read(&self.repeats),
            "repeats_after_success": read(&self.repeats_after_success),
            "verified": read(&self.verified),
            "unverified": read(&self.unverified),
            "hung": read(&self.hung),
            "resets": read(&self.resets),
            "connections": read(&self.connections),
            "open_connections": read(&self.open_connections),
            "in_flight": read(&self.in_flight),
            "max_in_flight": read(&self.max_in_flight),
            "over_capacity": self.capacity.as_ref().map(Capacity::stats),
        })
    }

    /// A line for each event: id, path, requests, successes, separated by tabs.
    pub(super) fn ids(&self, everything: bool) -> String {
        let mut text = String::new();
        for shard in &self.shards {
            for (key, seen) in &*shard.lock() {
                if everything || seen.successes > 0 {
                    let _ = writeln!(text, "{key}\t{}\t{}", seen.requests, seen.successes);
                }
            }
        }
        text
    }

    /// Forgets all but what is open now.
    pub(super) fn reset(&self) {
        for counter in [
            &self.requests,
            &self.repeats,
            &self.repeats_after_success,
            &self.verified,
            &self.unverified,
            &self.hung,
            &self.resets,
            &self.connections,
            &self.max_in_flight,
        ]
        .into_iter()
        .chain(&self.by_status)
        {
            counter.store(0, Ordering::Relaxed);
        }
        for shard in &self.shards {
            shard.lock().clear();
        }
        if let Some(capacity) = &self.capacity {
            capacity.reset();
        }
    }

    fn seen<T>(&self, path: &str, id: &str, change: impl FnOnce(&mut Seen) -> T) -> T {
        let key = format!("{id}\t{path}");
        let hash = usize::try_from(self.hasher.hash_one(&key) & 0xffff).unwrap_or(0);
        let mut shard = self.shards[hash % SHARDS].lock();
        match shard.get_mut(key.as_str()) {
            Some(seen) => change(seen),
            None => change(shard.entry(key.into_boxed_str()).or_default()),
        }
    }
}

/// Counts itself as long as it lives.
pub(super) struct Gauge<'a> {
    counter: &'a AtomicU64,
    level: u64,
}

impl<'a> Gauge<'a> {
    fn new(counter: &'a AtomicU64) -> Self {
        Self {
            counter,
            level: counter.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_told_apart_by_path_and_by_success() {
        let counts = Counts::new(None);
        assert_eq!(counts.arrived("/a", "evt_1"), 0);
        assert_eq!(counts.arrived("/b", "evt_1"), 0, "another destination");
        assert_eq!(counts.arrived("/a", "evt_1"), 1);
        counts.delivered("/a", "evt_1");
        assert_eq!(counts.arrived("/a", "evt_1"), 2);
        assert_eq!(counts.arrived("/a", ""), 0, "no id, no event");
        let stats = counts.stats();
        for (name, value) in [
            ("events", 2),
            ("delivered_events", 1),
            ("repeats", 2),
            ("repeats_after_success", 1),
        ] {
            assert_eq!(stats[name], value, "{name}");
        }
        assert_eq!(counts.ids(false), "evt_1\t/a\t3\t1\n");
        assert_eq!(counts.ids(true).lines().count(), 2);
        counts.reset();
        assert_eq!(
            (counts.stats()["events"].as_u64(), counts.ids(true).len()),
            (Some(0), 0)
        );
    }

    #[test]
    fn the_highest_number_in_flight_is_kept() {
        let counts = Counts::new(None);
        let first = counts.request();
        let second = counts.request();
        assert_eq!((first.number, second.number), (0, 1));
        assert!(!second.is_too_many, "without a capacity nothing is too much");
        drop((first, second));
        let _third = counts.request();
        assert_eq!(counts.stats()["in_flight"], 1);
        assert_eq!(counts.stats()["max_in_flight"], 2);
    }
}
