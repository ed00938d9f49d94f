//! Every key of the configuration: its name, its kind with bounds, its default, and what it is for.
//!
//! One table, from which everything else follows: which keys are known, the environment's names, the defaults, the
//! list that `postrider config` prints, and the reference in `docs/configuration.md` (a test compares the two).

use std::time::Duration;

/// Prefix of everything in the environment that is meant for Postrider.
pub const ENVIRONMENT_PREFIX: &str = "POSTRIDER_";

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Dotted path, as in the file: `server.grace` is `grace` in section `[server]`.
    pub path: &'static str,
    /// What a value must be.
    pub kind: Kind,
    /// The default as it would be written in the environment; empty means none.
    pub default: &'static str,
    /// What it is for, one line.
    pub about: &'static str,
}

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or directory.
    Path,
    /// `ADDRESS:PORT`.
    Address,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Count(u64, u64),
    /// A number of bytes within bounds, with or without unit (`16KiB`, `1MiB`).
    Bytes(u64, u64),
    /// A time span within bounds, always with unit (`5s`, `1m30s`).
    Span(Duration, Duration),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Texts: an array in the file, separated by commas elsewhere.
    List,
    /// A text that is never shown.
    Secret,
    /// Texts that are never shown.
    Secrets,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// All keys but those of `[retry]`, in the order in which they are documented.
pub const KEYS: &[Key] = &[
    key(
        "listen",
        Kind::Address,
        "127.0.0.1:3333",
        "Address and port of the HTTP API.",
    ),
    key(
        "data_dir",
        Kind::Path,
        "./postrider-data",
        "Directory of the database and the key file.",
    ),
    key(
        "api_keys",
        Kind::Secrets,
        "",
        "Keys that may use the API; at least one is needed to serve.",
    ),
    key(
        "secret_key",
        Kind::Secret,
        "",
        "Key that seals secrets at rest: 32 bytes in base64. Without it, a key file in the data directory is used.",
    ),
    key(
        "topics",
        Kind::List,
        "",
        "Topics that may be published and subscribed to; empty allows any.",
    ),
    key(
        "log.format",
        Kind::Choice(&["auto", "text", "json"]),
        "auto",
        "Form of the log: `auto` is text on a terminal and JSON otherwise.",
    ),
    key(
        "log.level",
        Kind::Text,
        "info",
        "Least level that is logged: `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,postrider::courier=debug`.",
    ),
    key(
        "server.max_connections",
        Kind::Count(1, 1_000_000),
        "10000",
        "API connections open at once; more wait to be accepted.",
    ),
    key(
        "server.header_read_timeout",
        Kind::Span(SECOND, HOUR),
        "30s",
        "How long a connection may take to send a request's headers, which is also how long it may idle.",
    ),
    key(
        "server.request_timeout",
        Kind::Span(SECOND, HOUR),
        "60s",
        "How long an API request may take, its body included.",
    ),
    key(
        "server.grace",
        Kind::Span(Duration::ZERO, HOUR),
        "15s",
        "How long a shutdown waits for what is under way before it gives it back.",
    ),
    key(
        "metrics.destination_label",
        Kind::Choice(&["top", "off"]),
        "top",
        "Whether attempts are counted by destination (`top`: the busiest, the rest as `other`) or together (`off`).",
    ),
    key(
        "metrics.destination_top",
        Kind::Count(1, 10_000),
        "100",
        "How many destinations have a label of their own.",
    ),
];

const fn key(path: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key {
        path,
        kind,
        default,
        about,
    }
}

/// The key with this path.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

impl Key {
    /// Its name in the environment: `server.grace` is `POSTRIDER_SERVER__GRACE`.
    #[must_use]
    pub fn environment_name(&self) -> String {
        environment_name(self.path)
    }

    /// Whether its value must not be shown.
    #[must_use]
    pub const fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret | Kind::Secrets)
    }
}

/// The environment's name of a path.
#[must_use]
pub fn environment_name(path: &str) -> String {
    format!(
        "{ENVIRONMENT_PREFIX}{}",
        path.replace('.', "__").to_ascii_uppercase()
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_reversible() {
        let mut seen = HashSet::new();
        for key in KEYS {
            assert!(seen.insert(key.environment_name()), "{}", key.path);
            assert!(!key.path.contains("__"), "{}", key.path);
            assert!(key.about.ends_with('.'), "{}", key.path);
        }
        assert_eq!(
            environment_name("retry.max_attempts"),
            "POSTRIDER_RETRY__MAX_ATTEMPTS"
        );
    }
}
