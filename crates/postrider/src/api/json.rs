//! Reading JSON bodies: one pass that borrows, then field by field, so that every wrong field is named at once.
//!
//! Fields come as raw text first. That keeps bytes untouched where they must be, tells an absent field from `null`,
//! and lets one wrong type not hide the next.

use std::collections::BTreeMap;

use postrider_core::time::{ParseTimestampError, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::error::ApiError;

/// What is said of an instant of another time.
pub(super) const OUT_OF_RANGE: &str = "must lie in the years 1970 to 9999";
/// Levels of nesting that a published document may have.
const MAX_DEPTH: usize = 100;

/// Parses a body that is an object. Unknown fields are ignored; a field that is there twice is an error.
pub(super) fn parse_object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let text = text(body)?;
    if !text.trim_ascii_start().starts_with('{') {
        let detail = if text.trim_ascii().is_empty() {
            "the body is empty"
        } else {
            "expected an object"
        };
        return Err(ApiError::invalid_json(detail));
    }
    parse(text)
}

/// Parses a text.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ApiError> {
    serde_json::from_str(text).map_err(|error| ApiError::invalid_json(error.to_string()))
}

/// The body as text.
pub(super) fn text(body: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(body)
        .map_err(|error| ApiError::invalid_json(format!("invalid UTF-8 at byte {}", error.valid_up_to())))
}

/// A field as it was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Sent<'a> {
    /// Not at all.
    #[default]
    Absent,
    /// As `null`.
    Null,
    /// With a value, whose text this is.
    Value(&'a RawValue),
}

impl<'de: 'a, 'a> Deserialize<'de> for Sent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(if raw.get() == "null" {
            Self::Null
        } else {
            Self::Value(raw)
        })
    }
}

impl<'a> Sent<'a> {
    /// The value's text; `null` counts as absent.
    pub(super) fn value(self) -> Option<&'a str> {
        match self {
            Self::Value(raw) => Some(raw.get()),
            Self::Absent | Self::Null => None,
        }
    }

    /// A text; `null` and `""` count as absent.
    pub(super) fn text(self, field: &str, faults: &mut Vec<String>) -> Option<String> {
        let text = self.whole_text(field, faults);
        text.filter(|text| !text.is_empty())
    }

    /// A text, the empty one included; only `null` counts as absent.
    pub(super) fn whole_text(self, field: &str, faults: &mut Vec<String>) -> Option<String> {
        typed(self.value()?, field, "a string", faults)
    }

    /// A text that must be there.
    pub(super) fn required_text(self, field: &str, faults: &mut Vec<String>) -> String {
        let known = faults.len();
        let text = self.text(field, faults).unwrap_or_default();
        if text.is_empty() && faults.len() == known {
            faults.push(format!("{field} is required"));
        }
        text
    }

    /// A truth value.
    pub(super) fn boolean(self, field: &str, faults: &mut Vec<String>) -> Option<bool> {
        typed(self.value()?, field, "true or false", faults)
    }

    /// An instant.
    pub(super) fn instant(self, field: &str, faults: &mut Vec<String>) -> Option<Timestamp> {
        let text = self.text(field, faults)?;
        let fault = match Timestamp::parse(&text) {
            Ok(instant) => return Some(instant),
            Err(ParseTimestampError::Malformed(_)) => "must be an RFC 3339 date-time",
            Err(ParseTimestampError::OutOfRange(_)) => OUT_OF_RANGE,
        };
        faults.push(format!("{field} {fault}"));
        None
    }

    /// An object whose values are kept as text.
    pub(super) fn fields(self, field: &str, faults: &mut Vec<String>) -> Option<BTreeMap<String, Sent<'a>>> {
        typed(self.value()?, field, "an object", faults)
    }
}

fn typed<'a, T: Deserialize<'a>>(
    text: &'a str,
    field: &str,
    kind: &str,
    faults: &mut Vec<String>,
) -> Option<T> {
    serde_json::from_str(text)
        .map_err(|_| faults.push(format!("{field} must be {kind}")))
        .ok()
}

/// A value as JSON text, for a place inside another answer. Raw parts keep their bytes, which a `Value` would not.
pub(super) fn raw(value: &impl Serialize) -> Result<Box<RawValue>, ApiError> {
    to_raw_value(value).map_err(ApiError::internal)
}

/// Whether a valid JSON text nests deeper than documents may.
pub(super) fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(!is_too_deep(&nested(100)));
        assert!(is_too_deep(&nested(101)));
        assert!(!is_too_deep(&format!(r#"{{"a":"\"{}"}}"#, "[".repeat(200))));
        assert!(!is_too_deep(&format!(r#"["\\",{}]"#, vec!["[]"; 200].join(","))));
    }

    #[test]
    fn absent_null_and_value_are_told_apart() {
        #[derive(Deserialize)]
        struct Doc<'a> {
            #[serde(default, borrow)]
            a: Sent<'a>,
            #[serde(default, borrow)]
            b: Sent<'a>,
            #[serde(default, borrow)]
            c: Sent<'a>,
        }
        let doc: Doc<'_> = parse_object(br#" {"b": null, "c": [1,  2], "z": 1}"#).unwrap();
        assert!(matches!(doc.a, Sent::Absent));
        assert!(matches!(doc.b, Sent::Null));
        assert_eq!(doc.c.value(), Some("[1,  2]"));
    }
}
