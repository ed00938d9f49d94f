//! The HTTP API under `/api/v1`: what an application and its operators ask of Postrider.
//!
//! Handlers translate between JSON and the directory and the store; rules live in core, transactions in the store. What
//! is changed by a request either happens whole or not at all, also when the client goes away in the middle. What takes
//! several transactions is whole in each of its parts only: a batch with more than 20,000 deliveries, an import, a purge.
//! `docs/api.md` is the page for readers; a test keeps its list of routes true.

mod access;
mod alerts;
mod attempt_answer;
mod attempts;
mod auth;
mod catalog;
mod cursor;
mod dead_letters;
mod deliveries;
mod destination_body;
mod destination_health;
mod destinations;
mod document;
mod error;
mod events;
mod extract;
mod health;
mod json;
mod limits;
mod publish;
mod publish_batch;
mod query;
mod refusals;
mod replay_answer;
mod replays;
mod retry;
mod retry_policies;
mod secrets;
mod tenants;
mod waiting;

use std::fmt;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use postrider_core::secret::Secret;
use postrider_core::time::Timestamp;
use postrider_store::Store;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::directory::Directory;
use crate::engine::control::Control;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;

use self::auth::ApiKeys;
pub use self::error::ApiError;
use self::extract::BodyLimit;

/// What the API is configured with.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Keys that may do everything. Empty ones do not count; without any, every call is refused.
    pub api_keys: Vec<Secret>,
    /// Bytes of a request body, and of one event in a batch.
    pub max_body_bytes: usize,
    /// Bytes of the body of a batch.
    pub max_batch_bytes: usize,
    /// Whether `GET /metrics` asks for a key too.
    pub protect_metrics: bool,
}

impl Default for ApiConfig {
    /// No key, 1 MiB, 16 MiB, open metrics.
    fn default() -> Self {
        Self {
            api_keys: Vec::new(),
            max_body_bytes: 1 << 20,
            max_batch_bytes: 16 << 20,
            protect_metrics: false,
        }
    }
}

/// The parts that the API works with.
#[derive(Clone)]
pub struct App {
    /// Events, deliveries, attempts.
    pub store: Arc<dyn Store>,
    /// Tenants and destinations.
    pub directory: Arc<Directory>,
    /// How destinations fare.
    pub engine: Control,
    /// Wakes whoever carries replays out.
    pub replays: Arc<Notify>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Which parts of the process work.
    pub health: Health,
    /// What is scraped.
    pub metrics: Arc<Metrics>,
    /// Keys and limits.
    pub config: ApiConfig,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl App {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

type Shared = Arc<App>;

/// All routes, ready to be served.
pub fn router(app: App) -> Router {
    let keys = ApiKeys::new(&app.config.api_keys);
    let app: Shared = Arc::new(app);
    let authorized = versioned(&app.config).route_layer(from_fn_with_state(keys.clone(), auth::require_key));
    let mut metrics = Router::new().route("/metrics", get(health::metrics));
    if app.config.protect_metrics {
        metrics = metrics.route_layer(from_fn_with_state(keys, auth::require_key));
    }
    let readiness = Arc::new(health::Readiness::default());
    let health = || {
        Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .layer(Extension(Arc::clone(&readiness)))
    };
    Router::new()
        .nest("/api/v1", authorized.merge(health()))
        .merge(health())
        .merge(metrics)
        .fallback(async || ApiError::not_found("not found"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        })
        .layer(from_fn(access::log))
        .with_state(app)
}

fn versioned(config: &ApiConfig) -> Router<Shared> {
    let destination = "/tenants/{tenant_id}/destinations/{destination_id}";
    let below = |path: &str| format!("{destination}{path}");
    let small = Router::new()
        .route("/tenants", get(tenants::list))
        .route(
            "/tenants/{tenant_id}",
            put(tenants::put).get(tenants::get).delete(tenants::delete),
        )
        .route(
            "/tenants/{tenant_id}/destinations",
            get(destinations::list).post(destinations::create),
        )
        .route(
            destination,
            get(destinations::get)
                .patch(destinations::patch)
                .delete(destinations::delete),
        )
        .route(&below("/enable"), put(destinations::enable))
        .route(&below("/disable"), put(destinations::disable))
        .route(&below("/health"), get(destination_health::get))
        .route(&below("/breaker/reset"), post(destination_health::reset))
        .route("/destinations/health", get(destination_health::list))
        .route(&below("/attempts"), get(attempts::list_of_destination))
        .route(
            &below("/attempts/{attempt_id}"),
            get(attempts::get_of_destination),
        )
        .route("/alerts", get(alerts::list))
        .route("/publish", post(publish::publish))
        .route("/events", get(events::list))
        .route("/events/{event_id}", get(events::get))
        .route("/attempts", get(attempts::list))
        .route("/attempts/{attempt_id}", get(attempts::get))
        .route("/deliveries", get(deliveries::list))
        .route("/deliveries/{delivery_id}", get(deliveries::get))
        .route("/retry", post(retry::retry))
        .route("/retry-policies", get(retry_policies::list))
        .route("/retry-policies/preview", post(retry_policies::preview))
        .route(
            "/retry-policies/{name}",
            get(retry_policies::get)
                .put(retry_policies::put)
                .delete(retry_policies::delete),
        )
        .route("/retry-policies/{name}/changes", get(retry_policies::changes))
        .route("/tenants/{tenant_id}/token", get(catalog::not_offered))
        .route("/tenants/{tenant_id}/portal", get(catalog::not_offered))
        .route("/metrics/events", get(catalog::not_offered))
        .route("/metrics/attempts", get(catalog::not_offered))
        .route("/topics", get(catalog::topics))
        .route("/destination-types", get(catalog::destination_types))
        .route("/destination-types/{type}", get(catalog::destination_type))
        .merge(undelivered());
    let large = Router::new()
        .route("/publish/batch", post(publish_batch::publish))
        .route("/dead-letters/import", post(dead_letters::import::post));
    bounded(small, config.max_body_bytes, "server.max_body_bytes").merge(bounded(
        large,
        config.max_batch_bytes,
        "server.max_batch_bytes",
    ))
}

/// Routes whose bodies have at most so many bytes, by the setting of this name.
fn bounded(routes: Router<Shared>, max_bytes: usize, setting: &'static str) -> Router<Shared> {
    routes
        .layer(DefaultBodyLimit::max(max_bytes))
        .layer(Extension(BodyLimit { max_bytes, setting }))
}

/// What ended undelivered, and sending it again.
fn undelivered() -> Router<Shared> {
    Router::new()
        .route(
            "/deliveries/{delivery_id}/cancel",
            post(dead_letters::change::cancel),
        )
        .route(
            "/deliveries/{delivery_id}/dead-letter",
            post(dead_letters::change::dead_letter),
        )
        .route("/dead-letters", get(dead_letters::list))
        .route("/dead-letters/summary", get(dead_letters::summary::get))
        .route("/dead-letters/export", get(dead_letters::export::get))
        .route("/dead-letters/purge", post(dead_letters::change::purge))
        .route(
            "/dead-letters/{delivery_id}",
            get(dead_letters::show::get).delete(dead_letters::change::delete),
        )
        .route("/dead-letters/{delivery_id}/replay", post(replays::create_one))
        .route("/replays", get(replays::list).post(replays::create))
        .route("/replays/{replay_id}", get(replays::get))
        .route("/replays/{replay_id}/pause", post(replays::pause))
        .route("/replays/{replay_id}/resume", post(replays::resume))
        .route("/replays/{replay_id}/cancel", post(replays::cancel))
}
