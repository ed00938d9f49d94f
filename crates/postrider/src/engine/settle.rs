//! Commits judged results, in the order in which they were judged, as many at once as have come together.
//!
//! A result that cannot be committed now stays here and is tried again for as long as it takes; meanwhile the
//! dispatcher's bound on unsettled results stops the sending. So a full disk pauses deliveries and loses none.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::id::{DeliveryKey, DestinationKey};
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

/// Deliveries whose results are on disk.
pub(super) type Settled = Vec<(DestinationKey, DeliveryKey)>;

/// Runs until the sending side is dropped and everything that was sent is committed.
pub(super) async fn settle(
    parts: Parts,
    mut judged: mpsc::UnboundedReceiver<Settlement>,
    settled: mpsc::UnboundedSender<Settled>,
) {
    parts.health.set(WORKER, WorkerState::Healthy);
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
        let keys = batch
            .iter()
            .map(|s| (s.delivery.destination, s.delivery.key))
            .collect();
        commit(&parts, Arc::new(std::mem::take(&mut batch))).await;
        // The loop may be gone: then nobody needs to know.
        let _ = settled.send(keys);
    }
}

async fn commit(parts: &Parts, batch: Arc<Vec<Settlement>>) {
    let mut pause = RETRY_PAUSE;
    let mut failed = false;
    while let Err(error) = parts.store.settle(Arc::clone(&batch), parts.clock.now()).await {
        if !failed {
            let cause = std::error::Error::source(&error)
                .map(ToString::to_string)
                .unwrap_or_default();
            tracing::error!(%error, cause, results = batch.len(), "failed to record results; trying until it works");
        }
        failed = true;
        parts
            .health
            .set(WORKER, WorkerState::Failed(format!("failed to {error}")));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY_PAUSE);
    }
    if failed {
        tracing::info!(results = batch.len(), "results are recorded again");
        parts.health.set(WORKER, WorkerState::Healthy);
    }
}
