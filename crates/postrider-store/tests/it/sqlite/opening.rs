//! Who may open a data directory, and that a refusal damages nothing.

use std::path::Path;

use postrider_store::Store as _;
use postrider_store::record::{Changed, Created};
use postrider_store::seal::SealKey;
use postrider_store::sqlite::{OpenError, SqliteConfig, SqliteStore, inspect};
use rusqlite::Connection;

use super::config;
use crate::conformance::{NOW, bury, create, destination, tenant};

fn refusal(config: SqliteConfig) -> OpenError {
    SqliteStore::open(config).map(drop).unwrap_err()
}

fn database(directory: &Path) -> std::path::PathBuf {
    directory.join("postrider.db")
}

#[tokio::test]
async fn a_second_one_is_refused_until_the_first_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let first = SqliteStore::open(config(&directory)).unwrap();
    let error = refusal(config(&directory));
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(
        error
            .to_string()
            .ends_with("another postrider process has it open"),
        "{error}"
    );
    first.ping().await.unwrap();
    first.close().await;
    drop(SqliteStore::open(config(&directory)).unwrap());
}

#[tokio::test]
async fn a_later_version_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    SqliteStore::open(config(&directory)).unwrap().close().await;
    let conn = Connection::open(database(directory.path())).unwrap();
    conn.execute("UPDATE meta SET value = 99 WHERE name = 'schema_version'", [])
        .unwrap();
    conn.close().unwrap();
    let before = std::fs::read(database(directory.path())).unwrap();
    let error = refusal(config(&directory));
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 99,
                supported: 1..99,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(std::fs::read(database(directory.path())).unwrap(), before);
}

#[test]
fn what_is_not_ours_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(database(directory.path()), "not a database at all ".repeat(1_000)).unwrap();
    assert!(matches!(
        refusal(config(&directory)),
        OpenError::NotADatabase { .. }
    ));
    let text = std::fs::read_to_string(database(directory.path())).unwrap();
    assert_eq!(text, "not a database at all ".repeat(1_000));

    let directory = tempfile::tempdir().unwrap();
    let other = Connection::open(database(directory.path())).unwrap();
    other
        .execute_batch("CREATE TABLE notes(text TEXT); INSERT INTO notes VALUES ('mine');")
        .unwrap();
    other.close().unwrap();
    let before = std::fs::read(database(directory.path())).unwrap();
    assert!(matches!(
        refusal(config(&directory)),
        OpenError::NotADatabase { .. }
    ));
    assert_eq!(
        std::fs::read(database(directory.path())).unwrap(),
        before,
        "another program's database"
    );
}

#[tokio::test]
async fn another_seal_key_is_refused_and_the_right_one_still_opens() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let acme = tenant(&*store, "acme").await;
    create(&*store, acme, "des_1").await;
    let before = store.directory().await.unwrap();
    store.close().await;
    let wrong = SqliteConfig {
        seal_key: SealKey::new(&[8; 32]),
        ..config(&directory)
    };
    assert!(matches!(refusal(wrong), OpenError::WrongSealKey { .. }));
    let store = SqliteStore::open(config(&directory)).unwrap();
    assert_eq!(store.directory().await.unwrap(), before);
}

#[test]
fn a_place_that_cannot_be_written_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    for place in [file.join("data"), file, "/proc/postrider".into()] {
        let refused = refusal(SqliteConfig::new(&place, SealKey::new(&[7; 32])));
        assert!(
            matches!(refused, OpenError::NotWritable { .. }),
            "{}: {refused}",
            place.display()
        );
    }
}

#[test]
fn a_disk_without_room_for_a_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let tiny = SqliteConfig {
        max_pages: Some(2),
        ..config(&directory)
    };
    assert!(matches!(refusal(tiny), OpenError::Full { .. }));
    drop(SqliteStore::open(config(&directory)).unwrap());
}

#[tokio::test]
async fn no_secret_is_readable_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(config(&directory)).unwrap();
    let acme = tenant(&*store, "acme").await;
    let mut with_headers = destination(acme, "des_1");
    let headers = r#"{"authorization":"whsec_canary_header"}"#.to_owned();
    with_headers.config.insert("custom_headers".to_owned(), headers);
    let created = store.create_destination(with_headers, 10).await.unwrap();
    let Created::Created(mut created) = created else {
        panic!("{created:?}")
    };
    assert!(!format!("{created:?}").contains("canary"));
    bury(&*store, "acme", created.key, 500, NOW).await;
    created.topics = vec!["order.paid".to_owned()];
    let changed = store.change_destination(created.clone()).await.unwrap();
    assert!(matches!(changed, Changed::Changed(_)), "{changed:?}");
    assert_eq!(store.directory().await.unwrap().1[0].config, created.config);
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(12).any(|window| window == b"whsec_canary"));
        assert!(
            !bytes.windows(8).any(|window| window == b"in force"),
            "nor what was in force"
        );
    }
    assert!(!format!("{store:?}").contains("canary"));
}

/// `postrider.db` was moved away and the process killed: its log holds what was not copied yet. A new database beside it would
/// begin with overwriting it.
#[tokio::test]
async fn a_log_without_its_database_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    SqliteStore::open(config(&directory)).unwrap().close().await;
    let [path, log, away] =
        ["postrider.db", "postrider.db-wal", "away"].map(|name| directory.path().join(name));
    std::fs::rename(&path, &away).unwrap();
    std::fs::write(&log, b"what was not copied yet").unwrap();
    for _ in 0..2 {
        let refused = refusal(config(&directory));
        assert!(
            matches!(refused, OpenError::LogWithoutDatabase { .. }),
            "{refused:?}"
        );
        let looked_at = inspect(directory.path()).unwrap_err();
        assert_eq!(looked_at.to_string(), refused.to_string());
        assert_eq!(std::fs::read(&log).unwrap(), b"what was not copied yet");
        // As some tools leave one behind.
        std::fs::write(&path, b"").unwrap();
    }
    std::fs::remove_file(&log).unwrap();
    std::fs::rename(&away, &path).unwrap();
    SqliteStore::open(config(&directory)).unwrap().close().await;
}
