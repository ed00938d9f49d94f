//! What all lanes share, and how much of it there is.

use std::collections::VecDeque;
use std::time::Duration;

use super::lane::{Blocked, Lane};
use super::queue::Payload;
use super::view::Full;
use super::{Dispatcher, DispatcherConfig};
use crate::id::{DestinationKey, TenantKey};
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// One of so many slots is for receivers that answer soon.
const RESERVED: usize = 8;
/// Soon is within this.
const SOON: Duration = Duration::from_secs(1);

/// How long a receiver's last request took, whatever the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// None has come back.
    Unknown,
    /// At most a second.
    Prompt,
    /// Longer.
    Slow,
}

impl Pace {
    /// After another request; one that failed by a fault of ours says nothing.
    pub(super) fn after(self, outcome: &Outcome, latency: Duration) -> Self {
        match outcome {
            Outcome::Failed(kind) if !kind.blames_receiver() => self,
            _ if latency <= SOON => Self::Prompt,
            _ => Self::Slow,
        }
    }
}

/// Who has requests out, and who waits because of that.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Requests out, by the pace of their receivers.
    out: [usize; 3],
    /// Lanes of slow receivers.
    slow: usize,
    /// Lanes that wait until fewer requests are out to receivers like theirs, in turn.
    waiting: VecDeque<DestinationKey>,
    /// Lanes that had their turn and have not been looked at since: each has a slot kept for it.
    turns: usize,
}

impl Slots {
    /// A lane that had `before` requests out has `after`.
    pub(super) fn changed(&mut self, pace: Pace, before: u32, after: u32) {
        let out = &mut self.out[pace as usize];
        *out = (*out + after as usize).saturating_sub(before as usize);
    }

    /// A request of a lane came back; so many of it are still out.
    pub(super) fn learn(&mut self, pace: &mut Pace, in_flight: u32, outcome: &Outcome, latency: Duration) {
        let before = std::mem::replace(pace, pace.after(outcome, latency));
        self.changed(before, in_flight, 0);
        self.changed(*pace, 0, in_flight);
        self.slow += usize::from(*pace == Pace::Slow);
        self.slow -= usize::from(before == Pace::Slow);
    }

    /// A lane was looked at. Whether it was its turn, which is over.
    pub(super) fn end_turn(&mut self, has_turn: &mut bool) -> bool {
        self.turns -= usize::from(*has_turn);
        std::mem::take(has_turn)
    }

    /// After lanes were forgotten, none of which had a request out.
    pub(super) fn recount<'l, P: 'l>(&mut self, lanes: impl Iterator<Item = &'l Lane<P>>) {
        (self.slow, self.turns) = lanes.fold((0, 0), |(slow, turns), lane| {
            (
                slow + usize::from(lane.pace == Pace::Slow),
                turns + usize::from(lane.has_turn),
            )
        });
    }

    fn scarcity(&self, all: usize) -> Scarcity {
        let [unknown, _, slow] = self.out;
        let reserved = all / RESERVED;
        let doubts = reserved > 0 && self.slow >= reserved;
        let out = if doubts { slow + unknown } else { slow };
        Scarcity {
            doubts,
            is_used_up: reserved > 0 && out >= all - reserved,
            is_spoken_for: reserved > 0 && out + self.turns >= all - reserved,
            has_queue: !self.waiting.is_empty(),
        }
    }
}

/// Whether receivers that do not answer soon have as many requests out as they may together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scarcity {
    /// So many are slow that those of which nothing is known count as slow, too.
    doubts: bool,
    is_used_up: bool,
    /// The same with those whose turn it is.
    is_spoken_for: bool,
    has_queue: bool,
}

impl Scarcity {
    fn concerns(self, pace: Pace) -> bool {
        match pace {
            Pace::Prompt => false,
            Pace::Unknown => self.doubts,
            Pace::Slow => true,
        }
    }

    /// Whether a lane has to wait; one whose turn it is waits for no other.
    pub(super) fn stops(self, pace: Pace, has_turn: bool) -> bool {
        let is_stopped = if has_turn {
            self.is_used_up
        } else {
            self.is_spoken_for || self.has_queue
        };
        self.concerns(pace) && is_stopped
    }
}

impl<P: Payload> Dispatcher<P> {
    /// Requests that one lane may have out. While slots are plentiful only its window counts; beyond half of them the
    /// lanes share evenly, so that slow destinations cannot take the slots of others.
    pub(super) fn lane_limit(&self) -> u32 {
        if self.in_flight * 2 < self.config.max_in_flight {
            return u32::MAX;
        }
        let share = self.config.max_in_flight / self.busy.max(1);
        u32::try_from(share.max(1)).unwrap_or(u32::MAX)
    }

    /// See [`Scarcity`].
    pub(super) fn scarcity(&self) -> Scarcity {
        self.slots.scarcity(self.config.max_in_flight)
    }

    /// A lane waits until fewer requests are out to receivers like its own; what its tenant may send is for others meanwhile.
    /// One whose turn it was keeps its place.
    pub(super) fn await_slot(&mut self, tenant: TenantKey, destination: DestinationKey, now: Timestamp) {
        if let Some(lane) = self.lanes.get_mut(&destination)
            && !std::mem::replace(&mut lane.awaits_slot, true)
        {
            if self.slots.end_turn(&mut lane.has_turn) {
                self.slots.waiting.push_front(destination);
            } else {
                self.slots.waiting.push_back(destination);
            }
        }
        self.offer(tenant, Some(destination), now);
    }

    /// A lane was looked at and cannot start, so its turn is over. One of each tenant that only waits for its tenant's limit as well
    /// keeps its slot until then: the two would hardly ever come together otherwise.
    pub(super) fn leave_turn(&mut self, tenant: TenantKey, destination: DestinationKey, blocked: Blocked) {
        let keeps = matches!(blocked, Blocked::Tenant(_)) && self.keeps_turn(tenant, destination);
        if let Some(lane) = self.lanes.get_mut(&destination).filter(|_| !keeps) {
            self.slots.end_turn(&mut lane.has_turn);
        }
    }

    fn keeps_turn(&mut self, tenant: TenantKey, destination: DestinationKey) -> bool {
        let has_turn = |key| self.lanes.get(&key).is_some_and(|lane| lane.has_turn);
        let other = self.tenants.keeper(tenant).filter(|key| *key != destination);
        if !has_turn(destination) || other.is_some_and(has_turn) {
            return false;
        }
        self.tenants.keep(tenant, destination);
        true
    }

    /// The first lane that waits has its turn, if there is a slot for it.
    pub(super) fn offer_slot(&mut self) -> Option<DestinationKey> {
        if self.scarcity().is_spoken_for {
            return None;
        }
        let next = self.slots.waiting.pop_front()?;
        if let Some(lane) = self.lanes.get_mut(&next) {
            lane.awaits_slot = false;
            self.slots.turns += usize::from(!std::mem::replace(&mut lane.has_turn, true));
        }
        Some(next)
    }

    /// The first lane that waits is looked at in turn with the others, if there is a slot for it.
    pub(super) fn list_next(&mut self) {
        if let Some(next) = self.offer_slot() {
            self.list(next);
        }
    }

    /// What there is no room for, as far as a lane with this pace goes.
    pub(super) fn full_for(&self, pace: Pace) -> Option<Full> {
        let all = self.config.max_in_flight;
        let is_stopped = self.scarcity().stops(pace, true);
        self.full()
            .or_else(|| is_stopped.then_some(Full::Reserved(all - all / RESERVED)))
    }

    /// What there is no room for, so that nothing starts whoever is ready.
    pub(super) fn full(&self) -> Option<Full> {
        let DispatcherConfig {
            max_in_flight,
            max_unsettled,
            ..
        } = self.config;
        if self.in_flight >= max_in_flight {
            Some(Full::Requests(max_in_flight))
        } else if self.unsettled >= max_unsettled {
            Some(Full::Results(max_unsettled))
        } else {
            None
        }
    }
}
