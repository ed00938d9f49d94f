//! How long and how many: bounds of everything that a client may store.
//!
//! They are wide for people and narrow for accidents. Texts that become header values or are kept in a database must
//! not hold control characters.

use std::collections::BTreeMap;

use postrider_core::header::CustomHeaders;

use super::json::Sent;

const MAX_ID_BYTES: usize = 255;
const MAX_METADATA_ENTRIES: usize = 64;
const MAX_METADATA_KEY_BYTES: usize = 128;
const MAX_METADATA_BYTES: usize = 16 << 10;

/// An id of a tenant or destination: 1 to 255 bytes, no control characters, no space at the ends.
pub(super) fn check_id(field: &str, id: &str, faults: &mut Vec<String>) {
    let is_sound =
        (1..=MAX_ID_BYTES).contains(&id.len()) && id.trim() == id && !id.chars().any(char::is_control);
    // Every client would take them out of a path before it sends it (RFC 3986 §5.2.4).
    if matches!(id, "." | "..") {
        faults.push(format!("{field} must not be a path segment such as . or .."));
    } else if !is_sound {
        faults.push(format!(
            "{field} must be 1 to {MAX_ID_BYTES} bytes without control characters, and without spaces at its ends"
        ));
    }
}

/// An id of an event, which is sent as a header: 1 to 255 visible ASCII characters.
pub(super) fn check_event_id(field: &str, id: &str, faults: &mut Vec<String>) {
    if !(1..=MAX_ID_BYTES).contains(&id.len()) || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
        faults.push(format!(
            "{field} must be 1 to {MAX_ID_BYTES} visible ASCII characters"
        ));
    }
}

/// Text by key, from an object whose values are strings or, in a merge, `null`. Other values count as their JSON text where
/// `is_lenient` says so of a key and that text.
pub(super) fn read_metadata(
    field: &str,
    sent: Sent<'_>,
    is_lenient: impl Fn(&str, &str) -> bool,
    faults: &mut Vec<String>,
) -> Option<BTreeMap<String, Option<String>>> {
    let fields = sent.fields(field, faults)?;
    let mut read = BTreeMap::new();
    for (key, sent) in fields {
        let path = format!("{field}.{key}");
        let value = match sent.value() {
            None => None,
            Some(text) if is_lenient(&key, text) => Some(text.to_owned()),
            Some(text) => match serde_json::from_str::<String>(text) {
                Ok(text) => Some(text),
                Err(_) => {
                    faults.push(format!("{path} must be a string"));
                    continue;
                }
            },
        };
        read.insert(key, value);
    }
    Some(read)
}

/// Metadata without `null`s.
pub(super) fn read_plain_metadata(
    field: &str,
    sent: Sent<'_>,
    faults: &mut Vec<String>,
) -> Option<BTreeMap<String, String>> {
    let read = read_metadata(field, sent, |_, _| false, faults)?;
    let mut plain = BTreeMap::new();
    for (key, value) in read {
        match value {
            Some(value) => drop(plain.insert(key, value)),
            None => faults.push(format!("{field}.{key} must be a string")),
        }
    }
    check_metadata(field, &plain, faults);
    Some(plain)
}

/// At most 64 entries of 16 KiB in all, keys of 1 to 128 bytes, no control characters but tab and line ends in values.
pub(super) fn check_metadata(field: &str, metadata: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    if metadata.len() > MAX_METADATA_ENTRIES {
        faults.push(format!(
            "{field} must have at most {MAX_METADATA_ENTRIES} entries"
        ));
    }
    let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        faults.push(format!(
            "{field} must have at most {MAX_METADATA_BYTES} bytes in all"
        ));
    }
    for (key, value) in metadata {
        if !(1..=MAX_METADATA_KEY_BYTES).contains(&key.len()) || key.chars().any(char::is_control) {
            faults.push(format!(
                "{field} keys must be 1 to {MAX_METADATA_KEY_BYTES} bytes without control characters"
            ));
        } else if value
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
        {
            faults.push(format!("{field}.{key} must not have control characters"));
        }
    }
}

/// Metadata of an event are sent as headers: what of them could only be left out then.
pub(super) fn check_sendable(field: &str, metadata: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    for (key, fault) in CustomHeaders::faults_of_event(metadata) {
        let key = key.map_or_else(String::new, |key| format!(".{key}"));
        faults.push(format!("{field}{key} {fault}"));
    }
}
