//! Destinations as clients send them: a whole one, or a change.
//!
//! Reads shapes and names wrong ones; what a valid destination is, the directory says. A change follows the contract's
//! table: `null` clears, `{}` leaves maps alone but clears a filter, an object is merged and its `null`s delete.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use postrider_core::filter::MAX_DEPTH;
use postrider_core::id::{DestinationKey, TenantKey};
use postrider_core::secret::Secret;
use postrider_core::time::Timestamp;
use postrider_store::record::{Credentials, Destination, Disabled, Metadata};
use serde::Deserialize;
use serde_json::Value;

use super::catalog::TYPES;
use super::error::ApiError;
use super::json::{Sent, is_too_deep, parse_object};
use super::limits::{check_id, check_metadata, read_metadata};
use super::retry_policies::MAX_POLICY_BYTES;
use crate::directory::DISABLED_BY_REQUEST;

/// How long a replaced secret goes on signing when nobody says otherwise.
const ROTATION_OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_TOPICS: usize = 1_000;
const MAX_FILTER_BYTES: usize = 32 << 10;
const MAX_CONFIG_BYTES: usize = 64 << 10;
const SECRET: &str = "secret";
const PREVIOUS: &str = "previous_secret";
const PREVIOUS_END: &str = "previous_secret_invalid_at";

#[derive(Debug, Deserialize)]
struct RawBody<'a> {
    #[serde(default, borrow)]
    id: Sent<'a>,
    #[serde(default, borrow, rename = "type")]
    kind: Sent<'a>,
    #[serde(default, borrow)]
    topics: Sent<'a>,
    #[serde(default, borrow)]
    filter: Sent<'a>,
    #[serde(default, borrow)]
    config: Sent<'a>,
    #[serde(default, borrow)]
    credentials: Sent<'a>,
    #[serde(default, borrow)]
    delivery_metadata: Sent<'a>,
    #[serde(default, borrow)]
    metadata: Sent<'a>,
    #[serde(default, borrow)]
    retry_policy: Sent<'a>,
    #[serde(default, borrow)]
    created_at: Sent<'a>,
    #[serde(default, borrow)]
    updated_at: Sent<'a>,
    #[serde(default, borrow)]
    disabled_at: Sent<'a>,
}

/// What a change does to a map.
#[derive(Debug, Default)]
enum MapChange {
    #[default]
    Keep,
    Clear,
    Merge(BTreeMap<String, Option<String>>),
}

/// A change of a destination, read but not yet applied; and what was wrong with its shape.
#[derive(Debug, Default)]
pub(super) struct Change {
    id: Option<String>,
    kind: Option<String>,
    topics: Option<Vec<String>>,
    filter: Option<Option<String>>,
    config: MapChange,
    credentials: MapChange,
    rotate: bool,
    delivery_metadata: MapChange,
    metadata: MapChange,
    retry_policy: Option<Option<String>>,
    /// `Some(None)` enables.
    disabled_at: Option<Option<Timestamp>>,
    faults: Vec<String>,
}

/// A new destination as sent: the record, and what was wrong with its shape.
pub(super) fn read_draft(
    body: &[u8],
    now: Timestamp,
    fresh_id: String,
    fresh_secret: Secret,
) -> Result<(Destination, Vec<String>), ApiError> {
    let raw: RawBody<'_> = parse_object(body)?;
    let mut change = Change::from_raw(&raw, now);
    let faults = &mut change.faults;
    if change.rotate {
        faults.push("credentials.rotate_secret is forbidden".to_owned());
        change.rotate = false;
    }
    if change.kind.is_none() && !faults.iter().any(|fault| fault.starts_with("type ")) {
        faults.push("type is required".to_owned());
    }
    let id = change.id.take().unwrap_or(fresh_id);
    check_id("id", &id, faults);
    let created_at = past_instant(raw.created_at, "created_at", now, faults).unwrap_or(now);
    let updated_at = past_instant(raw.updated_at, "updated_at", now, faults).unwrap_or(created_at.max(now));
    let mut record = Destination {
        key: DestinationKey(0),
        tenant: TenantKey(0),
        id,
        kind: TYPES[0].to_owned(),
        topics: Vec::new(),
        filter: None,
        config: Metadata::new(),
        credentials: Credentials::default(),
        delivery_metadata: None,
        metadata: None,
        retry_policy: None,
        created_at,
        updated_at,
        disabled: None,
        revision: 0,
    };
    let faults = change.apply(&mut record, now, fresh_secret);
    Ok((record, faults))
}

impl Change {
    /// Reads a change. Wrong shapes come out of [`Change::apply`], together with what else is wrong.
    pub(super) fn read(body: &[u8], now: Timestamp) -> Result<Self, ApiError> {
        let raw: RawBody<'_> = parse_object(body)?;
        Ok(Self::from_raw(&raw, now))
    }

    fn from_raw(raw: &RawBody<'_>, now: Timestamp) -> Self {
        let mut faults = Vec::new();
        let mut credentials = read_map("credentials", raw.credentials, &mut faults);
        let rotate = take_rotate(&mut credentials, &mut faults);
        let disabled_at = match raw.disabled_at {
            Sent::Absent => None,
            Sent::Null => Some(None),
            sent => past_instant(sent, "disabled_at", now, &mut faults).map(Some),
        };
        Self {
            id: raw.id.text("id", &mut faults),
            kind: read_kind(raw.kind, &mut faults),
            topics: read_topics(raw.topics, &mut faults),
            filter: read_filter(raw.filter, &mut faults),
            config: read_map("config", raw.config, &mut faults),
            credentials,
            rotate,
            delivery_metadata: read_map("delivery_metadata", raw.delivery_metadata, &mut faults),
            metadata: read_map("metadata", raw.metadata, &mut faults),
            retry_policy: read_policy(raw.retry_policy, &mut faults),
            disabled_at,
            faults,
        }
    }

    /// Makes the change as far as it is sound; answers what is not. `fresh` is used where a secret has to be made.
    pub(super) fn apply(self, record: &mut Destination, now: Timestamp, fresh: Secret) -> Vec<String> {
        let mut faults = self.faults;
        if self.id.is_some_and(|id| id != record.id) {
            faults.push("id cannot be changed".to_owned());
        }
        if self.kind.is_some_and(|kind| kind != record.kind) {
            faults.push("type cannot be changed".to_owned());
        }
        if let Some(topics) = self.topics {
            record.topics = topics;
        }
        if let Some(filter) = self.filter {
            record.filter = filter;
        }
        if let Some(policy) = self.retry_policy {
            record.retry_policy = policy;
        }
        self.config.into_map(&mut record.config);
        if record
            .config
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum::<usize>()
            > MAX_CONFIG_BYTES
        {
            faults.push(format!(
                "config must have at most {MAX_CONFIG_BYTES} bytes in all"
            ));
        }
        apply_credentials(&mut record.credentials, self.credentials, self.rotate, now, fresh);
        for (field, merge, map) in [
            (
                "delivery_metadata",
                self.delivery_metadata,
                &mut record.delivery_metadata,
            ),
            ("metadata", self.metadata, &mut record.metadata),
        ] {
            let mut merged = map.take().unwrap_or_default();
            merge.into_map(&mut merged);
            check_metadata(field, &merged, &mut faults);
            *map = Some(merged).filter(|merged| !merged.is_empty());
        }
        match self.disabled_at {
            None => {}
            Some(None) => record.disabled = None,
            Some(Some(at)) => {
                record.disabled = Some(Disabled {
                    at,
                    reason: DISABLED_BY_REQUEST.to_owned(),
                });
            }
        }
        faults
    }
}

/// Disables a record now, unless it is disabled already.
pub(super) fn disable(record: &mut Destination, now: Timestamp) {
    record.disabled.get_or_insert_with(|| Disabled {
        at: now,
        reason: DISABLED_BY_REQUEST.to_owned(),
    });
}

impl MapChange {
    fn into_map(self, map: &mut Metadata) {
        match self {
            Self::Keep => {}
            Self::Clear => map.clear(),
            Self::Merge(changes) => {
                for (key, value) in changes {
                    match value {
                        Some(value) => map.insert(key, value),
                        None => map.remove(&key),
                    };
                }
            }
        }
    }
}

/// A rotation keeps the secret before as `previous_secret` for 24 h or as long as it is told. A destination always has a
/// secret: where none is left, a new one is made.
fn apply_credentials(
    credentials: &mut Credentials,
    merge: MapChange,
    rotate: bool,
    now: Timestamp,
    fresh: Secret,
) {
    let fields = &mut credentials.fields;
    let old = fields.get(SECRET).cloned();
    let mut given = BTreeMap::new();
    match merge {
        MapChange::Keep => {}
        MapChange::Clear => fields.clear(),
        MapChange::Merge(changes) => given = changes,
    }
    if rotate && let Some(old) = old {
        fields.insert(SECRET.to_owned(), fresh.clone());
        fields.insert(PREVIOUS.to_owned(), old);
        fields.remove(PREVIOUS_END);
    }
    for (key, value) in given {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => fields.insert(key, Secret::new(value)),
            None => fields.remove(&key),
        };
    }
    fields.entry(SECRET.to_owned()).or_insert(fresh);
    if fields.contains_key(PREVIOUS) {
        let end = || Secret::new(now.plus(ROTATION_OVERLAP).to_string());
        fields.entry(PREVIOUS_END.to_owned()).or_insert_with(end);
    } else {
        fields.remove(PREVIOUS_END);
    }
}

fn take_rotate(credentials: &mut MapChange, faults: &mut Vec<String>) -> bool {
    let MapChange::Merge(fields) = credentials else {
        return false;
    };
    match fields.remove("rotate_secret").flatten().as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => {
            faults.push("credentials.rotate_secret must be true or false".to_owned());
            false
        }
    }
}

fn read_kind(sent: Sent<'_>, faults: &mut Vec<String>) -> Option<String> {
    let kind = sent.text("type", faults)?;
    if TYPES.contains(&kind.as_str()) {
        Some(kind)
    } else {
        faults.push(format!("type must be one of: {}", TYPES.join(", ")));
        None
    }
}

/// `"*"`, or an array of patterns. `null` is an empty list, which the directory refuses.
fn read_topics(sent: Sent<'_>, faults: &mut Vec<String>) -> Option<Vec<String>> {
    let raw = match sent {
        Sent::Absent => return None,
        Sent::Null => return Some(Vec::new()),
        Sent::Value(raw) => raw.get(),
    };
    if let Ok(everything) = serde_json::from_str::<String>(raw)
        && everything == "*"
    {
        return Some(vec![everything]);
    }
    match serde_json::from_str::<Vec<String>>(raw) {
        Ok(topics) if topics.len() > MAX_TOPICS => {
            faults.push(format!("topics must have at most {MAX_TOPICS} items"));
            None
        }
        Ok(topics) => {
            let mut seen = HashSet::new();
            Some(
                topics
                    .into_iter()
                    .filter(|topic| seen.insert(topic.clone()))
                    .collect(),
            )
        }
        Err(_) => {
            faults.push("topics must be \"*\" or an array of strings".to_owned());
            None
        }
    }
}

/// The text of a filter, as it was written; `Some(None)` clears it.
fn read_filter(sent: Sent<'_>, faults: &mut Vec<String>) -> Option<Option<String>> {
    let raw = match sent {
        Sent::Absent => return None,
        Sent::Null => return Some(None),
        Sent::Value(raw) => raw.get(),
    };
    let fault = if !raw.starts_with('{') {
        "filter must be an object".to_owned()
    } else if raw.len() > MAX_FILTER_BYTES {
        format!("filter must have at most {MAX_FILTER_BYTES} bytes")
    } else if is_too_deep(raw) {
        // More than can be parsed; compiling it finds the others.
        format!("filter must not be nested deeper than {MAX_DEPTH} levels")
    } else {
        let is_empty = raw[1..raw.len() - 1].trim_ascii().is_empty();
        return Some((!is_empty).then(|| raw.to_owned()));
    };
    faults.push(fault);
    None
}

/// The text of a policy: the name of one, or an object.
fn read_policy(sent: Sent<'_>, faults: &mut Vec<String>) -> Option<Option<String>> {
    let raw = match sent {
        Sent::Absent => return None,
        Sent::Null => return Some(None),
        Sent::Value(raw) => raw.get(),
    };
    if let Ok(name) = serde_json::from_str::<String>(raw) {
        // Spelled in one way only, so that names can be compared as text.
        Some(Some(Value::from(name).to_string()))
    } else if raw.starts_with('{') && raw.len() <= MAX_POLICY_BYTES && !is_too_deep(raw) {
        Some(Some(raw.to_owned()))
    } else {
        faults.push(format!(
            "retry_policy must be a name or an object of at most {MAX_POLICY_BYTES} bytes"
        ));
        None
    }
}

/// A map of texts. In `config` numbers and booleans become text, and `custom_headers` may come as the object that it stands
/// for; a URL or a secret that is no text is a mistake.
fn read_map(field: &str, sent: Sent<'_>, faults: &mut Vec<String>) -> MapChange {
    match sent {
        Sent::Absent => MapChange::Keep,
        Sent::Null => MapChange::Clear,
        Sent::Value(_) => {
            let is_lenient = |key: &str, text: &str| match (field, key) {
                ("config", "custom_headers") => !text.starts_with(['"', '[']),
                ("config", "url") => false,
                ("config", _) => !text.starts_with(['"', '[', '{']),
                ("credentials", "rotate_secret") => matches!(text, "true" | "false"),
                _ => false,
            };
            read_metadata(field, sent, is_lenient, faults).map_or(MapChange::Keep, MapChange::Merge)
        }
    }
}

fn past_instant(sent: Sent<'_>, field: &str, now: Timestamp, faults: &mut Vec<String>) -> Option<Timestamp> {
    let instant = sent.instant(field, faults)?;
    if instant > now {
        faults.push(format!("{field} must not be in the future"));
        return None;
    }
    Some(instant)
}
