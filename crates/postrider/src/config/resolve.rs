//! Lays the sources over each other: defaults, file, environment, flags; the later wins. Unknown keys and wrong
//! values are collected, not just the first.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use postrider_core::secret::Secret;

use super::error::Problem;
use super::key::{self, KEYS, Key};
use super::sources::{Entry, Origin, TENANTS};
use super::tenants;
use super::value::{Raw, Value};

/// Every key with its value and where that comes from.
#[derive(Debug, Clone)]
pub struct Resolved {
    values: BTreeMap<&'static str, (Value, Origin)>,
    /// The leaves of `[retry]`, in order of precedence (the last wins).
    pub(super) retry: Vec<RetryLeaf>,
    /// What single tenants may have, all from the last source that says anything.
    tenants: Vec<TenantLeaf>,
}

/// One value of one tenant.
#[derive(Debug, Clone)]
pub struct TenantLeaf {
    /// Id of the tenant.
    pub tenant: String,
    /// Name of the setting, known or not.
    pub name: String,
    /// The value.
    pub value: serde_json::Value,
    /// Where it was written.
    pub origin: Origin,
}

impl TenantLeaf {
    /// `tenants.acme.weight`, for people: an id may have dots in it, too.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{TENANTS}.{}.{}", self.tenant, self.name)
    }
}

/// One value of `[retry]`, whose keys belong to the retry policy.
#[derive(Debug, Clone)]
pub struct RetryLeaf {
    /// Dotted path below `retry`.
    pub path: String,
    /// The value.
    pub value: serde_json::Value,
    /// Where it was written.
    pub origin: Origin,
}

/// Defaults that `postrider dev` has instead.
const DEV_DEFAULTS: [(&str, &str); 2] = [
    ("data_dir", "./.postrider"),
    ("courier.allow_addresses", "127.0.0.0/8, ::1"),
];

/// Lays `entries` (in order of precedence, the last wins) over the defaults.
pub(super) fn resolve(dev: bool, entries: Vec<Entry>, problems: &mut Vec<Problem>) -> Resolved {
    let mut resolved = Resolved {
        values: BTreeMap::new(),
        retry: Vec::new(),
        tenants: Vec::new(),
    };
    for key in KEYS {
        let default = Value::parse(key.kind, &Raw::Text(key.default.to_owned()));
        let value = default.unwrap_or(Value::Unset);
        resolved.values.insert(key.path, (value, Origin::Default));
    }
    if dev {
        for (path, default) in DEV_DEFAULTS {
            resolved.take(
                Entry {
                    path: path.to_owned(),
                    raw: Raw::Text(default.to_owned()),
                    origin: Origin::DevDefault,
                },
                problems,
            );
        }
    }
    for entry in entries {
        resolved.take(entry, problems);
    }
    resolved
}

impl Resolved {
    fn take(&mut self, entry: Entry, problems: &mut Vec<Problem>) {
        if let Some(path) = entry.path.strip_prefix("retry.") {
            let loose = !matches!(entry.origin, Origin::File(..));
            let (path, origin) = (path.to_owned(), entry.origin);
            self.retry.push(RetryLeaf {
                path,
                value: entry.raw.into_json(loose),
                origin,
            });
            return;
        }
        if entry.path == TENANTS {
            self.take_tenants(entry, problems);
            return;
        }
        let Some(key) = key::find(&entry.path) else {
            problems.push(unknown(&entry));
            return;
        };
        if is_unset(&entry) {
            return;
        }
        match Value::parse(key.kind, &entry.raw) {
            // Each --api-key adds one; between sources the later replaces the earlier.
            Ok(Value::Secrets(more)) => self.add_secrets(key, more, entry.origin),
            Ok(value) => {
                self.values.insert(key.path, (value, entry.origin));
            }
            Err(text) => problems.push(Problem::at(&entry.path, &entry.origin, text)),
        }
    }

    /// A file has an entry for each value, another source one for all of them, which replaces the file's.
    fn take_tenants(&mut self, entry: Entry, problems: &mut Vec<Problem>) {
        if is_unset(&entry) {
            return;
        }
        if !matches!(entry.origin, Origin::File(..)) {
            self.tenants.clear();
        }
        self.tenants.extend(tenants::leaves(entry, problems));
    }

    fn add_secrets(&mut self, key: &Key, more: Vec<Secret>, origin: Origin) {
        let same_source = |known: &Origin| {
            matches!(
                (known, &origin),
                (Origin::Flag(_), Origin::Flag(_)) | (Origin::Environment(_), Origin::Environment(_))
            )
        };
        match self.values.get_mut(key.path) {
            Some((Value::Secrets(known), from)) if same_source(from) => known.extend(more),
            _ => {
                self.values.insert(key.path, (Value::Secrets(more), origin));
            }
        }
    }

    /// Value and origin of every key, in the order in which they are documented.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Key, &Value, &Origin)> {
        KEYS.iter().filter_map(|key| {
            self.values
                .get(key.path)
                .map(|(value, origin)| (key, value, origin))
        })
    }

    /// The leaves of `[retry]` that are in effect, in order of their path.
    #[must_use]
    pub fn retry_leaves(&self) -> Vec<&RetryLeaf> {
        let last: BTreeMap<&str, &RetryLeaf> =
            self.retry.iter().map(|leaf| (leaf.path.as_str(), leaf)).collect();
        last.into_values().collect()
    }

    /// What was written for single tenants.
    #[must_use]
    pub fn tenants(&self) -> &[TenantLeaf] {
        &self.tenants
    }

    /// Where the value of this key was written.
    #[must_use]
    pub fn origin(&self, path: &str) -> Origin {
        self.values
            .get(path)
            .map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    fn value<'a, T>(&'a self, path: &str, as_kind: impl Fn(&'a Value) -> Option<T>) -> T {
        let value = self.values.get(path).and_then(|(value, _)| as_kind(value));
        value.unwrap_or_else(|| {
            unreachable!("{path} is a key of this kind, as a test that reads all of them shows")
        })
    }

    pub(super) fn text(&self, path: &str) -> &str {
        self.value(path, |value| {
            if let Value::Text(text) = value {
                Some(text.as_str())
            } else {
                None
            }
        })
    }

    pub(super) fn path(&self, path: &str) -> &Path {
        self.value(path, |value| {
            if let Value::Path(path) = value {
                Some(path.as_path())
            } else {
                None
            }
        })
    }

    /// `None` where nothing is the default, and nothing was said.
    pub(super) fn optional<T>(&self, path: &str, read: impl Fn(&Self) -> T) -> Option<T> {
        let unset = matches!(self.values.get(path), Some((Value::Unset, _)));
        (!unset).then(|| read(self))
    }

    pub(super) fn address(&self, path: &str) -> SocketAddr {
        self.value(path, |value| {
            if let Value::Address(address) = value {
                Some(*address)
            } else {
                None
            }
        })
    }

    pub(super) fn flag(&self, path: &str) -> bool {
        self.value(path, |value| {
            if let Value::Flag(flag) = value {
                Some(*flag)
            } else {
                None
            }
        })
    }

    pub(super) fn count<N: TryFrom<u64>>(&self, path: &str) -> N {
        self.value(path, |value| {
            if let Value::Count(count) = value {
                N::try_from(*count).ok()
            } else {
                None
            }
        })
    }

    pub(super) fn span(&self, path: &str) -> Duration {
        self.value(path, |value| {
            if let Value::Span(span) = value {
                Some(*span)
            } else {
                None
            }
        })
    }

    /// `None` for `off`.
    pub(super) fn span_or_off(&self, path: &str) -> Option<Duration> {
        match self.values.get(path) {
            Some((Value::Span(span), _)) => Some(*span),
            _ => None,
        }
    }

    pub(super) fn list(&self, path: &str) -> &[String] {
        self.value(path, |value| {
            if let Value::List(list) = value {
                Some(list.as_slice())
            } else {
                None
            }
        })
    }

    pub(super) fn secrets(&self, path: &str) -> &[Secret] {
        self.value(path, |value| {
            if let Value::Secrets(secrets) = value {
                Some(secrets.as_slice())
            } else {
                None
            }
        })
    }
}

/// `NAME=` is how many tools say that a variable is not set.
fn is_unset(entry: &Entry) -> bool {
    matches!((&entry.raw, &entry.origin), (Raw::Text(text), Origin::Environment(_)) if text.is_empty())
}

fn unknown(entry: &Entry) -> Problem {
    let in_environment = matches!(entry.origin, Origin::Environment(_));
    let advice = nearest(&entry.path).map_or_else(
        || "see docs/configuration.md for those that are".to_owned(),
        |near| {
            let name = if in_environment {
                key::environment_name(near)
            } else {
                near.to_owned()
            };
            format!("did you mean {name}?")
        },
    );
    Problem::at(
        &entry.path,
        &entry.origin,
        format!("is not a known key; {advice}"),
    )
}

/// The known key that somebody who wrote `path` most likely meant.
fn nearest(path: &str) -> Option<&'static str> {
    let last = path.rsplit('.').next().unwrap_or(path);
    let distance = |key: &Key| {
        let whole = edits(path, key.path);
        // The right name in the wrong section is a near miss, too.
        let name = key.path.rsplit('.').next().unwrap_or(key.path);
        if name == last { whole.min(1) } else { whole }
    };
    let near = KEYS.iter().min_by_key(|key| distance(key))?;
    (distance(near) <= (path.len() / 3).clamp(1, 4)).then_some(near.path)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("flaw", "lawn"), 2);
    }

    #[test]
    fn the_nearest_key_is_offered() {
        assert_eq!(nearest("listn"), Some("listen"));
        assert_eq!(nearest("server.gracee"), Some("server.grace"));
        assert_eq!(nearest("grace"), Some("server.grace"));
        assert_eq!(nearest("api_key"), Some("api_keys"));
        assert_eq!(nearest("entirely_different"), None);
    }
}
