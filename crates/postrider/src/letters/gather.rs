//! Dead letters as lines: read page by page, so that any number of them takes the memory of a few.

use std::collections::VecDeque;
use std::sync::Arc;

use postrider_core::time::Timestamp;
use postrider_store::letter::{DeadLetter, DeadLetterFilter, DeadLetterQuery};
use postrider_store::page::{Cursor, Direction, PageRequest};
use postrider_store::record::NewAttempt;
use postrider_store::{Store, StoreError};

use super::attempts;
use super::line::{EventLine, Head, Line};
use super::masked::masked;

/// Dead letters that one read of the list brings.
const PAGE: usize = 200;

/// Reads dead letters in order of their deaths.
pub struct Gatherer {
    store: Arc<dyn Store>,
    filter: DeadLetterFilter,
    /// Those that died later than this serial are not read, so that a reading ends.
    upper: i64,
    cursor: Cursor,
    page: VecDeque<DeadLetter>,
    ended: bool,
}

/// A dead letter that was read.
#[derive(Debug)]
pub struct Gathered {
    /// Its place in the order of deaths.
    pub serial: i64,
    /// When it died.
    pub died_at: Timestamp,
    /// Everything about it, custom headers masked.
    pub line: Line,
}

impl Gatherer {
    /// Reads those that the filter admits, up to a serial.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, filter: DeadLetterFilter, upper: i64) -> Self {
        Self {
            store,
            filter,
            upper,
            cursor: Cursor::Start,
            page: VecDeque::new(),
            ended: false,
        }
    }

    /// The next; one that was replayed or deleted since its page was read is passed over.
    ///
    /// # Errors
    /// When the store cannot be read; the next call tries again.
    pub async fn next(&mut self) -> Result<Option<Gathered>, StoreError> {
        loop {
            while let Some(letter) = self.page.front() {
                let (serial, died_at) = (letter.serial, letter.died_at);
                if serial > self.upper {
                    return Ok(None);
                }
                // It stays the next until it was read: after an error it must not be passed over.
                let line = line(&*self.store, &letter.id).await?;
                self.page.pop_front();
                if let Some(line) = line {
                    return Ok(Some(Gathered {
                        serial,
                        died_at,
                        line,
                    }));
                }
            }
            if self.ended {
                return Ok(None);
            }
            let page = PageRequest {
                limit: PAGE,
                direction: Direction::Ascending,
                cursor: self.cursor,
            };
            let filter = self.filter.clone();
            let found = self.store.dead_letters(DeadLetterQuery { filter, page }).await?;
            match found.next {
                Some(next) => self.cursor = Cursor::After(next),
                None => self.ended = true,
            }
            self.page = found.rows.into();
        }
    }
}

/// A dead letter as a line; `None` when it is none (any more).
async fn line(store: &dyn Store, id: &str) -> Result<Option<Line>, StoreError> {
    let Some(detail) = store.dead_letter(id).await? else {
        return Ok(None);
    };
    let attempts = attempts::of_delivery(store, id).await?;
    let attempts: Vec<NewAttempt> = attempts.into_iter().map(|attempt| attempt.recorded).collect();
    let (letter, event) = (detail.letter, detail.event);
    let head = Head {
        id: letter.id,
        tenant_id: letter.tenant_id,
        destination_id: letter.destination_id,
        reason: letter.reason,
        category: letter.category,
        code: letter.code,
        error: letter.error,
        created_at: letter.created_at,
        died_at: letter.died_at,
    };
    let event = EventLine {
        id: event.id,
        topic: event.topic,
        time: event.time,
        accepted_at: event.accepted_at,
        metadata: event.metadata,
        eligible_for_retry: event.retryable,
        data: event.data,
    };
    let context = detail
        .context
        .as_ref()
        .and_then(masked)
        .map(|value| value.to_string());
    Ok(Some(Line::new(head, event, &attempts, context.as_deref())))
}
