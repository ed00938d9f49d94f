//! Commits judged results, in the order in which they were judged, as many at once as have come together.
//!
//! A result that cannot be committed now stays here and is tried again for as long as it takes; meanwhile the
//! dispatcher's bound on unsettled results stops the sending. So a full disk pauses deliveries and loses none.
//!
//! A result that can *never* be committed, because the store finds something unreadable, must not keep the others waiting:
//! its batch is halved until it is alone, and it is left out. The dispatcher is not told of it, so its delivery is neither
//! read nor sent again before a restart, and it goes on counting against the bound: many of them stop the sending too.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::id::{DeliveryKey, DestinationKey};
use postrider_store::StoreError;
use postrider_store::record::Settlement;
use tokio::sync::mpsc;

use super::Parts;
use crate::telemetry::health::WorkerState;

/// Name of the settler in `/healthz`.
const WORKER: &str = "settler";
/// Results in one transaction.
const MAX_BATCH: usize = 1_024;
/// A batch of this many is not held back for more.
const FULL_BATCH: usize = 256;
/// How long a smaller batch waits for more results. A crash repeats what came in meanwhile, within `max_unsettled`.
const LINGER: Duration = Duration::from_millis(5);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Deliveries whose results are recorded.
pub(super) type Settled = Vec<(DestinationKey, DeliveryKey)>;

/// The store refuses everything from now on.
struct StoreClosed;

/// Runs until the sending side is dropped and everything that was sent is committed, or until the store is closed.
pub(super) async fn settle(
    parts: Parts,
    mut judged: mpsc::Receiver<Settlement>,
    settled: mpsc::Sender<Settled>,
) {
    let mut settler = Settler {
        parts,
        left_out: 0,
        is_failing: false,
    };
    settler.report(None);
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while judged.recv_many(&mut batch, MAX_BATCH).await > 0 {
        if batch.len() < FULL_BATCH && !judged.is_closed() {
            // Nobody waits for a result's commit, and one commit for many costs little more than one for one.
            tokio::time::sleep(LINGER).await;
            while batch.len() < MAX_BATCH
                && let Ok(settlement) = judged.try_recv()
            {
                batch.push(settlement);
            }
        }
        let Ok(keys) = settler.commit(std::mem::take(&mut batch)).await else {
            tracing::error!(
                "the store is closed: results that are not recorded are repeated after the next start"
            );
            return;
        };
        // The loop may be gone: then nobody needs to know.
        let _ = settled.send(keys).await;
    }
}

struct Settler {
    parts: Parts,
    /// Results that can never be recorded.
    left_out: usize,
    is_failing: bool,
}

impl Settler {
    /// Commits all that can be committed, in order; answers whose results those are.
    async fn commit(&mut self, batch: Vec<Settlement>) -> Result<Settled, StoreClosed> {
        let mut settled = Vec::with_capacity(batch.len());
        let mut waiting = VecDeque::from([batch]);
        while let Some(mut part) = waiting.pop_front() {
            let keys = part
                .iter()
                .map(|one| (one.delivery.destination, one.delivery.key))
                .collect::<Vec<_>>();
            let error = match self.record(&mut part).await {
                Ok(()) => {
                    settled.extend(keys);
                    continue;
                }
                Err(StoreError::Closed) => return Err(StoreClosed),
                Err(error) => error,
            };
            if part.len() > 1 {
                let later = part.split_off(part.len() / 2);
                waiting.push_front(later);
                waiting.push_front(part);
            } else if let Some(alone) = part.pop() {
                self.leave_out(&alone, &error);
            }
        }
        Ok(settled)
    }

    /// Commits a part in one transaction; tries again as long as that may help. The part comes back when it does not.
    async fn record(&mut self, part: &mut Vec<Settlement>) -> Result<(), StoreError> {
        let shared = Arc::new(std::mem::take(part));
        let mut pause = RETRY_PAUSE;
        loop {
            let now = self.parts.clock.now();
            let Err(error) = self.parts.store.settle(Arc::clone(&shared), now).await else {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(results = shared.len(), "results are recorded again");
                    self.report(None);
                }
                return Ok(());
            };
            if matches!(error, StoreError::Corrupt(_) | StoreError::Closed) {
                *part = Arc::unwrap_or_clone(shared);
                return Err(error);
            }
            if !std::mem::replace(&mut self.is_failing, true) {
                let cause = cause(&error);
                tracing::error!(%error, cause, results = shared.len(), "failed to record results; trying until it works");
            }
            self.report(Some(&error));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY_PAUSE);
        }
    }

    fn leave_out(&mut self, settlement: &Settlement, error: &StoreError) {
        self.left_out += 1;
        tracing::error!(
            delivery = %settlement.delivery.key,
            destination = %settlement.delivery.destination,
            event = %settlement.delivery.event,
            %error,
            "a result can never be recorded: its delivery is not touched before the next start"
        );
        self.report(None);
    }

    fn report(&self, failing: Option<&StoreError>) {
        let state = match (failing, self.left_out) {
            // It goes on by itself once the store can write, so a restart would not help.
            (Some(error), _) => {
                WorkerState::Degraded(format!("failed to {error}; results wait, and nothing is lost"))
            }
            (None, 0) => WorkerState::Healthy,
            (None, left_out) => WorkerState::Degraded(format!(
                "{left_out} results can never be recorded: the log names their deliveries"
            )),
        };
        self.parts.health.set(WORKER, state);
    }
}

fn cause(error: &StoreError) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}
