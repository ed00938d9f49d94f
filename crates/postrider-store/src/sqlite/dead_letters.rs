//! The methods about dead letters: each hands a function to the writer or to a reader.

use async_trait::async_trait;
use postrider_core::id::ContextKey;
use postrider_core::time::Timestamp;

use super::{SqliteStore, read};
use crate::DeadLetters;
use crate::error::StoreError;
use crate::letter::{
    DeadContext, DeadLetter, DeadLetterCount, DeadLetterDetail, DeadLetterFilter, DeadLetterGroup,
    DeadLetterQuery,
};
use crate::page::Page;

#[async_trait]
impl DeadLetters for SqliteStore {
    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter>, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .walk(move |conn, until| read::letters::list(conn, &ids, &query, until))
            .await
    }

    async fn count_dead_letters(&self, filter: DeadLetterFilter) -> Result<DeadLetterCount, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .run(move |conn| read::letters::count(conn, &ids, &filter))
            .await
    }

    async fn dead_letter_summary(
        &self,
        filter: DeadLetterFilter,
        now: Timestamp,
    ) -> Result<Vec<DeadLetterGroup>, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .run(move |conn| read::letters::summary(conn, &ids, &filter, now))
            .await
    }

    async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetterDetail>, StoreError> {
        let (ids, seal, id) = (self.ids.clone(), self.seal.clone(), id.to_owned());
        self.readers
            .run(move |conn| read::letters::detail(conn, &ids, &seal, &id))
            .await
    }

    async fn dead_context(&self, key: ContextKey) -> Result<Option<DeadContext>, StoreError> {
        let seal = self.seal.clone();
        self.readers
            .run(move |conn| read::letters::context(conn, &seal, key))
            .await
    }
}
