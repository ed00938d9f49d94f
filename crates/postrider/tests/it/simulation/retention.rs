//! Retention on paused time: what is old goes, what is needed stays, and dead letters are in the archive first.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider::engine::EngineConfig;
use postrider::letters::archive::{Archive, lines};
use postrider::letters::line::Line;
use postrider::letters::retention::{Retention, RetentionConfig};
use postrider::telemetry::health::WorkerState;
use postrider::telemetry::metrics::Metrics;
use postrider_core::breaker::BreakerConfig;
use postrider_core::delivery::DeliveryStatus;
use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::id::DestinationKey;
use postrider_store::letter::{DeadLetterFilter, ImportedLetter};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::world::{Behaviour, World};

const HOUR: Duration = Duration::from_secs(3_600);

async fn world() -> (World, DestinationKey, DestinationKey) {
    let config = EngineConfig {
        dispatcher: DispatcherConfig {
            breaker: BreakerConfig::off(),
            ..DispatcherConfig::default()
        },
        ..EngineConfig::default()
    };
    let world = World::new(1, config).await;
    let works = Behaviour::Works(Duration::from_millis(20));
    let works = world.destination("works", works, None).await;
    let refuses = world.destination("refuses", Behaviour::Status(401), None).await;
    (world, works, refuses)
}

/// Everything is kept for an hour, but dead letters for two.
fn retention(world: &World, archive: Option<Archive>) -> (JoinHandle<()>, watch::Sender<bool>) {
    let (stop, stopped) = watch::channel(false);
    let retention = Retention {
        store: Arc::clone(&world.store),
        clock: Arc::clone(&world.clock),
        health: world.health.clone(),
        metrics: Arc::new(Metrics::default()),
        config: RetentionConfig {
            events: Some(HOUR),
            attempts: Some(HOUR),
            dead_letters: Some(2 * HOUR),
            archive,
        },
        stop: stopped,
    };
    (tokio::spawn(retention.run()), stop)
}

async fn dead(world: &World) -> u64 {
    let all = DeadLetterFilter::default();
    world.store.count_dead_letters(all, i64::MAX).await.unwrap()
}

fn archived(folder: &Path) -> Vec<Line> {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
        let read = lines(file)
            .unwrap()
            .map(|line| Line::read(&line.unwrap()).unwrap());
        read.collect::<Vec<_>>()
    };
    paths.iter().flat_map(read).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_old_goes_and_dead_letters_keep_their_events() {
    let (world, works, refuses) = world().await;
    world.publish(&[works], 700).await;
    world.publish(&[refuses], 300).await;
    world.settle(HOUR / 4).await;
    let (_task, _stop) = retention(&world, None);
    tokio::time::sleep(HOUR * 3 / 2).await;
    let statuses = world.statuses().await;
    assert_eq!(statuses.get(&DeliveryStatus::Succeeded), None, "{statuses:?}");
    assert_eq!(dead(&world).await, 300);
    assert_eq!(world.attempts().await.len(), 300, "theirs stay");
    world.publish(&[works], 10).await;
    tokio::time::sleep(HOUR).await;
    assert_eq!(dead(&world).await, 0);
    let statuses = world.statuses().await;
    assert_eq!(
        statuses.values().sum::<usize>(),
        10,
        "the young ones: {statuses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_in_the_archive_before_they_go_and_can_come_back() {
    let (world, _, refuses) = world().await;
    world.publish(&[refuses], 300).await;
    world.settle(HOUR / 4).await;
    let folder = tempfile::tempdir().unwrap();
    let (_task, _stop) = retention(&world, Some(Archive::Directory(folder.path().to_owned())));
    tokio::time::sleep(HOUR).await;
    assert_eq!((dead(&world).await, archived(folder.path()).len()), (300, 0));
    tokio::time::sleep(HOUR * 3 / 2).await;
    assert_eq!(dead(&world).await, 0);
    let lines = archived(folder.path());
    assert_eq!(lines.len(), 300);
    assert!(
        lines
            .iter()
            .all(|line| line.event.data == r#"{"a":1}"# && line.code == Some(401))
    );
    let letters = lines.into_iter().map(|line| ImportedLetter {
        attempts: line.attempts().collect(),
        tenant_id: line.tenant_id,
        destination_id: line.destination_id,
        event_id: line.event.id,
        topic: line.event.topic,
        time: line.event.time,
        metadata: line.event.metadata,
        data: line.event.data,
        retryable: line.event.eligible_for_retry,
        reason: line.reason,
        category: line.category,
        context: None,
    });
    let now = world.clock.now();
    world
        .store
        .import_dead_letters(letters.collect(), now)
        .await
        .unwrap();
    assert_eq!(dead(&world).await, 300);
    tokio::time::sleep(HOUR).await;
    assert_eq!(dead(&world).await, 300, "their time begins anew");
}

#[tokio::test(start_paused = true)]
async fn reads_that_are_refused_as_busy_leave_no_letter_out() {
    let (world, _, refuses) = world().await;
    world.publish(&[refuses], 20).await;
    world.settle(HOUR / 4).await;
    let folder = tempfile::tempdir().unwrap();
    world.held.busy_letters.store(5, Ordering::SeqCst);
    let (_task, _stop) = retention(&world, Some(Archive::Directory(folder.path().to_owned())));
    tokio::time::sleep(3 * HOUR).await;
    assert_eq!(dead(&world).await, 0);
    let lines = archived(folder.path());
    let ids: HashSet<_> = lines.iter().map(|line| &line.id).collect();
    assert_eq!((ids.len(), lines.len()), (20, 20), "each once");
}

#[tokio::test(start_paused = true)]
async fn an_archive_that_does_not_take_them_keeps_them_in_the_store() {
    let (world, _, refuses) = world().await;
    world.publish(&[refuses], 20).await;
    world.settle(HOUR / 4).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-a-folder");
    std::fs::write(&file, "").unwrap();
    let (_task, _stop) = retention(&world, Some(Archive::Directory(file.clone())));
    tokio::time::sleep(4 * HOUR).await;
    assert_eq!(dead(&world).await, 20);
    let state = || world.health.workers().remove("retention");
    assert!(
        matches!(state(), Some(WorkerState::Degraded(reason)) if reason.contains("archive dead letters")),
        "{:?}",
        state()
    );
    std::fs::remove_file(&file).unwrap();
    tokio::time::sleep(HOUR / 4).await;
    assert_eq!((dead(&world).await, archived(&file).len()), (0, 20));
    assert_eq!(state(), Some(WorkerState::Healthy));
}
