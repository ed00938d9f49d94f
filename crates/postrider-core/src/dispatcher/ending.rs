//! Deliveries that end because their destination's breaker is open and its owner does not want them to wait.
//!
//! One at a time, in turn with everything else that lanes do, and only while results have taken less than half of their
//! room: a backlog of any length becomes dead letters in small transactions, and never stands in the way of requests. One
//! delivery stays to be the probe. Those of a destination that is held or disabled as well end no sooner or later, and
//! replays that are stopped wait.

use super::lane::Lane;
use super::queue::Waiting;
use super::{Action, Dispatcher, Payload};
use crate::breaker::Gate;
use crate::delivery::DeadReason;
use crate::id::DestinationKey;
use crate::time::Timestamp;

impl<P: Payload> Lane<P> {
    /// When the receiver has failed for as long as its owner is patient, and until when the breaker is open; `None`
    /// unless it is open and patience has an end.
    pub(super) fn given_up(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let Gate::Open(probe_at) = self.breaker.gate(now) else {
            return None;
        };
        let opened = self.breaker.trouble()?.failing_since;
        let since = self.streak.since().map_or(opened, |first| first.min(opened));
        let given_up_at = since.plus(self.patience?);
        (!self.paused).then_some((given_up_at, probe_at))
    }

    /// Whether deliveries that are due end now, without an attempt.
    pub(super) fn gives_up(&self, now: Timestamp) -> bool {
        self.given_up(now)
            .is_some_and(|(given_up_at, _)| given_up_at <= now)
    }

    /// When, after `now`, the next delivery may end so; `None` when nothing will before something else happens.
    pub(super) fn next_ending(&self, now: Timestamp) -> Option<Timestamp> {
        let (given_up_at, _) = self.given_up(now)?;
        if given_up_at > now {
            return Some(given_up_at);
        }
        let due = self.queue.next_due_after(now, self.replay_rate().is_some());
        let read = self.next_read().filter(|at| *at > now);
        due.into_iter().chain(read).min()
    }

    /// Takes one that is due and not needed as the probe.
    fn end_one(&mut self, now: Timestamp) -> Option<Waiting<P>> {
        let (given_up_at, probe_at) = self.given_up(now)?;
        if given_up_at > now {
            return None;
        }
        let waiting = self
            .queue
            .pop_spare(now, probe_at, self.replay_rate().is_some())?;
        let owned = self.owned.entry(waiting.delivery.key).or_default();
        owned.queued = None;
        owned.unsettled += 1;
        Some(waiting)
    }
}

impl<P: Payload> Dispatcher<P> {
    /// Ends one delivery of a lane that gives up, if there is room for its result.
    pub(super) fn end_one(&mut self, destination: DestinationKey, now: Timestamp) -> Option<Action<P>> {
        let has_room = self.has_room_for_endings();
        let lane = self.lanes.get_mut(&destination)?;
        if !has_room {
            if !std::mem::replace(&mut lane.awaits_room, true) {
                self.waiting_for_room.push_back(destination);
            }
            return None;
        }
        let waiting = lane.end_one(now)?;
        self.queued -= 1;
        self.unsettled += 1;
        self.payload_bytes -= waiting.payload.as_ref().map_or(0, Payload::bytes);
        self.list(destination);
        Some(Action::End(waiting.delivery, DeadReason::CircuitOpen))
    }

    /// Results were committed: lanes that waited for room may go on.
    pub(super) fn room_for_endings(&mut self) {
        if !self.has_room_for_endings() {
            return;
        }
        while let Some(destination) = self.waiting_for_room.pop_front() {
            if let Some(lane) = self.lanes.get_mut(&destination) {
                lane.awaits_room = false;
            }
            self.list(destination);
        }
    }

    const fn has_room_for_endings(&self) -> bool {
        self.unsettled * 2 < self.config.max_unsettled
    }
}
