//! Destinations as they were when a delivery died, for replays that ask for that.
//!
//! Compiled from the context that the store keeps, by the rules of today: an address that is no longer allowed is not
//! sent to. Secrets are those of today, because a receiver has no others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::id::ContextKey;
use postrider_store::StoreError;

use super::compile::compile;
use super::{Directory, Entry, context};

/// Destinations that are kept compiled; beyond, all are forgotten and made again as they are needed.
const MAX_KEPT: usize = 256;

/// What was compiled, by context and by the revision of the destination that gave the secrets.
#[derive(Debug, Default)]
pub(super) struct Originals(Mutex<HashMap<(ContextKey, i64), Arc<Entry>>>);

impl Directory {
    /// The destination with the configuration and the retry policy of a context, and today's secrets. As it is today when the
    /// context is gone or cannot be read.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn as_it_was(&self, today: &Arc<Entry>, key: ContextKey) -> Result<Arc<Entry>, StoreError> {
        let place = (key, today.record.revision);
        if let Some(kept) = self.originals.0.lock().get(&place) {
            return Ok(Arc::clone(kept));
        }
        let found = match self.store.dead_context(key).await {
            Err(StoreError::Corrupt(what)) => {
                tracing::warn!(
                    destination_id = today.record.id,
                    what,
                    "an earlier configuration cannot be read"
                );
                None
            }
            found => found?,
        };
        let restored = found.and_then(|found| context::restore(&today.record, &found));
        let entry = match restored {
            Some(record) => {
                let (target, _) = compile(&record, &today.target.tenant_id, &self.rules());
                Arc::new(Entry::new(record, target))
            }
            None => {
                tracing::warn!(
                    destination_id = today.record.id,
                    "an earlier configuration is not kept; using the current one"
                );
                Arc::clone(today)
            }
        };
        let mut kept = self.originals.0.lock();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(place, Arc::clone(&entry));
        Ok(entry)
    }
}
