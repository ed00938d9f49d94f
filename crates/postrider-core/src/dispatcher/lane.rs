//! One destination's lane: its queue, what is out, and everything that can stop it.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::time::Duration;

use super::limits::Pace;
use super::queue::{FRESH_TIME, Payload, Queue, Waiting};
use crate::breaker::{Breaker, Gate};
use crate::delivery::{PendingDelivery, WaitCause};
use crate::id::{DeliveryKey, DestinationKey, TenantKey};
use crate::pulse::Pulse;
use crate::rate::RateLimit;
use crate::streak::Streak;
use crate::time::Timestamp;
use crate::window::{Window, WindowConfig};

/// What the lane knows of a delivery that it holds in any way.
#[derive(Debug, Clone, Default)]
pub(super) struct Owned {
    /// When it is due, while it waits in the queue.
    pub(super) queued: Option<Timestamp>,
    /// A request of it is out.
    pub(super) in_flight: bool,
    /// That request is not counted as out any more, since nothing was heard of it.
    pub(super) lost: bool,
    /// Results of it that are not committed yet. Until then its row in the store is out of date.
    pub(super) unsettled: u32,
    /// Attempts of it that have been made, the last one included that is not settled; zero when none was made here.
    pub(super) made: u32,
    /// The last one succeeded, so the delivery has ended.
    pub(super) succeeded: bool,
    /// Somebody asked for it while it was out or unsettled: it is due again when that is done.
    pub(super) renewed: Option<Box<PendingDelivery>>,
    /// Somebody ended it while it was out: what its policy plans is not wanted any more.
    pub(super) withdrawn: bool,
}

impl Owned {
    const fn is_idle(&self) -> bool {
        self.queued.is_none() && !self.in_flight && self.unsettled == 0
    }

    /// What is to be sent because somebody asked for it meanwhile. An attempt that the store did not know of when it was
    /// asked has its number all the same; and if that one succeeded, what was asked for has been done.
    fn wanted(self) -> Option<PendingDelivery> {
        let mut delivery = *self.renewed?;
        let is_known = delivery.progress.attempts >= self.made;
        if self.succeeded && !is_known {
            return None;
        }
        delivery.progress.attempts = delivery.progress.attempts.max(self.made);
        Some(delivery)
    }
}

/// Whether the store has pending deliveries of this destination that the lane does not hold.
#[derive(Debug)]
pub(super) enum Rest {
    /// Everything is in memory.
    None,
    /// There may be rows; read them when the queue runs low or has nothing due.
    InStore {
        /// None of them is due before this.
        earliest: Timestamp,
        /// Do not read before this: the last read failed, or found nothing new.
        not_before: Timestamp,
    },
    /// A read is under way. Its snapshot may be older than what happens meanwhile, so that is noted.
    Reading {
        /// Deliveries let go since the read began: its rows of them are out of date.
        departed: HashSet<DeliveryKey>,
        /// Earliest due time of what went to the store since the read began: it may have missed it.
        missed: Option<Timestamp>,
    },
}

/// Why nothing can start now, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    /// Nothing is due.
    Idle,
    /// As many are out as the window allows; a finish reopens it.
    Window,
    /// `Retry-After` forbids requests before this.
    Hold(Timestamp),
    /// The breaker is open until this.
    Breaker(Timestamp),
    /// A probe is out; its finish decides.
    Probe,
    /// The destination's limit of requests per second forbids one before this.
    Rate(Timestamp),
    /// The same over all destinations of its tenant; other destinations may be first.
    Tenant(Timestamp),
    /// The destination is disabled; enabling reopens it.
    Paused,
}

/// Requests per second that the destination's owner allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) per_second: NonZeroU32,
    state: RateLimit,
}

impl Limit {
    pub(super) fn new(per_second: NonZeroU32) -> Self {
        Self {
            per_second,
            state: RateLimit::new(per_second),
        }
    }

    /// As wanted from now on; another rate goes on where this one is.
    pub(super) fn changed(
        known: Option<Self>,
        per_second: Option<NonZeroU32>,
        now: Timestamp,
    ) -> Option<Self> {
        let per_second = per_second?;
        let mut limit = known.unwrap_or_else(|| Self::new(per_second));
        limit.per_second = per_second;
        limit.state.change(per_second, now);
        Some(limit)
    }

    pub(super) fn next_at(&self, now: Timestamp) -> Timestamp {
        self.state.next_at(now)
    }

    pub(super) fn take(&mut self, now: Timestamp) {
        self.state.take(now);
    }

    pub(super) fn give_back(&mut self) {
        self.state.give_back();
    }
}

/// Replays per second while nobody said otherwise.
pub const DEFAULT_REPLAY_RATE: NonZeroU32 = NonZeroU32::new(50).expect("50 is not 0");

#[derive(Debug)]
pub(super) struct Lane<P> {
    pub(super) tenant: TenantKey,
    pub(super) queue: Queue<P>,
    pub(super) owned: HashMap<DeliveryKey, Owned>,
    pub(super) in_flight: u32,
    pub(super) window: Window,
    pub(super) breaker: Breaker,
    /// Failures since the last success.
    pub(super) streak: Streak,
    /// How its latest attempts went; `None` before the first.
    pub(super) pulse: Option<Box<Pulse>>,
    pub(super) rate: Option<Limit>,
    /// How fast replays may go; `None` while they are stopped.
    replays: Option<Limit>,
    /// The store may have replays that the lane does not hold, whatever [`Lane::rest`] says.
    replays_left: bool,
    /// Until when replays were last stopped.
    replays_stopped_until: Option<Timestamp>,
    /// While the breaker is open: how long a receiver may have failed before what is due ends; `None` for ever.
    pub(super) patience: Option<Duration>,
    pub(super) hold_until: Option<Timestamp>,
    /// The most that the owner allows; `None` for any.
    pub(super) longest_hold: Option<Duration>,
    pub(super) rest: Rest,
    pub(super) paused: bool,
    /// In the ready list.
    pub(super) listed: bool,
    /// In the list of those that wait for a turn to read the store.
    pub(super) awaits_refill: bool,
    /// In the list of those that wait for room for results.
    pub(super) awaits_room: bool,
    /// In the list of those that wait for their tenant's limit.
    pub(super) awaits_tenant: bool,
    /// In the list of those that wait until fewer requests are out to receivers like theirs.
    pub(super) awaits_slot: bool,
    /// It was the first of these, and there was a slot.
    pub(super) has_turn: bool,
    /// How long the last request took that came back.
    pub(super) pace: Pace,
    /// Its timer.
    pub(super) wake_at: Option<Timestamp>,
    pub(super) used_at: Timestamp,
    /// What last stopped the lane as a whole, and until when: what was due before that has waited for it.
    stopped: Option<(WaitCause, Timestamp)>,
    /// When as many as the window allows were last seen to be out.
    crowded_at: Option<Timestamp>,
}

impl<P: Payload> Lane<P> {
    pub(super) fn new(key: DestinationKey, window: &WindowConfig, now: Timestamp) -> Self {
        Self {
            tenant: TenantKey(0),
            queue: Queue::new(),
            owned: HashMap::new(),
            in_flight: 0,
            window: Window::new(window),
            breaker: Breaker::new(key.0.unsigned_abs()),
            streak: Streak::default(),
            pulse: None,
            rate: None,
            replays: Some(Limit::new(DEFAULT_REPLAY_RATE)),
            replays_left: false,
            replays_stopped_until: None,
            patience: None,
            hold_until: None,
            longest_hold: None,
            rest: Rest::None,
            paused: false,
            listed: false,
            awaits_refill: false,
            awaits_room: false,
            awaits_tenant: false,
            awaits_slot: false,
            has_turn: false,
            pace: Pace::Unknown,
            wake_at: None,
            used_at: now,
            stopped: None,
            crowded_at: None,
        }
    }

    /// Why a delivery cannot start now; `None` when one can. `limit` bounds the requests that are out.
    pub(super) fn blocked(&self, limit: u32, now: Timestamp) -> Option<Blocked> {
        if self.paused {
            return Some(Blocked::Paused);
        }
        if let Some(until) = self.hold_until.filter(|until| now < *until) {
            return Some(Blocked::Hold(until));
        }
        match self.breaker.gate(now) {
            Gate::Open(until) => return Some(Blocked::Breaker(until)),
            Gate::Probing => return Some(Blocked::Probe),
            // What is still out when a probe may go was sent before the breaker opened, unless it is a probe that was lost.
            Gate::Probe if self.in_flight > 0 && !self.has_lost_some(now) => return Some(Blocked::Window),
            Gate::Closed | Gate::Probe => {}
        }
        if self.in_flight >= self.window.size().min(limit) && !self.has_lost_some(now) {
            return Some(Blocked::Window);
        }
        if self.next_due(now).is_none_or(|due| due > now) {
            return Some(Blocked::Idle);
        }
        let next = self.rate.as_ref().map(|limit| limit.next_at(now));
        next.filter(|at| *at > now).map(Blocked::Rate)
    }

    /// Whether nothing will be heard of what is out: a probe that is overdue.
    fn has_lost_some(&self, now: Timestamp) -> bool {
        self.in_flight > 0 && self.breaker.gate(now) == Gate::Probe && self.breaker.is_probe_overdue(now)
    }

    /// The clock was set back: what is left of a hold stays, and other waits of this process begin anew. What deliveries were
    /// planned for is kept: that is in the store, too.
    pub(super) fn set_back(&mut self, before: Timestamp, read_at: Timestamp, now: Timestamp) {
        self.hold_until = self.hold_until.map(|until| now.plus(until.since(before)));
        self.used_at = self.used_at.min(now);
        self.stopped = None;
        self.crowded_at = None;
        self.replays_stopped_until = self.replays_stopped_until.map(|until| until.min(now));
        if let Rest::InStore { not_before, .. } = &mut self.rest {
            *not_before = read_at.min(*not_before);
        }
    }

    /// When the next delivery in memory may start, as far as its own time and the rate of replays decide.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        let [replay, other] = self.queue.next_due_apart();
        let allowed = self.replays.as_ref().map(|limit| limit.state.next_at(now));
        let replay = replay.zip(allowed).map(|(due, allowed)| due.max(allowed));
        replay.into_iter().chain(other).min()
    }

    /// How fast replays may go; `None` while they are stopped.
    pub(super) fn replay_rate(&self) -> Option<NonZeroU32> {
        self.replays.as_ref().map(|limit| limit.per_second)
    }

    /// Replays go at this rate from now on, or not at all.
    pub(super) fn limit_replays(&mut self, per_second: Option<NonZeroU32>, now: Timestamp) {
        if self.replays.is_none() {
            self.replays_stopped_until = Some(now);
        }
        self.replays = per_second.map(Limit::new);
    }

    /// Whether replays wait that would be due, because they are stopped.
    pub(super) fn stops_replays(&self, now: Timestamp) -> bool {
        let [replay, _] = self.queue.next_due_apart();
        self.replays.is_none() && (self.replays_left || replay.is_some_and(|due| due <= now))
    }

    /// Whether a read of the store should bring replays: not while they may not start, or enough of them are in memory, lest
    /// they stand before everything else.
    pub(super) fn wants_replays(&self, low_water: usize) -> bool {
        self.replays.is_some() && self.queue.replays() < low_water.div_ceil(2)
    }

    /// The store has replays that a read passed over.
    pub(super) const fn leave_replays(&mut self) {
        self.replays_left = true;
    }

    /// Looks for replays that were left in the store, when it is time to.
    pub(super) fn recall_replays(&mut self, low_water: usize) {
        if self.replays_left && self.wants_replays(low_water) {
            self.replays_left = false;
            self.leave_in_store(Timestamp::EPOCH);
        }
    }

    /// Whether the store should be read now: it may have rows, and the queue is low or has nothing due while they may be.
    /// Neither replays, nor what is fresh or due later, are a reason to wait with an old backlog.
    pub(super) fn wants_refill(&self, low_water: usize, now: Timestamp) -> bool {
        match self.rest {
            Rest::InStore { earliest, not_before } => {
                let nothing_due = self.next_due(now).is_none_or(|due| due > now);
                let held = self.queue.len() - self.queue.replays();
                let has_backlog = earliest < now.minus(FRESH_TIME);
                // Half of the mark: a read then brings more than what goes back to the store for it.
                let wanted = low_water.div_ceil(2);
                let is_low = held < low_water || (has_backlog && self.queue.backlog(now, wanted) < wanted);
                not_before <= now && (is_low || (nothing_due && earliest <= now))
            }
            Rest::None | Rest::Reading { .. } => false,
        }
    }

    /// When to look again although nothing happened; `None` when the queue is empty and so is the store.
    pub(super) fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        // A read that is over-due and not made waits for a turn or for the queue to run low, not for a time.
        let read = self.next_read().filter(|at| *at > now);
        self.next_due(now).into_iter().chain(read).min()
    }

    /// When the store may have something that is due and not in memory.
    pub(super) fn next_read(&self) -> Option<Timestamp> {
        match self.rest {
            Rest::InStore { earliest, not_before } => Some(earliest.max(not_before)),
            Rest::None | Rest::Reading { .. } => None,
        }
    }

    /// Puts a delivery into the queue.
    pub(super) fn enqueue(&mut self, waiting: Waiting<P>, fresh: bool) {
        let owned = self.owned.entry(waiting.delivery.key).or_default();
        owned.queued = Some(waiting.delivery.plan.due_at);
        self.queue.push(waiting, fresh);
    }

    /// Remembers what blocks the lane, for those that are or will be due meanwhile.
    pub(super) fn note(&mut self, blocked: Blocked, now: Timestamp) {
        match blocked {
            Blocked::Hold(until) => self.stopped = Some((WaitCause::Hold, until)),
            Blocked::Breaker(until) => self.stopped = Some((WaitCause::Breaker, until)),
            Blocked::Probe => self.stopped = Some((WaitCause::Breaker, now)),
            Blocked::Paused => self.stopped = Some((WaitCause::Disabled, now)),
            Blocked::Rate(until) => self.stopped = Some((WaitCause::RateLimit, until)),
            Blocked::Tenant(until) => self.stopped = Some((WaitCause::RateLimit, until.max(now))),
            Blocked::Window => self.crowded_at = Some(now),
            Blocked::Idle => {}
        }
    }

    /// Lets the lane of a destination that is enabled go on.
    pub(super) fn resume(&mut self, now: Timestamp) {
        if std::mem::take(&mut self.paused) {
            self.streak = Streak::default();
            self.stopped = Some((WaitCause::Disabled, now));
        }
    }

    /// What a delivery that was due at this time has waited for.
    fn waited_for(&self, due: Timestamp) -> Option<WaitCause> {
        let stopped = self
            .stopped
            .filter(|(_, until)| due < *until)
            .map(|(cause, _)| cause);
        stopped.or_else(|| self.crowded_at.filter(|at| due < *at).map(|_| WaitCause::Window))
    }

    /// Takes the next due delivery out of the queue and counts it as out. Also says what it has waited for.
    pub(super) fn start(&mut self, now: Timestamp) -> Option<(Waiting<P>, Option<WaitCause>)> {
        let replays = self
            .replays
            .as_ref()
            .is_some_and(|limit| limit.state.next_at(now) <= now);
        self.queue.age(now);
        let waiting = self.queue.pop_due(now, replays)?;
        if self.has_lost_some(now) {
            self.in_flight = 0;
            for owned in self.owned.values_mut() {
                owned.lost = owned.in_flight;
            }
        }
        let owned = self.owned.entry(waiting.delivery.key).or_default();
        owned.queued = None;
        owned.in_flight = true;
        self.in_flight += 1;
        self.breaker.started(now);
        if let Some(limit) = &mut self.rate {
            limit.take(now);
        }
        if let Some(limit) = self.replays.as_mut().filter(|_| waiting.delivery.replayed) {
            limit.state.take(now);
        }
        self.used_at = now;
        let due = waiting.delivery.plan.due_at;
        let was_stopped = self.replays_stopped_until.is_some_and(|until| due < until);
        let waited_for = if waiting.delivery.replayed && was_stopped {
            Some(WaitCause::ReplayPaused)
        } else {
            self.waited_for(due)
        };
        Some((waiting, waited_for))
    }

    /// What was started last sent nothing after all.
    pub(super) fn unstart(&mut self, now: Timestamp) {
        self.breaker.returned(now);
        if let Some(limit) = &mut self.rate {
            limit.give_back();
        }
    }

    /// The store has rows that this lane does not hold, none of them due before `earliest`.
    pub(super) fn leave_in_store(&mut self, earliest: Timestamp) {
        match &mut self.rest {
            Rest::None => {
                self.rest = Rest::InStore {
                    earliest,
                    not_before: Timestamp::EPOCH,
                }
            }
            Rest::InStore { earliest: known, .. } => *known = earliest.min(*known),
            Rest::Reading { missed, .. } => *missed = Some(missed.map_or(earliest, |m| m.min(earliest))),
        }
    }

    /// Gives deliveries back to the store until the queue fits.
    pub(super) fn trim(&mut self, capacity: usize) -> usize {
        let mut freed = 0;
        while self.queue.len() > capacity {
            let owned = &self.owned;
            let settled = |key| owned.get(&key).is_some_and(|o| o.unsettled == 0);
            let Some(gone) = self.queue.evict(capacity, self.replays.is_some(), settled) else {
                break;
            };
            freed += gone.payload.as_ref().map_or(0, Payload::bytes);
            self.owned.remove(&gone.delivery.key);
            self.depart(gone.delivery.key);
            if gone.delivery.replayed {
                self.replays_left = true;
            } else {
                self.leave_in_store(gone.delivery.plan.due_at);
            }
        }
        freed
    }

    /// Forgets a delivery if nothing of it is in memory any more. Answers it if it was asked for again meanwhile.
    pub(super) fn release_if_idle(&mut self, key: DeliveryKey) -> Option<PendingDelivery> {
        if !self.owned.get(&key).is_some_and(Owned::is_idle) {
            return None;
        }
        let owned = self.owned.remove(&key)?;
        self.depart(key);
        owned.wanted()
    }

    pub(super) fn depart(&mut self, key: DeliveryKey) {
        if let Rest::Reading { departed, .. } = &mut self.rest {
            departed.insert(key);
        }
    }

    /// The delivery as it waits, if it does.
    pub(super) fn withdraw(&mut self, key: DeliveryKey) -> Option<Waiting<P>> {
        let owned = self.owned.get_mut(&key)?;
        let due = owned.queued.take()?;
        self.queue.remove(key, due)
    }

    /// Forbids requests before `until`; a hold is never shortened by another.
    pub(super) fn hold(&mut self, until: Timestamp) {
        self.hold_until = Some(self.hold_until.map_or(until, |held| held.max(until)));
    }

    /// Shortens a hold to the most that is allowed from now on: the clock may have been ahead when it was made.
    pub(super) fn bound_hold(&mut self, now: Timestamp) {
        let last = self.longest_hold.map(|longest| now.plus(longest));
        self.hold_until = self
            .hold_until
            .map(|until| last.map_or(until, |last| until.min(last)));
    }

    /// Ends a hold that is over, and ramps up again from one request.
    pub(super) fn end_hold(&mut self, window: &WindowConfig, now: Timestamp) {
        if self.hold_until.is_some_and(|until| until <= now) {
            self.hold_until = None;
            self.window.restart(self.in_flight, window);
        }
    }

    /// Whether it holds nothing that would be lost with it.
    pub(super) fn is_disposable(&self, now: Timestamp, idle: Duration) -> bool {
        self.owned.is_empty()
            && matches!(self.rest, Rest::None)
            && !self.replays_left
            && self.replay_rate() == Some(DEFAULT_REPLAY_RATE)
            && !self.paused
            && !self.listed
            && !self.awaits_tenant
            && self.hold_until.is_none()
            && self.breaker.gate(now) == Gate::Closed
            && self.streak.failures() == 0
            && self.breaker.trouble().is_none()
            && now.since(self.used_at) >= idle
    }
}
