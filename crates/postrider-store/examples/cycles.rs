//! How many events a second the embedded store takes and finishes: `cycles [CALLERS] [DESTINATIONS] [SECONDS] [DIR]`.
//!
//! Each caller accepts an event of 300 bytes and waits for its durability; a settler records attempts of what the feed
//! announces, 256 at a time: 9 in 10 arrive, 1 in 10 is retried once. A closed loop without HTTP, so this is the store's
//! share of a delivery and no more.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for developers"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::delivery::{PendingDelivery, Plan};
use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;
use postrider_store::Store;
use postrider_store::record::{
    Created, Credentials, Destination, NewAttempt, NewDelivery, NewEvent, Next, Settlement, Timings, Upserted,
};
use postrider_store::seal::SealKey;
use postrider_store::sqlite::{SqliteConfig, SqliteStore};
use tokio::time::Instant;

const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

struct Run {
    store: Arc<SqliteStore>,
    started: Instant,
    over: AtomicBool,
    accepted: AtomicU64,
    settled: AtomicU64,
    waited_micros: AtomicU64,
    slowest_micros: AtomicU64,
}

impl Run {
    fn now(&self) -> Timestamp {
        START.plus(self.started.elapsed())
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (callers, destinations, seconds) = (number(256), number(1_000), number(8));
    let dir: PathBuf = std::env::args()
        .nth(4)
        .map_or_else(|| "target/cycles".into(), Into::into);
    let _ = std::fs::remove_dir_all(&dir);
    let store = SqliteStore::open(SqliteConfig::new(&dir, SealKey::new(&[7; 32]))).unwrap();
    let keys = create(&store, destinations).await;
    let run = Arc::new(Run {
        store,
        started: Instant::now(),
        over: AtomicBool::new(false),
        accepted: AtomicU64::new(0),
        settled: AtomicU64::new(0),
        waited_micros: AtomicU64::new(0),
        slowest_micros: AtomicU64::new(0),
    });
    for with_settling in [false, true] {
        run.over.store(false, Ordering::Relaxed);
        for counter in [
            &run.accepted,
            &run.settled,
            &run.waited_micros,
            &run.slowest_micros,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        let stats = run.store.stats(run.now()).await.unwrap();
        let since = Instant::now();
        let settler = with_settling.then(|| tokio::spawn(settle(Arc::clone(&run))));
        let tasks: Vec<_> = (0..callers)
            .map(|n| {
                tokio::spawn(accept(
                    Arc::clone(&run),
                    keys.clone(),
                    usize::try_from(n).unwrap(),
                ))
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        run.over.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
        if let Some(settler) = settler {
            publish(&run, &keys, 0).await;
            settler.await.unwrap();
        }
        report(&run, with_settling, since.elapsed(), &stats).await;
        let _ = run.store.feed().take();
    }
    run.store.close().await;
}

async fn create(store: &SqliteStore, count: u64) -> Arc<[DestinationKey]> {
    let upserted = store.upsert_tenant("acme", None, START).await.unwrap();
    let (Upserted::Created(tenant) | Upserted::Updated(tenant)) = upserted;
    let mut keys = Vec::new();
    for n in 0..count {
        let new = Destination {
            key: DestinationKey(0),
            tenant: tenant.key,
            id: format!("des_{n}"),
            kind: "webhook".to_owned(),
            topics: vec!["*".to_owned()],
            filter: None,
            config: BTreeMap::new(),
            credentials: Credentials::default(),
            delivery_metadata: None,
            metadata: None,
            retry_policy: None,
            created_at: START,
            updated_at: START,
            disabled: None,
            revision: 0,
        };
        let Created::Created(created) = store.create_destination(new, u32::MAX).await.unwrap() else {
            panic!("a fresh directory")
        };
        keys.push(created.key);
    }
    keys.into()
}

async fn publish(run: &Run, keys: &[DestinationKey], n: usize) {
    let event = NewEvent {
        tenant_id: "acme".to_owned(),
        id: None,
        topic: "order.paid".to_owned(),
        time: None,
        metadata: BTreeMap::new(),
        data: Bytes::from(vec![b'x'; 300]),
        retryable: true,
        destinations: vec![NewDelivery {
            destination: keys[n % keys.len()],
            dead: None,
            context: None,
            discarded: false,
        }],
    };
    let since = Instant::now();
    run.store.accept(vec![event], run.now()).await.unwrap();
    let micros = u64::try_from(since.elapsed().as_micros()).unwrap();
    run.accepted.fetch_add(1, Ordering::Relaxed);
    run.waited_micros.fetch_add(micros, Ordering::Relaxed);
    run.slowest_micros.fetch_max(micros, Ordering::Relaxed);
}

async fn accept(run: Arc<Run>, keys: Arc<[DestinationKey]>, mut n: usize) {
    while !run.over.load(Ordering::Relaxed) {
        n = n.wrapping_mul(6_364_136_223_846_793).wrapping_add(1_442_695_040);
        publish(&run, &keys, n >> 16).await;
    }
}

/// Settles everything that is announced, at most four batches at a time.
async fn settle(run: Arc<Run>) {
    let permits = Arc::new(tokio::sync::Semaphore::new(4));
    while !run.over.load(Ordering::Relaxed) {
        let arrivals = run.store.feed().arrivals().await;
        for chunk in arrivals.accepted.chunks(256) {
            let batch: Vec<_> = chunk
                .iter()
                .flat_map(|due| settlements(due.delivery, run.now()))
                .collect();
            let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
            let run = Arc::clone(&run);
            let count = chunk.len() as u64;
            tokio::spawn(async move {
                run.store.settle(Arc::new(batch), run.now()).await.unwrap();
                run.settled.fetch_add(count, Ordering::Relaxed);
                drop(permit);
            });
        }
    }
    let _ = permits.acquire_many(4).await.unwrap();
}

fn settlements(delivery: PendingDelivery, now: Timestamp) -> Vec<Settlement> {
    let attempt = |delivery: PendingDelivery, status| Settlement {
        context: None,
        attempt: Some(NewAttempt {
            number: delivery.progress.attempts + 1,
            started_at: now,
            plan: delivery.plan,
            waited_for: None,
            manual: false,
            status: Some(status),
            error: None,
            detail: None,
            timings: Timings {
                total: Duration::from_millis(12),
                ..Timings::default()
            },
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            response_body: Bytes::from_static(&[b'y'; 100]),
            response_truncated: false,
        }),
        delivery,
        next: Next::Succeeded,
    };
    if delivery.key.0 % 10 != 0 {
        return vec![attempt(delivery, 200)];
    }
    let plan = Plan {
        delay: Duration::from_secs(1),
        ..Plan::first(now)
    };
    let progress = delivery.progress.attempted(&delivery.plan);
    let first = Settlement {
        context: None,
        next: Next::Retry(plan, progress),
        ..attempt(delivery, 503)
    };
    vec![
        first,
        attempt(
            PendingDelivery {
                plan,
                progress,
                ..delivery
            },
            200,
        ),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "for reading by people")]
async fn report(run: &Run, with_settling: bool, took: Duration, before: &postrider_store::record::Stats) {
    let stats = run.store.stats(run.now()).await.unwrap();
    let (accepted, settled) = (
        run.accepted.load(Ordering::Relaxed),
        run.settled.load(Ordering::Relaxed),
    );
    let commits = stats.commits - before.commits;
    let commit_time = stats.commit_time.saturating_sub(before.commit_time);
    println!(
        "{}: {:.0} accepts/s, {:.0} settled/s, accept mean {:.2} ms, max {:.1} ms, {:.0} commits/s of {:.2} ms, pending {}",
        if with_settling { "cycles " } else { "accepts" },
        accepted as f64 / took.as_secs_f64(),
        settled as f64 / took.as_secs_f64(),
        run.waited_micros.load(Ordering::Relaxed) as f64 / accepted.max(1) as f64 / 1_000.0,
        run.slowest_micros.load(Ordering::Relaxed) as f64 / 1_000.0,
        commits as f64 / took.as_secs_f64(),
        commit_time.as_secs_f64() * 1_000.0 / commits.max(1) as f64,
        stats.pending,
    );
}
