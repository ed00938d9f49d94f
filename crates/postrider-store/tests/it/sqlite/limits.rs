//! Full disks, full queues, other programs, and the end.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::id::IdKind;
use postrider_store::record::NewEvent;
use postrider_store::sqlite::{SqliteConfig, SqliteStore};
use postrider_store::{Store, StoreError};
use rusqlite::Connection;

use super::config;
use crate::conformance::{NOW, create, event, pending, publish, tenant};

#[tokio::test]
async fn a_full_disk_refuses_whole_batches_and_keeps_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let small = SqliteConfig {
        max_pages: Some(300),
        ..config(&directory)
    };
    let store = SqliteStore::open(small).unwrap();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let batch = || {
        vec![
            NewEvent {
                data: Bytes::from(vec![b'x'; 100_000]),
                ..event("acme", &[key])
            };
            5
        ]
    };
    let mut stored = 0;
    let refused = loop {
        match store.accept(batch(), NOW).await {
            Ok(accepted) => stored += accepted.len(),
            Err(error) => break error,
        }
        assert!(stored < 100, "300 pages hold no 100 events of 100 kB");
    };
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert!(refused.is_transient());
    assert!(stored > 0);
    assert_eq!(pending(&*store, key).await.len(), stored, "all or nothing");
    assert_eq!(store.stats(NOW).await.unwrap().pending, stored as u64);
    store.ping().await.unwrap();
    let small_one = publish(&*store, event("acme", &[key]), NOW).await;
    assert!(!small_one.duplicate, "what fits is still accepted");
    store.close().await;

    let store = SqliteStore::open(config(&directory)).unwrap();
    assert_eq!(pending(&*store, key).await.len(), stored + 1);
    store.accept(batch(), NOW).await.unwrap();
}

#[tokio::test]
async fn a_full_queue_is_busy_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let narrow = SqliteConfig {
        queue_rows: 4,
        ..config(&directory)
    };
    let store = SqliteStore::open(narrow).unwrap();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    let publishes: Vec<_> = (0..200)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.accept(vec![event("acme", &[key])], NOW).await })
        })
        .collect();
    let (mut stored, mut busy) = (0, 0);
    for publish in publishes {
        match publish.await.unwrap() {
            Ok(_) => stored += 1,
            Err(StoreError::Busy) => busy += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(stored > 0 && busy > 0, "{stored} stored, {busy} busy");
    assert_eq!(pending(&*store, key).await.len(), stored);
}

/// Case 157: another program that holds the write lock, as `sqlite3` or a backup does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_programs_lock_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let other = Connection::open(directory.path().join("postrider.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let accept = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.accept(vec![event("acme", &[])], NOW).await })
    };
    while store.stats(NOW).await.unwrap().queued > 0 {
        tokio::task::yield_now().await;
    }
    other.execute_batch("COMMIT").unwrap();
    accept.await.unwrap().unwrap();
}

#[tokio::test]
async fn after_closing_everything_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let last = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.accept(vec![event("acme", &[])], NOW).await })
    };
    tokio::task::yield_now().await;
    store.close().await;
    store.close().await;
    let last = last.await.unwrap().unwrap();
    assert!(matches!(
        store.accept(vec![event("acme", &[])], NOW).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(store.ping().await, Err(StoreError::Closed)));
    assert!(matches!(store.tenant("acme").await, Err(StoreError::Closed)));
    let store = SqliteStore::open(config(&directory)).unwrap();
    let key = store.ids().decode(IdKind::Event, &last[0].id).unwrap();
    assert!(
        store
            .payload(postrider_core::id::EventKey(key))
            .await
            .unwrap()
            .is_some(),
        "queued work was done"
    );
}

/// For simulations: with paused time a wait for the writer must not let the clock jump.
#[tokio::test(start_paused = true)]
async fn paused_time_stands_still_while_the_writer_works() {
    let directory = tempfile::tempdir().unwrap();
    let waiting = SqliteConfig {
        blocking_waits: true,
        ..config(&directory)
    };
    let store = SqliteStore::open(waiting).unwrap();
    let alarm = tokio::spawn(tokio::time::sleep(std::time::Duration::from_secs(3_600)));
    let started = tokio::time::Instant::now();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    publish(&*store, event("acme", &[key]), NOW).await;
    assert_eq!(pending(&*store, key).await.len(), 1);
    assert_eq!(started.elapsed(), std::time::Duration::ZERO);
    alarm.abort();
}
