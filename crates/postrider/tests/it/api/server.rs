//! A server without a socket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use postrider::api::{ApiConfig, App, router};
use postrider::clock::Clock;
use postrider::directory::{Directory, Rules};
use postrider::engine::control::Control;
use postrider::telemetry::health::Health;
use postrider::telemetry::metrics::Metrics;
use postrider_core::guard::Guard;
use postrider_core::outcome::ErrorKind;
use postrider_core::secret::Secret;
use postrider_core::time::Timestamp;
use postrider_store::Store;
use postrider_store::record::{DueDelivery, NewAttempt, Next, Settlement, Timings};
use postrider_store::seal::SealKey;
use postrider_store::sqlite::{SqliteConfig, SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

pub(super) const KEY: &str = "test-key-1";
pub(super) const OTHER_KEY: &str = "test-key-2";
/// 2026-01-01T00:00:00Z
pub(super) const START: i64 = 1_767_225_600_000;
const URL: &str = "https://hooks.example.com/in";

#[derive(Debug)]
pub(super) struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    /// The body, which must be JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// Fails unless it has this status; the body.
    #[track_caller]
    pub(super) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self.json()
    }
}

/// With the two keys.
pub(super) fn config() -> ApiConfig {
    ApiConfig {
        api_keys: vec![Secret::new(KEY), Secret::new(OTHER_KEY)],
        ..ApiConfig::default()
    }
}

pub(super) struct Server {
    pub(super) router: Router,
    pub(super) store: Arc<SqliteStore>,
    pub(super) directory: Arc<Directory>,
    pub(super) clock: Arc<TestClock>,
    pub(super) health: Health,
    config: ApiConfig,
    dir: TempDir,
}

impl Server {
    pub(super) async fn start() -> Self {
        Self::with(Rules::default(), |_| {}).await
    }

    pub(super) async fn with(rules: Rules, configure: impl FnOnce(&mut ApiConfig)) -> Self {
        let mut config = config();
        configure(&mut config);
        Self::open(tempfile::tempdir().unwrap(), rules, config, START).await
    }

    /// Stops, and starts again on the same data with other rules.
    pub(super) async fn restart(self, rules: Rules) -> Self {
        self.store.close().await;
        let now = self.clock.now().as_millis();
        let Self {
            dir,
            config,
            router,
            store,
            directory,
            ..
        } = self;
        drop((router, store, directory));
        Self::open(dir, rules, config, now).await
    }

    async fn open(dir: TempDir, rules: Rules, config: ApiConfig, now: i64) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(now)));
        let sqlite = SqliteConfig::new(dir.path(), SealKey::new(&[7; 32]));
        let store = SqliteStore::open(sqlite).unwrap();
        let directory = Directory::load(store.clone(), rules).await.unwrap();
        let health = Health::default();
        let app = App {
            store: store.clone(),
            directory: Arc::clone(&directory),
            engine: Control::default(),
            replays: Arc::default(),
            clock: clock.clone(),
            health: health.clone(),
            metrics: Arc::new(Metrics::default()),
            config: config.clone(),
        };
        Self {
            router: router(app),
            store,
            directory,
            clock,
            health,
            config,
            dir,
        }
    }

    /// The data directory.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn advance(&self, by: Duration) {
        self.clock
            .0
            .fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    /// A request below `/api/v1` with a key; `body` goes as it is.
    pub(super) async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {KEY}"))
            .body(body.into())
            .unwrap();
        self.send(request).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Body::empty()).await
    }

    pub(super) async fn put(&self, path: &str, body: &str) -> Answer {
        self.call(Method::PUT, path, body.to_owned()).await
    }

    pub(super) async fn post(&self, path: &str, body: impl ToString) -> Answer {
        self.call(Method::POST, path, body.to_string()).await
    }

    pub(super) async fn patch(&self, path: &str, body: impl ToString) -> Answer {
        self.call(Method::PATCH, path, body.to_string()).await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, Body::empty()).await
    }

    /// A tenant `acme`.
    pub(super) async fn tenant(&self) {
        self.put("/tenants/acme", "").await.expect(201);
    }

    /// A destination of `acme` with these fields beside the least that it needs.
    pub(super) async fn destination(&self, id: &str, more: Value) -> Value {
        let mut body = json!({ "id": id, "type": "webhook", "topics": "*", "config": { "url": URL } });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.post("/tenants/acme/destinations", body).await.expect(201)
    }

    /// Publishes for `acme`; the answer's body.
    pub(super) async fn publish(&self, more: Value) -> Value {
        let mut body = json!({ "tenant_id": "acme", "topic": "order.paid", "data": {} });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.post("/publish", body).await.expect(202)
    }

    /// What the store has told the engine since the last look.
    pub(super) async fn due(&self) -> Vec<DueDelivery> {
        self.store.feed().arrivals().await.accepted
    }

    /// Settles a delivery as the engine would after an attempt with this outcome.
    pub(super) async fn settle(&self, due: &DueDelivery, outcome: Result<u16, ErrorKind>, next: Next) {
        let delivery = due.delivery;
        let attempt = NewAttempt {
            number: delivery.progress.attempts + 1,
            started_at: self.clock.now(),
            plan: delivery.plan,
            waited_for: None,
            manual: false,
            status: outcome.ok(),
            error: outcome.err(),
            detail: None,
            timings: Timings {
                total: Duration::from_micros(12_345),
                ..Timings::default()
            },
            request_headers: vec![("webhook-id".into(), "evt_1".into())],
            response_headers: vec![("x-msg".into(), Bytes::from_static(b"caf\xe9"))],
            response_body: Bytes::from_static(b"oops"),
            response_truncated: false,
        };
        let dies = matches!(next, Next::Dead(..));
        let entry = self.directory.entry(delivery.destination).filter(|_| dies);
        let settlement = Settlement {
            context: entry.map(|entry| entry.context()),
            delivery,
            attempt: Some(attempt),
            next,
        };
        self.store
            .settle(Arc::new(vec![settlement]), self.clock.now())
            .await
            .unwrap();
    }
}

/// Rules under which loopback destinations are allowed.
pub(super) fn loopback() -> Rules {
    Rules {
        guard: Guard::new("127.0.0.0/8", true).unwrap(),
        ..Rules::default()
    }
}
