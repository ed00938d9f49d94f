//! The embedded backend.

mod crash;
mod limits;
mod migration;
mod opening;
mod retention;
mod unreadable;

use std::sync::Arc;

use async_trait::async_trait;
use postrider_store::Store;
use postrider_store::seal::SealKey;
use postrider_store::sqlite::{SqliteConfig, SqliteStore};
use tempfile::TempDir;

use crate::conformance::{Harness, conformance_suite};

/// A store in a directory of its own.
pub(crate) struct Embedded {
    store: Arc<SqliteStore>,
    directory: TempDir,
}

pub(crate) fn config(directory: &TempDir) -> SqliteConfig {
    SqliteConfig::new(directory.path(), SealKey::new(&[7; 32]))
}

#[async_trait]
impl Harness for Embedded {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(config(&directory)).unwrap();
        Self { store, directory }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    async fn restart(self) -> Self {
        self.store.close().await;
        let store = SqliteStore::open(config(&self.directory)).unwrap();
        Self {
            store,
            directory: self.directory,
        }
    }
}

conformance_suite!(Embedded);
