//! What all lanes share, and how much of it there is.

use super::queue::Payload;
use super::view::Full;
use super::{Dispatcher, DispatcherConfig};

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
