//! Questions and commands to the running loop, from whoever serves people.
//!
//! The loop answers between two of its turns, from memory: a question never waits for the network or the store, and
//! sending never waits for whoever asked.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::dispatcher::{Census, LaneView, Rank};
use postrider_core::id::DestinationKey;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

/// Questions that may wait for the loop.
const MAX_WAITING: usize = 64;
/// A loop that has not answered by then is being started again, or stops.
const PATIENCE: Duration = Duration::from_secs(5);

/// One question, with where its answer goes.
#[derive(Debug)]
pub(super) enum Command {
    Views(Vec<DestinationKey>, oneshot::Sender<Vec<LaneView>>),
    Worst(usize, oneshot::Sender<Vec<LaneView>>),
    Ranks(oneshot::Sender<Vec<(DestinationKey, Rank)>>),
    Census(Vec<DestinationKey>, oneshot::Sender<(Census, Vec<LaneView>)>),
    Reset(DestinationKey, oneshot::Sender<LaneView>),
    Changed(DestinationKey, Reason),
    PoliciesChanged,
    LimitReplays(Vec<ReplayLimit>),
}

/// How many replayed deliveries per second may go to a destination; `None` for none.
pub type ReplayLimit = (DestinationKey, Option<NonZeroU32>);

/// What a change of a destination is to the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its owner wants something else of its lane.
    Terms,
    /// Requests go elsewhere, or look different: the receiver may be well now.
    Request,
}

/// The loop's end. Shared, because a loop that died is followed by another.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    waiting: Arc<Mutex<mpsc::Receiver<Command>>>,
    loops: Arc<AtomicU64>,
}

/// The asking end; cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    commands: mpsc::Sender<Command>,
    loops: Arc<AtomicU64>,
}

/// There is no loop to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ask the engine: it does not run now")]
pub struct EngineAway;

/// Both ends.
pub(super) fn channel() -> (Control, Commands) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let loops = Arc::new(AtomicU64::new(0));
    let control = Control {
        commands: sender,
        loops: Arc::clone(&loops),
    };
    let waiting = Arc::new(Mutex::new(receiver));
    (control, Commands { waiting, loops })
}

impl Commands {
    /// A loop begins, which knows nothing of what an earlier one was told.
    pub(super) fn begin(&self) {
        self.loops.fetch_add(1, Ordering::AcqRel);
    }

    /// The next command; waits for ever when nobody can ask any more. Cancel-safe.
    pub(super) async fn next(&self) -> Command {
        match self.waiting.lock().await.recv().await {
            Some(command) => command,
            None => std::future::pending().await,
        }
    }

    /// A command that waits already.
    pub(super) fn waiting(&self) -> Option<Command> {
        self.waiting.try_lock().ok()?.try_recv().ok()
    }
}

impl Default for Control {
    /// Of an engine that does not run.
    fn default() -> Self {
        Self {
            commands: mpsc::channel(1).0,
            loops: Arc::default(),
        }
    }
}

impl Control {
    /// A destination as the loop sees it now.
    ///
    /// # Errors
    /// When no loop answers.
    pub async fn view(&self, destination: DestinationKey) -> Result<LaneView, EngineAway> {
        let views = self.views(vec![destination]).await?;
        views.into_iter().next().ok_or(EngineAway)
    }

    /// Several destinations, in the order in which they are named.
    ///
    /// # Errors
    /// When no loop answers.
    pub async fn views(&self, destinations: Vec<DestinationKey>) -> Result<Vec<LaneView>, EngineAway> {
        self.ask(|answer| Command::Views(destinations, answer)).await
    }

    /// The destinations that are worst off, worst first.
    ///
    /// # Errors
    /// When no loop answers.
    pub async fn worst(&self, limit: usize) -> Result<Vec<LaneView>, EngineAway> {
        self.ask(|answer| Command::Worst(limit, answer)).await
    }

    /// How badly off every destination is of which something is known.
    ///
    /// # Errors
    /// When no loop answers.
    pub async fn ranks(&self) -> Result<Vec<(DestinationKey, Rank)>, EngineAway> {
        self.ask(Command::Ranks).await
    }

    /// Counts of all, and the views of some, of one moment.
    ///
    /// # Errors
    /// When no loop answers.
    pub async fn census(
        &self,
        destinations: Vec<DestinationKey>,
    ) -> Result<(Census, Vec<LaneView>), EngineAway> {
        self.ask(|answer| Command::Census(destinations, answer)).await
    }

    /// Closes a destination's breaker, ends its hold and forgets its failures in a row; answers how it is then.
    ///
    /// # Errors
    /// When no loop answers.
    pub async fn reset(&self, destination: DestinationKey) -> Result<LaneView, EngineAway> {
        self.ask(|answer| Command::Reset(destination, answer)).await
    }

    /// A destination was changed; `other_request` when requests go elsewhere or look different from now on, so that an
    /// open breaker lets a probe go at once. A loop that is being started again finds the change by itself, without the
    /// probe.
    pub fn changed(&self, destination: DestinationKey, other_request: bool) {
        let reason = if other_request {
            Reason::Request
        } else {
            Reason::Terms
        };
        if self
            .commands
            .try_send(Command::Changed(destination, reason))
            .is_err()
        {
            tracing::debug!(%destination, "no engine to tell that a destination was changed");
        }
    }

    /// A named policy was changed, and with it what the owners of some destinations want.
    pub fn policies_changed(&self) {
        if self.commands.try_send(Command::PoliciesChanged).is_err() {
            tracing::debug!("no engine to tell that a policy was changed");
        }
    }

    /// How many loops have begun so far. Another number than before means a loop that does not know what the one before it
    /// was told; what is told after this was asked may still go to an older one.
    #[must_use]
    pub fn loops(&self) -> u64 {
        self.loops.load(Ordering::Acquire)
    }

    /// Replays go at these rates from now on; what is not named stays as it is. Answers whether the loop will hear of it.
    #[must_use]
    pub fn limit_replays(&self, limits: Vec<ReplayLimit>) -> bool {
        self.commands.try_send(Command::LimitReplays(limits)).is_ok()
    }

    async fn ask<A>(&self, command: impl FnOnce(oneshot::Sender<A>) -> Command) -> Result<A, EngineAway> {
        let (answer, answered) = oneshot::channel();
        self.commands.try_send(command(answer)).map_err(|_| EngineAway)?;
        match timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(EngineAway),
        }
    }
}
