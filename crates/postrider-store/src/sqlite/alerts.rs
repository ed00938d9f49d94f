//! The trait's methods about alerts.

use async_trait::async_trait;
use postrider_core::id::AlertKey;
use postrider_core::time::Timestamp;

use super::queue::{Class, Weight};
use super::{SqliteStore, read, write};
use crate::alerts::{Alert, AlertQuery, Alerts, DeadLetterLevel};
use crate::error::StoreError;
use crate::page::Page;

#[async_trait]
impl Alerts for SqliteStore {
    async fn keep_alerts(&self, batch: Vec<Alert>, now: Timestamp) -> Result<Vec<AlertKey>, StoreError> {
        let weight = Weight {
            rows: batch.len(),
            bytes: 0,
        };
        self.write(Class::Progress, weight, move |work| {
            write::alerts::keep(work, &batch, now)
        })
        .await
    }

    async fn note_published(&self, versions: Vec<(AlertKey, u32)>) -> Result<(), StoreError> {
        let weight = Weight {
            rows: versions.len(),
            bytes: 0,
        };
        self.write(Class::Progress, weight, move |work| {
            write::alerts::note_published(work, &versions)
        })
        .await
    }

    async fn alerts(&self, query: AlertQuery) -> Result<Page<Alert>, StoreError> {
        self.readers
            .run(move |conn| read::alerts::page(conn, &query))
            .await
    }

    async fn open_alerts(&self) -> Result<Vec<Alert>, StoreError> {
        self.readers.run_unbounded(read::alerts::open).await
    }

    async fn dead_letter_levels(&self, since: Timestamp) -> Result<Vec<DeadLetterLevel>, StoreError> {
        self.readers
            .run(move |conn| read::alerts::dead_letter_levels(conn, since))
            .await
    }
}
