//! The log: to standard error, text for people and JSON for machines.
//!
//! Secrets do not get here: they are a type whose `Debug` is `***`, and headers are masked where they are recorded.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::settings::{LogConfig, LogFormat};

/// Installs the log for the whole process; a second call changes nothing.
pub fn install(config: &LogConfig) {
    let filter = EnvFilter::builder().parse_lossy(&config.level);
    let terminal = std::io::stderr().is_terminal();
    let text = match config.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => terminal,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let installed = match (text, terminal) {
        (true, true) => builder.with_target(false).try_init(),
        (true, false) => builder.with_target(false).with_ansi(false).try_init(),
        (false, _) => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init(),
    };
    if installed.is_err() {
        tracing::debug!("the log is installed already");
    }
}
