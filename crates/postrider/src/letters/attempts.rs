//! Every attempt of one delivery: read page by page, since a page ends early where the answers were large.

use postrider_store::page::{Cursor, Direction, PageRequest, TimeRange};
use postrider_store::record::{Attempt, AttemptQuery};
use postrider_store::{Store, StoreError};

/// The first so many are shown and archived.
const MAX_ATTEMPTS: usize = 1_000;

/// The attempts of a delivery that are kept, oldest first, at most 1,000.
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
                direction: Direction::Ascending,
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
    Ok(attempts)
}
