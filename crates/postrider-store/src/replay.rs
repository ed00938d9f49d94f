//! Replays as the store keeps and answers them.
//!
//! A replay walks each of its destinations by itself, from the first of its deliveries to the last that there was when it
//! was created, and makes a few pending at a time. What dies again after that is not in its range any more, so it sends
//! nothing twice.

use postrider_core::id::{DestinationKey, ReplayKey};
use postrider_core::replay::{ReplayConfig, ReplayState};
use postrider_core::time::Timestamp;

use crate::letter::DeadLetterFilter;
use crate::page::PageRequest;

/// Which deliveries a replay sends again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "rare and short-lived; a box would be in every caller's way"
)]
pub enum ReplayScope {
    /// The dead letters that a filter admits.
    DeadLetters(DeadLetterFilter),
    /// Everything that was accepted for a destination since a time, also what was delivered: for a receiver that lost its
    /// data.
    EverythingSince {
        /// The destination.
        destination: DestinationKey,
        /// Accepted at this time or later.
        since: Timestamp,
    },
}

/// What a replay does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplaySpec {
    /// Which deliveries.
    pub scope: ReplayScope,
    /// With which configuration.
    pub config: ReplayConfig,
    /// Deliveries per second for each destination.
    pub rate_per_second: u32,
}

/// What a scope holds now; deliveries to deleted destinations are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayPreview {
    /// Deliveries.
    pub total: u64,
    /// How many of them for each destination, in order of their keys.
    pub destinations: Vec<(DestinationKey, u64)>,
    /// Deliveries that cannot be replayed, because their destination was deleted.
    pub unreachable: u64,
}

/// How far a replay, or its part for one destination, has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayProgress {
    /// Deliveries in its scope when it was created.
    pub total: u64,
    /// Made pending.
    pub queued: u64,
    /// Of these, delivered.
    pub succeeded: u64,
    /// Of these, dead again.
    pub failed: u64,
    /// Of these, canceled.
    pub canceled: u64,
    /// Not made pending: no longer there, or not dead any more, when their turn came.
    pub skipped: u64,
}

impl ReplayProgress {
    /// Made pending and not ended yet.
    #[must_use]
    pub const fn outstanding(&self) -> u64 {
        self.queued
            .saturating_sub(self.succeeded + self.failed + self.canceled)
    }
}

/// What is left of a replay at its slowest destinations: they go side by side, so it ends with the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayRest {
    /// Deliveries left at the destination with most of them.
    pub most: u64,
    /// The most deliveries left at any for each thousand that it has done; 0 while none has done one.
    pub most_per_thousand_done: u64,
}

/// A replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Its key.
    pub key: ReplayKey,
    /// Its id.
    pub id: String,
    /// What it does.
    pub spec: ReplaySpec,
    /// Where it stands.
    pub state: ReplayState,
    /// All destinations together.
    pub progress: ReplayProgress,
    /// Where it is behind.
    pub rest: ReplayRest,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub updated_at: Timestamp,
    /// When it was done or canceled.
    pub ended_at: Option<Timestamp>,
}

/// A replay's part for one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayDestination {
    /// The destination.
    pub destination: DestinationKey,
    /// Its public id.
    pub destination_id: String,
    /// Id of its tenant.
    pub tenant_id: String,
    /// Everything in its scope was looked at.
    pub is_walked: bool,
    /// How far it has come.
    pub progress: ReplayProgress,
}

/// A replay with its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayDetail {
    /// The replay.
    pub replay: Replay,
    /// Its parts, in order of their destinations' keys.
    pub destinations: Vec<ReplayDestination>,
}

/// Which replays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayQuery {
    /// Only in these states; empty means all.
    pub states: Vec<ReplayState>,
    /// The page, in order of creation.
    pub page: PageRequest,
}

/// What became of a new replay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "rare and short-lived; a box would be in every caller's way"
)]
pub enum ReplayCreated {
    /// It runs; one without deliveries is done already.
    Created {
        /// The replay.
        replay: Replay,
        /// Deliveries in its scope that it leaves out, because their destination was deleted.
        unreachable: u64,
    },
    /// As many replays are running or paused as there may be.
    LimitReached,
}

/// What became of a change of a replay's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayChanged {
    /// It has this state now, or had it before.
    Changed(Replay),
    /// It has ended, or the state asked for is not one that it can be given.
    Refused(Replay),
    /// There is none of this id.
    Missing,
}

/// One step of a replay for one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayStep {
    /// The replay.
    pub replay: ReplayKey,
    /// The destination.
    pub destination: DestinationKey,
    /// Deliveries to make pending, at most.
    pub limit: u32,
    /// No more are made pending while so many are and have not ended.
    pub max_outstanding: u32,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayStepped {
    /// The state of the replay; only a running one makes steps.
    pub state: ReplayState,
    /// Deliveries made pending.
    pub moved: u32,
    /// Everything in the destination's scope was looked at: there are no further steps.
    pub is_walked: bool,
    /// How far it has come for this destination.
    pub progress: ReplayProgress,
}
