//! Every attempt of one delivery: read page by page, since a page ends early where the answers were large.

use postrider_store::page::{Cursor, Direction, PageRequest, TimeRange};
use postrider_store::record::{Attempt, AttemptQuery};
use postrider_store::{Store, StoreError};

/// The latest so many are shown and archived: they are the ones that an operator looks for, and an import tells a letter by
/// its last.
const MAX_ATTEMPTS: usize = 1_000;

/// The newest 1,000 attempts of a delivery that are kept, oldest first.
///
/// # Errors
/// When the store cannot be read.
pub async fn of_delivery(store: &dyn Store, id: &str) -> Result<Vec<Attempt>, StoreError> {
    let mut attempts = Vec::new();
    let mut cursor = Cursor::Start;
    while attempts.len() < MAX_ATTEMPTS {
        let query = AttemptQuery {
            tenant_ids: Vec::new(),
            event_ids: Vec::new(),
            delivery_ids: vec![id.to_owned()],
            destination_ids: Vec::new(),
            topics: Vec::new(),
            successful: None,
            time: TimeRange::default(),
            page: PageRequest {
                limit: MAX_ATTEMPTS - attempts.len(),
                direction: Direction::Descending,
                cursor,
            },
            with_event_data: false,
        };
        let page = store.attempts(query).await?;
        attempts.extend(page.rows);
        match page.next {
            Some(next) => cursor = Cursor::After(next),
            None => break,
        }
    }
    attempts.reverse();
    Ok(attempts)
}
