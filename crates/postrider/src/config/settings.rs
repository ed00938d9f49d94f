//! The configuration as the parts of the program want it: each part's own struct, composed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::secret::Secret;
use tracing_subscriber::EnvFilter;

use super::error::Problem;
use super::resolve::Resolved;
use crate::telemetry::metrics::MetricsConfig;

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
    pub secret_key: Option<Secret>,
    /// Known topics; empty for any.
    pub topics: Vec<String>,
    /// The log.
    pub log: LogConfig,
    /// The listener.
    pub server: ServerConfig,
    /// The metrics.
    pub metrics: MetricsConfig,
}

impl Settings {
    /// Composes, and checks what one key alone cannot show.
    pub(super) fn compose(resolved: &Resolved, problems: &mut Vec<Problem>) -> Self {
        Self {
            listen: resolved.address("listen"),
            data_dir: resolved.path("data_dir").to_owned(),
            api_keys: resolved.secrets("api_keys").to_vec(),
            secret_key: resolved.secrets("secret_key").first().cloned(),
            topics: resolved.list("topics").to_vec(),
            log: log(resolved, problems),
            server: ServerConfig {
                max_connections: resolved.count("server.max_connections"),
                header_read_timeout: resolved.span("server.header_read_timeout"),
                request_timeout: resolved.span("server.request_timeout"),
                grace: resolved.span("server.grace"),
            },
            metrics: MetricsConfig {
                destination_label: resolved.text("metrics.destination_label") == "top",
                destination_top: resolved.count("metrics.destination_top"),
            },
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
