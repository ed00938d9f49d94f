//! Decides which delivery starts next, and when the store is read. Pure: it returns actions, the engine performs them.
//!
//! Every destination has a lane ([`lane`]) with a bounded window of its next due deliveries in memory; the rest stays
//! in the store and is read when the lane runs low *and* may be served. Memory therefore grows with active
//! destinations, not with the backlog, and a destination that is held or open costs nothing while it waits.
//!
//! Invariants, checked by the tests:
//! - *owned once*: a delivery is queued or out at most once, and its row is not read again before its result is committed;
//! - *nothing forgotten*: what is pending and not in memory has a lane whose [`lane::Rest`] is not `None`;
//! - *bounded*: requests out, results not committed, and deliveries queued have limits, and so has what a crash repeats;
//! - *turns*: ready lanes start one delivery each, in turn.

mod action;
mod config;
mod ending;
mod lane;
mod limits;
mod protection;
mod queue;
mod tenants;
mod view;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

pub use self::action::{Action, Finished, Load, Unread};
pub use self::config::DispatcherConfig;
pub use self::lane::DEFAULT_REPLAY_RATE;
use self::lane::{Blocked, Lane, Rest};
use self::limits::Slots;
pub use self::protection::{Learned, Protection, Terms};
pub use self::queue::Payload;
use self::queue::Waiting;
pub use self::tenants::Share;
use self::tenants::{Tenants, Turns};
pub use self::view::{Census, Full, LaneView, Rank, Standing};
use crate::breaker::Change;
use crate::delivery::{DelayCause, PendingDelivery};
use crate::id::{DeliveryKey, DestinationKey, TenantKey};
use crate::time::Timestamp;
use crate::window::Strain;

/// A lane shrinks to this when memory is short, and no further.
const MIN_LANE: usize = 16;
/// Deliveries that are due later than this wait without their payload.
const PAYLOAD_HORIZON: Duration = Duration::from_secs(30);
/// A read that failed is repeated after this.
const REFILL_PAUSE: Duration = Duration::from_secs(1);
/// A read that brought nothing new is repeated after this: its snapshot was older than what memory already had.
const USELESS_READ_PAUSE: Duration = Duration::from_millis(50);
/// A lane with nothing in it is forgotten after this.
const LANE_IDLE: Duration = Duration::from_secs(600);

/// All lanes. `P` is what travels with a delivery.
#[derive(Debug)]
pub struct Dispatcher<P> {
    config: DispatcherConfig,
    lanes: HashMap<DestinationKey, Lane<P>>,
    ready: Turns,
    tenants: Tenants,
    /// At most one a lane: its `wake_at`.
    timers: BTreeSet<(Timestamp, DestinationKey)>,
    waiting_for_refill: VecDeque<DestinationKey>,
    waiting_for_room: VecDeque<DestinationKey>,
    slots: Slots,
    refills: usize,
    /// Lanes with a request out.
    busy: usize,
    in_flight: usize,
    unsettled: usize,
    queued: usize,
    payload_bytes: usize,
    swept_at: Timestamp,
    /// The latest reading of the clock.
    read_at: Timestamp,
}

impl<P: Payload> Dispatcher<P> {
    /// Without lanes.
    #[must_use]
    pub fn new(config: DispatcherConfig) -> Self {
        Self {
            config,
            lanes: HashMap::new(),
            ready: Turns::default(),
            tenants: Tenants::default(),
            timers: BTreeSet::new(),
            waiting_for_refill: VecDeque::new(),
            waiting_for_room: VecDeque::new(),
            slots: Slots::default(),
            refills: 0,
            busy: 0,
            in_flight: 0,
            unsettled: 0,
            queued: 0,
            payload_bytes: 0,
            swept_at: Timestamp::EPOCH,
            read_at: Timestamp::EPOCH,
        }
    }

    /// A delivery was just committed.
    pub fn accepted(&mut self, delivery: PendingDelivery, payload: Option<P>, now: Timestamp) {
        let destination = delivery.destination;
        self.lane(destination, now);
        self.admit(delivery, payload, true, now);
        self.list(destination);
    }

    /// The store has pending deliveries of this destination that were not handed over; or it was enabled.
    pub fn spilled(&mut self, destination: DestinationKey, now: Timestamp) {
        let lane = self.lane(destination, now);
        lane.leave_in_store(Timestamp::EPOCH);
        lane.resume(now);
        self.list(destination);
    }

    /// Somebody gave a delivery another plan. While it is out or unsettled, that result comes first; and when it is a success
    /// that the plan does not know of, the delivery has ended and the plan with it. One that is wanted now is a reason to
    /// look whether the receiver is well; a part of a replay, of which there may be thousands, is not.
    pub fn rescheduled(&mut self, delivery: PendingDelivery, now: Timestamp) {
        let destination = delivery.destination;
        let lane = self.lane(destination, now);
        if delivery.plan.cause == DelayCause::Manual && !delivery.replayed {
            lane.breaker.hurry(now);
        }
        let withdrawn = lane.withdraw(delivery.key);
        match lane.owned.get_mut(&delivery.key) {
            Some(owned) if owned.in_flight || owned.unsettled > 0 => {
                owned.renewed = Some(Box::new(delivery));
                owned.withdrawn = false;
            }
            Some(_) | None => {
                let payload = withdrawn.as_ref().and_then(|waiting| waiting.payload.clone());
                self.requeue(delivery, payload, true, now);
            }
        }
        if let Some(waiting) = withdrawn {
            self.queued -= 1;
            self.payload_bytes -= waiting.payload.as_ref().map_or(0, Payload::bytes);
        }
        self.list(destination);
    }

    /// Somebody ended a delivery: it does not start any more. One that is out comes back as always, and is not tried again.
    pub fn withdrawn(&mut self, destination: DestinationKey, key: DeliveryKey, now: Timestamp) {
        let lane = self.lane(destination, now);
        let waiting = lane.withdraw(key);
        lane.depart(key);
        if let Some(owned) = lane.owned.get_mut(&key) {
            owned.renewed = None;
            owned.withdrawn = owned.in_flight;
        }
        if let Some(waiting) = waiting {
            self.queued -= 1;
            self.payload_bytes -= waiting.payload.as_ref().map_or(0, Payload::bytes);
        }
        self.forget_if_idle(destination, key, now);
        self.list(destination);
    }

    /// Rows that a [`Action::Refill`] asked for, and what it did not bring.
    pub fn refilled(
        &mut self,
        destination: DestinationKey,
        rows: impl IntoIterator<Item = (PendingDelivery, Option<P>)>,
        unread: Unread,
        now: Timestamp,
    ) {
        self.refills = self.refills.saturating_sub(1);
        let lane = self.lane(destination, now);
        let Rest::Reading { departed, missed } = std::mem::replace(&mut lane.rest, Rest::None) else {
            return;
        };
        let mut last_due = Timestamp::EPOCH;
        let before = self.queued;
        for (delivery, payload) in rows {
            last_due = delivery.plan.due_at;
            if !departed.contains(&delivery.key) {
                self.admit(delivery, payload, false, now);
            }
        }
        let useless = self.queued == before && missed.is_none();
        let lane = self.lane(destination, now);
        if unread.more {
            lane.leave_in_store(last_due);
        }
        if unread.replays {
            lane.leave_replays();
        }
        if let Some(earliest) = missed {
            lane.leave_in_store(earliest);
        }
        if useless && let Rest::InStore { not_before, .. } = &mut lane.rest {
            *not_before = now.plus(USELESS_READ_PAUSE);
        }
        self.list(destination);
    }

    /// The read failed; it is repeated.
    pub fn refill_failed(&mut self, destination: DestinationKey, now: Timestamp) {
        self.refills = self.refills.saturating_sub(1);
        self.lane(destination, now).rest = Rest::InStore {
            earliest: Timestamp::EPOCH,
            not_before: now.plus(REFILL_PAUSE),
        };
        self.list(destination);
    }

    /// An attempt came back, or could not be made. The slot is free at once; the result may still be on its way to disk.
    pub fn finished(&mut self, finished: Finished<P>, now: Timestamp) -> Learned {
        self.read_clock(now);
        let destination = finished.delivery.destination;
        let key = finished.delivery.key;
        let Some(lane) = self.lanes.get_mut(&destination) else {
            return Learned::NOTHING;
        };
        lane.end_hold(&self.config.window, now);
        let in_flight = lane.in_flight;
        let owned = lane.owned.entry(key).or_default();
        let was_lost = std::mem::take(&mut owned.lost);
        if !was_lost {
            lane.in_flight = in_flight.saturating_sub(1);
            self.slots.changed(lane.pace, in_flight, lane.in_flight);
            self.busy -= usize::from(in_flight == 1);
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        // Somebody asked for it meanwhile: that replaces what the policy planned, as soon as this result is committed.
        let again = finished
            .again
            .filter(|_| owned.renewed.is_none() && !owned.withdrawn);
        owned.withdrawn = false;
        owned.in_flight = false;
        owned.unsettled += u32::from(finished.unsettled);
        if let Some(outcome) = &finished.outcome {
            owned.made = finished.delivery.progress.attempts.saturating_add(1);
            owned.succeeded = outcome.is_success();
        }
        self.unsettled += usize::from(finished.unsettled);
        let mut learned = Learned::NOTHING;
        match &finished.outcome {
            // It was written off, and another one asked in its place.
            _ if was_lost => {}
            // It ended by itself: no request, so neither a probe nor one of so many a second.
            None if finished.unsettled => {
                lane.unstart(now);
                self.tenants.give_back(lane.tenant);
            }
            None => lane.breaker.aborted(now),
            Some(_) if finished.elsewhere => lane.breaker.aborted(now),
            Some(outcome) => {
                let Finished {
                    permanent, latency, ..
                } = finished;
                self.slots.learn(&mut lane.pace, lane.in_flight, outcome, latency);
                let strain = lane
                    .window
                    .finished(outcome, latency, in_flight, &self.config.window);
                learned.notice = lane.streak.finished(outcome, now, &self.config.streak);
                let span = self.config.breaker.window;
                lane.pulse
                    .get_or_insert_default()
                    .finished(outcome, latency, now, span);
                if strain == Strain::None || lane.breaker.trouble().is_some() {
                    learned.change =
                        lane.breaker
                            .finished(outcome, permanent, latency, now, &self.config.breaker);
                }
                if learned.change == Change::Closed {
                    lane.window.restart(lane.in_flight, &self.config.window);
                }
            }
        }
        if let Some(until) = finished.hold_until.filter(|_| !finished.elsewhere) {
            lane.hold(until);
        }
        if let Some((delivery, payload)) = again {
            self.requeue(delivery, payload, false, now);
        }
        self.forget_if_idle(destination, key, now);
        self.list(destination);
        self.list_next();
        learned
    }

    /// Results were committed. Deliveries that were committed before these must have been handed over by
    /// [`Dispatcher::accepted`] first, or one that was also read from the store would be taken for a new one.
    pub fn settled(&mut self, keys: impl IntoIterator<Item = (DestinationKey, DeliveryKey)>, now: Timestamp) {
        for (destination, key) in keys {
            self.unsettled = self.unsettled.saturating_sub(1);
            if let Some(owned) = self
                .lanes
                .get_mut(&destination)
                .and_then(|lane| lane.owned.get_mut(&key))
            {
                owned.unsettled = owned.unsettled.saturating_sub(1);
            }
            self.forget_if_idle(destination, key, now);
        }
        self.room_for_endings();
    }

    /// The destination is disabled: nothing starts until [`Dispatcher::spilled`] names it again.
    pub fn pause(&mut self, destination: DestinationKey, now: Timestamp) {
        self.lane(destination, now).paused = true;
    }

    /// The next thing to do at `now`; `None` when there is nothing before [`Dispatcher::poll_timeout`] or the next input.
    pub fn next_action(&mut self, now: Timestamp) -> Option<Action<P>> {
        self.wake(now);
        let low_water = self.lane_capacity().div_ceil(4);
        let limit = self.lane_limit();
        while let Some(destination) = self.next_listed() {
            let (is_full, scarcity) = (self.full().is_some(), self.scarcity());
            let Some(lane) = self.lanes.get_mut(&destination) else {
                continue;
            };
            lane.listed = false;
            lane.end_hold(&self.config.window, now);
            let tenant = lane.tenant;
            let of_tenant = || {
                self.tenants
                    .blocked(tenant, destination, now)
                    .map(Blocked::Tenant)
            };
            let blocked = lane.blocked(limit, now).or_else(of_tenant);
            let gives_up = lane.gives_up(now);
            let servable = matches!(
                blocked,
                None | Some(Blocked::Idle | Blocked::Window | Blocked::Rate(_) | Blocked::Tenant(_))
            );
            lane.recall_replays(low_water);
            if (servable || gives_up) && lane.wants_refill(low_water, now) {
                if self.refills < self.config.max_refills {
                    return Some(self.refill(destination));
                }
                if !std::mem::replace(&mut lane.awaits_refill, true) {
                    self.waiting_for_refill.push_back(destination);
                }
            }
            if gives_up && let Some(action) = self.end_one(destination, now) {
                return Some(action);
            }
            let Some(lane) = self.lanes.get_mut(&destination) else {
                continue;
            };
            match blocked {
                None if is_full => {
                    lane.listed = true;
                    self.ready.push_front(tenant, destination);
                    return None;
                }
                None if scarcity.stops(lane.pace, lane.has_turn) => self.await_slot(tenant, destination, now),
                None => {
                    if let Some(action) = self.begin(destination, now) {
                        return Some(action);
                    }
                }
                Some(blocked) => {
                    lane.note(blocked, now);
                    self.leave_turn(tenant, destination, blocked);
                    self.sleep(destination, blocked, now);
                    self.offer(tenant, Some(destination), now);
                }
            }
        }
        None
    }

    /// Starts the next delivery of a lane that nothing stops.
    fn begin(&mut self, destination: DestinationKey, now: Timestamp) -> Option<Action<P>> {
        let lane = self.lanes.get_mut(&destination)?;
        let (tenant, was_out) = (lane.tenant, lane.in_flight);
        self.slots.end_turn(&mut lane.has_turn);
        let (waiting, waited_for) = lane.start(now)?;
        lane.listed = true;
        self.slots.changed(lane.pace, was_out, lane.in_flight);
        self.busy += usize::from(was_out == 0);
        // Less than one more when some were lost.
        self.in_flight = self.in_flight + lane.in_flight as usize - was_out as usize;
        self.ready.push_back(tenant, destination);
        self.ready.served(tenant, self.tenants.weight(tenant));
        self.tenants.take(tenant, now);
        self.queued -= 1;
        self.payload_bytes -= waiting.payload.as_ref().map_or(0, Payload::bytes);
        self.offer(tenant, Some(destination), now);
        Some(Action::Start(waiting.delivery, waiting.payload, waited_for))
    }

    /// When [`Dispatcher::next_action`] wants to be asked again without any input, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Timestamp, &'static str)> {
        let lane = self.timers.first().map(|(at, _)| *at);
        let next = lane.into_iter().chain(self.tenants.next_wake()).min()?;
        Some((next, "a lane's next delivery, hold, probe, turn or read is due"))
    }

    /// Sizes now.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            in_flight: self.in_flight,
            unsettled: self.unsettled,
            queued: self.queued,
            lanes: self.lanes.len(),
        }
    }

    /// Forgets lanes that have held nothing for ten minutes. Looks at most once a minute.
    pub fn sweep(&mut self, now: Timestamp) {
        if now.since(self.swept_at) >= Duration::from_secs(60) {
            self.swept_at = now;
            self.lanes.retain(|_, lane| !lane.is_disposable(now, LANE_IDLE));
            self.slots.recount(self.lanes.values());
            self.tenants
                .retain(&self.lanes.values().map(|lane| lane.tenant).collect());
        }
    }

    /// The next lane to look at: one that may start something, else one that may read the store now.
    fn next_listed(&mut self) -> Option<DestinationKey> {
        if let Some(ready) = self.ready.pop().or_else(|| self.offer_slot()) {
            return Some(ready);
        }
        if self.refills >= self.config.max_refills {
            return None;
        }
        let next = self.waiting_for_refill.pop_front()?;
        if let Some(lane) = self.lanes.get_mut(&next) {
            lane.awaits_refill = false;
        }
        Some(next)
    }

    fn lane(&mut self, destination: DestinationKey, now: Timestamp) -> &mut Lane<P> {
        let window = &self.config.window;
        self.lanes
            .entry(destination)
            .or_insert_with(|| Lane::new(destination, window, now))
    }

    /// Takes a delivery into memory unless it is there already, within the bounds.
    fn admit(&mut self, delivery: PendingDelivery, payload: Option<P>, fresh: bool, now: Timestamp) {
        if !self
            .lane(delivery.destination, now)
            .owned
            .contains_key(&delivery.key)
        {
            self.requeue(delivery, payload, fresh, now);
        }
    }

    /// Puts a delivery into its lane's queue, within the bounds.
    fn requeue(&mut self, delivery: PendingDelivery, payload: Option<P>, fresh: bool, now: Timestamp) {
        let capacity = self.lane_capacity();
        let payload = self.afford(payload, &delivery, now);
        let bytes = payload.as_ref().map_or(0, Payload::bytes);
        let lane = self.lane(delivery.destination, now);
        let before = lane.queue.len();
        lane.queue.age(now);
        lane.enqueue(Waiting { delivery, payload }, fresh);
        let freed = lane.trim(capacity);
        let after = lane.queue.len();
        self.queued = self.queued + after - before;
        self.payload_bytes = self.payload_bytes + bytes - freed;
    }

    /// The payload, if it will be wanted soon and the budget allows it.
    fn afford(&self, payload: Option<P>, delivery: &PendingDelivery, now: Timestamp) -> Option<P> {
        payload.filter(|payload| {
            delivery.plan.due_at <= now.plus(PAYLOAD_HORIZON)
                && self.payload_bytes + payload.bytes() <= self.config.max_payload_bytes
        })
    }

    fn lane_capacity(&self) -> usize {
        if self.queued < self.config.max_queued {
            self.config.max_lane
        } else {
            MIN_LANE.min(self.config.max_lane)
        }
    }

    fn list(&mut self, destination: DestinationKey) {
        if let Some(lane) = self.lanes.get_mut(&destination)
            && !lane.listed
        {
            lane.listed = true;
            self.ready.push_back(lane.tenant, destination);
        }
    }

    /// The next request that this tenant's limit allows goes to the first lane that waits for it.
    fn offer(&mut self, tenant: TenantKey, looked_at: Option<DestinationKey>, now: Timestamp) {
        if let Some(next) = self.tenants.offer(tenant, looked_at, now) {
            // A lane with deliveries is not forgotten while it waits.
            if let Some(lane) = self.lanes.get_mut(&next) {
                lane.awaits_tenant = false;
            }
            self.list(next);
        }
    }

    fn wake(&mut self, now: Timestamp) {
        self.read_clock(now);
        while let Some((at, destination)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, destination));
            if let Some(lane) = self.lanes.get_mut(&destination) {
                lane.wake_at = None;
                self.list(destination);
            }
        }
        while let Some(tenant) = self.tenants.pop_due(now) {
            self.offer(tenant, None, now);
        }
    }

    /// Sets the lane's timer for what blocks it. What has no time ahead (window, pause, a turn to read the store)
    /// ends with an input.
    fn sleep(&mut self, destination: DestinationKey, blocked: Blocked, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&destination) else {
            return;
        };
        if matches!(blocked, Blocked::Tenant(_)) && !std::mem::replace(&mut lane.awaits_tenant, true) {
            self.tenants.wait(lane.tenant, destination);
        }
        let at = match blocked {
            Blocked::Idle => lane.next_look(now),
            Blocked::Hold(until) | Blocked::Breaker(until) => {
                Some(lane.next_ending(now).map_or(until, |at| at.min(until)))
            }
            Blocked::Rate(until) => Some(until),
            Blocked::Probe => lane.breaker.poll_timeout().map(|(at, _)| at),
            Blocked::Window | Blocked::Paused | Blocked::Tenant(_) => None,
        }
        .filter(|at| *at > now);
        if lane.wake_at != at {
            if let Some(old) = lane.wake_at {
                self.timers.remove(&(old, destination));
            }
            lane.wake_at = at;
            self.timers.extend(at.map(|at| (at, destination)));
        }
    }

    fn refill(&mut self, destination: DestinationKey) -> Action<P> {
        self.refills += 1;
        let limit = self.lane_capacity().div_ceil(2);
        let low_water = self.lane_capacity().div_ceil(4);
        let mut skip = HashSet::new();
        let mut replays = true;
        if let Some(lane) = self.lanes.get_mut(&destination) {
            replays = lane.wants_replays(low_water);
            lane.rest = Rest::Reading {
                departed: HashSet::new(),
                missed: None,
            };
            skip.extend(lane.owned.keys().copied());
        }
        self.list(destination);
        Action::Refill {
            destination,
            skip,
            replays,
            limit,
        }
    }

    fn forget_if_idle(&mut self, destination: DestinationKey, key: DeliveryKey, now: Timestamp) {
        let renewed = self
            .lanes
            .get_mut(&destination)
            .and_then(|lane| lane.release_if_idle(key));
        if let Some(delivery) = renewed {
            self.requeue(delivery, None, true, now);
            self.list(destination);
        }
    }
}

#[cfg(test)]
mod tests;
