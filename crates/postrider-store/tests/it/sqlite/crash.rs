//! `kill -9` and power loss: what was acknowledged is there.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use postrider_core::delivery::DeliveryStatus;
use postrider_store::Store;
use postrider_store::record::{EventQuery, NewEvent, Next};
use postrider_store::seal::SealKey;
use postrider_store::sqlite::{SqliteConfig, SqliteStore};

use super::config;
use crate::conformance::{NOW, all_events, at, create, event, pending, publish, settle, settlement, tenant};

/// Names the directory in which this program, started again, is to work until it is killed.
const DIRECTORY: &str = "POSTRIDER_CRASH_DIRECTORY";
const ROUNDS: usize = 3;
const ACKNOWLEDGED: usize = 400;

/// Not a test by itself: the part of the process that gets killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    #[expect(
        clippy::disallowed_methods,
        reason = "how a test tells itself that it is the victim"
    )]
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let store = SqliteStore::open(SqliteConfig::new(directory, SealKey::new(&[7; 32]))).unwrap();
    let acme = tenant(&*store, "acme").await;
    let destinations = store.directory().await.unwrap().1;
    let key = match destinations.first() {
        Some(destination) => destination.key,
        None => create(&*store, acme, "des_1").await,
    };
    let publishers: Vec<_> = (0..16)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                loop {
                    println!(
                        "accepted {}",
                        publish(&*store, event("acme", &[key]), NOW).await.id
                    );
                }
            })
        })
        .collect();
    loop {
        for due in store.feed().arrivals().await.accepted {
            let id = due.payload.map(|payload| payload.event_id.clone()).unwrap();
            settle(
                &*store,
                vec![settlement(due.delivery, 200, Next::Succeeded, NOW)],
                NOW,
            )
            .await
            .unwrap();
            println!("settled {id}");
        }
        assert_eq!(publishers.len(), 16);
    }
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let (mut accepted, mut settled) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "sqlite::crash::victim",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines {
            let Ok(line) = line else { break };
            // The test runner shares the first line.
            if let Some((_, id)) = line.split_once("accepted ") {
                accepted.push(id.to_owned());
            } else if let Some((_, id)) = line.split_once("settled ") {
                settled.push(id.to_owned());
            }
            if accepted.len() == round * ACKNOWLEDGED {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(
            accepted.len() >= round * ACKNOWLEDGED,
            "the victim ended by itself"
        );
        accepted.retain(|id| id.len() == 36);
        settled.retain(|id| id.len() == 36);
        let store = SqliteStore::open(config(&directory)).unwrap();
        for ids in accepted.chunks(500) {
            let page = store
                .events(EventQuery {
                    ids: ids.to_vec(),
                    ..all_events()
                })
                .await
                .unwrap();
            assert_eq!(page.rows.len(), ids.len(), "round {round}");
        }
        for ids in settled.chunks(500) {
            let page = store
                .events(EventQuery {
                    ids: ids.to_vec(),
                    ..all_events()
                })
                .await
                .unwrap();
            for event in page.rows {
                assert_eq!(
                    event.deliveries[0].status,
                    DeliveryStatus::Succeeded,
                    "round {round}"
                );
            }
        }
        store.close().await;
    }
    assert!(!settled.is_empty());
}

/// Power loss in the middle of a write: the files as they are on disk at that moment, with a torn end of the log.
#[tokio::test]
async fn a_torn_end_of_the_log_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let acme = tenant(&*store, "acme").await;
    let key = create(&*store, acme, "des_1").await;
    for n in 0..50 {
        let event = NewEvent {
            id: Some(format!("order-{n}")),
            ..event("acme", &[key])
        };
        publish(&*store, event, at(n)).await;
    }
    for torn in [0, 1, 24, 4_000, 8_191] {
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(
            directory.path().join("postrider.db"),
            copy.path().join("postrider.db"),
        )
        .unwrap();
        let mut log = std::fs::read(directory.path().join("postrider.db-wal")).unwrap();
        let end = log.len().saturating_sub(torn);
        let tail = log[end..].to_vec();
        log.extend(tail);
        std::fs::write(copy.path().join("postrider.db-wal"), log).unwrap();
        let revived = SqliteStore::open(config(&copy)).unwrap();
        assert_eq!(pending(&*revived, key).await.len(), 50, "{torn} stray bytes");
        assert!(
            publish(
                &*revived,
                NewEvent {
                    id: Some("order-7".into()),
                    ..event("acme", &[key])
                },
                NOW
            )
            .await
            .duplicate
        );
        publish(&*revived, event("acme", &[key]), NOW).await;
        assert_eq!(pending(&*revived, key).await.len(), 51);
    }
}
