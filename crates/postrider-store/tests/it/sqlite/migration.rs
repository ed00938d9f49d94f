//! Databases of earlier versions.

use std::path::Path;

use postrider_core::delivery::DeadReason;
use postrider_core::outcome::Category;
use postrider_core::time::Timestamp;
use postrider_store::Store as _;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::sqlite::SqliteStore;
use rusqlite::Connection;

use super::config;
use crate::conformance::{at, bury, create, letters, tenant};

const TABLES_3: [&str; 16] = [
    "meta",
    "tenant",
    "topic",
    "destination",
    "event",
    "event_id",
    "pending",
    "history",
    "dead",
    "attempt",
    "event_by_tenant",
    "delivery_by_destination",
    "attempt_by_tenant",
    "attempt_by_destination",
    "retry_policy",
    "retry_policy_change",
];

/// Takes a database back to version 3, whose `dead` had nothing but a category, and whose headers were in clear.
fn take_back(directory: &Path) {
    let conn = Connection::open(directory.join("postrider.db")).unwrap();
    let tables: Vec<String> = conn
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    for table in tables {
        if !TABLES_3.contains(&table.as_str()) && table != "protection" && !table.starts_with("sqlite_") {
            conn.execute_batch(&format!("DROP TABLE {table}")).unwrap();
        }
    }
    conn.execute_batch(
        r#"
        CREATE TABLE dead_3(
            key INTEGER PRIMARY KEY, tenant INTEGER NOT NULL, destination INTEGER NOT NULL, category INTEGER NOT NULL
        ) STRICT;
        INSERT INTO dead_3 SELECT key, tenant, destination, category FROM dead;
        DROP TABLE dead;
        ALTER TABLE dead_3 RENAME TO dead;
        CREATE INDEX dead_tenant ON dead(tenant);
        CREATE INDEX dead_destination ON dead(destination);
        DROP INDEX pending_context;
        ALTER TABLE pending DROP COLUMN context;
        UPDATE destination SET config = json_set(config, '$.custom_headers', printf('%.*c', 3000, '-') || 'canary_in_clear');
        UPDATE meta SET value = 3 WHERE name = 'schema_version';
        PRAGMA wal_checkpoint(TRUNCATE);
        "#,
    )
    .unwrap();
}

fn holds(directory: &Path, text: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn dead_letters_of_version_3_are_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let gone = create(&*store, acme, "des_2").await;
    // Two of one time, and one that died before them.
    for (status, seconds) in [(401, 20), (500, 20), (404, 10)] {
        bury(&*store, "acme", key, status, at(seconds)).await;
    }
    store.delete_destination(acme, gone, at(30)).await.unwrap();
    let before = letters(&*store, DeadLetterFilter::default()).await;
    let directory_before = store.directory().await.unwrap().1;
    store.close().await;
    take_back(directory.path());
    assert!(holds(directory.path(), "canary_in_clear"));

    let store = SqliteStore::open(config(&directory)).unwrap();
    let after = letters(&*store, DeadLetterFilter::default()).await;
    let told: Vec<_> = after
        .iter()
        .map(|letter| {
            (
                letter.died_at,
                letter.code,
                letter.error.as_deref(),
                letter.category,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (at(10), Some(404), Some("404: no"), Category::Http4xx),
            (at(20), Some(401), Some("401: no"), Category::Http4xx),
            (at(20), Some(500), Some("500: no"), Category::Http5xx),
        ]
    );
    let same = |mut letters: Vec<postrider_store::letter::DeadLetter>| {
        letters.sort_by_key(|letter| letter.key);
        for letter in &mut letters {
            letter.serial = 0;
            letter.context = None;
            letter.died_at = Timestamp::EPOCH;
        }
        letters
    };
    assert_eq!(same(after.clone()), same(before));
    assert!(
        after
            .iter()
            .all(|letter| letter.reason == DeadReason::PermanentFailure)
    );
    assert!(after.is_sorted_by(|a, b| a.serial < b.serial));
    let newest = bury(&*store, "acme", key, 500, at(20)).await;
    let last = letters(&*store, DeadLetterFilter::default()).await.pop().unwrap();
    assert_eq!(last.key, newest.key, "the next death has a higher serial");

    let mut expected = directory_before;
    let headers = format!("{}canary_in_clear", "-".repeat(3_000));
    expected[0].config.insert("custom_headers".to_owned(), headers);
    assert_eq!(store.directory().await.unwrap().1, expected, "nothing is lost");
    assert!(!holds(directory.path(), "canary_in_clear"), "but it is sealed");
    assert!(!format!("{:?}", expected[0]).contains("canary_in_clear"));
    store.close().await;
}
