//! Where configuration comes from. The only file that reads the environment.
//!
//! Each source becomes a list of [`Entry`]: a path, what was written there, and where that is. Whether the path is known
//! and the value is right is decided in `super::resolve`, the same way for all.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::Problem;
use super::key::{self, ENVIRONMENT_PREFIX};
use super::value::Raw;

/// Names of Outpost's environment that keep their meaning.
pub const OUTPOST_NAMES: [&str; 3] = ["RETRY_INTERVAL_SECONDS", "MAX_RETRY_LIMIT", "RETRY_SCHEDULE"];
/// Names with the prefix that are no configuration keys: the file's path, and what the client commands use.
pub const CONFIG_NAME: &str = "POSTRIDER_CONFIG";
/// Base address of a running server, for the client commands.
pub const URL_NAME: &str = "POSTRIDER_URL";
/// One API key, for the client commands; a server takes it too.
pub const API_KEY_NAME: &str = "POSTRIDER_API_KEY";
/// Path of what single tenants may have. What is below it are ids of tenants, no keys.
pub(super) const TENANTS: &str = "tenants";

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere.
    Default,
    /// Nowhere: `postrider dev` has another default here.
    DevDefault,
    /// In a file.
    File(Arc<str>, usize),
    /// In the environment, under this name.
    Environment(String),
    /// On the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::DevDefault => f.write_str("default of dev"),
            Self::File(path, line) => write!(f, "{path}:{line}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One value as written.
#[derive(Clone, PartialEq)]
pub struct Entry {
    /// Dotted path.
    pub path: String,
    /// What was written.
    pub raw: Raw,
    /// Where.
    pub origin: Origin,
}

/// The part of the environment that concerns Postrider.
#[derive(Clone, Default)]
pub struct Environment {
    pairs: Vec<(String, String)>,
}

impl Environment {
    /// Reads the process's environment. Values that are not UTF-8 are read with replacement characters, so that the
    /// key that refuses them can say so.
    #[must_use]
    pub fn read() -> Self {
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::from_pairs(std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))))
    }

    /// Keeps those pairs that concern Postrider, ordered by name.
    #[must_use]
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().filter(|(name, _)| is_ours(name)).collect();
        pairs.sort();
        Self { pairs }
    }

    /// The value under a name; an empty one counts as absent.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// All configuration keys among them.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let special = [CONFIG_NAME, URL_NAME];
        let pairs = self
            .pairs
            .iter()
            .filter(|(name, _)| !special.contains(&name.as_str()));
        pairs
            .filter_map(|(name, value)| {
                let suffix = name.strip_prefix(ENVIRONMENT_PREFIX)?;
                let path = match name.as_str() {
                    API_KEY_NAME => "api_keys".to_owned(),
                    _ => suffix.to_ascii_lowercase().replace("__", "."),
                };
                Some(Entry {
                    path,
                    raw: Raw::Text(value.clone()),
                    origin: Origin::Environment(name.clone()),
                })
            })
            .collect()
    }
}

fn is_ours(name: &str) -> bool {
    OUTPOST_NAMES.contains(&name)
        || name
            .strip_prefix(ENVIRONMENT_PREFIX)
            .is_some_and(|suffix| !is_service_link(suffix))
}

/// Kubernetes puts `<SERVICE>_SERVICE_HOST`, `<SERVICE>_PORT_3333_TCP_ADDR` and the like into every container; for a
/// service called `postrider` they carry our prefix and mean nothing to us.
fn is_service_link(suffix: &str) -> bool {
    let is_port = |rest: &str| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        ["_TCP", "_UDP", "_SCTP"]
            .iter()
            .any(|protocol| rest.starts_with(protocol))
    };
    suffix == "PORT"
        || suffix == "SERVICE_HOST"
        || suffix == "SERVICE_PORT"
        || suffix.starts_with("SERVICE_PORT_")
        || suffix.strip_prefix("PORT_").is_some_and(is_port)
}

/// Reads a TOML file.
///
/// # Errors
/// When it cannot be read or is no TOML, with the line.
pub(super) fn file_entries(path: &Path) -> Result<Vec<Entry>, Problem> {
    let shown: Arc<str> = path.display().to_string().into();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::about(
            &shown,
            format!("cannot be read: {error}; name a readable TOML file by --config"),
        )
    })?;
    text_entries(&shown, &text)
}

/// The entries of a TOML text.
pub(super) fn text_entries(shown: &Arc<str>, text: &str) -> Result<Vec<Entry>, Problem> {
    let lines = Lines {
        path: Arc::clone(shown),
        text,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let origin = lines.origin(error.span().map_or(0, |span| span.start));
        Problem::about(
            &origin.to_string(),
            format!("is not valid TOML: {}", error.message().replace('\n', ", ")),
        )
    })?;
    let mut entries = Vec::new();
    flatten("", table.get_ref(), &lines, &mut entries);
    Ok(entries)
}

struct Lines<'a> {
    path: Arc<str>,
    text: &'a str,
}

impl Lines<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let before = self.text.get(..offset).unwrap_or(self.text);
        Origin::File(Arc::clone(&self.path), 1 + before.matches('\n').count())
    }
}

fn flatten(prefix: &str, table: &DeTable<'_>, lines: &Lines<'_>, entries: &mut Vec<Entry>) {
    for (name, value) in table {
        let path = if prefix.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{prefix}.{}", name.get_ref())
        };
        match value.get_ref() {
            DeValue::Table(inner) if is_section(&path) => flatten(&path, inner, lines, entries),
            DeValue::Table(inner) if path == TENANTS => flatten_tenants(inner, lines, entries),
            other => {
                let origin = lines.origin(name.span().start);
                entries.push(Entry {
                    path,
                    raw: raw(other),
                    origin,
                });
            }
        }
    }
}

/// One entry for each value, so that each has its line: at [`TENANTS`], since an id may have dots in it.
fn flatten_tenants(tenants: &DeTable<'_>, lines: &Lines<'_>, entries: &mut Vec<Entry>) {
    let table = |name: &Spanned<DeString<'_>>, raw| Raw::Table(vec![(name.get_ref().to_string(), raw)]);
    let mut add = |raw, name: &Spanned<DeString<'_>>| {
        entries.push(Entry {
            path: TENANTS.to_owned(),
            raw,
            origin: lines.origin(name.span().start),
        });
    };
    for (id, settings) in tenants {
        match settings.get_ref() {
            DeValue::Table(settings) => {
                for (name, value) in settings {
                    add(table(id, table(name, raw(value.get_ref()))), name);
                }
            }
            other => add(table(id, raw(other)), id),
        }
    }
}

/// Whether keys are known below this path.
fn is_section(path: &str) -> bool {
    path == "retry"
        || path.starts_with("retry.")
        || key::KEYS.iter().any(|key| {
            key.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
        })
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_or_else(
            |_| Raw::Text(number.to_string()),
            |number| Raw::Number(number.into()),
        ),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map_or_else(|| Raw::Text(number.to_string()), Raw::Number),
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Datetime(datetime) => Raw::Text(datetime.to_string()),
        DeValue::Array(items) => Raw::List(items.iter().map(Spanned::get_ref).map(raw).collect()),
        DeValue::Table(table) => Raw::Table(
            table
                .iter()
                .map(|(name, value)| (name.get_ref().to_string(), raw(value.get_ref())))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_us_is_kept() {
        let names = [
            "HOME",
            "MAX_RETRY_LIMIT",
            "POSTRIDER_LISTEN",
            "POSTRIDER_PORT",
            "POSTRIDER_PORT_3333_TCP_ADDR",
            "POSTRIDER_SERVICE_HOST",
            "POSTRIDER_SERVICE_PORT_HTTP",
            "POSTRIDER_TYPO",
        ];
        let environment = Environment::from_pairs(names.map(|name| (name.to_owned(), "x".to_owned())));
        let kept: Vec<_> = environment.pairs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["MAX_RETRY_LIMIT", "POSTRIDER_LISTEN", "POSTRIDER_TYPO"]);
        let paths: Vec<_> = environment
            .entries()
            .into_iter()
            .map(|entry| entry.path)
            .collect();
        assert_eq!(paths, ["listen", "typo"]);
    }

    #[test]
    fn a_file_gives_paths_with_lines() {
        let text = "listen = '127.0.0.1:1'\n\n[server]\ngrace = '1s'\n[retry]\nimmediate = { retries = 2 }\n[nonsense]\na = 1\n";
        let entries = text_entries(&"p.toml".into(), text).unwrap_or_default();
        let shown: Vec<_> = entries
            .iter()
            .map(|e| (e.path.as_str(), e.origin.to_string()))
            .collect();
        let right = [
            ("listen", "p.toml:1"),
            ("nonsense", "p.toml:7"),
            ("retry.immediate.retries", "p.toml:6"),
            ("server.grace", "p.toml:4"),
        ];
        assert_eq!(shown, right.map(|(path, origin)| (path, origin.to_owned())));
    }

    #[test]
    fn broken_toml_is_named_with_its_line() {
        let problem = text_entries(&"p.toml".into(), "listen = '127.0.0.1:1'\nlog = [\n").err();
        let text = problem.map(|problem| problem.to_string()).unwrap_or_default();
        assert!(
            text.starts_with("p.toml:2 is not valid TOML: ")
                || text.starts_with("p.toml:3 is not valid TOML: "),
            "{text}"
        );
    }
}
