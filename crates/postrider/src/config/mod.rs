//! Configuration: flags > environment > file > defaults, checked as a whole before anything starts.
//!
//! [`key`] lists every key, [`sources`] reads what was written (the environment nowhere else), [`resolve`] lays the
//! sources over each other, [`settings`] composes the parts' own structs. The parts never see this module.

pub mod error;
pub mod key;
pub mod resolve;
pub mod settings;
pub mod sources;
pub mod span;
pub mod value;

use std::path::PathBuf;

use self::error::ConfigError;
use self::resolve::Resolved;
use self::settings::Settings;
use self::sources::{CONFIG_NAME, Entry, Environment};

/// What a configuration is made from.
#[derive(Clone, Default)]
pub struct Sources {
    /// The environment.
    pub environment: Environment,
    /// The file that the command line names; `POSTRIDER_CONFIG` names it otherwise.
    pub file: Option<PathBuf>,
    /// What flags say.
    pub flags: Vec<Entry>,
    /// Whether the defaults are those of `postrider dev`.
    pub dev: bool,
}

/// A configuration, and where each value comes from.
#[derive(Debug, Clone)]
pub struct Config {
    /// For the parts.
    pub settings: Settings,
    /// For people.
    pub resolved: Resolved,
}

/// Reads and checks everything.
///
/// # Errors
/// All that is wrong, at once.
pub fn load(sources: &Sources) -> Result<Config, ConfigError> {
    let mut problems = Vec::new();
    let named = sources.environment.value(CONFIG_NAME).map(PathBuf::from);
    let mut entries = match sources.file.clone().or(named) {
        Some(path) => sources::file_entries(&path).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        }),
        None => Vec::new(),
    };
    entries.extend(sources.environment.entries());
    entries.extend(sources.flags.iter().cloned());
    let resolved = resolve::resolve(sources.dev, entries, &mut problems);
    let settings = Settings::compose(&resolved, &mut problems);
    if problems.is_empty() {
        Ok(Config { settings, resolved })
    } else {
        Err(ConfigError { problems })
    }
}
