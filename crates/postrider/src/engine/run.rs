//! The loop: inputs into the dispatcher, its actions into tasks.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::{PendingDelivery, WaitCause};
use postrider_core::dispatcher::{Action, Dispatcher, Protection};
use postrider_core::id::{DeliveryKey, DestinationKey};
use postrider_store::StoreError;
use postrider_store::feed::Arrivals;
use postrider_store::record::{DueDelivery, DuePage, DueQuery, Settlement};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::attempt::{Done, attempt_safely};
use super::control::Commands;
use super::keep::{Kept, keep};
use super::settle::{Settled, settle};
use super::{Drained, EngineConfig, Freight, Parts};
use crate::directory::target::Target;
use crate::telemetry::metrics::EngineGauges;

/// Finished attempts that are taken in one turn of the loop.
const MAX_TURN: usize = 256;
/// Without any input the loop turns at least this often.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// The look at what an earlier process left is repeated after this when the store fails.
const START_PAUSE: Duration = Duration::from_millis(500);

/// A shutdown waits this long for the last commit even if its grace is shorter.
const MIN_COMMIT_TIME: Duration = Duration::from_secs(5);

type Read = (DestinationKey, Result<DuePage, StoreError>);

/// The loop's state. All channels are bounded by the dispatcher's limits: as many results as were started.
pub(super) struct Run {
    pub(super) parts: Parts,
    max_read_bytes: usize,
    pub(super) dispatcher: Dispatcher<Freight>,
    tasks: JoinSet<()>,
    done: (mpsc::UnboundedSender<Done>, mpsc::UnboundedReceiver<Done>),
    reads: (mpsc::UnboundedSender<Read>, mpsc::UnboundedReceiver<Read>),
    judged: mpsc::UnboundedSender<Settlement>,
    settled: mpsc::UnboundedReceiver<Settled>,
    settler: JoinHandle<()>,
    /// Destinations of which the store keeps a state, or will.
    pub(super) kept: HashSet<DestinationKey>,
    pub(super) keeping: mpsc::UnboundedSender<Kept>,
    keeper: JoinHandle<()>,
    commands: Commands,
    stopped: watch::Receiver<Option<Duration>>,
}

impl Run {
    pub(super) fn new(
        parts: Parts,
        config: EngineConfig,
        stopped: watch::Receiver<Option<Duration>>,
        commands: Commands,
    ) -> Self {
        let (keeping, to_keep) = mpsc::unbounded_channel();
        let (judged, to_settle) = mpsc::unbounded_channel();
        let (tell_settled, settled) = mpsc::unbounded_channel();
        Self {
            settler: tokio::spawn(settle(parts.clone(), to_settle, tell_settled)),
            keeper: tokio::spawn(keep(parts.clone(), to_keep)),
            kept: HashSet::new(),
            keeping,
            commands,
            parts,
            max_read_bytes: config.max_read_bytes,
            dispatcher: Dispatcher::new(config.dispatcher),
            tasks: JoinSet::new(),
            done: mpsc::unbounded_channel(),
            reads: mpsc::unbounded_channel(),
            judged,
            settled,
            stopped,
        }
    }

    pub(super) async fn run(mut self) -> Drained {
        if let Some(grace) = self.recover().await {
            return self.drain(grace).await;
        }
        let mut finished = Vec::with_capacity(MAX_TURN);
        loop {
            self.act();
            let wake = self.next_wake();
            tokio::select! {
                biased;
                grace = stop_signal(&mut self.stopped) => return self.drain(grace).await,
                arrivals = self.parts.store.feed().arrivals() => self.take_arrivals(arrivals),
                _ = self.done.1.recv_many(&mut finished, MAX_TURN) => {
                    for done in finished.drain(..) {
                        self.finish(done);
                    }
                }
                Some(keys) = self.settled.recv() => self.take_settled(keys),
                Some((destination, page)) = self.reads.1.recv() => self.take_read(destination, page),
                command = self.commands.next() => self.obey(command),
                ended = &mut self.settler => die_with_it(ended),
                () = sleep_until(wake) => {}
            }
            while self.tasks.try_join_next().is_some() {}
        }
    }

    /// Asks the store what was known of receivers and which destinations have something pending, until it answers or a
    /// stop is asked for.
    async fn recover(&mut self) -> Option<Duration> {
        loop {
            match remembered(&self.parts).await {
                Ok((protections, destinations)) => {
                    let now = self.parts.clock.now();
                    for (destination, protection) in protections {
                        self.kept.insert(destination);
                        self.dispatcher.restore(destination, protection, now);
                    }
                    for destination in destinations {
                        self.limit(destination);
                        self.dispatcher.spilled(destination, now);
                    }
                    return None;
                }
                Err(error) => tracing::error!(%error, "failed to look for pending deliveries; trying again"),
            }
            tokio::select! {
                grace = stop_signal(&mut self.stopped) => return Some(grace),
                () = tokio::time::sleep(START_PAUSE) => {}
            }
        }
    }

    /// Performs everything that the dispatcher wants now.
    fn act(&mut self) {
        let now = self.parts.clock.now();
        while let Some(action) = self.dispatcher.next_action(now) {
            match action {
                Action::Start(delivery, payload, waited_for) => self.start(delivery, payload, waited_for),
                Action::Refill {
                    destination,
                    skip,
                    limit,
                } => {
                    let query = DueQuery {
                        destination,
                        skip,
                        limit,
                        max_payload_bytes: self.max_read_bytes,
                    };
                    let store = self.parts.store.clone();
                    let reads = self.reads.0.clone();
                    self.tasks.spawn(async move {
                        let _ = reads.send((destination, store.due(query).await));
                    });
                }
            }
        }
        self.dispatcher.sweep(now);
        let load = self.dispatcher.load();
        self.parts.metrics.engine(EngineGauges {
            in_flight: load.in_flight,
            queued: load.queued,
            unsettled: load.unsettled,
            lanes: load.lanes,
        });
    }

    fn start(&mut self, delivery: PendingDelivery, payload: Option<Freight>, waited_for: Option<WaitCause>) {
        let parts = self.parts.clone();
        let done = self.done.0.clone();
        self.tasks.spawn(async move {
            let _ = done.send(attempt_safely(parts, delivery, payload, waited_for).await);
        });
    }

    fn next_wake(&self) -> Instant {
        let now = self.parts.clock.now();
        let wait = self
            .dispatcher
            .poll_timeout()
            .map_or(MAX_SLEEP, |(at, _)| at.since(now).min(MAX_SLEEP));
        Instant::now() + wait
    }

    fn take_arrivals(&mut self, arrivals: Arrivals) {
        let now = self.parts.clock.now();
        for DueDelivery { delivery, payload } in arrivals.accepted {
            self.limit(delivery.destination);
            self.dispatcher.accepted(delivery, payload.map(Freight), now);
        }
        for delivery in arrivals.rescheduled.into_values() {
            self.limit(delivery.destination);
            self.dispatcher.rescheduled(delivery, now);
        }
        for destination in arrivals.spilled {
            self.limit(destination);
            self.dispatcher.spilled(destination, now);
        }
    }

    fn finish(&mut self, done: Done) {
        let now = self.parts.clock.now();
        let destination = done.finished.delivery.destination;
        // Enabled meanwhile: its lane was told before this came.
        let disabled = |target: Arc<Target>| target.disabled;
        if done.pause && self.parts.directory.target(destination).is_some_and(disabled) {
            self.dispatcher.pause(destination, now);
        }
        self.limit(destination);
        let learned = self.dispatcher.finished(done.finished, now);
        let attempt = done
            .settlement
            .as_ref()
            .and_then(|settlement| settlement.attempt.as_ref());
        self.heed(destination, &learned, attempt, now);
        if let Some(settlement) = done.settlement {
            self.mourn(&settlement);
            // The settler lives as long as this loop.
            let _ = self.judged.send(settlement);
        }
    }

    /// Tells the dispatcher how many requests per second the destination's owner allows now.
    fn limit(&mut self, destination: DestinationKey) {
        if let Some(target) = self.parts.directory.target(destination) {
            let now = self.parts.clock.now();
            self.dispatcher.limit(destination, target.rate_limit, now);
        }
    }

    fn take_settled(&mut self, keys: Settled) {
        // What was committed before these results must be known before they are forgotten.
        let arrivals = self.parts.store.feed().take();
        self.take_arrivals(arrivals);
        let now = self.parts.clock.now();
        let keys: Vec<(DestinationKey, DeliveryKey)> = keys;
        self.dispatcher.settled(keys, now);
    }

    fn take_read(&mut self, destination: DestinationKey, page: Result<DuePage, StoreError>) {
        let now = self.parts.clock.now();
        match page {
            Ok(page) => {
                let rows = page
                    .rows
                    .into_iter()
                    .map(|due| (due.delivery, due.payload.map(Freight)));
                self.dispatcher.refilled(destination, rows, page.more, now);
            }
            Err(error) => {
                tracing::warn!(%destination, %error, "failed to read due deliveries; trying again");
                self.dispatcher.refill_failed(destination, now);
            }
        }
    }

    /// Starts nothing, waits for what is out, commits what was judged.
    async fn drain(mut self, grace: Duration) -> Drained {
        let deadline = Instant::now() + grace;
        while self.dispatcher.load().in_flight > 0 {
            tokio::select! {
                Some(done) = self.done.1.recv() => self.finish(done),
                () = sleep_until(deadline) => break,
            }
        }
        let given_up = self.dispatcher.load().in_flight;
        self.tasks.shutdown().await;
        while let Ok(done) = self.done.1.try_recv() {
            self.finish(done);
        }
        drop((self.judged, self.keeping));
        let commits = async { tokio::join!(&mut self.settler, &mut self.keeper) };
        match timeout(grace.max(MIN_COMMIT_TIME), commits).await {
            Ok((Ok(()), Ok(()))) => {}
            Ok((Err(error), _) | (_, Err(error))) => {
                tracing::error!(%error, "a writing task died during shutdown");
            }
            Err(_) => {
                self.settler.abort();
                self.keeper.abort();
                tracing::error!(
                    "results could not be recorded in time; their requests are repeated after the next start"
                );
            }
        }
        Drained { given_up }
    }

    pub(super) fn name(&self, destination: DestinationKey) -> String {
        self.parts
            .directory
            .target(destination)
            .map_or_else(|| destination.to_string(), |t| t.id.clone())
    }
}

/// What an earlier process left: what it knew of receivers, and who has pending deliveries.
async fn remembered(
    parts: &Parts,
) -> Result<(Vec<(DestinationKey, Protection)>, Vec<DestinationKey>), StoreError> {
    let protections = parts.store.protections().await?;
    Ok((protections, parts.store.destinations_with_pending().await?))
}

/// Without the settler nothing would be recorded and nobody would see it: the loop dies too, and is started again.
fn die_with_it(ended: Result<(), JoinError>) -> ! {
    match ended {
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Ok(()) | Err(_) => panic!("the settler ended although the loop goes on"),
    }
}

/// Waits until a stop is asked for, and answers with its grace time. A supervisor that is gone means at once.
async fn stop_signal(stopped: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match stopped.wait_for(Option::is_some).await {
        Ok(grace) => grace.unwrap_or_default(),
        Err(_) => Duration::ZERO,
    }
}
