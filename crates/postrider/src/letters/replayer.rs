//! Carries replays out: makes their deliveries pending little by little, for each destination at its rate.
//!
//! The store knows how far each replay has come; here is only memory of who is at work, so that a process that dies goes on
//! where it was. Two limits work together. This part hands deliveries over at the rate, never far ahead of those that have
//! ended, so that a receiver that is down gets no heap in front of it. The lane in the engine starts them at the rate, evenly
//! spread and behind live traffic, also after it stood still. A pause closes both.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use postrider_core::id::{DestinationKey, ReplayKey};
use postrider_core::replay::ReplayState;
use postrider_core::time::Timestamp;
use postrider_store::page::{Cursor, Direction, PageRequest};
use postrider_store::replay::{Replay, ReplayQuery, ReplayStep};
use postrider_store::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::engine::control::{Control, ReplayLimit};
use crate::telemetry::supervisor::stopped;

/// Steps are made this often.
const TICK: Duration = Duration::from_millis(100);
/// The store is asked this often for replays that came, paused or ended, unless somebody says that one did.
const LOOK: Duration = Duration::from_millis(500);
/// The same while there is none.
const IDLE_LOOK: Duration = Duration::from_secs(5);
/// A destination with as much outstanding as there may be is looked at again after this.
const FULL_WAIT: Duration = Duration::from_millis(50);
/// A destination whose step failed is looked at again after this.
const FAILED_WAIT: Duration = Duration::from_millis(500);
/// Replays that are open at once; the store allows no more.
const MAX_OPEN: usize = 100;
/// Steps at a time.
const MAX_STEPS: usize = 16;
/// Deliveries of one destination that are pending and have not ended: ten seconds' worth within these. The upper bound is half
/// of a lane, so that live traffic has its place in memory.
const OUTSTANDING: (u32, u32) = (100, 512);

/// What it works with.
#[derive(Clone)]
pub struct Replayer {
    /// Memory.
    pub store: Arc<dyn Store>,
    /// The loop that sends.
    pub engine: Control,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Somebody created or changed a replay.
    pub changed: Arc<Notify>,
    /// Becomes true when the process is to end.
    pub stop: watch::Receiver<bool>,
}

/// A destination of a running replay.
#[derive(Debug)]
struct Part {
    rate: u32,
    /// Deliveries that may be handed over, as of `counted_at`.
    credit: f64,
    counted_at: Instant,
    /// No step before this.
    not_before: Instant,
}

type Parts = HashMap<(ReplayKey, DestinationKey), Part>;

/// What is known of the replays that are open.
#[derive(Debug, Default)]
struct Work {
    parts: Parts,
    /// Running replays whose parts were read.
    known: HashSet<ReplayKey>,
    /// Destinations of paused replays.
    paused: HashMap<ReplayKey, Vec<DestinationKey>>,
    /// What the engine was told last.
    told: HashMap<DestinationKey, Option<NonZeroU32>>,
}

impl Replayer {
    /// Runs until it is stopped.
    pub async fn run(mut self) {
        let mut work = Work::default();
        let mut look_at = Instant::now();
        loop {
            if look_at <= Instant::now() {
                if let Err(error) = self.look(&mut work).await {
                    tracing::warn!(%error, "failed to look for replays; trying again");
                }
                let is_idle = work.parts.is_empty() && work.paused.is_empty();
                look_at = Instant::now() + if is_idle { IDLE_LOOK } else { LOOK };
            }
            self.step_all(&mut work).await;
            let wake = if work.parts.is_empty() {
                look_at
            } else {
                look_at.min(Instant::now() + TICK)
            };
            tokio::select! {
                () = stopped(&mut self.stop) => return,
                () = self.changed.notified() => look_at = Instant::now(),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Learns which replays run, and tells the engine how fast.
    async fn look(&self, work: &mut Work) -> Result<(), StoreError> {
        let open = self
            .store
            .replays(ReplayQuery {
                states: vec![ReplayState::Running, ReplayState::Paused],
                page: PageRequest {
                    limit: MAX_OPEN,
                    direction: Direction::Ascending,
                    cursor: Cursor::Start,
                },
            })
            .await?
            .rows;
        let in_state = |state| {
            let replays = open.iter().filter(move |replay| replay.state == state);
            replays.map(|replay| replay.key).collect::<HashSet<_>>()
        };
        let (running, paused) = (in_state(ReplayState::Running), in_state(ReplayState::Paused));
        work.known.retain(|key| running.contains(key));
        work.parts.retain(|(key, _), _| running.contains(key));
        work.paused.retain(|key, _| paused.contains(key));
        for replay in &open {
            let is_known = match replay.state {
                ReplayState::Paused => work.paused.contains_key(&replay.key),
                _ => work.known.contains(&replay.key),
            };
            if !is_known {
                self.learn(work, replay).await?;
            }
        }
        self.tell(work, &open);
        Ok(())
    }

    async fn learn(&self, work: &mut Work, replay: &Replay) -> Result<(), StoreError> {
        let Some(detail) = self.store.replay(&replay.id).await? else {
            return Ok(());
        };
        if replay.state == ReplayState::Paused {
            let destinations = detail.destinations.iter().map(|part| part.destination);
            work.paused.insert(replay.key, destinations.collect());
            return Ok(());
        }
        let now = Instant::now();
        for part in detail.destinations.iter().filter(|part| !part.is_walked) {
            work.parts.insert(
                (replay.key, part.destination),
                Part {
                    rate: replay.spec.rate_per_second,
                    credit: 1.0,
                    counted_at: now,
                    not_before: now,
                },
            );
        }
        work.known.insert(replay.key);
        Ok(())
    }

    /// Tells the engine the rate of each destination: the highest of those that run, none when all of them are paused. What is
    /// not named any more gets the engine's own rate back.
    fn tell(&self, work: &mut Work, open: &[Replay]) {
        let mut wanted: HashMap<DestinationKey, Option<NonZeroU32>> = HashMap::new();
        for destination in work.paused.values().flatten() {
            wanted.insert(*destination, None);
        }
        for ((_, destination), part) in &work.parts {
            let rate = NonZeroU32::new(part.rate);
            let known = wanted.entry(*destination).or_insert(rate);
            *known = (*known).max(rate);
        }
        // Walked to its end, but not everything has been sent: its rate stays.
        let still_open = |replay: &Replay| replay.progress.outstanding() > 0;
        if open.iter().any(still_open) {
            for (destination, rate) in &work.told {
                wanted.entry(*destination).or_insert(*rate);
            }
        }
        let gone = work.told.keys().filter(|key| !wanted.contains_key(key));
        let limits: Vec<ReplayLimit> = wanted
            .iter()
            .map(|(key, rate)| (*key, *rate))
            .chain(gone.map(|key| (*key, DEFAULT_RATE)))
            .collect();
        // Told again each time: a loop that was started anew has forgotten it.
        if limits.is_empty() || self.engine.limit_replays(limits) {
            work.told = wanted;
        }
    }

    /// One step for each part that may hand something over.
    async fn step_all(&self, work: &mut Work) {
        let now = Instant::now();
        let mut steps = Vec::new();
        for ((replay, destination), part) in &mut work.parts {
            part.earn(now);
            if part.credit >= 1.0 && part.not_before <= now {
                steps.push(ReplayStep {
                    replay: *replay,
                    destination: *destination,
                    limit: part.whole(),
                    max_outstanding: part.max_outstanding(),
                });
            }
        }
        let at: Timestamp = self.clock.now();
        let made = stream::iter(steps)
            .map(|step| async move { (step, self.store.replay_step(step, at).await) })
            .buffer_unordered(MAX_STEPS)
            .collect::<Vec<_>>()
            .await;
        for (step, made) in made {
            let key = (step.replay, step.destination);
            let Some(part) = work.parts.get_mut(&key) else {
                continue;
            };
            match made {
                Ok(Some(stepped)) if stepped.state == ReplayState::Running && !stepped.is_walked => {
                    part.credit -= f64::from(stepped.moved);
                    if stepped.moved == 0 {
                        part.not_before = Instant::now() + FULL_WAIT;
                    }
                }
                // Ended, paused, canceled: nothing more to hand over until it is seen running again.
                Ok(Some(stepped)) => {
                    work.parts.remove(&key);
                    if stepped.state != ReplayState::Running {
                        work.known.remove(&step.replay);
                    }
                }
                Ok(None) => drop(work.parts.remove(&key)),
                Err(error) => {
                    tracing::warn!(%error, "failed to make a step of a replay; trying again");
                    part.not_before = Instant::now() + FAILED_WAIT;
                }
            }
        }
    }
}

/// What the engine does by itself.
const DEFAULT_RATE: Option<NonZeroU32> = NonZeroU32::new(50);

impl Part {
    /// Time becomes credit, of which at most a fifth of a second's worth is saved up.
    fn earn(&mut self, now: Instant) {
        let earned = now.duration_since(self.counted_at).as_secs_f64() * f64::from(self.rate);
        self.counted_at = now;
        self.credit = (self.credit + earned).min((f64::from(self.rate) / 5.0).max(1.0));
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and a fifth of the rate"
    )]
    fn whole(&self) -> u32 {
        self.credit.floor().max(1.0) as u32
    }

    fn max_outstanding(&self) -> u32 {
        self.rate.saturating_mul(10).clamp(OUTSTANDING.0, OUTSTANDING.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rate: u32, now: Instant) -> Part {
        Part {
            rate,
            credit: 1.0,
            counted_at: now,
            not_before: now,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credit_grows_with_the_rate_and_is_not_saved_up() {
        let start = Instant::now();
        let mut part = part(50, start);
        part.earn(start + Duration::from_millis(60));
        assert_eq!(part.whole(), 4, "one at first, and three earned");
        part.earn(start + Duration::from_secs(3_600));
        assert_eq!(part.whole(), 10, "a fifth of a second's worth");
    }

    #[tokio::test(start_paused = true)]
    async fn ten_seconds_worth_may_be_outstanding_within_bounds() {
        let now = Instant::now();
        let table = [(1, 100), (50, 500), (10_000, 512)];
        for (rate, most) in table {
            assert_eq!(part(rate, now).max_outstanding(), most, "{rate}");
        }
    }
}
