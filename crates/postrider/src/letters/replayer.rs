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
use postrider_core::dispatcher::DEFAULT_REPLAY_RATE;
use postrider_core::id::{DestinationKey, ReplayKey};
use postrider_core::replay::{MAX_RATE_PER_SECOND, ReplayState};
use postrider_core::time::Timestamp;
use postrider_store::page::{Cursor, Direction, PageRequest};
use postrider_store::replay::{Replay, ReplayDestination, ReplayDetail, ReplayQuery, ReplayStep};
use postrider_store::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::engine::control::{Control, ReplayLimit};
use crate::telemetry::supervisor::stopped;

/// Steps are made this often.
const TICK: Duration = Duration::from_millis(100);
/// The store is asked this often for replays that came, paused or ended, unless somebody says that one did; also after it
/// could not answer.
const LOOK: Duration = Duration::from_millis(500);
/// The same while there is none.
const IDLE_LOOK: Duration = Duration::from_secs(5);
/// A destination with as much outstanding as there may be is looked at again after this.
const FULL_WAIT: Duration = Duration::from_millis(50);
/// A destination whose step failed is looked at again after this.
const FAILED_WAIT: Duration = Duration::from_millis(500);
/// Replays that one read of the store brings.
const PAGE: usize = 100;
/// What is left of parts that make no steps is counted this often.
const RECOUNT: Duration = Duration::from_secs(2);
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

/// A replay's part for one destination, as long as something of it is not walked or has not ended.
#[derive(Debug)]
struct Part {
    rate: u32,
    is_walked: bool,
    /// Deliveries that may be handed over, as of `counted_at`.
    credit: f64,
    counted_at: Instant,
    /// No step before this.
    not_before: Instant,
}

/// A replay that is open, or of which deliveries are outstanding.
#[derive(Debug)]
struct Known {
    id: String,
    state: ReplayState,
    /// Its parts are not looked at again before this.
    recount_at: Instant,
}

type Parts = HashMap<(ReplayKey, DestinationKey), Part>;

/// What is known of the replays that are at work.
#[derive(Debug, Default)]
struct Work {
    parts: Parts,
    replays: HashMap<ReplayKey, Known>,
    /// Those that could not be read the last time: told once.
    unreadable: HashSet<ReplayKey>,
    /// Those that an earlier process left canceled, with deliveries outstanding, were learned.
    is_caught_up: bool,
    /// What the engine was told last.
    told: HashMap<DestinationKey, Option<NonZeroU32>>,
    /// Which loop of the engine was told that.
    told_to: Option<u64>,
}

impl Replayer {
    /// Runs until it is stopped.
    pub async fn run(mut self) {
        let mut work = Work::default();
        let mut look_at = Instant::now();
        loop {
            if look_at <= Instant::now() {
                let is_complete = self.look(&mut work).await;
                let is_idle = is_complete && work.replays.is_empty();
                look_at = Instant::now() + if is_idle { IDLE_LOOK } else { LOOK };
            }
            if work.told_to.is_some_and(|told| told != self.engine.loops()) {
                self.tell(&mut work);
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

    /// Learns which replays are at work, and tells the engine how fast; what could be read, when not everything could.
    /// Answers whether there is nothing that the next look may bring.
    async fn look(&self, work: &mut Work) -> bool {
        let is_complete = self.learn_all(work).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to look for replays; trying again");
            false
        });
        self.recount(work).await;
        self.tell(work);
        is_complete
    }

    /// Learns where those that are open stand, and everything of those that are new. Answers whether there is nothing that
    /// another try may bring.
    async fn learn_all(&self, work: &mut Work) -> Result<bool, StoreError> {
        let open = self
            .in_states(&[ReplayState::Running, ReplayState::Paused])
            .await?;
        let states: HashMap<ReplayKey, ReplayState> =
            open.iter().map(|replay| (replay.key, replay.state)).collect();
        for (key, known) in &mut work.replays {
            // What is not open any more was canceled, or is done and has nothing outstanding.
            known.state = states.get(key).copied().unwrap_or(ReplayState::Canceled);
        }
        let mut is_complete = true;
        for replay in &open {
            is_complete &= self.learn(work, replay).await;
        }
        if !work.is_caught_up {
            let mut is_caught_up = true;
            for replay in self.in_states(&[ReplayState::Canceled]).await? {
                if replay.progress.outstanding() > 0 {
                    is_caught_up &= self.learn(work, &replay).await;
                }
            }
            work.is_caught_up = is_caught_up;
        }
        Ok(is_complete && work.is_caught_up)
    }

    async fn in_states(&self, states: &[ReplayState]) -> Result<Vec<Replay>, StoreError> {
        let mut found = Vec::new();
        let mut cursor = Cursor::Start;
        loop {
            let page = PageRequest {
                limit: PAGE,
                direction: Direction::Ascending,
                cursor,
            };
            let states = states.to_vec();
            let page = self.store.replays(ReplayQuery { states, page }).await?;
            found.extend(page.rows);
            match page.next {
                Some(next) => cursor = Cursor::After(next),
                None => return Ok(found),
            }
        }
    }

    /// Learns everything of a replay, unless it is known. Answers whether there is nothing that another try may bring. Of one
    /// that is canceled and cannot be read, what it has handed over goes at the engine's own rate.
    async fn learn(&self, work: &mut Work, replay: &Replay) -> bool {
        if work.replays.contains_key(&replay.key) {
            return true;
        }
        let detail = match self.read(replay.key, &replay.id, &mut work.unreadable).await {
            Ok(Some(detail)) => detail,
            Ok(None) | Err(StoreError::Corrupt(_)) => return true,
            Err(_) => return false,
        };
        let now = Instant::now();
        let state = detail.replay.state;
        for part in detail.destinations.iter().filter(|part| is_at_work(state, part)) {
            work.parts.insert(
                (replay.key, part.destination),
                Part {
                    rate: replay.spec.rate_per_second.min(MAX_RATE_PER_SECOND),
                    is_walked: part.is_walked,
                    credit: 1.0,
                    counted_at: now,
                    not_before: now,
                },
            );
        }
        let known = Known {
            id: replay.id.clone(),
            state,
            recount_at: now + RECOUNT,
        };
        work.replays.insert(replay.key, known);
        true
    }

    /// A replay with its parts. One that cannot be read must not keep the engine from being told of the others, so that is
    /// logged here and the caller goes on.
    async fn read(
        &self,
        key: ReplayKey,
        id: &str,
        unreadable: &mut HashSet<ReplayKey>,
    ) -> Result<Option<ReplayDetail>, StoreError> {
        let found = self.store.replay(id).await;
        match &found {
            Ok(_) => drop(unreadable.remove(&key)),
            Err(error @ StoreError::Corrupt(_)) if unreadable.insert(key) => {
                tracing::warn!(replay = id, %error, "a replay cannot be read; it waits until it can");
            }
            Err(StoreError::Corrupt(_)) => {}
            Err(error) => tracing::warn!(replay = id, %error, "failed to read a replay; trying again"),
        }
        found
    }

    /// Forgets parts of which nothing is left to be sent. Steps tell that of a part until it is walked; from then on, and of
    /// replays that were canceled, the store is asked.
    async fn recount(&self, work: &mut Work) {
        let now = Instant::now();
        let walked: HashSet<ReplayKey> = work
            .parts
            .iter()
            .filter_map(|((replay, _), part)| part.is_walked.then_some(*replay))
            .collect();
        for (key, known) in &mut work.replays {
            let matters = match known.state {
                ReplayState::Running => walked.contains(key),
                ReplayState::Paused => false,
                ReplayState::Canceled | ReplayState::Done => true,
            };
            if !matters || now < known.recount_at {
                continue;
            }
            known.recount_at = now + RECOUNT;
            let Ok(detail) = self.read(*key, &known.id, &mut work.unreadable).await else {
                continue;
            };
            let left: HashSet<DestinationKey> = detail
                .iter()
                .flat_map(|detail| {
                    detail
                        .destinations
                        .iter()
                        .map(move |part| (detail.replay.state, part))
                })
                .filter(|(state, part)| is_at_work(*state, part))
                .map(|(_, part)| part.destination)
                .collect();
            work.parts
                .retain(|(replay, destination), _| replay != key || left.contains(destination));
        }
        let busy: HashSet<ReplayKey> = work.parts.keys().map(|(replay, _)| *replay).collect();
        work.replays
            .retain(|key, known| known.state.is_open() || busy.contains(key));
    }

    /// Tells the engine the rate of each destination: the highest of those that are not paused, none when all of them are.
    /// What is not named any more gets the engine's own rate back. A loop that is new is told everything, another one what
    /// has changed.
    fn tell(&self, work: &mut Work) {
        let wanted = work.wanted();
        let heard_by = self.engine.loops();
        if work.told_to != Some(heard_by) {
            work.told.clear();
        }
        let gone = work.told.keys().filter(|key| !wanted.contains_key(key));
        let limits: Vec<ReplayLimit> = wanted
            .iter()
            .filter(|(key, rate)| work.told.get(key) != Some(rate))
            .map(|(key, rate)| (*key, *rate))
            .chain(gone.map(|key| (*key, Some(DEFAULT_REPLAY_RATE))))
            .collect();
        if limits.is_empty() || self.engine.limit_replays(limits) {
            work.told = wanted;
            work.told_to = Some(heard_by);
        }
    }

    /// One step for each part that may hand something over.
    async fn step_all(&self, work: &mut Work) {
        let now = Instant::now();
        let mut steps = Vec::new();
        for ((replay, destination), part) in &mut work.parts {
            let runs = work
                .replays
                .get(replay)
                .is_some_and(|known| known.state == ReplayState::Running);
            part.earn(now);
            if runs && !part.is_walked && part.credit >= 1.0 && part.not_before <= now {
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
                // Paused or canceled: nothing more is handed over until it is seen running again.
                Ok(Some(stepped)) => {
                    part.is_walked = stepped.is_walked;
                    if stepped.is_walked && stepped.progress.outstanding() == 0 {
                        work.parts.remove(&key);
                    }
                    if let Some(known) = work.replays.get_mut(&step.replay) {
                        known.state = stepped.state;
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

impl Work {
    /// The rate of each destination that something is at work for; none when all that is so is paused.
    fn wanted(&self) -> HashMap<DestinationKey, Option<NonZeroU32>> {
        let mut wanted: HashMap<DestinationKey, Option<NonZeroU32>> = HashMap::new();
        for ((replay, destination), part) in &self.parts {
            let is_paused = self
                .replays
                .get(replay)
                .is_some_and(|known| known.state == ReplayState::Paused);
            let rate = NonZeroU32::new(part.rate).filter(|_| !is_paused);
            let known = wanted.entry(*destination).or_insert(rate);
            *known = (*known).max(rate);
        }
        wanted
    }
}

/// Whether something of a part is left to be handed over or to be sent.
const fn is_at_work(state: ReplayState, part: &ReplayDestination) -> bool {
    part.progress.outstanding() > 0 || (state.is_open() && !part.is_walked)
}

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
            is_walked: false,
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
        let table = [(1, 100), (50, 500), (1_000, 512)];
        for (rate, most) in table {
            assert_eq!(part(rate, now).max_outstanding(), most, "{rate}");
        }
    }
}
