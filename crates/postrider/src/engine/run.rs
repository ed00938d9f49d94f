//! The loop: inputs into the dispatcher, its actions into tasks.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::time::Duration;

use postrider_core::delivery::{PendingDelivery, WaitCause};
use postrider_core::dispatcher::{Action, Dispatcher, Protection, Terms, Unread};
use postrider_core::id::{DeliveryKey, DestinationKey};
use postrider_core::outcome::Category;
use postrider_store::StoreError;
use postrider_store::feed::Arrivals;
use postrider_store::record::{DueDelivery, DuePage, DueQuery, Next, Settlement};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::coop::consume_budget;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::attempt::{self, Done, attempt_safely};
use super::control::Commands;
use super::keep::{self, Keeping};
use super::settle::{Settled, settle};
use super::{Closing, Drained, EngineConfig, Freight, Parts};
use crate::telemetry::metrics::EngineGauges;

/// Finished attempts, and questions, that are taken in one turn of the loop.
const MAX_TURN: usize = 256;
/// Batches of committed results that may wait for the loop before the settler does.
const MAX_SETTLED: usize = 16;
/// Without any input the loop turns at least this often.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// The look at what an earlier process left is repeated after this when the store fails.
const START_PAUSE: Duration = Duration::from_millis(500);

type Read = (DestinationKey, Result<DuePage, StoreError>);

/// The loop's state.
///
/// Its channels have the dispatcher's limits for their sizes, so whoever reports to the loop never waits for it, and the loop
/// never waits for the settler: `done` holds at most what is in flight, `reads` the reads under way, `judged` the results that
/// are not settled.
pub(super) struct Run {
    pub(super) parts: Parts,
    max_read_bytes: usize,
    pub(super) dispatcher: Dispatcher<Freight>,
    tasks: JoinSet<()>,
    done: (mpsc::Sender<Done>, mpsc::Receiver<Done>),
    reads: (mpsc::Sender<Read>, mpsc::Receiver<Read>),
    judged: mpsc::Sender<Settlement>,
    settled: mpsc::Receiver<Settled>,
    settler: JoinHandle<()>,
    /// What the store keeps of destinations, or will.
    pub(super) kept: HashMap<DestinationKey, Protection>,
    pub(super) keeping: Keeping,
    keeper: JoinHandle<()>,
    commands: Commands,
    closing: watch::Receiver<Option<Closing>>,
}

impl Run {
    pub(super) fn new(
        parts: Parts,
        config: EngineConfig,
        closing: watch::Receiver<Option<Closing>>,
        commands: Commands,
    ) -> Self {
        let limits = &config.dispatcher;
        commands.begin();
        let (keeping, to_keep) = keep::channel();
        // What is in flight when the bound is reached may still be judged.
        let (judged, to_settle) = mpsc::channel((limits.max_unsettled + limits.max_in_flight).max(1));
        let (tell_settled, settled) = mpsc::channel(MAX_SETTLED);
        Self {
            settler: tokio::spawn(settle(parts.clone(), to_settle, tell_settled)),
            keeper: tokio::spawn(keep::keep(parts.clone(), to_keep)),
            kept: HashMap::new(),
            keeping,
            commands,
            parts,
            max_read_bytes: config.max_read_bytes,
            done: mpsc::channel(limits.max_in_flight.max(1)),
            reads: mpsc::channel(limits.max_refills.max(1)),
            dispatcher: Dispatcher::new(config.dispatcher),
            tasks: JoinSet::new(),
            judged,
            settled,
            closing,
        }
    }

    pub(super) async fn run(mut self) -> Drained {
        if let Some(closing) = self.recover().await {
            return self.drain(closing).await;
        }
        let mut finished = Vec::with_capacity(MAX_TURN);
        loop {
            self.act();
            let wake = self.next_wake();
            tokio::select! {
                biased;
                closing = asked_to_close(&mut self.closing) => return self.drain(closing).await,
                ended = &mut self.settler => die_with_it("settler", ended),
                ended = &mut self.keeper => die_with_it("keeper", ended),
                _ = self.done.1.recv_many(&mut finished, MAX_TURN) => {
                    for done in finished.drain(..) {
                        self.finish(done);
                    }
                }
                Some(keys) = self.settled.recv() => self.take_settled(keys),
                Some((destination, page)) = self.reads.1.recv() => self.take_read(destination, page),
                command = self.commands.next() => self.obey(command),
                arrivals = self.parts.store.feed().arrivals() => self.take_arrivals(arrivals),
                () = sleep_until(wake) => {}
            }
            self.take_the_rest();
            // With something to do in every turn the loop would never wait, and keep its thread for itself.
            consume_budget().await;
        }
    }

    /// Whatever woke the loop, in each turn it also looks at everything else that has come, so that no source, however busy,
    /// keeps another waiting. Bounded, so that a turn is short.
    fn take_the_rest(&mut self) {
        for _ in 0..MAX_TURN {
            let Ok(done) = self.done.1.try_recv() else { break };
            self.finish(done);
        }
        for _ in 0..MAX_SETTLED {
            let Ok(keys) = self.settled.try_recv() else { break };
            self.take_settled(keys);
        }
        while let Ok((destination, page)) = self.reads.1.try_recv() {
            self.take_read(destination, page);
        }
        for _ in 0..MAX_TURN {
            let Some(command) = self.commands.waiting() else {
                break;
            };
            self.obey(command);
        }
        let arrivals = self.parts.store.feed().take();
        self.take_arrivals(arrivals);
        while self.tasks.try_join_next().is_some() {}
    }

    /// Asks the store what was known of receivers and which destinations have something pending, until it answers or a
    /// stop is asked for.
    async fn recover(&mut self) -> Option<Closing> {
        loop {
            match remembered(&self.parts).await {
                Ok((protections, destinations)) => {
                    let now = self.parts.clock.now();
                    for (destination, protection) in protections {
                        self.agree(destination);
                        self.kept.insert(destination, protection.clone());
                        self.dispatcher.restore(destination, protection, now);
                    }
                    for destination in destinations {
                        self.agree(destination);
                        self.dispatcher.spilled(destination, now);
                    }
                    return None;
                }
                Err(error) => tracing::error!(%error, "failed to look for pending deliveries; trying again"),
            }
            tokio::select! {
                closing = asked_to_close(&mut self.closing) => return Some(closing),
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
                Action::End(delivery, reason) => {
                    let next = Next::Dead(reason, Category::NotAttempted);
                    let entry = self.parts.directory.entry(delivery.destination);
                    self.judge(attempt::settlement(
                        &self.parts,
                        entry.as_deref(),
                        delivery,
                        next,
                        now,
                    ));
                }
                Action::Refill {
                    destination,
                    skip,
                    replays,
                    limit,
                } => {
                    let query = DueQuery {
                        destination,
                        skip,
                        replays,
                        limit,
                        max_payload_bytes: self.max_read_bytes,
                    };
                    let store = self.parts.store.clone();
                    let reads = self.reads.0.clone();
                    self.tasks.spawn(async move {
                        let _ = reads.send((destination, store.due(query).await)).await;
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
            let finished = attempt_safely(parts, delivery, payload, waited_for).await;
            let _ = done.send(finished).await;
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
            self.agree(delivery.destination);
            self.dispatcher.accepted(delivery, payload.map(Freight), now);
        }
        for (delivery, destination) in arrivals.withdrawn {
            self.dispatcher.withdrawn(destination, delivery, now);
        }
        for delivery in arrivals.rescheduled.into_values() {
            self.agree(delivery.destination);
            self.dispatcher.rescheduled(delivery, now);
        }
        for destination in arrivals.spilled {
            self.agree(destination);
            self.dispatcher.spilled(destination, now);
        }
    }

    fn finish(&mut self, mut done: Done) {
        let now = self.parts.clock.now();
        let destination = done.finished.delivery.destination;
        let target = self.parts.directory.target(destination);
        // Enabled meanwhile: its lane was told before this came.
        if done.pause && target.as_ref().is_some_and(|target| target.disabled) {
            self.dispatcher.pause(destination, now);
        }
        // Deleted meanwhile: there is nobody left to learn about.
        done.finished.elsewhere |= target.is_none();
        self.agree(destination);
        let learned = self.dispatcher.finished(done.finished, now);
        let attempt = done
            .settlement
            .as_ref()
            .and_then(|settlement| settlement.attempt.as_ref());
        self.heed(destination, &learned, attempt, now);
        if let Some(settlement) = done.settlement {
            self.mourn(&settlement);
            self.judge(settlement);
        }
    }

    fn judge(&self, settlement: Settlement) {
        if let Err(TrySendError::Full(_)) = self.judged.try_send(settlement) {
            // A settler that is gone is noticed by the loop. Starting again from the store loses nothing.
            panic!("more results are unsettled than the dispatcher's bounds allow");
        }
    }

    /// Tells the dispatcher what the destination's owner wants now, or that it is deleted; the store forgets that one by
    /// itself.
    pub(super) fn agree(&mut self, destination: DestinationKey) {
        let now = self.parts.clock.now();
        let Some(target) = self.parts.directory.target(destination) else {
            self.kept.remove(&destination);
            self.dispatcher.forget(destination, now);
            return;
        };
        let terms = Terms {
            tenant: target.tenant,
            share: target.share,
            rate_limit: target.rate_limit,
            patience: target.policy.patience(),
            longest_hold: Some(target.policy.longest_hold()),
        };
        self.dispatcher.agree(destination, terms, now);
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
                let unread = Unread {
                    more: page.more,
                    replays: page.replays_passed,
                };
                self.dispatcher.refilled(destination, rows, unread, now);
            }
            Err(error) => {
                tracing::warn!(%destination, %error, "failed to read due deliveries; trying again");
                self.dispatcher.refill_failed(destination, now);
            }
        }
    }

    /// Starts nothing, waits for what is out, commits what was judged.
    async fn drain(mut self, closing: Closing) -> Drained {
        while self.dispatcher.load().in_flight > 0 {
            tokio::select! {
                Some(done) = self.done.1.recv() => self.finish(done),
                Some(keys) = self.settled.recv() => self.take_settled(keys),
                () = sleep_until(closing.work_until) => break,
            }
        }
        let given_up = self.dispatcher.load().in_flight;
        self.tasks.shutdown().await;
        while let Ok(done) = self.done.1.try_recv() {
            self.finish(done);
        }
        self.keep_all();
        // Nobody needs to be told of commits any more, and the two writers end when everything is written.
        drop((self.judged, self.keeping, self.settled));
        let commits = async { tokio::join!(&mut self.settler, &mut self.keeper) };
        match timeout_at(closing.commit_until, commits).await {
            Ok((Ok(()), Ok(()))) => {}
            Ok((Err(error), _) | (_, Err(error))) => {
                tracing::error!(%error, "a writing task died during shutdown");
            }
            Err(_) => {
                self.settler.abort();
                self.keeper.abort();
                tracing::error!(
                    "not everything could be recorded in time; requests whose results are missing are repeated after the next start"
                );
            }
        }
        Drained { given_up }
    }

    pub(super) fn name(&self, destination: DestinationKey) -> String {
        self.parts
            .directory
            .target(destination)
            .map_or_else(|| destination.to_string(), |target| target.name.clone())
    }
}

/// What an earlier process left: what it knew of receivers, and who has pending deliveries.
async fn remembered(
    parts: &Parts,
) -> Result<(Vec<(DestinationKey, Protection)>, Vec<DestinationKey>), StoreError> {
    let protections = parts.store.protections().await?;
    Ok((protections, parts.store.destinations_with_pending().await?))
}

/// Without a writer nothing would be recorded and nobody would see it: the loop dies too, and is started again.
fn die_with_it(writer: &str, ended: Result<(), JoinError>) -> ! {
    match ended {
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        Ok(()) | Err(_) => panic!("the {writer} ended although the loop goes on"),
    }
}

/// Waits until a stop is asked for, and answers with its deadlines. A supervisor that is gone means at once.
async fn asked_to_close(closing: &mut watch::Receiver<Option<Closing>>) -> Closing {
    match closing.wait_for(Option::is_some).await {
        Ok(closing) => closing.unwrap_or_else(|| Closing::after(Duration::ZERO)),
        Err(_) => Closing::after(Duration::ZERO),
    }
}
