//! What all lanes share, and how much of it there is.

use std::time::Duration;

use super::queue::Payload;
use super::view::Full;
use super::{Dispatcher, DispatcherConfig};
use crate::id::{DestinationKey, TenantKey};
use crate::time::Timestamp;

/// One of so many slots is not for slow receivers.
const RESERVED: usize = 8;
/// Those whose last request took longer than this.
pub(super) const SOON: Duration = Duration::from_secs(1);

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

    /// Whether the slots that are left are not for slow receivers: however many of them hang again, others find a slot.
    pub(super) fn is_scarce(&self) -> bool {
        self.in_flight >= self.for_slow_ones()
    }

    /// Requests that may be out while slow receivers are among those that want another.
    fn for_slow_ones(&self) -> usize {
        let all = self.config.max_in_flight;
        all - all / RESERVED
    }

    /// What there is no room for, as far as such a lane goes.
    pub(super) fn full_for(&self, is_slow: bool) -> Option<Full> {
        self.full()
            .or_else(|| (self.is_scarce() && is_slow).then(|| Full::Reserved(self.for_slow_ones())))
    }

    /// A slow lane is looked at again when there is a slot for it. What its tenant may send is for others until then.
    pub(super) fn await_slot(&mut self, tenant: TenantKey, destination: DestinationKey, now: Timestamp) {
        if let Some(lane) = self.lanes.get_mut(&destination)
            && !std::mem::replace(&mut lane.awaits_slot, true)
        {
            self.waiting_for_slot.push_back(destination);
        }
        self.offer(tenant, Some(destination), now);
    }

    /// The first slow lane that waits, when there is a slot for it.
    pub(super) fn offer_slot(&mut self) -> Option<DestinationKey> {
        if self.is_scarce() {
            return None;
        }
        let next = self.waiting_for_slot.pop_front()?;
        if let Some(lane) = self.lanes.get_mut(&next) {
            lane.awaits_slot = false;
        }
        Some(next)
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
