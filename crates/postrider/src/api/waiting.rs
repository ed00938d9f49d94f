//! What keeps deliveries from being sent now: one question to the engine for all of a page.

use std::collections::HashMap;

use postrider_core::delivery::WaitCause;
use postrider_core::dispatcher::{LaneView, Standing};
use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;
use postrider_store::record::Delivery;
use serde::Serialize;

use super::App;

/// What a delivery waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct WaitingAnswer {
    waiting_for: WaitCause,
    /// Until then at least, when that is known.
    waiting_until: Option<Timestamp>,
}

/// What stops the destinations of some deliveries.
#[derive(Debug, Default)]
pub(super) struct Stops {
    stops: HashMap<DestinationKey, WaitingAnswer>,
    now: Timestamp,
}

impl Stops {
    /// Asks once for every destination that something pending of `deliveries` goes to. An engine that is being started again is
    /// no reason not to answer.
    pub(super) async fn ask(app: &App, deliveries: &[Delivery]) -> Self {
        let pending = deliveries.iter().filter(|delivery| delivery.plan.is_some());
        let mut keys: Vec<_> = pending.map(|delivery| delivery.destination).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Self::default();
        }
        let mut views = app.engine.views(keys).await.unwrap_or_default();
        for view in &mut views {
            if app
                .directory
                .target(view.destination)
                .is_some_and(|target| target.disabled)
            {
                (view.standing, view.until) = (Standing::Disabled, None);
            }
        }
        let stops = views
            .iter()
            .filter_map(|view| Some((view.destination, stop(view)?)));
        Self {
            stops: stops.collect(),
            now: app.now(),
        }
    }

    /// What this delivery waits for, or will when it is due.
    pub(super) fn of(&self, delivery: &Delivery) -> Option<WaitingAnswer> {
        let due = delivery.plan?.due_at;
        let stop = self.stops.get(&delivery.destination)?;
        let matters = match stop.waiting_for {
            // Whenever it is due, it will find the destination disabled.
            WaitCause::Disabled => true,
            _ => due <= stop.waiting_until.unwrap_or(self.now),
        };
        matters.then_some(*stop)
    }
}

fn stop(view: &LaneView) -> Option<WaitingAnswer> {
    let waiting_for = match view.standing {
        Standing::Disabled => WaitCause::Disabled,
        Standing::Held => WaitCause::Hold,
        Standing::Open | Standing::Probing => WaitCause::Breaker,
        Standing::RateLimited => WaitCause::RateLimit,
        Standing::WindowFull => WaitCause::Window,
        Standing::ReplaysPaused => WaitCause::ReplayPaused,
        Standing::Idle | Standing::Flowing => return None,
    };
    Some(WaitingAnswer {
        waiting_for,
        waiting_until: view.until,
    })
}
