//! Room that retention makes is used again.

use bytes::Bytes;
use postrider_core::id::DestinationKey;
use postrider_store::letter::RetentionKind;
use postrider_store::record::{NewEvent, Next};
use postrider_store::sqlite::SqliteStore;
use postrider_store::{DeadLetters as _, Store};
use rusqlite::Connection;

use super::config;
use crate::conformance::retention::expire;
use crate::conformance::{at, create, event, pending, settle, settlement, tenant};

const EVENTS: u64 = 400;

/// One day: events, their attempts, and what was older than a day goes.
async fn day(store: &dyn Store, keys: &[DestinationKey], n: u64) {
    let today = n * 86_400;
    let batch = (0..EVENTS)
        .map(|number| NewEvent {
            id: number.is_multiple_of(2).then(|| format!("{n}-{number}")),
            data: Bytes::from(vec![b'x'; 500]),
            ..event("acme", &keys[..1 + usize::try_from(number % 2).unwrap()])
        })
        .collect();
    store.accept(batch, at(today)).await.unwrap();
    for key in keys {
        let settled = pending(store, *key).await.into_iter();
        let batch = settled.map(|row| settlement(row, 200, Next::Succeeded, at(today + 1)));
        settle(store, batch.collect(), at(today + 1)).await.unwrap();
    }
    expire(store, RetentionKind::Events, at(today), 200).await;
    expire(store, RetentionKind::Attempts, at(today), 200).await;
    expire(store, RetentionKind::DeadLetters, at(today), 200).await;
}

#[tokio::test]
async fn the_file_does_not_grow_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let acme = tenant(&*store, "acme").await;
    let keys = [
        create(&*store, acme, "des_1").await,
        create(&*store, acme, "des_2").await,
    ];
    let conn = Connection::open(directory.path().join("postrider.db")).unwrap();
    let number = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
    let mut pages = Vec::new();
    for n in 0..12 {
        day(&*store, &keys, n).await;
        pages.push(number("PRAGMA page_count"));
    }
    assert!(pages[11] <= pages[3] + pages[3] / 10, "{pages:?}");
    for (table, rows) in [
        ("event", EVENTS),
        ("event_id", EVENTS / 2),
        ("history", EVENTS * 3 / 2),
        ("attempt", EVENTS * 3 / 2),
        ("retention_kept", 0),
        ("event_by_tenant", EVENTS),
        ("delivery_by_destination", EVENTS * 3 / 2),
        ("attempt_by_tenant", EVENTS * 3 / 2),
        ("attempt_by_destination", EVENTS * 3 / 2),
    ] {
        let count = number(&format!("SELECT count(*) FROM {table}"));
        // The last day may not be listed yet; nothing older is there.
        assert!(count.unsigned_abs() <= rows, "{table}: {count} of {rows}");
    }
    let step = store.expire(RetentionKind::Events, at(0), 1).await.unwrap();
    assert_eq!(step.removed, 0);
}
