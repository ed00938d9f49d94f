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

const REPLAY_PAUSED: WaitingAnswer = WaitingAnswer {
    waiting_for: WaitCause::ReplayPaused,
    waiting_until: None,
};

/// What stops deliveries of one destination.
#[derive(Debug, Clone, Copy)]
struct Stop {
    /// All of them.
    all: Option<WaitingAnswer>,
    /// Those of replays.
    replays: bool,
}

/// What stops the destinations of some deliveries.
#[derive(Debug, Default)]
pub(super) struct Stops {
    stops: HashMap<DestinationKey, Stop>,
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
        let stops = views.iter().map(|view| (view.destination, Stop::of(view)));
        Self {
            stops: stops.collect(),
            now: app.now(),
        }
    }

    /// What this delivery waits for, or will when it is due.
    pub(super) fn of(&self, delivery: &Delivery) -> Option<WaitingAnswer> {
        let due = delivery.plan?.due_at;
        let stop = self.stops.get(&delivery.destination)?;
        // Whenever it is due, it will find the destination disabled, or else its replay paused.
        match stop.all {
            Some(all) if all.waiting_for == WaitCause::Disabled => Some(all),
            _ if delivery.replayed && stop.replays => Some(REPLAY_PAUSED),
            all => all.filter(|all| due <= all.waiting_until.unwrap_or(self.now)),
        }
    }
}

impl Stop {
    fn of(view: &LaneView) -> Self {
        let waiting_for = match view.standing {
            Standing::Disabled => Some(WaitCause::Disabled),
            Standing::Held => Some(WaitCause::Hold),
            Standing::Open | Standing::Probing => Some(WaitCause::Breaker),
            Standing::RateLimited => Some(WaitCause::RateLimit),
            Standing::WindowFull => Some(WaitCause::Window),
            Standing::Idle | Standing::Flowing | Standing::ReplaysPaused | Standing::AtCapacity => None,
        };
        Self {
            all: waiting_for.map(|waiting_for| WaitingAnswer {
                waiting_for,
                waiting_until: view.until,
            }),
            replays: view.replays_stopped,
        }
    }
}
