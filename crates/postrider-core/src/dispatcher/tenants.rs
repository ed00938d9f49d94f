//! Tenants beside each other: turns by weight, and limits of requests per second over all destinations of one.
//!
//! A turn is one start. Tenants with ready lanes come one after the other, each with as many starts as its weight says, and
//! within a tenant its lanes come in turn; so neither many destinations nor many events give a tenant more than its share.
//! Lanes that wait for their tenant's limit stand in a queue of their own: each time a request may go it is offered to the
//! first of them, so that no destination of a tenant starves beside another.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;

use super::lane::Limit;
use crate::id::{DestinationKey, TenantKey};
use crate::time::Timestamp;

/// What a tenant may have of what all share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Turns in a row, at least 1: twice the weight is twice the starts while others are ready as well.
    pub weight: u32,
    /// Requests per second over all its destinations; `None` for any number.
    pub rate_limit: Option<NonZeroU32>,
}

impl Default for Share {
    /// Weight 1, any number.
    fn default() -> Self {
        Self {
            weight: 1,
            rate_limit: None,
        }
    }
}

/// Lanes that are to be looked at, by tenant.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Tenants in turn, each with its lanes in turn.
    order: VecDeque<TenantKey>,
    ready: HashMap<TenantKey, Ready>,
}

#[derive(Debug, Default)]
struct Ready {
    lanes: VecDeque<DestinationKey>,
    /// Starts of its present turn.
    served: u32,
}

impl Turns {
    /// At the end of its tenant's lanes.
    pub(super) fn push_back(&mut self, tenant: TenantKey, lane: DestinationKey) {
        self.entry(tenant).lanes.push_back(lane);
    }

    /// Back where it came from.
    pub(super) fn push_front(&mut self, tenant: TenantKey, lane: DestinationKey) {
        self.entry(tenant).lanes.push_front(lane);
    }

    fn entry(&mut self, tenant: TenantKey) -> &mut Ready {
        self.ready.entry(tenant).or_insert_with(|| {
            self.order.push_back(tenant);
            Ready::default()
        })
    }

    /// The next lane of the tenant whose turn it is.
    pub(super) fn pop(&mut self) -> Option<DestinationKey> {
        loop {
            let tenant = self.order.front()?;
            if let Some(lane) = self
                .ready
                .get_mut(tenant)
                .and_then(|ready| ready.lanes.pop_front())
            {
                return Some(lane);
            }
            self.ready.remove(tenant);
            self.order.pop_front();
        }
    }

    /// A lane of this tenant, whose turn it is, started a delivery.
    pub(super) fn served(&mut self, tenant: TenantKey, weight: u32) {
        let Some(ready) = self.ready.get_mut(&tenant) else {
            return;
        };
        ready.served += 1;
        if ready.served >= weight {
            ready.served = 0;
            if self.order.front() == Some(&tenant) {
                self.order.rotate_left(1);
            }
        }
    }
}

/// A tenant whose share is not the usual one.
#[derive(Debug)]
struct Tenant {
    share: Share,
    limit: Option<Limit>,
    /// Lanes that wait for the limit, in turn.
    waiting: VecDeque<DestinationKey>,
    /// The lane that may take the next request.
    offered: Option<DestinationKey>,
    /// The lane that has a slot kept while it waits for the limit.
    keeper: Option<DestinationKey>,
    wake_at: Option<Timestamp>,
}

/// What is known of tenants.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    known: HashMap<TenantKey, Tenant>,
    /// At most one a tenant: its `wake_at`.
    timers: BTreeSet<(Timestamp, TenantKey)>,
}

impl Tenants {
    /// A tenant's share from now on.
    pub(super) fn set(&mut self, tenant: TenantKey, share: Share, now: Timestamp) {
        let known = self
            .known
            .get(&tenant)
            .map_or_else(Share::default, |known| known.share);
        if known == share {
            return;
        }
        let known = self.known.entry(tenant).or_insert_with(|| Tenant {
            share,
            limit: None,
            waiting: VecDeque::new(),
            offered: None,
            keeper: None,
            wake_at: None,
        });
        known.share = share;
        known.limit = Limit::changed(known.limit.take(), share.rate_limit, now);
    }

    pub(super) fn weight(&self, tenant: TenantKey) -> u32 {
        self.known
            .get(&tenant)
            .map_or(1, |known| known.share.weight.max(1))
    }

    pub(super) fn rate_limit(&self, tenant: TenantKey) -> Option<NonZeroU32> {
        self.known.get(&tenant)?.share.rate_limit
    }

    /// Until when at least this lane must wait for its tenant's limit; `None` when it need not.
    pub(super) fn blocked(
        &self,
        tenant: TenantKey,
        lane: DestinationKey,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let known = self.known.get(&tenant)?;
        let at = known.limit.as_ref()?.next_at(now);
        let may_take = known.offered == Some(lane) || (known.offered.is_none() && known.waiting.is_empty());
        (at > now || !may_take).then_some(at)
    }

    /// A lane stands at the end of the queue.
    pub(super) fn wait(&mut self, tenant: TenantKey, lane: DestinationKey) {
        if let Some(known) = self.known.get_mut(&tenant) {
            known.waiting.push_back(lane);
        }
    }

    /// Which of its lanes had a slot kept last.
    pub(super) fn keeper(&self, tenant: TenantKey) -> Option<DestinationKey> {
        self.known.get(&tenant)?.keeper
    }

    /// A lane has a slot kept.
    pub(super) fn keep(&mut self, tenant: TenantKey, lane: DestinationKey) {
        if let Some(known) = self.known.get_mut(&tenant) {
            known.keeper = Some(lane);
        }
    }

    /// A request goes out.
    pub(super) fn take(&mut self, tenant: TenantKey, now: Timestamp) {
        if let Some(limit) = self.limit(tenant) {
            limit.take(now);
        }
    }

    /// It did not go out after all.
    pub(super) fn give_back(&mut self, tenant: TenantKey) {
        if let Some(limit) = self.limit(tenant) {
            limit.give_back();
        }
    }

    fn limit(&mut self, tenant: TenantKey) -> Option<&mut Limit> {
        self.known.get_mut(&tenant)?.limit.as_mut()
    }

    /// After `looked_at` was looked at: whom the next request is offered to now, if it may go now. Otherwise sets the timer.
    pub(super) fn offer(
        &mut self,
        tenant: TenantKey,
        looked_at: Option<DestinationKey>,
        now: Timestamp,
    ) -> Option<DestinationKey> {
        let known = self.known.get_mut(&tenant)?;
        if known.offered == looked_at {
            known.offered = None;
        }
        let at = known.limit.as_ref().map_or(now, |limit| limit.next_at(now));
        let wake_at = (!known.waiting.is_empty() && known.offered.is_none() && at > now).then_some(at);
        if known.wake_at != wake_at {
            if let Some(old) = known.wake_at {
                self.timers.remove(&(old, tenant));
            }
            known.wake_at = wake_at;
            self.timers.extend(wake_at.map(|at| (at, tenant)));
        }
        if known.offered.is_some() || at > now {
            return None;
        }
        known.offered = known.waiting.pop_front();
        known.offered
    }

    /// Tenants whose limit somebody waits for.
    pub(super) fn asleep(&self) -> Vec<TenantKey> {
        self.timers.iter().map(|(_, tenant)| *tenant).collect()
    }

    /// When the next tenant's limit allows a request that somebody waits for.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// A tenant whose time has come.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<TenantKey> {
        let (at, tenant) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, tenant));
        if let Some(known) = self.known.get_mut(&tenant) {
            known.wake_at = None;
        }
        Some(tenant)
    }

    /// Forgets tenants without lanes.
    pub(super) fn retain(&mut self, with_lanes: &HashSet<TenantKey>) {
        self.known.retain(|tenant, known| {
            with_lanes.contains(tenant) || known.wake_at.is_some() || !known.waiting.is_empty()
        });
    }
}
