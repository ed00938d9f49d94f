//! Open connections, kept for the next request to the same host.
//!
//! Every open connection, busy or idle, holds one of a fixed number of slots, so that the process's file descriptors stay
//! bounded whatever the number of destinations. When none is free, the connection that has been idle longest anywhere
//! makes room; and a connection that comes back while somebody waits for a slot is closed instead of kept.
//!
//! Nothing here dials or knows requests: see [`super::connect`] and [`super::http`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::lease::{Lease, Link, Origin};
use super::wire::Vitals;

/// Bounds of the pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolBounds {
    pub(super) max_connections: usize,
    pub(super) max_idle_per_host: usize,
    pub(super) idle_timeout: Duration,
}

/// The connections.
pub(super) struct Pool {
    bounds: PoolBounds,
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    reaping: AtomicBool,
    hosts: Mutex<Hosts>,
}

/// The right to have one connection open; held by the task that drives it.
pub(super) type Slot = OwnedSemaphorePermit;

#[derive(Default)]
struct Hosts {
    by_origin: HashMap<Arc<Origin>, Host>,
    /// What is parked, the longest idle first.
    by_age: BTreeMap<u64, Arc<Origin>>,
    next_stamp: u64,
}

#[derive(Default)]
struct Host {
    idle: VecDeque<Parked<http1::SendRequest<Full<Bytes>>>>,
    shared: Option<Shared>,
}

struct Parked<L> {
    stamp: u64,
    since: Instant,
    link: L,
    vitals: Arc<Vitals>,
}

/// A connection that many requests use; each holds a clone of the token.
struct Shared {
    parked: Parked<http2::SendRequest<Full<Bytes>>>,
    in_use: Arc<()>,
}

impl Shared {
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.in_use) > 1
    }
}

impl Pool {
    pub(super) fn new(bounds: PoolBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            slots: Arc::new(Semaphore::new(bounds.max_connections.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            reaping: AtomicBool::new(false),
            hosts: Mutex::default(),
        })
    }

    /// A connection to `origin` that can take a request now.
    pub(super) fn take(&self, origin: &Arc<Origin>) -> Option<Lease> {
        let now = Instant::now();
        let mut hosts = self.hosts.lock();
        let Hosts {
            by_origin,
            by_age,
            next_stamp,
        } = &mut *hosts;
        let host = by_origin.get_mut(origin)?;
        if let Some(Shared { parked, in_use }) = &mut host.shared {
            by_age.remove(&parked.stamp);
            if parked.link.is_ready() && !parked.vitals.is_broken() {
                (parked.stamp, parked.since) = (bump(next_stamp), now);
                by_age.insert(parked.stamp, Arc::clone(origin));
                return Some(Lease {
                    link: Link::H2(parked.link.clone()),
                    vitals: Arc::clone(&parked.vitals),
                    reused: true,
                    in_use: Some(Arc::clone(in_use)),
                });
            }
            host.shared = None;
        }
        let found = take_ready(&mut host.idle, by_age, now, self.bounds.idle_timeout);
        // With a connection in use the host is about to come back.
        if found.is_none() && host.is_empty() {
            by_origin.remove(origin);
        }
        found
    }

    /// Keeps an HTTP/1.1 connection whose answer was read to its end, if there is room for it.
    pub(super) fn give_back(self: &Arc<Self>, origin: &Arc<Origin>, lease: Lease) {
        let Link::H1(link) = lease.link else { return };
        if link.is_closed() || lease.vitals.is_broken() || self.waiting.load(Ordering::Relaxed) > 0 {
            return;
        }
        let mut hosts = self.hosts.lock();
        let stamp = bump(&mut hosts.next_stamp);
        let host = hosts.by_origin.entry(Arc::clone(origin)).or_default();
        host.idle.push_back(Parked {
            stamp,
            since: Instant::now(),
            link,
            vitals: lease.vitals,
        });
        let surplus = if host.idle.len() > self.bounds.max_idle_per_host {
            host.idle.pop_front()
        } else {
            None
        };
        hosts.by_age.insert(stamp, Arc::clone(origin));
        if let Some(surplus) = &surplus {
            hosts.by_age.remove(&surplus.stamp);
        }
        drop(hosts);
        self.start_reaper();
    }

    /// Makes an HTTP/2 connection known to the others who want the same origin.
    pub(super) fn share(self: &Arc<Self>, origin: &Arc<Origin>, lease: &mut Lease) {
        let Link::H2(link) = &lease.link else { return };
        let in_use = Arc::new(());
        lease.in_use = Some(Arc::clone(&in_use));
        let mut hosts = self.hosts.lock();
        let stamp = bump(&mut hosts.next_stamp);
        let parked = Parked {
            stamp,
            since: Instant::now(),
            link: link.clone(),
            vitals: Arc::clone(&lease.vitals),
        };
        let host = hosts.by_origin.entry(Arc::clone(origin)).or_default();
        if let Some(replaced) = host.shared.replace(Shared { parked, in_use }) {
            hosts.by_age.remove(&replaced.parked.stamp);
        }
        hosts.by_age.insert(stamp, Arc::clone(origin));
        drop(hosts);
        self.start_reaper();
    }

    /// Waits for the right to open a connection; closes the longest idle one when there is no other way.
    pub(super) async fn slot(&self) -> Slot {
        if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            return slot;
        }
        let _waiting = Waiting::new(&self.waiting);
        self.evict_oldest();
        Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }

    /// Connections open now.
    pub(super) fn open_connections(&self) -> usize {
        self.bounds.max_connections - self.slots.available_permits()
    }

    /// Slots, taken or free.
    pub(super) fn max_connections(&self) -> usize {
        self.bounds.max_connections
    }

    fn evict_oldest(&self) {
        let mut hosts = self.hosts.lock();
        let stamps: Vec<u64> = hosts.by_age.keys().copied().take(64).collect();
        let _evicted = stamps.into_iter().find_map(|stamp| hosts.evict(stamp));
    }

    /// Closes what has been idle for too long; says whether anything is left.
    fn reap(&self, now: Instant) -> bool {
        let mut hosts = self.hosts.lock();
        let mut overdue = Vec::new();
        for (&stamp, origin) in &hosts.by_age {
            match hosts.by_origin.get(origin).and_then(|host| host.since(stamp)) {
                Some(since) if now.duration_since(since) < self.bounds.idle_timeout => break,
                _ => overdue.push(stamp),
            }
        }
        let closed: Vec<_> = overdue
            .into_iter()
            .filter_map(|stamp| hosts.evict(stamp))
            .collect();
        hosts.by_origin.retain(|_, host| !host.is_empty());
        let is_empty = hosts.by_age.is_empty();
        drop(hosts);
        drop(closed);
        !is_empty
    }

    /// One task looks after idle connections while there are any.
    fn start_reaper(self: &Arc<Self>) {
        if self.reaping.load(Ordering::Relaxed) || self.reaping.swap(true, Ordering::Relaxed) {
            return;
        }
        let pool = Arc::downgrade(self);
        let period = (self.bounds.idle_timeout / 4).max(Duration::from_millis(10));
        tokio::spawn(reap_periodically(pool, period));
    }
}

async fn reap_periodically(pool: Weak<Pool>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let Some(pool) = pool.upgrade() else { return };
        if !pool.reap(Instant::now()) {
            pool.reaping.store(false, Ordering::Relaxed);
            return;
        }
    }
}

impl Hosts {
    /// Takes one parked connection out, unless requests are using it. Dropping it closes it.
    fn evict(&mut self, stamp: u64) -> Option<Evicted> {
        let origin = Arc::clone(self.by_age.get(&stamp)?);
        let host = self.by_origin.get_mut(&origin)?;
        let evicted = host.remove(stamp)?;
        self.by_age.remove(&stamp);
        if host.is_empty() {
            self.by_origin.remove(&origin);
        }
        Some(evicted)
    }
}

/// What an evicted connection leaves: dropping it closes the connection.
struct Evicted {
    _h1: Option<http1::SendRequest<Full<Bytes>>>,
    _h2: Option<http2::SendRequest<Full<Bytes>>>,
}

impl Host {
    fn is_empty(&self) -> bool {
        self.idle.is_empty() && self.shared.is_none()
    }

    fn since(&self, stamp: u64) -> Option<Instant> {
        if let Some(shared) = self.shared.as_ref().filter(|shared| shared.parked.stamp == stamp) {
            return Some(shared.parked.since);
        }
        self.idle
            .iter()
            .find(|parked| parked.stamp == stamp)
            .map(|parked| parked.since)
    }

    fn remove(&mut self, stamp: u64) -> Option<Evicted> {
        if let Some(shared) = self
            .shared
            .take_if(|shared| shared.parked.stamp == stamp && !shared.is_in_use())
        {
            return Some(Evicted {
                _h1: None,
                _h2: Some(shared.parked.link),
            });
        }
        let position = self.idle.iter().position(|parked| parked.stamp == stamp)?;
        self.idle.remove(position).map(|parked| Evicted {
            _h1: Some(parked.link),
            _h2: None,
        })
    }
}

/// The connection that was used last and can take a request, since it is the least likely to be closed by its peer.
fn take_ready(
    idle: &mut VecDeque<Parked<http1::SendRequest<Full<Bytes>>>>,
    by_age: &mut BTreeMap<u64, Arc<Origin>>,
    now: Instant,
    idle_timeout: Duration,
) -> Option<Lease> {
    let mut position = idle.len();
    while position > 0 {
        position -= 1;
        let parked = &idle[position];
        let is_dead = parked.link.is_closed()
            || parked.vitals.is_broken()
            || now.duration_since(parked.since) >= idle_timeout;
        // Neither dead nor ready: its task has still to finish the last request. It stays.
        if !is_dead && !parked.link.is_ready() {
            continue;
        }
        let parked = idle.remove(position)?;
        by_age.remove(&parked.stamp);
        if !is_dead {
            return Some(Lease {
                link: Link::H1(parked.link),
                vitals: parked.vitals,
                reused: true,
                in_use: None,
            });
        }
    }
    None
}

fn bump(next_stamp: &mut u64) -> u64 {
    *next_stamp += 1;
    *next_stamp
}

/// Counts those who wait for a slot, also when they give up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
