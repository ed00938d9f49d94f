//! Rows that this program cannot read, as a later version may have left them.

use postrider_core::replay::ReplayConfig;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::page::{Cursor, Direction, PageRequest};
use postrider_store::replay::{Replay, ReplayCreated, ReplayQuery, ReplayScope, ReplaySpec};
use postrider_store::sqlite::SqliteStore;
use postrider_store::{DeadLetters as _, StoreError};
use rusqlite::Connection;

use super::config;
use crate::conformance::{at, bury, create, tenant};

async fn replay(store: &SqliteStore) -> Replay {
    let spec = ReplaySpec {
        scope: ReplayScope::DeadLetters(DeadLetterFilter::default()),
        config: ReplayConfig::Current,
        rate_per_second: 50,
    };
    match store.create_replay(spec, at(100)).await.unwrap() {
        ReplayCreated::Created { replay, .. } => replay,
        ReplayCreated::LimitReached => panic!("too many"),
    }
}

#[tokio::test]
async fn a_replay_that_cannot_be_read_is_missing_from_lists_and_hides_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    bury(&*store, "acme", key, 500, at(1)).await;
    let unreadable = replay(&store).await;
    let other = replay(&store).await;
    let conn = Connection::open(directory.path().join("postrider.db")).unwrap();
    conn.execute(
        r#"UPDATE replay SET spec = '{"scope":"later"}' WHERE key = ?1"#,
        [unreadable.key.0],
    )
    .unwrap();
    let query = ReplayQuery {
        states: vec![],
        page: PageRequest {
            limit: 1,
            direction: Direction::Ascending,
            cursor: Cursor::Start,
        },
    };
    let page = store.replays(query).await.unwrap();
    assert_eq!((page.rows, page.next), (vec![other], None));
    let alone = store.replay(&unreadable.id).await;
    assert!(matches!(alone, Err(StoreError::Corrupt(_))), "{alone:?}");
}
