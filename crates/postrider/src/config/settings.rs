//! The configuration as the parts of the program want it: each part's own struct, composed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::dispatcher::DispatcherConfig;
use postrider_core::guard::Guard;
use postrider_core::policy::Policies;
use postrider_core::secret::Secret;
use postrider_core::topic;
use postrider_store::seal::SealKey;
use postrider_store::sqlite::SqliteConfig;
use tracing_subscriber::EnvFilter;

use super::error::Problem;
use super::resolve::Resolved;
use super::sources::Environment;
use super::{alerts, protection, retention, retry, tenants};
use crate::alerts::AlertsConfig;
use crate::api::ApiConfig;
use crate::courier::config::{CourierConfig, HeaderMode};
use crate::directory::Rules;
use crate::engine::EngineConfig;
use crate::letters::retention::RetentionConfig;
use crate::telemetry::metrics::MetricsConfig;

const KIB: u64 = 1 << 10;
/// Bytes of a database page.
const PAGE_BYTES: u64 = 8 * KIB;

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Form.
    pub format: LogFormat,
    /// Level or directives, which parse.
    pub level: String,
}

/// The listener of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Connections at once.
    pub max_connections: usize,
    /// For a request's headers, and for idling between requests.
    pub header_read_timeout: Duration,
    /// For a whole request.
    pub request_timeout: Duration,
    /// How long a shutdown waits.
    pub grace: Duration,
}

/// A configuration without mistakes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the API listens.
    pub listen: SocketAddr,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Who may use the API; may be empty until [`Settings::require_api_key`].
    pub api_keys: Vec<Secret>,
    /// Seals secrets at rest; `None` for the key file.
    pub seal_key: Option<SealKey>,
    /// The log.
    pub log: LogConfig,
    /// The listener.
    pub server: ServerConfig,
    /// The API, but for its keys.
    pub api: ApiConfig,
    /// What all destinations have in common.
    pub rules: Rules,
    /// Outgoing requests.
    pub courier: CourierConfig,
    /// The loop between them.
    pub engine: EngineConfig,
    /// How long things are kept.
    pub retention: RetentionConfig,
    /// What the operator is told.
    pub alerts: AlertsConfig,
    /// The metrics.
    pub metrics: MetricsConfig,
    store: StoreConfig,
}

/// [`SqliteConfig`] without directory and key, which it needs to exist.
#[derive(Debug, Clone)]
struct StoreConfig {
    wal_autocheckpoint: u32,
    readers: usize,
    read_time_limit: Duration,
    queue_rows: usize,
    queue_bytes: usize,
    writer_cache_kib: u32,
    reader_cache_kib: u32,
    max_pages: Option<u32>,
}

impl Settings {
    /// Composes, and checks what one key alone cannot show.
    pub(super) fn compose(
        resolved: &Resolved,
        environment: &Environment,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let guard = guard(resolved, problems);
        Self {
            listen: resolved.address("listen"),
            data_dir: resolved.path("data_dir").to_owned(),
            api_keys: resolved.secrets("api_keys").to_vec(),
            seal_key: seal_key(resolved, problems),
            log: log(resolved, problems),
            server: ServerConfig {
                max_connections: resolved.count("server.max_connections"),
                header_read_timeout: resolved.span("server.header_read_timeout"),
                request_timeout: resolved.span("server.request_timeout"),
                grace: resolved.span("server.grace"),
            },
            api: ApiConfig {
                api_keys: Vec::new(),
                max_body_bytes: resolved.count("server.max_body_bytes"),
                max_batch_bytes: resolved.count("server.max_batch_bytes"),
                protect_metrics: resolved.flag("metrics.require_key"),
            },
            rules: rules(resolved, environment, guard.clone().unwrap_or_default(), problems),
            courier: courier(resolved),
            engine: engine(resolved, problems),
            retention: retention::retention(resolved, problems),
            alerts: alerts::alerts(resolved, guard.as_ref(), problems),
            metrics: MetricsConfig {
                destination_label: resolved.text("metrics.destination_label") == "top",
                destination_top: resolved.count("metrics.destination_top"),
            },
            store: store(resolved),
        }
    }

    /// Refuses to go on without an API key: none never means that everybody may.
    ///
    /// # Errors
    /// When there is none.
    pub fn require_api_key(&self) -> Result<(), Problem> {
        if self.api_keys.is_empty() {
            let advice = "is not set, and a server without a key would be open to everybody; set it by --api-key, \
                          POSTRIDER_API_KEYS or api_keys in the file (postrider dev makes one by itself)";
            return Err(Problem::about("api_keys", advice));
        }
        Ok(())
    }

    /// The store's configuration, once its key is at hand.
    #[must_use]
    pub fn sqlite(&self, seal_key: SealKey) -> SqliteConfig {
        let store = &self.store;
        SqliteConfig {
            wal_autocheckpoint: store.wal_autocheckpoint,
            readers: store.readers,
            read_time_limit: store.read_time_limit,
            queue_rows: store.queue_rows,
            queue_bytes: store.queue_bytes,
            writer_cache_kib: store.writer_cache_kib,
            reader_cache_kib: store.reader_cache_kib,
            max_pages: store.max_pages,
            ..SqliteConfig::new(&self.data_dir, seal_key)
        }
    }
}

fn seal_key(resolved: &Resolved, problems: &mut Vec<Problem>) -> Option<SealKey> {
    let key = resolved.secrets("secret_key").first()?;
    let parsed = SealKey::from_base64(key.expose());
    if parsed.is_err() {
        let text = "is not 32 bytes in base64; `openssl rand -base64 32` makes such a key";
        problems.push(Problem::at("secret_key", &resolved.origin("secret_key"), text));
    }
    parsed.ok()
}

fn log(resolved: &Resolved, problems: &mut Vec<Problem>) -> LogConfig {
    let format = match resolved.text("log.format") {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        _ => LogFormat::Auto,
    };
    let level = resolved.text("log.level").to_owned();
    if EnvFilter::builder().parse(&level).is_err() {
        let text = format!(
            "is {level:?}; write error, warn, info, debug or trace, or directives such as info,postrider::courier=debug"
        );
        problems.push(Problem::at("log.level", &resolved.origin("log.level"), text));
    }
    LogConfig { format, level }
}

/// Which addresses may be sent to; `None` when that is not known because of a mistake.
fn guard(resolved: &Resolved, problems: &mut Vec<Problem>) -> Option<Guard> {
    let allowed = resolved.list("courier.allow_addresses").join(",");
    let guard = Guard::new(&allowed, !resolved.flag("courier.require_https"));
    guard
        .map_err(|wrong| {
            let origin = resolved.origin("courier.allow_addresses");
            problems.extend(wrong.iter().map(|refused| {
                let text = format!("has a wrong entry: {refused}");
                Problem::at("courier.allow_addresses", &origin, text)
            }));
        })
        .ok()
}

/// Topics of events, each once. What no event can have as its topic would only look as if it were allowed.
fn topics(resolved: &Resolved, problems: &mut Vec<Problem>) -> Vec<String> {
    let topics = resolved.list("topics");
    let mut known = BTreeSet::new();
    for (index, topic) in topics.iter().enumerate() {
        let wrong = match topic::validate(topic) {
            Err(invalid) => invalid.to_string(),
            Ok(()) if topic == "*" => {
                "\"*\" is no topic but all of them; without topics any is allowed".to_owned()
            }
            Ok(()) if !known.insert(topic) => format!("{topic:?} is there already"),
            Ok(()) => continue,
        };
        let text = format!("has a wrong entry at position {}: {wrong}", index + 1);
        problems.push(Problem::at("topics", &resolved.origin("topics"), text));
    }
    topics.to_vec()
}

fn rules(resolved: &Resolved, environment: &Environment, guard: Guard, problems: &mut Vec<Problem>) -> Rules {
    let (global, default_policy) = retry::policy(&resolved.retry_leaves(), environment, problems);
    Rules {
        guard,
        default_policy: Arc::new(default_policy),
        policies: Policies {
            global,
            ..Policies::default()
        },
        topics: topics(resolved, problems),
        default_timeout: resolved.span("courier.timeout"),
        shares: tenants::shares(resolved, problems),
        max_destinations_per_tenant: resolved.count("max_destinations_per_tenant"),
    }
}

fn courier(resolved: &Resolved) -> CourierConfig {
    CourierConfig {
        connect_timeout: resolved.span("courier.connect_timeout"),
        max_captured_body_bytes: resolved.count("courier.max_captured_body_bytes"),
        max_captured_header_bytes: resolved.count("courier.max_captured_header_bytes"),
        max_connections: resolved.optional("courier.max_connections", |it| {
            it.count("courier.max_connections")
        }),
        max_idle_per_host: resolved.count("courier.max_idle_per_host"),
        idle_timeout: resolved.span("courier.idle_timeout"),
        dns_cache: resolved.span("courier.dns_cache"),
        header_mode: match resolved.text("courier.header_mode") {
            "outpost" => HeaderMode::Outpost,
            _ => HeaderMode::Standard,
        },
        ca_file: resolved.optional("courier.ca_file", |it| it.path("courier.ca_file").to_owned()),
        extra_roots: Vec::new(),
    }
}

fn engine(resolved: &Resolved, problems: &mut Vec<Problem>) -> EngineConfig {
    EngineConfig {
        dispatcher: DispatcherConfig {
            max_in_flight: resolved.count("engine.max_in_flight"),
            max_unsettled: resolved.count("engine.max_unsettled"),
            max_queued: resolved.count("engine.max_queued"),
            max_lane: resolved.count("engine.max_lane"),
            max_payload_bytes: resolved.count("engine.max_payload_bytes"),
            max_refills: resolved.count("engine.max_refills"),
            window: protection::window(resolved, problems),
            breaker: protection::breaker(resolved, problems),
            streak: protection::streak(resolved),
        },
        max_read_bytes: resolved.count("engine.max_read_bytes"),
    }
}

fn store(resolved: &Resolved) -> StoreConfig {
    let kib = |path: &str| u32::try_from(resolved.count::<u64>(path) / KIB).unwrap_or(u32::MAX);
    let pages =
        |it: &Resolved| u32::try_from(it.count::<u64>("store.max_bytes") / PAGE_BYTES).unwrap_or(u32::MAX);
    StoreConfig {
        wal_autocheckpoint: resolved.count("store.wal_autocheckpoint"),
        readers: resolved.count("store.readers"),
        read_time_limit: resolved.span("store.read_time_limit"),
        queue_rows: resolved.count("store.queue_rows"),
        queue_bytes: resolved.count("store.queue_bytes"),
        writer_cache_kib: kib("store.writer_cache_bytes"),
        reader_cache_kib: kib("store.reader_cache_bytes"),
        max_pages: resolved.optional("store.max_bytes", pages),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sources, load};
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_parts() {
        let settings = load(&Sources::default()).unwrap().settings;
        assert_eq!(
            format!("{:?}", settings.courier),
            format!("{:?}", CourierConfig::default())
        );
        assert_eq!(
            format!("{:?}", settings.engine),
            format!("{:?}", EngineConfig::default())
        );
        assert_eq!(
            format!("{:?}", settings.api),
            format!("{:?}", ApiConfig::default())
        );
        assert_eq!(format!("{:?}", settings.rules), format!("{:?}", Rules::default()));
        assert_eq!(settings.metrics, MetricsConfig::default());
        assert_eq!(settings.alerts, AlertsConfig::default());
        let key = SealKey::new(&[0; 32]);
        let parts = SqliteConfig::new(&settings.data_dir, key.clone());
        assert_eq!(format!("{:?}", settings.sqlite(key)), format!("{parts:?}"));
    }

    #[test]
    fn optional_keys_are_read() {
        let environment = [
            ("POSTRIDER_STORE__MAX_BYTES", "1GiB"),
            ("POSTRIDER_COURIER__MAX_CONNECTIONS", "500"),
        ];
        let pairs = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let sources = Sources {
            environment: Environment::from_pairs(pairs),
            ..Sources::default()
        };
        let settings = load(&sources).unwrap().settings;
        assert_eq!(settings.courier.max_connections, Some(500));
        assert_eq!(settings.sqlite(SealKey::new(&[0; 32])).max_pages, Some(131_072));
    }
}
