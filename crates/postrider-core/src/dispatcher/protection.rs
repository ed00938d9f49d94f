//! What is known about receivers, from outside: kept over a restart, looked at, and reset.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lane::{DEFAULT_REPLAY_RATE, Lane, Limit};
use super::limits::Pace;
use super::queue::Payload;
use super::tenants::Share;
use super::view::{LaneView, Rank, Shared};
use super::{Dispatcher, REFILL_PAUSE};
use crate::breaker::{Breaker, BreakerSnapshot, Change};
use crate::id::{DestinationKey, TenantKey};
use crate::streak::{Notice, Streak};
use crate::time::Timestamp;

/// A hold that is shorter is not worth a write: a restart takes about as long.
const MIN_KEPT_HOLD: Duration = Duration::from_secs(2);
/// The clock was set back when it shows so much less than before, and not merely corrected.
const CLOCK_SET_BACK: Duration = Duration::from_secs(60);
/// Failures in a row that go on for so long are worth one, so that a restart does not set the time to disabling to zero.
const OLD_STREAK: Duration = Duration::from_secs(3600);

/// What outlives a restart: a receiver that is down must not be let loose upon, nor one that asked for a pause, and days of
/// failure not be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// The breaker, when it is not closed.
    pub breaker: Option<BreakerSnapshot>,
    /// Failures since the last success, as they were when this was kept.
    pub streak: Streak,
    /// The receiver asked for no request before this. In whole seconds, rounded up: answers that come in together then ask for
    /// the same, and for one write. When it is over and still kept, nothing has been answered since.
    #[serde(default)]
    pub hold_until: Option<Timestamp>,
}

impl Protection {
    /// Whether this is worth a write over what is `kept`, although the breaker did not change: a hold ends at another time (and
    /// not within two seconds) or is over, failures in a row have gone on for an hour, or those that are kept are over.
    #[must_use]
    pub fn outdates(&self, kept: Option<&Self>, now: Timestamp) -> bool {
        let held = kept.and_then(|kept| kept.hold_until);
        let is_long = self
            .hold_until
            .is_some_and(|until| until.since(now) >= MIN_KEPT_HOLD);
        let since = self.streak.since();
        let failed = kept.and_then(|kept| kept.streak.since());
        let is_old = since.is_some_and(|since| now.since(since) >= OLD_STREAK);
        (is_long && self.hold_until != held)
            || (held.is_some() && self.hold_until.is_none())
            || (since != failed && (is_old || failed.is_some()))
    }
}

/// What the owner of a destination wants of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The owner.
    pub tenant: TenantKey,
    /// What the owner may have of what all share.
    pub share: Share,
    /// Requests per second; `None` for any number.
    pub rate_limit: Option<NonZeroU32>,
    /// How long the receiver may have failed without a break before deliveries that are due while its breaker is open
    /// become dead letters: zero at once, `None` never.
    pub patience: Option<Duration>,
    /// How long the receiver may ask for no request; `None` for any time.
    pub longest_hold: Option<Duration>,
}

impl Default for Terms {
    /// Nothing special, of nobody.
    fn default() -> Self {
        Self {
            tenant: TenantKey(0),
            share: Share::default(),
            rate_limit: None,
            patience: None,
            longest_hold: None,
        }
    }
}

/// What the end of an attempt changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learned {
    /// Of the breaker.
    pub change: Change,
    /// Of the failures in a row.
    pub notice: Notice,
}

impl Learned {
    pub(super) const NOTHING: Self = Self {
        change: Change::None,
        notice: Notice {
            alert: None,
            give_up: false,
        },
    };
}

impl<P: Payload> Dispatcher<P> {
    /// Replays to this destination go at a rate, evenly spread, or not at all; 50 a second until somebody says so.
    pub fn limit_replays(
        &mut self,
        destination: DestinationKey,
        per_second: Option<NonZeroU32>,
        now: Timestamp,
    ) {
        let known = self.lanes.get(&destination);
        let known = known.map_or(Some(DEFAULT_REPLAY_RATE), Lane::replay_rate);
        if known != per_second {
            self.lane(destination, now).limit_replays(per_second, now);
            self.list(destination);
        }
    }

    /// What to keep of a destination now; `None` when there is nothing worth it.
    #[must_use]
    pub fn protection(&self, destination: DestinationKey) -> Option<Protection> {
        let lane = self.lanes.get(&destination)?;
        let breaker = lane.breaker.snapshot();
        let hold_until = lane.hold_until.map(Timestamp::whole_second);
        let is_well = breaker.is_none() && lane.streak.failures() == 0 && hold_until.is_none();
        (!is_well).then_some(Protection {
            breaker,
            streak: lane.streak,
            hold_until,
        })
    }

    /// As it was kept, before anything of the destination was sent. A hold that is over meanwhile ends as if it had been
    /// waited for: the window starts from one.
    pub fn restore(&mut self, destination: DestinationKey, kept: Protection, now: Timestamp) {
        let window = self.config.window;
        let lane = self.lane(destination, now);
        lane.streak = kept.streak;
        lane.hold_until = kept.hold_until;
        lane.bound_hold(now);
        if let Some(snapshot) = kept.breaker {
            lane.breaker = Breaker::restore(destination.0.unsigned_abs(), snapshot);
            lane.window.restart(lane.in_flight, &window);
        }
        self.list(destination);
    }

    /// Somebody says that the receiver is well: breaker, hold and failures in a row are forgotten, the window starts
    /// from its floor.
    pub fn reset(&mut self, destination: DestinationKey, now: Timestamp) -> Change {
        let window = self.config.window;
        let Some(lane) = self.lanes.get_mut(&destination) else {
            return Change::None;
        };
        lane.streak = Streak::default();
        let was_held = lane.hold_until.take().is_some();
        let change = lane.breaker.reset(now);
        if was_held || change == Change::Closed {
            lane.window.restart(lane.in_flight, &window);
        }
        self.list(destination);
        change
    }

    /// The destination is deleted: its deliveries end in the store, and what was known of its receiver is worth nothing. What is
    /// out comes back as always, and the lane goes with the next sweep after that.
    pub fn forget(&mut self, destination: DestinationKey, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&destination) else {
            return;
        };
        lane.used_at = Timestamp::EPOCH;
        let keys: Vec<_> = lane.owned.keys().copied().collect();
        for key in keys {
            self.withdrawn(destination, key, now);
        }
        self.limit_replays(destination, Some(DEFAULT_REPLAY_RATE), now);
        self.reset(destination, now);
    }

    /// What the destination's owner wants from now on.
    pub fn agree(&mut self, destination: DestinationKey, terms: Terms, now: Timestamp) {
        self.read_clock(now);
        self.tenants.set(terms.tenant, terms.share, now);
        if let Some(lane) = self.lanes.get_mut(&destination) {
            let held = lane.hold_until;
            lane.longest_hold = terms.longest_hold;
            lane.bound_hold(now);
            if lane.hold_until != held {
                self.list(destination);
            }
        }
        let known = self.lanes.get(&destination);
        let known = known.map_or_else(Terms::default, |lane| Terms {
            tenant: lane.tenant,
            share: terms.share,
            rate_limit: lane.rate.map(|limit| limit.per_second),
            patience: lane.patience,
            longest_hold: lane.longest_hold,
        });
        if known == terms {
            return;
        }
        let lane = self.lane(destination, now);
        lane.tenant = terms.tenant;
        lane.patience = terms.patience;
        lane.longest_hold = terms.longest_hold;
        if known.rate_limit != terms.rate_limit {
            lane.rate = Limit::changed(lane.rate.take(), terms.rate_limit, now);
        }
        self.list(destination);
    }

    /// Before anything is compared with `now` or set by it: what is known in times of a clock that was set back is brought into
    /// those of now, and whatever sleeps until one of them is looked at.
    pub(super) fn read_clock(&mut self, now: Timestamp) {
        let before = std::mem::replace(&mut self.read_at, now);
        if before.since(now) <= CLOCK_SET_BACK {
            return;
        }
        self.swept_at = self.swept_at.min(now);
        for destination in self.destinations() {
            if let Some(lane) = self.lanes.get_mut(&destination) {
                lane.set_back(before, now.plus(REFILL_PAUSE), now);
            }
            self.list(destination);
        }
        for tenant in self.tenants.asleep() {
            self.offer(tenant, None, now);
        }
    }

    /// Whether anything is known of this destination.
    #[must_use]
    pub fn has_lane(&self, destination: DestinationKey) -> bool {
        self.lanes.contains_key(&destination)
    }

    /// All destinations of which something is known.
    #[must_use]
    pub fn destinations(&self) -> Vec<DestinationKey> {
        self.lanes.keys().copied().collect()
    }

    /// There is a reason to believe that the receiver is well now, such as another address: an open breaker lets a probe
    /// go at once.
    pub fn hurry(&mut self, destination: DestinationKey, now: Timestamp) {
        if let Some(lane) = self.lanes.get_mut(&destination) {
            lane.breaker.hurry(now);
            self.list(destination);
        }
    }

    /// A destination as it is now, also when it has no lane.
    #[must_use]
    pub fn view(&self, destination: DestinationKey, now: Timestamp) -> LaneView {
        let config = &self.config;
        let shared = Shared {
            tenant_rate: None,
            tenant_blocked_until: None,
            lane_limit: self.lane_limit(),
            full: self.full_for(
                self.lanes
                    .get(&destination)
                    .map_or(Pace::Unknown, |lane| lane.pace),
            ),
        };
        match self.lanes.get(&destination) {
            Some(lane) => {
                let shared = Shared {
                    tenant_rate: self.tenants.rate_limit(lane.tenant),
                    tenant_blocked_until: self.tenants.blocked(lane.tenant, destination, now),
                    ..shared
                };
                LaneView::of(destination, lane, shared, config, now)
            }
            None => {
                let idle = super::Lane::<P>::new(destination, &config.window, now);
                LaneView::of(destination, &idle, shared, config, now)
            }
        }
    }

    /// The `limit` destinations that are worst off, worst first. Looks at every lane, so at most once a second, say.
    #[must_use]
    pub fn worst(&self, limit: usize, now: Timestamp) -> Vec<LaneView> {
        let mut ranked: Vec<_> = self
            .lanes
            .iter()
            .map(|(key, lane)| (std::cmp::Reverse(Rank::of(lane, now)), *key))
            .collect();
        if limit < ranked.len() {
            ranked.select_nth_unstable(limit);
            ranked.truncate(limit);
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, key)| self.view(key, now)).collect()
    }
}
