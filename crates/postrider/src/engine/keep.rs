//! Writes down what protects receivers, so that a restart does not let traffic loose on one that is down.
//!
//! Only changes come here, not deliveries: a breaker that opened or closed, a number of failures that is alarming. Of
//! several states of one destination only the latest is written, so a store that cannot write now makes no queue.

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::dispatcher::Protection;
use postrider_core::id::DestinationKey;
use tokio::sync::mpsc;

use super::Parts;

/// States in one transaction.
const MAX_BATCH: usize = 1_024;
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// What to keep of a destination; `None` to forget it.
pub(super) type Kept = (DestinationKey, Option<Protection>);

/// Runs until the sending side is dropped and everything that was sent is written.
pub(super) async fn keep(parts: Parts, mut changes: mpsc::UnboundedReceiver<Kept>) {
    let mut batch = Vec::new();
    while changes.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let mut latest: HashMap<_, _> = batch.drain(..).collect();
        while let Err(error) = parts
            .store
            .keep_protection(latest.clone().into_iter().collect())
            .await
        {
            tracing::warn!(%error, destinations = latest.len(), "failed to keep the state of circuit breakers; trying again");
            tokio::time::sleep(RETRY_PAUSE).await;
            while let Ok((destination, protection)) = changes.try_recv() {
                latest.insert(destination, protection);
            }
        }
    }
}
