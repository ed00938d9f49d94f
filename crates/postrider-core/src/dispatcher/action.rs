//! What goes in and out of the dispatcher beside deliveries: what the engine is to do, and how an attempt ended.

use std::collections::HashSet;
use std::time::Duration;

use crate::delivery::{DeadReason, PendingDelivery, WaitCause};
use crate::id::{DeliveryKey, DestinationKey};
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// What the engine is to do.
#[derive(Debug)]
pub enum Action<P> {
    /// Send this delivery now; read its payload first when there is none. Last, what kept it when it is late.
    Start(PendingDelivery, Option<P>, Option<WaitCause>),
    /// This delivery ends now, as a dead letter with this reason and without an attempt. Its result is on its way to
    /// the store; the dispatcher is told by [`super::Dispatcher::settled`].
    End(PendingDelivery, DeadReason),
    /// Read the earliest-due pending deliveries of this destination, except those named.
    Refill {
        /// The destination.
        destination: DestinationKey,
        /// Deliveries that are in memory.
        skip: HashSet<DeliveryKey>,
        /// Whether those of replays too.
        replays: bool,
        /// Rows at most.
        limit: usize,
    },
}

/// What an [`Action::Refill`] did not bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unread {
    /// The store has rows that are due later than those that it brought.
    pub more: bool,
    /// It passed over replays, because these were not asked for.
    pub replays: bool,
}

impl Unread {
    /// It brought everything.
    pub const NOTHING: Self = Self {
        more: false,
        replays: false,
    };
}

/// How an attempt ended, as far as the lane is concerned.
#[derive(Debug, Clone)]
pub struct Finished<P> {
    /// The delivery as it was started.
    pub delivery: PendingDelivery,
    /// What the attempt saw; `None` when none was made.
    pub outcome: Option<Outcome>,
    /// It went to another receiver than the destination has now, or the destination is deleted: its outcome says nothing of
    /// this one.
    pub elsewhere: bool,
    /// The policy called the outcome permanent.
    pub permanent: bool,
    /// From request to status line, or to the error.
    pub latency: Duration,
    /// No request to this destination before this.
    pub hold_until: Option<Timestamp>,
    /// The delivery with its next plan, when it stays pending; with its payload, if that should stay too.
    pub again: Option<(PendingDelivery, Option<P>)>,
    /// Whether a result is on its way to the store; the dispatcher is told by [`super::Dispatcher::settled`].
    pub unsettled: bool,
}

/// Sizes, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Requests out.
    pub in_flight: usize,
    /// Results not committed.
    pub unsettled: usize,
    /// Deliveries that wait in memory.
    pub queued: usize,
    /// Lanes in memory.
    pub lanes: usize,
}
