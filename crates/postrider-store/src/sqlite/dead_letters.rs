//! The methods about dead letters: each hands a function to the writer or to a reader.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::id::ContextKey;
use postrider_core::replay::ReplayState;
use postrider_core::time::Timestamp;

use super::queue::{Class, Weight};
use super::write::withdraw::End;
use super::{SqliteStore, read, write};
use crate::DeadLetters;
use crate::error::StoreError;
use crate::letter::{
    DeadContext, DeadLetter, DeadLetterDetail, DeadLetterFilter, DeadLetterGroup, DeadLetterQuery, Expired,
    Imported, ImportedLetter, Purged, RetentionKind, Withdrawn,
};
use crate::page::Page;
use crate::replay::{
    Replay, ReplayChanged, ReplayCreated, ReplayDetail, ReplayPreview, ReplayQuery, ReplayScope, ReplaySpec,
    ReplayStep, ReplayStepped,
};

#[async_trait]
impl DeadLetters for SqliteStore {
    async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter>, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .walk(move |conn, until| read::letters::list(conn, &ids, &query, until))
            .await
    }

    async fn count_dead_letters(&self, filter: DeadLetterFilter, upper: i64) -> Result<u64, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .run(move |conn| read::letters::count(conn, &ids, &filter, upper))
            .await
    }

    async fn last_dead_letter(&self) -> Result<i64, StoreError> {
        self.readers.run(read::letters::highest).await
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

    async fn purge_dead_letters(
        &self,
        filter: DeadLetterFilter,
        after: i64,
        upper: i64,
        limit: u32,
    ) -> Result<Purged, StoreError> {
        let ids = self.ids.clone();
        let (serials, next) = self
            .readers
            .walk(move |conn, until| {
                read::letters::serials(conn, &ids, &filter, (after, upper), limit, until)
            })
            .await?;
        let removed = if serials.is_empty() {
            0
        } else {
            self.write(Class::Progress, rows(serials.len()), move |work| {
                write::remove::letters(work, &serials)
            })
            .await?
        };
        Ok(Purged { removed, next })
    }

    async fn dead_letter_delivery(
        &self,
        id: &str,
        context: Option<DeadContext>,
        now: Timestamp,
    ) -> Result<Withdrawn, StoreError> {
        self.withdraw(id, End::Dead(context), now).await
    }

    async fn cancel_delivery(&self, id: &str, now: Timestamp) -> Result<Withdrawn, StoreError> {
        self.withdraw(id, End::Canceled, now).await
    }

    async fn preview_replay(&self, scope: ReplayScope) -> Result<ReplayPreview, StoreError> {
        Ok(self.preview(scope).await?.0)
    }

    async fn create_replay(&self, spec: ReplaySpec, now: Timestamp) -> Result<ReplayCreated, StoreError> {
        let found = self.preview(spec.scope.clone()).await?;
        self.write(
            Class::Progress,
            rows(1 + found.0.destinations.len()),
            move |work| write::replays::create(work, &spec, &found, now),
        )
        .await
    }

    async fn replays(&self, query: ReplayQuery) -> Result<Page<Replay>, StoreError> {
        let (ids, unreadable) = (self.ids.clone(), Arc::clone(&self.unreadable_replays));
        self.readers
            .walk(move |conn, until| read::replays::list(conn, &ids, &query, &unreadable, until))
            .await
    }

    async fn replay(&self, id: &str) -> Result<Option<ReplayDetail>, StoreError> {
        let (ids, id) = (self.ids.clone(), id.to_owned());
        self.readers
            .run(move |conn| read::replays::detail(conn, &ids, &id))
            .await
    }

    async fn change_replay(
        &self,
        id: &str,
        state: ReplayState,
        now: Timestamp,
    ) -> Result<ReplayChanged, StoreError> {
        let id = id.to_owned();
        self.write(Class::Progress, rows(1), move |work| {
            write::replays::change(work, &id, state, now)
        })
        .await
    }

    async fn replay_step(
        &self,
        step: ReplayStep,
        now: Timestamp,
    ) -> Result<Option<ReplayStepped>, StoreError> {
        let ids = self.ids.clone();
        let found = self
            .readers
            .walk(move |conn, until| read::replays::candidates(conn, &ids, &step, until))
            .await?;
        let Some(found) = found else { return Ok(None) };
        self.write(Class::Progress, rows(1 + found.keys.len()), move |work| {
            write::replays::step(work, &step, &found, now)
        })
        .await
    }

    async fn expire(
        &self,
        kind: RetentionKind,
        before: Timestamp,
        limit: u32,
    ) -> Result<Expired, StoreError> {
        let weight = rows(usize::try_from(limit).unwrap_or(usize::MAX));
        self.write(Class::Progress, weight, move |work| {
            write::expire::expire(work, kind, before, limit)
        })
        .await
    }

    async fn import_dead_letters(
        &self,
        letters: Vec<ImportedLetter>,
        now: Timestamp,
    ) -> Result<Vec<Imported>, StoreError> {
        let bodies = |letter: &ImportedLetter| -> usize {
            let answers = letter.attempts.iter().map(|attempt| attempt.response_body.len());
            letter.data.len() + answers.sum::<usize>()
        };
        let weight = Weight {
            rows: letters.iter().map(|letter| 3 + letter.attempts.len()).sum(),
            bytes: letters.iter().map(bodies).sum(),
        };
        self.write(Class::Intake, weight, move |work| {
            write::import::import(work, &letters, now)
        })
        .await
    }
}

impl SqliteStore {
    async fn preview(&self, scope: ReplayScope) -> Result<(ReplayPreview, i64), StoreError> {
        let ids = self.ids.clone();
        self.readers
            .run(move |conn| read::replays::preview(conn, &ids, &scope))
            .await
    }

    async fn withdraw(&self, id: &str, what: End, now: Timestamp) -> Result<Withdrawn, StoreError> {
        let id = id.to_owned();
        self.write(Class::Progress, rows(1), move |work| {
            write::withdraw::withdraw(work, &id, &what, now)
        })
        .await
    }
}

const fn rows(rows: usize) -> Weight {
    Weight { rows, bytes: 0 }
}
