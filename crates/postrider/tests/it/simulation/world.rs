//! The engine with a network that follows a script, on paused time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use postrider::alerts::notice::Notices;
use postrider::clock::Clock;
use postrider::courier::{Courier, Parcel, Report};
use postrider::directory::{Directory, Published, Rules};
use postrider::engine::control::Control;
use postrider::engine::{Closing, Engine, EngineConfig, EngineHandle, Parts};
use postrider::telemetry::health::Health;
use postrider::telemetry::metrics::{Metrics, MetricsConfig};
use postrider_core::delivery::DeliveryStatus;
use postrider_core::hash;
use postrider_core::id::{DeliveryKey, DestinationKey};
use postrider_core::outcome::{Answer, ErrorKind, Outcome};
use postrider_core::secret::Secret;
use postrider_core::time::Timestamp;
use postrider_store::Store;
use postrider_store::page::PageRequest;
use postrider_store::record::{
    Attempt, AttemptQuery, Credentials, Delivery, DeliveryQuery, Destination, NewDelivery, NewEvent, Timings,
};
use postrider_store::seal::SealKey;
use postrider_store::sqlite::{SqliteConfig, SqliteStore};
use tokio::time::Instant;

use super::held::Held;

pub(super) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
pub(super) const TENANT: &str = "acme";

/// The runtime's clock, which stands still while something works and jumps when nothing does.
pub(super) struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        START.plus(self.0.elapsed())
    }
}

/// How a destination behaves.
#[derive(Debug, Clone)]
pub(super) enum Behaviour {
    /// 200 after this.
    Works(Duration),
    /// No answer until the timeout of 15 s.
    Hangs,
    /// Fails this often (percent) with 500, derived from the seed; else 200. After 20 ms.
    Flaky(u64),
    /// Always this status, at once.
    Status(u16),
    /// This status until an instant of the run, then 200 after 20 ms.
    Out(u16, Duration),
    /// This status at the first request, then 200; each after this.
    FailsOnce(u16, Duration),
    /// 429 with `Retry-After` at this many requests after the start, else 200.
    LimitsOnce(usize, Duration),
    /// Every so many requests nothing remains for this long, by its RateLimit fields; all are answered with 200.
    Quota(usize, Duration),
    /// The courier panics on the first attempt.
    Panics,
}

/// One request that the network saw.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) at: Timestamp,
    pub(super) destination: DestinationKey,
    pub(super) delivery: DeliveryKey,
    pub(super) number: u32,
    pub(super) planned: Timestamp,
    /// Where it went, without the query.
    pub(super) url: String,
}

/// The network.
pub(super) struct Script {
    clock: Arc<dyn Clock>,
    seed: u64,
    behaviours: Mutex<BTreeMap<DestinationKey, Behaviour>>,
    pub(super) seen: Mutex<Vec<Seen>>,
    pub(super) in_flight: Mutex<BTreeMap<DestinationKey, (usize, usize)>>,
}

impl Script {
    fn plan(&self, parcel: &Parcel, count: usize) -> (Outcome, Duration) {
        let quick = Duration::from_millis(20);
        let behaviour = self.behaviours.lock().get(&parcel.target.key).cloned();
        match behaviour.unwrap_or(Behaviour::Works(quick)) {
            Behaviour::Works(latency) => (Outcome::status(200), latency),
            Behaviour::Hangs => (Outcome::Failed(ErrorKind::Timeout), Duration::from_secs(15)),
            Behaviour::Flaky(percent) => {
                let draw = hash::mix(
                    self.seed,
                    parcel.delivery.key.0.unsigned_abs() ^ u64::from(parcel.number) << 56,
                );
                (
                    Outcome::status(if draw % 100 < percent { 500 } else { 200 }),
                    quick,
                )
            }
            Behaviour::Status(status) => (Outcome::status(status), Duration::ZERO),
            Behaviour::Out(status, until) => {
                let out = self.clock.now() < START.plus(until);
                (Outcome::status(if out { status } else { 200 }), quick)
            }
            Behaviour::FailsOnce(status, latency) => {
                (Outcome::status(if count == 0 { status } else { 200 }), latency)
            }
            Behaviour::LimitsOnce(at, wait) if count == at => {
                let answer = Answer {
                    status: 429,
                    retry_after: Some(wait),
                    used_up: None,
                    location: None,
                };
                (Outcome::Answered(answer), quick)
            }
            Behaviour::Quota(size, wait) => {
                let answer = Answer {
                    status: 200,
                    retry_after: None,
                    used_up: (count % size == size - 1).then_some(wait),
                    location: None,
                };
                (Outcome::Answered(answer), quick)
            }
            Behaviour::LimitsOnce(..) => (Outcome::status(200), quick),
            Behaviour::Panics => {
                assert!(parcel.number > 1, "a scripted panic");
                (Outcome::status(200), quick)
            }
        }
    }
}

#[async_trait]
impl Courier for Script {
    async fn send(&self, parcel: Parcel) -> Report {
        let at = self.clock.now();
        let destination = parcel.target.key;
        let count = {
            let mut seen = self.seen.lock();
            let count = seen.iter().filter(|s| s.destination == destination).count();
            seen.push(Seen {
                at,
                destination,
                delivery: parcel.delivery.key,
                number: parcel.number,
                planned: parcel.delivery.plan.due_at,
                url: parcel
                    .target
                    .url
                    .as_ref()
                    .map_or_else(Clone::clone, |url| url.display().to_owned()),
            });
            count
        };
        {
            let mut in_flight = self.in_flight.lock();
            let (now, most) = in_flight.entry(destination).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        let (outcome, latency) = self.plan(&parcel, count);
        tokio::time::sleep(latency).await;
        self.in_flight.lock().entry(destination).or_default().0 -= 1;
        let is_well = outcome.is_success();
        Report {
            outcome,
            detail: None,
            timings: Timings {
                first_byte: Some(latency),
                total: latency,
                ..Timings::default()
            },
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            response_body: Bytes::from_static(if is_well { b"" } else { b"out of\norder" }),
            response_truncated: false,
        }
    }
}

/// Everything, running.
pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) held: Arc<Held>,
    pub(super) health: Health,
    pub(super) directory: Arc<Directory>,
    pub(super) script: Arc<Script>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) notices: Notices,
    pub(super) metrics: Arc<Metrics>,
    engine: Option<EngineHandle>,
    config: EngineConfig,
    _dir: tempfile::TempDir,
}

impl World {
    pub(super) async fn new(seed: u64, config: EngineConfig) -> Self {
        Self::with_rules(seed, config, Rules::default()).await
    }

    pub(super) async fn with_rules(seed: u64, config: EngineConfig, rules: Rules) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(PausedClock(Instant::now()));
        let store = SqliteStore::open(SqliteConfig::new(dir.path(), SealKey::new(&[7; 32]))).unwrap();
        let held = Arc::new(Held::new(store));
        let store: Arc<dyn Store> = Arc::clone(&held) as Arc<dyn Store>;
        let directory = Directory::load(Arc::clone(&store), rules).await.unwrap();
        directory
            .upsert_tenant(TENANT.to_owned(), None, START)
            .await
            .unwrap();
        let script = Arc::new(Script {
            clock: Arc::clone(&clock),
            seed,
            behaviours: Mutex::default(),
            seen: Mutex::default(),
            in_flight: Mutex::default(),
        });
        let mut world = Self {
            store,
            held,
            health: Health::default(),
            directory,
            script,
            clock,
            notices: Notices::default(),
            metrics: Arc::new(Metrics::new(MetricsConfig::default())),
            engine: None,
            config,
            _dir: dir,
        };
        world.start();
        world
    }

    pub(super) fn start(&mut self) {
        let parts = Parts {
            store: Arc::clone(&self.store),
            directory: Arc::clone(&self.directory),
            courier: Arc::clone(&self.script) as Arc<dyn Courier>,
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            health: self.health.clone(),
            notices: self.notices.clone(),
        };
        self.engine = Some(Engine::start(parts, self.config.clone()));
    }

    /// Where to ask the running engine.
    pub(super) fn control(&self) -> Control {
        self.engine
            .as_ref()
            .map_or_else(Control::default, EngineHandle::control)
    }

    pub(super) async fn stop(&mut self, grace: Duration) {
        if let Some(engine) = self.engine.take() {
            engine.shutdown(Closing::after(grace)).await;
        }
    }

    pub(super) async fn destination(
        &self,
        id: &str,
        behaviour: Behaviour,
        policy: Option<&str>,
    ) -> DestinationKey {
        let draft = Destination {
            key: DestinationKey(0),
            tenant: postrider_core::id::TenantKey(0),
            id: id.to_owned(),
            kind: "webhook".to_owned(),
            topics: vec!["*".to_owned()],
            filter: None,
            config: BTreeMap::from([("url".to_owned(), format!("https://{id}.example.com/"))]),
            credentials: Credentials {
                fields: BTreeMap::from([(
                    "secret".to_owned(),
                    Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
                )]),
            },
            delivery_metadata: None,
            metadata: None,
            retry_policy: policy.map(ToOwned::to_owned),
            created_at: START,
            updated_at: START,
            disabled: None,
            revision: 0,
        };
        let entry = self
            .directory
            .create(TENANT.to_owned(), draft, Vec::new())
            .await
            .unwrap();
        self.script.behaviours.lock().insert(entry.record.key, behaviour);
        entry.record.key
    }

    /// From now on the destination behaves so.
    pub(super) fn behave(&self, destination: DestinationKey, behaviour: Behaviour) {
        self.script.behaviours.lock().insert(destination, behaviour);
    }

    pub(super) async fn publish(&self, destinations: &[DestinationKey], events: usize) {
        let deliveries: Vec<_> = destinations
            .iter()
            .map(|&destination| NewDelivery {
                destination,
                dead: None,
                context: None,
                discarded: false,
            })
            .collect();
        self.accept(deliveries, events).await;
    }

    async fn accept(&self, deliveries: Vec<NewDelivery>, events: usize) {
        let event = NewEvent {
            tenant_id: TENANT.to_owned(),
            id: None,
            topic: "order.paid".to_owned(),
            time: None,
            metadata: BTreeMap::new(),
            data: Bytes::from_static(b"{\"a\":1}"),
            retryable: true,
            destinations: deliveries,
        };
        self.store
            .accept(vec![event; events], self.clock.now())
            .await
            .unwrap();
    }

    /// Publishes to whoever wants it, as the API does.
    pub(super) async fn publish_by_directory(&self, events: usize) {
        let published = Published {
            tenant_id: TENANT,
            topic: "order.paid",
            destination_id: None,
        };
        let document = || Ok::<_, Infallible>(serde_json::Value::Null);
        let destinations = self.directory.match_event(published, document).unwrap();
        self.accept(destinations, events).await;
    }

    /// Lets time pass until nothing is pending, at most this long.
    pub(super) async fn settle(&self, at_most: Duration) {
        let deadline = self.clock.now().plus(at_most);
        while self.clock.now() < deadline {
            let now = self.clock.now();
            let stats = self.store.stats(now).await.unwrap();
            if stats.pending == 0 {
                return;
            }
            tokio::time::sleep(at_most / 1_000).await;
        }
        panic!(
            "still pending after {at_most:?}: {:?}",
            self.store.stats(self.clock.now()).await
        );
    }

    /// Every delivery of the run.
    pub(super) async fn deliveries(&self) -> Vec<Delivery> {
        let mut page = PageRequest {
            limit: 1_000,
            direction: Default::default(),
            cursor: Default::default(),
        };
        let mut all = Vec::new();
        loop {
            let query = DeliveryQuery {
                tenant_ids: vec![TENANT.to_owned()],
                event_ids: Vec::new(),
                destination_ids: Vec::new(),
                topics: Vec::new(),
                statuses: Vec::new(),
                time: Default::default(),
                page,
            };
            let found = self.store.deliveries(query).await.unwrap();
            all.extend(found.rows);
            match found.next {
                Some(next) => page.cursor = postrider_store::page::Cursor::After(next),
                None => return all,
            }
        }
    }

    /// The newest attempts of the run, at most a thousand.
    pub(super) async fn attempts(&self) -> Vec<Attempt> {
        let query = AttemptQuery {
            tenant_ids: vec![TENANT.to_owned()],
            event_ids: Vec::new(),
            delivery_ids: Vec::new(),
            destination_ids: Vec::new(),
            topics: Vec::new(),
            successful: None,
            time: Default::default(),
            page: PageRequest {
                limit: 1_000,
                direction: Default::default(),
                cursor: Default::default(),
            },
            with_event_data: false,
        };
        self.store.attempts(query).await.unwrap().rows
    }

    pub(super) async fn statuses(&self) -> BTreeMap<DeliveryStatus, usize> {
        let mut counts = BTreeMap::new();
        for delivery in self.deliveries().await {
            *counts.entry(delivery.status).or_default() += 1;
        }
        counts
    }

    pub(super) fn seen(&self, destination: DestinationKey) -> Vec<Seen> {
        self.script
            .seen
            .lock()
            .iter()
            .filter(|s| s.destination == destination)
            .cloned()
            .collect()
    }

    pub(super) fn most_in_flight(&self, destination: DestinationKey) -> usize {
        self.script
            .in_flight
            .lock()
            .get(&destination)
            .map_or(0, |(_, most)| *most)
    }
}
