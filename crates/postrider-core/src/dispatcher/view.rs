//! A lane as people see it: what stops it, until when, and why, in a word and in a sentence.

use std::num::NonZeroU32;
use std::time::Duration;

use super::lane::{Blocked, Lane, Rest};
use super::queue::Payload;
use super::{Dispatcher, DispatcherConfig};
use crate::breaker::{BreakerSnapshot, BreakerState};
use crate::id::DestinationKey;
use crate::pulse::Vitals;
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// What a lane does, in a word.
    pub enum Standing {
        /// Nothing stops what is due.
        Flowing = 0 => "flowing",
        /// Nothing is due.
        Idle = 1 => "idle",
        /// As many requests are out as may be.
        WindowFull = 2 => "window_full",
        /// The next request would be one too many for this second.
        RateLimited = 3 => "rate_limited",
        /// The receiver asked for a pause.
        Held = 4 => "held",
        /// The circuit breaker is open.
        Open = 5 => "open",
        /// A probe may go, or is out.
        Probing = 6 => "probing",
        /// The destination is disabled.
        Disabled = 7 => "disabled",
        /// Nothing is due but deliveries of replays, and these are paused.
        ReplaysPaused = 8 => "replays_paused",
        /// Something is due, and this server has no room for it: it is at its own limit.
        AtCapacity = 9 => "at_capacity",
    }
}

/// What this server has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// So many requests are out, over all destinations.
    Requests(usize),
    /// So many results are not committed.
    Results(usize),
    /// So many requests are out, and the rest of what may be is for receivers that are known to answer soon.
    Reserved(usize),
}

/// What a lane shares with others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shared {
    /// Requests per second of its tenant.
    pub(super) tenant_rate: Option<NonZeroU32>,
    pub(super) tenant_blocked_until: Option<Timestamp>,
    /// Requests that one lane may have out.
    pub(super) lane_limit: u32,
    pub(super) full: Option<Full>,
}

/// A destination's lane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Whose.
    pub destination: DestinationKey,
    /// What it does.
    pub standing: Standing,
    /// Until when at least nothing more is sent, if that is known.
    pub until: Option<Timestamp>,
    /// The breaker in a word.
    pub breaker: BreakerState,
    /// Why it is not closed.
    pub opening: Option<BreakerSnapshot>,
    /// The receiver asked for no request before this.
    pub hold_until: Option<Timestamp>,
    /// Requests that may be out.
    pub window: u32,
    /// The most that [`LaneView::window`] can grow to.
    pub ceiling: u32,
    /// Its share of the requests that may be out over all destinations, where that is less than its window.
    pub share: Option<u32>,
    /// What this server has no room for, as far as this destination goes.
    pub full: Option<Full>,
    /// The latency that is taken for normal.
    pub baseline: Option<Duration>,
    /// Requests per second that its owner allows.
    pub rate: Option<NonZeroU32>,
    /// Requests per second that its tenant may make, over all its destinations.
    pub tenant_rate: Option<NonZeroU32>,
    /// Whether it is that limit which it waits for.
    pub waits_for_tenant: bool,
    /// Whether no replay of it may start, because all replays of the destination are paused.
    pub replays_stopped: bool,
    /// Requests that are out.
    pub in_flight: u32,
    /// Deliveries that wait in memory.
    pub queued: usize,
    /// Whether the store may have more.
    pub more_in_store: bool,
    /// From when on deliveries that are due while the breaker is open become dead letters; `None` when they wait.
    pub gives_up_at: Option<Timestamp>,
    /// How the latest attempts went, over the breaker's time of looking back.
    pub vitals: Vitals,
    /// Due time of the first that waits in memory.
    pub next_due_at: Option<Timestamp>,
    /// Failures since the last success.
    pub failures: u32,
    /// When the first of these was.
    pub failing_since: Option<Timestamp>,
}

impl LaneView {
    pub(super) fn of<P: Payload>(
        destination: DestinationKey,
        lane: &Lane<P>,
        shared: Shared,
        config: &DispatcherConfig,
        now: Timestamp,
    ) -> Self {
        let next_due_at = lane.queue.next_due();
        let breaker = lane.breaker.state(now);
        let Shared { lane_limit, full, .. } = shared;
        let blocked = lane.blocked(lane_limit, now);
        let of_tenant = shared.tenant_blocked_until.filter(|_| blocked.is_none());
        let (standing, until) = match blocked.or(of_tenant.map(Blocked::Tenant)) {
            Some(Blocked::Paused) => (Standing::Disabled, None),
            Some(Blocked::Hold(until)) => (Standing::Held, Some(until)),
            Some(Blocked::Breaker(until)) => (Standing::Open, Some(until)),
            Some(Blocked::Probe) => (Standing::Probing, None),
            Some(Blocked::Window) if breaker == BreakerState::HalfOpen => (Standing::Probing, None),
            Some(Blocked::Window) => (Standing::WindowFull, None),
            Some(Blocked::Rate(at) | Blocked::Tenant(at)) => (Standing::RateLimited, Some(at)),
            Some(Blocked::Idle) if lane.stops_replays(now) => (Standing::ReplaysPaused, None),
            Some(Blocked::Idle) => (Standing::Idle, lane.next_due(now)),
            None if full.is_some() => (Standing::AtCapacity, None),
            None if breaker == BreakerState::HalfOpen => (Standing::Probing, None),
            None => (Standing::Flowing, None),
        };
        Self {
            destination,
            standing,
            until,
            breaker,
            opening: lane.breaker.snapshot(),
            hold_until: lane.hold_until.filter(|until| *until > now),
            window: lane.window.size(),
            ceiling: config.window.ceiling,
            share: Some(lane_limit).filter(|limit| *limit < lane.window.size()),
            full,
            baseline: lane.window.baseline(),
            rate: lane.rate.map(|limit| limit.per_second),
            tenant_rate: shared.tenant_rate,
            waits_for_tenant: of_tenant.is_some(),
            replays_stopped: lane.replay_rate().is_none(),
            in_flight: lane.in_flight,
            queued: lane.queue.len(),
            more_in_store: !matches!(lane.rest, Rest::None),
            gives_up_at: lane.given_up(now).map(|(at, _)| at),
            vitals: lane
                .pulse
                .as_ref()
                .map_or_else(Vitals::default, |pulse| pulse.vitals(now, config.breaker.window)),
            next_due_at,
            failures: lane.streak.failures(),
            failing_since: lane.streak.since(),
        }
    }

    /// When a probe may go, while the breaker is open.
    #[must_use]
    pub fn next_probe_at(&self) -> Option<Timestamp> {
        let opening = self.opening.as_ref()?;
        (self.breaker == BreakerState::Open).then_some(opening.until)
    }

    /// What it does and why, as a sentence for people.
    #[must_use]
    pub fn explanation(&self) -> String {
        let why = || {
            let opening = self.opening.as_ref();
            opening.map_or("it failed too often", |opening| opening.reason.text.as_str())
        };
        let until = || {
            self.until
                .map_or_else(|| "further notice".to_owned(), |until| until.to_string())
        };
        match self.standing {
            Standing::Disabled => "Nothing is sent, because the destination is disabled.".to_owned(),
            Standing::Held => format!(
                "Nothing is sent before {}, because the receiver asked for a pause.",
                until()
            ),
            Standing::Open => format!(
                "Nothing is sent before {}, when one request goes out as a probe: the circuit breaker is open, because {}.{}",
                until(),
                why(),
                self.gives_up_at.map_or_else(String::new, |at| format!(
                    " From {at} on, deliveries that are due meanwhile become dead letters."
                ))
            ),
            Standing::Probing if self.in_flight > 0 => format!(
                "One request is out as a probe, and the others wait for its answer: the circuit breaker had opened, because {}.",
                why()
            ),
            Standing::Probing => format!(
                "The next request is a probe, and the others wait for its answer: the circuit breaker had opened, because {}.",
                why()
            ),
            Standing::RateLimited if self.waits_for_tenant => format!(
                "The next request goes out at {} or later, because all destinations of the tenant together get {} a second.",
                until(),
                self.tenant_rate.map_or(0, NonZeroU32::get)
            ),
            Standing::RateLimited => format!(
                "The next request goes out at {}, because the destination allows {} a second.",
                until(),
                self.rate.map_or(0, NonZeroU32::get)
            ),
            Standing::WindowFull if let Some(share) = self.share => format!(
                "{} of {share} requests are out, the destination's share of all that may be out at once; the next one goes out when \
                 one of them ends.",
                self.in_flight
            ),
            Standing::WindowFull => format!(
                "{} of {} requests are out; the next one goes out when one of them ends.",
                self.in_flight,
                self.window.max(self.in_flight)
            ),
            Standing::Idle => match self.until {
                Some(due) => format!("Nothing is due; the next delivery is due at {due}."),
                None if self.more_in_store => "Nothing in memory is due; the store is read next.".to_owned(),
                None if self.in_flight > 0 => {
                    format!("Nothing waits. Requests that are out: {}.", self.in_flight)
                }
                None => "Nothing waits.".to_owned(),
            },
            Standing::ReplaysPaused => {
                "Nothing is due but deliveries of replays, and all replays of the destination are paused."
                    .to_owned()
            }
            Standing::AtCapacity => self.crowded(),
            Standing::Flowing => "Deliveries flow.".to_owned(),
        }
    }

    fn crowded(&self) -> String {
        match self.full {
            Some(Full::Results(most)) => format!(
                "Nothing is sent by this server, because {most} results are not written yet; see its health and the disk."
            ),
            Some(Full::Requests(1)) => {
                "The one request that this server may have out is out; the next one goes out when it ends and this destination has its turn.".to_owned()
            }
            Some(Full::Requests(most)) => format!(
                "All {most} requests that this server may have out are out; the next one goes out when one of them ends and this \
                 destination has its turn."
            ),
            Some(Full::Reserved(most)) => format!(
                "{most} requests are out or more; the rest of those that this server may have out are kept for receivers that \
                 are known to answer within a second, and the last request to this one took longer, or there was none."
            ),
            None => "This server had no room for another request.".to_owned(),
        }
    }
}

/// How badly off a destination is, in one number; the greater, the worse. It changes only when something happens, not as
/// time passes, so that a list in this order can be read page by page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Rank(u64);

impl Rank {
    /// Bits of a due time: milliseconds until the year 2039, later ones are as good as that.
    const DUE_BITS: u32 = 41;
    const FAILURE_BITS: u32 = 16;

    /// Of a destination that is disabled: behind those that fail or are stopped, before all others.
    pub const DISABLED: Self = Self(1 << (Self::DUE_BITS + Self::FAILURE_BITS + 2));

    pub(super) fn of<P: Payload>(lane: &Lane<P>, now: Timestamp) -> Self {
        let stopped: u64 = match lane.breaker.state(now) {
            BreakerState::Open => 3,
            BreakerState::HalfOpen => 2,
            BreakerState::Closed => lane.hold_until.is_some_and(|until| until > now).into(),
        };
        let failures = u64::from(lane.streak.failures()).min((1 << Self::FAILURE_BITS) - 1);
        let furthest = (1 << Self::DUE_BITS) - 1;
        // Replays are as late as their rate makes them, which is no trouble.
        let [_, due] = lane.queue.next_due_apart();
        let due = due.filter(|due| *due <= now);
        let late = due.map_or(0, |due| {
            let due = u64::try_from(due.as_millis()).unwrap_or(0);
            furthest - due.min(furthest)
        });
        let is_troubled = stopped > 0 || failures > 0;
        let class = u64::from(is_troubled) << 1;
        let stopped = (class << 2 | stopped) << Self::FAILURE_BITS;
        Self((stopped | failures) << Self::DUE_BITS | late)
    }

    /// For a cursor.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// From a cursor.
    #[must_use]
    pub const fn from_u64(rank: u64) -> Self {
        Self(rank)
    }
}

/// How many lanes are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// By the breaker's state, in the order of [`BreakerState::ALL`].
    pub breakers: [usize; BreakerState::ALL.len()],
    /// Held by their receiver.
    pub held: usize,
}

impl<P: Payload> Dispatcher<P> {
    /// Every destination of which something is known, with its rank. Looks at every lane.
    #[must_use]
    pub fn ranks(&self, now: Timestamp) -> Vec<(DestinationKey, Rank)> {
        let lanes = self.lanes.iter();
        lanes.map(|(key, lane)| (*key, Rank::of(lane, now))).collect()
    }

    /// Counts lanes. Looks at every lane.
    #[must_use]
    pub fn census(&self, now: Timestamp) -> Census {
        let mut census = Census::default();
        for lane in self.lanes.values() {
            let state = lane.breaker.state(now);
            census.breakers[usize::from(state.code())] += 1;
            census.held += usize::from(lane.hold_until.is_some_and(|until| until > now));
        }
        census
    }
}
