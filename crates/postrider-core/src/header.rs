//! Headers that users add to requests: custom headers of a destination, and metadata that is sent as headers.
//!
//! What a user saves is refused when it could not be sent, or would change how the request is framed, routed or
//! verified. What an event carries cannot be refused any more without losing the event, so it is made to fit, and
//! what cannot be made to fit is left out and named. Values may be secrets: no error and no `Debug` shows one.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// Most headers of one destination, or of one event.
pub const MAX_HEADERS: usize = 100;
/// Longest name in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// Longest value in bytes.
pub const MAX_VALUE_BYTES: usize = 8_192;
/// Most bytes of all names and values together: common servers take 16 to 32 KiB for a whole head.
pub const MAX_TOTAL_BYTES: usize = 16_384;

/// Names that only the sender may set. Framing and connection: RFC 9110 §7.6.1, RFC 9112, RFC 9113 §8.2.2. The rest
/// describe the body, negotiate the response's encoding or name the sender.
const RESERVED_NAMES: [&str; 18] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
];
/// Beginnings of names that only the sender may set: a receiver trusts them because they are signed or ours.
const RESERVED_PREFIXES: [&str; 2] = ["webhook-", "x-outpost-"];
/// The longest prefix of an event's headers.
const LONGEST_PREFIX: &str = RESERVED_PREFIXES[1];
/// What follows such a prefix in the sender's own headers.
const OWN_SUFFIXES: [&str; 7] = [
    "id",
    "event-id",
    "timestamp",
    "signature",
    "topic",
    "attempt",
    "delivery-id",
];

/// Why headers are refused: one text for each wrong one, with its name and without its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidHeaders(pub Vec<String>);

/// Validated names (lower case) and values, ready to be sent, in the order in which they were given.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct CustomHeaders {
    entries: Vec<(String, String)>,
}

impl CustomHeaders {
    /// From the JSON text of `config.custom_headers`: an object of strings.
    ///
    /// # Errors
    /// Every header that is wrong, by name.
    pub fn parse(json: &str) -> Result<Self, InvalidHeaders> {
        let members: Members = serde_json::from_str(json).map_err(|_| {
            InvalidHeaders(vec![
                "must be a JSON object, as {\"x-key\": \"value\"}".to_owned(),
            ])
        })?;
        let mut faults = Vec::new();
        let mut pairs = Vec::new();
        for (name, value) in members.0 {
            match value {
                Value::String(value) => pairs.push((name, value)),
                other => faults.push(format!("{} must be a string, is {}", shown(&name), kind(&other))),
            }
        }
        Self::strict(pairs, faults)
    }

    /// From metadata whose keys are header names as they stand.
    ///
    /// # Errors
    /// Every header that is wrong, by name.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Result<Self, InvalidHeaders> {
        Self::strict(
            metadata
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            Vec::new(),
        )
    }

    /// From metadata of an event that must be sent whatever it carries: each key becomes the header `prefix` + key.
    /// Bytes that no header name or value has are percent-encoded (RFC 3986 §2.1); in such a value `%` is too. Left
    /// out, and named as the second part of the answer, are headers that the sender sets itself, and those beyond
    /// the bounds of number and length. `prefix` is lower case, and may be empty.
    #[must_use]
    pub fn from_event(metadata: &BTreeMap<String, String>, prefix: &str) -> (Self, Vec<String>) {
        let mut headers = Self::default();
        let mut left_out = Vec::new();
        let mut total = 0;
        for (key, value) in metadata {
            let name = format!("{prefix}{}", encode_name(key));
            let value = encode_value(value);
            let bytes = name.len() + value.len();
            let fits = !key.is_empty()
                && name.len() <= MAX_NAME_BYTES
                && value.len() <= MAX_VALUE_BYTES
                && total + bytes <= MAX_TOTAL_BYTES
                && headers.entries.len() < MAX_HEADERS;
            let taken = is_own(&name, prefix) || headers.entries.iter().any(|(other, _)| *other == name);
            if fits && !taken {
                total += bytes;
                headers.entries.push((name, value));
            } else {
                left_out.push(key.chars().take(64).collect());
            }
        }
        (headers, left_out)
    }

    /// What of an event's metadata could not be sent as headers by [`CustomHeaders::from_event`], whatever its prefix: the key,
    /// or none for all of them together, and why. Not named are headers that the sender sets itself, which are only left out.
    #[must_use]
    pub fn faults_of_event(metadata: &BTreeMap<String, String>) -> Vec<(Option<&str>, String)> {
        let mut faults = Vec::new();
        let mut names = HashSet::new();
        let mut total = 0;
        for (key, value) in metadata {
            let name = format!("{LONGEST_PREFIX}{}", encode_name(key));
            let bytes = encode_value(value).len();
            total += name.len() + bytes;
            if name.len() > MAX_NAME_BYTES {
                let possible = MAX_NAME_BYTES - LONGEST_PREFIX.len();
                let bytes = name.len() - LONGEST_PREFIX.len();
                faults.push((
                    Some(&**key),
                    format!("has {bytes} bytes as a header's name, at most {possible} are possible"),
                ));
            } else if !names.insert(name) {
                faults.push((Some(key), "is the same header as another key".to_owned()));
            } else if bytes > MAX_VALUE_BYTES {
                faults.push((
                    Some(key),
                    format!("has {bytes} bytes as a header's value, at most {MAX_VALUE_BYTES} are possible"),
                ));
            }
        }
        if faults.is_empty() && total > MAX_TOTAL_BYTES {
            faults.push((
                None,
                format!("has {total} bytes as headers, at most {MAX_TOTAL_BYTES} are possible"),
            ));
        }
        if metadata.len() > MAX_HEADERS {
            faults.push((
                None,
                format!(
                    "has {} headers, at most {MAX_HEADERS} are possible",
                    metadata.len()
                ),
            ));
        }
        faults
    }

    /// Name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn strict(pairs: Vec<(String, String)>, mut faults: Vec<String>) -> Result<Self, InvalidHeaders> {
        if pairs.len() > MAX_HEADERS {
            faults.push(format!(
                "has {} headers, at most {MAX_HEADERS} are possible",
                pairs.len()
            ));
            return Err(InvalidHeaders(faults));
        }
        let mut seen = HashSet::new();
        let mut total = 0;
        let mut entries = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let lower = name.to_ascii_lowercase();
            if let Some(why) = name_fault(&lower).or_else(|| value_fault(&value)) {
                faults.push(format!("{} {why}", shown(&name)));
            } else if !seen.insert(lower.clone()) {
                faults.push(format!("{} is given twice", shown(&name)));
            }
            total += lower.len() + value.len();
            entries.push((lower, value));
        }
        if faults.is_empty() && total > MAX_TOTAL_BYTES {
            faults.push(format!(
                "has {total} bytes of headers, at most {MAX_TOTAL_BYTES} are possible"
            ));
        }
        if faults.is_empty() {
            Ok(Self { entries })
        } else {
            Err(InvalidHeaders(faults))
        }
    }
}

impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, _)| (name, "***")))
            .finish()
    }
}

/// The members of a JSON object with repeats, which a map would hide. As long as its text, which the API bounds.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A name for a message: quoted, escaped, shortened.
fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(64).collect::<String>())
}

fn name_fault(lower: &str) -> Option<String> {
    if lower.is_empty() || !lower.bytes().all(is_token_byte) {
        Some("is no header name: letters, digits and !#$%&'*+-.^_`|~ are possible".to_owned())
    } else if lower.len() > MAX_NAME_BYTES {
        Some(format!(
            "has {} bytes, at most {MAX_NAME_BYTES} are possible",
            lower.len()
        ))
    } else if RESERVED_NAMES.contains(&lower)
        || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix))
    {
        Some("is set by the sender and cannot be chosen".to_owned())
    } else {
        None
    }
}

fn value_fault(value: &str) -> Option<String> {
    if value.len() > MAX_VALUE_BYTES {
        Some(format!(
            "has a value of {} bytes, at most {MAX_VALUE_BYTES} are possible",
            value.len()
        ))
    } else if !value.bytes().all(is_value_byte) {
        Some("has a value with a line break, a control character or a character outside ASCII".to_owned())
    } else if value.trim_ascii() != value {
        Some("has a value that starts or ends with a space".to_owned())
    } else {
        None
    }
}

/// A `tchar` of RFC 9110 §5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A byte of a field value (RFC 9110 §5.5), without the obsolete ones above ASCII.
fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (b' '..=b'~').contains(&byte)
}

/// Whether the sender sets this header itself.
fn is_own(name: &str, prefix: &str) -> bool {
    let own_suffix = name
        .strip_prefix(prefix)
        .is_some_and(|rest| !prefix.is_empty() && OWN_SUFFIXES.contains(&rest));
    let reserved = RESERVED_NAMES.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|reserved| *reserved != prefix && name.starts_with(reserved));
    own_suffix || reserved
}

fn encode_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        if is_token_byte(byte) {
            name.push(char::from(byte.to_ascii_lowercase()));
        } else {
            push_encoded(&mut name, byte);
        }
    }
    name.make_ascii_lowercase();
    name
}

fn encode_value(value: &str) -> String {
    if value_fault(value).is_none() || value.len() > MAX_VALUE_BYTES {
        return value.to_owned();
    }
    let mut encoded = String::with_capacity(value.len() + 16);
    let edge = value.len() - value.trim_ascii_start().len();
    let end = value.trim_ascii_end().len();
    for (at, byte) in value.bytes().enumerate() {
        if is_value_byte(byte) && byte != b'%' && (edge..end).contains(&at) {
            encoded.push(char::from(byte));
        } else {
            push_encoded(&mut encoded, byte);
        }
    }
    encoded
}

fn push_encoded(text: &mut String, byte: u8) {
    text.push('%');
    for digit in [byte >> 4, byte & 0xf] {
        text.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
    }
}

#[cfg(test)]
mod tests;
