//! Reading JSON bodies: one pass that borrows, then field by field, so that every wrong field is named at once.
//!
//! Fields come as raw text first. That keeps bytes untouched where they must be, tells an absent field from `null`,
//! and lets one wrong type not hide the next.

use std::collections::BTreeMap;
use std::fmt;

use postrider_core::time::{ParseTimestampError, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::{RawValue, to_raw_value};

use super::error::ApiError;

/// What is said of an instant of another time.
pub(super) const OUT_OF_RANGE: &str = "must lie in the years 1970 to 9999";
/// What is said of an empty value where an absent one says something else: it comes from a variable that was not set.
const EMPTY: &str = "must not be empty";
/// The same where an absent one admits everything.
pub(super) const EMPTY_FILTER: &str = "must not be empty; leave it out to admit all";
/// What is said of a `null` there.
pub(super) const NULL: &str = "must not be null; leave it out instead";
/// Levels of nesting that a published document may have.
const MAX_DEPTH: usize = 100;

/// Parses a body that is an object. Unknown fields are ignored; a field that is there twice is an error.
pub(super) fn parse_object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let text = text(body)?;
    if !text.trim_ascii_start().starts_with('{') {
        let detail = if text.trim_ascii().is_empty() {
            "the body is empty"
        } else if text.starts_with('\u{feff}') {
            "the body begins with a byte-order mark; send UTF-8 without one"
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

    /// A text where an absent field has a meaning: `null` counts as absent, `""` is refused.
    pub(super) fn filled_text(self, field: &str, faults: &mut Vec<String>) -> Option<String> {
        self.not_empty(field, EMPTY, faults)
    }

    /// An instant where an absent field has a meaning: `null` counts as absent, `""` is refused.
    pub(super) fn filled_instant(self, field: &str, faults: &mut Vec<String>) -> Option<Timestamp> {
        let text = self.filled_text(field, faults)?;
        instant(&text, field, faults)
    }

    /// A text where an absent field admits everything: `null` counts as absent, `""` is refused.
    pub(super) fn narrowing_text(self, field: &str, faults: &mut Vec<String>) -> Option<String> {
        self.not_empty(field, EMPTY_FILTER, faults)
    }

    fn not_empty(self, field: &str, fault: &str, faults: &mut Vec<String>) -> Option<String> {
        let text = self.whole_text(field, faults)?;
        if text.is_empty() {
            faults.push(format!("{field} {fault}"));
            return None;
        }
        Some(text)
    }

    /// An instant where an absent field admits everything: `null` counts as absent, `""` is refused.
    pub(super) fn narrowing_instant(self, field: &str, faults: &mut Vec<String>) -> Option<Timestamp> {
        let text = self.narrowing_text(field, faults)?;
        instant(&text, field, faults)
    }

    /// An instant; `null` and `""` count as absent.
    pub(super) fn instant(self, field: &str, faults: &mut Vec<String>) -> Option<Timestamp> {
        let text = self.text(field, faults)?;
        instant(&text, field, faults)
    }

    /// A text or number, or an array of them, as texts; `null` counts as absent. An empty text or array is refused: where
    /// an absent field admits everything, it comes from a variable that was not set.
    pub(super) fn texts(self, field: &str, faults: &mut Vec<String>) -> Vec<String> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Item {
            Text(String),
            Number(u64),
        }
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Items {
            One(Item),
            Many(Vec<Item>),
        }
        let Some(value) = self.value() else {
            return Vec::new();
        };
        let items = match typed(value, field, "a text, a number or an array of them", faults) {
            None => return Vec::new(),
            Some(Items::One(item)) => vec![item],
            Some(Items::Many(items)) => items,
        };
        let texts: Vec<String> = items
            .into_iter()
            .map(|item| match item {
                Item::Text(text) => text,
                Item::Number(number) => number.to_string(),
            })
            .collect();
        if texts.is_empty() || texts.iter().any(String::is_empty) {
            faults.push(format!("{field} {EMPTY_FILTER}"));
        }
        texts
    }

    /// A whole number within bounds.
    pub(super) fn count(self, field: &str, least: u32, most: u32, faults: &mut Vec<String>) -> Option<u32> {
        let parsed = serde_json::from_str::<u32>(self.value()?).ok();
        let parsed = parsed.filter(|number| (least..=most).contains(number));
        if parsed.is_none() {
            faults.push(format!("{field} must be a whole number from {least} to {most}"));
        }
        parsed
    }

    /// An object whose values are kept as text.
    pub(super) fn fields(self, field: &str, faults: &mut Vec<String>) -> Option<BTreeMap<String, Sent<'a>>> {
        typed(self.value()?, field, "an object", faults)
    }
}

/// The fields of a body that is read strictly: what nobody asked for is a fault.
///
/// So is `null`, which elsewhere counts as absent: where an absent field admits everything, somebody may mean it for "none".
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    left: BTreeMap<String, Sent<'a>>,
    /// Names of those that were `null`.
    nulls: Vec<String>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> de::Visitor<'de> for Members {
            type Value = BTreeMap<String, Sent<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, sent)) = map.next_entry::<String, Sent<'de>>()? {
                    if members.contains_key(&name) {
                        return Err(de::Error::custom(format!("duplicate field `{name}`")));
                    }
                    members.insert(name, sent);
                }
                Ok(members)
            }
        }
        let left = deserializer.deserialize_map(Members)?;
        Ok(Self {
            left,
            nulls: Vec::new(),
        })
    }
}

impl<'a> Fields<'a> {
    /// A field, which then counts as known.
    pub(super) fn take(&mut self, name: &str) -> Sent<'a> {
        let sent = self.left.remove(name).unwrap_or_default();
        if matches!(sent, Sent::Null) {
            self.nulls.push(name.to_owned());
        }
        sent
    }

    /// The same for a field that may be `null`, since its absence admits no more than its presence.
    pub(super) fn take_nullable(&mut self, name: &str) -> Sent<'a> {
        self.left.remove(name).unwrap_or_default()
    }

    /// [`Sent::texts`] of a field.
    pub(super) fn texts(&mut self, name: &str, faults: &mut Vec<String>) -> Vec<String> {
        self.take(name).texts(name, faults)
    }

    /// What was not taken is unknown, and what was `null` is refused.
    pub(super) fn refuse_others(self, faults: &mut Vec<String>) {
        faults.extend(self.nulls.into_iter().map(|name| format!("{name} {NULL}")));
        faults.extend(self.left.into_keys().map(|name| format!("{name} is unknown")));
    }
}

fn instant(text: &str, field: &str, faults: &mut Vec<String>) -> Option<Timestamp> {
    let fault = match Timestamp::parse(text) {
        Ok(instant) => return Some(instant),
        Err(ParseTimestampError::Malformed(_)) => "must be an RFC 3339 date-time",
        Err(ParseTimestampError::OutOfRange(_)) => OUT_OF_RANGE,
    };
    faults.push(format!("{field} {fault}"));
    None
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
    fn strict_bodies_name_every_field_that_is_wrong() {
        let mut fields: Fields<'_> = parse_object(
            br#"{"a": "x", "b": ["y", 401], "c": [], "d": [""], "e": {}, "f": null, "n": 0, "z": 1}"#,
        )
        .unwrap();
        let mut faults = Vec::new();
        assert_eq!(fields.texts("a", &mut faults), ["x"]);
        assert_eq!(fields.texts("b", &mut faults), ["y", "401"]);
        for name in ["c", "d", "e", "f", "absent"] {
            fields.texts(name, &mut faults);
        }
        assert_eq!(fields.take("n").count("n", 1, 9, &mut faults), None);
        fields.refuse_others(&mut faults);
        let right = [
            "c must not be empty; leave it out to admit all",
            "d must not be empty; leave it out to admit all",
            "e must be a text, a number or an array of them",
            "n must be a whole number from 1 to 9",
            "f must not be null; leave it out instead",
            "z is unknown",
        ];
        assert_eq!(faults, right);
        assert!(parse_object::<Fields<'_>>(br#"{"a": 1, "a": 2}"#).is_err());
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
