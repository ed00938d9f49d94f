//! Options that several commands share.

use std::cell::Cell;
use std::path::PathBuf;

use clap::Args;

use crate::config::sources::{API_KEY_NAME, Entry, Environment, Origin, URL_NAME};
use crate::config::value::Raw;
use crate::config::{Config, Sources, error::ConfigError};

/// File in the data directory of `postrider dev` with its API key.
pub const DEV_KEY_FILE: &str = "dev-api-key";
/// Data directory of `postrider dev`.
pub const DEV_DATA_DIR: &str = "./.postrider";

/// Options that change the configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// TOML file to read [also: POSTRIDER_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port of the HTTP API
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Directory of the database and the key file
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Key that may use the API (repeatable)
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// Form of the log: auto, text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Least level that is logged, or directives
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

impl ConfigArgs {
    /// Reads the configuration with these options on top.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self, dev: bool) -> Result<Config, ConfigError> {
        let one = |path: &str, name: &'static str, value: &Option<String>| {
            value.as_ref().map(|value| entry(path, name, value))
        };
        let mut flags: Vec<Entry> = [
            one("listen", "--listen", &self.listen),
            one("data_dir", "--data-dir", &self.data_dir),
            one("log.format", "--log-format", &self.log_format),
            one("log.level", "--log-level", &self.log_level),
        ]
        .into_iter()
        .flatten()
        .collect();
        flags.extend(self.api_key.iter().map(|key| entry("api_keys", "--api-key", key)));
        let environment = Environment::read();
        crate::config::load(&Sources {
            environment,
            file: self.config.clone(),
            flags,
            dev,
        })
    }
}

fn entry(path: &str, name: &'static str, value: &str) -> Entry {
    Entry {
        path: path.to_owned(),
        raw: Raw::Text(value.to_owned()),
        origin: Origin::Flag(name),
    }
}

/// Which server a client command talks to.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// Address of the server [also: POSTRIDER_URL; default: http://127.0.0.1:3333]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Its API key [also: POSTRIDER_API_KEY; default: that of `postrider dev` in this directory]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
}

/// A server and the key for it.
pub struct Server {
    /// Base address.
    pub url: String,
    /// Bearer token.
    pub api_key: String,
    /// Whether it has answered this command: its name is right then, whatever a resolver says for a moment.
    pub has_answered: Cell<bool>,
}

impl ServerArgs {
    /// Fills in what is not given.
    ///
    /// # Errors
    /// When no key is to be found.
    pub fn server(&self) -> Result<Server, Misused> {
        let environment = Environment::read();
        let from = |flag: &Option<String>, name| {
            flag.clone()
                .or_else(|| environment.value(name).map(str::to_owned))
        };
        let url = from(&self.url, URL_NAME).unwrap_or_else(|| "http://127.0.0.1:3333".to_owned());
        let dev_key = || {
            let text = std::fs::read_to_string(PathBuf::from(DEV_DATA_DIR).join(DEV_KEY_FILE)).ok()?;
            Some(text.trim().to_owned())
        };
        let api_key = from(&self.api_key, API_KEY_NAME).or_else(dev_key).ok_or(Misused(
            "find an API key: give --api-key or set POSTRIDER_API_KEY (in the directory of a running `postrider dev` its key is \
             used)",
        ))?;
        Ok(Server {
            url,
            api_key,
            has_answered: Cell::new(false),
        })
    }
}

/// The command was used wrongly in a way that clap cannot see. The text fits after "failed to".
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misused(pub &'static str);
