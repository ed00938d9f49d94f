//! From what was written to what it means: one value at a time, with an error that says what would be right.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::secret::Secret;

use super::key::Kind;
use postrider_core::policy::duration;

/// A value as it was written.
#[derive(Clone, PartialEq)]
pub enum Raw {
    /// A text, also everything from the environment and from flags.
    Text(String),
    /// A number.
    Number(serde_json::Number),
    /// `true` or `false`.
    Flag(bool),
    /// An array.
    List(Vec<Raw>),
    /// A table.
    Table(Vec<(String, Raw)>),
}

/// A value that was understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing, where that is the default.
    Unset,
    /// Text.
    Text(String),
    /// Path.
    Path(PathBuf),
    /// Address and port.
    Address(SocketAddr),
    /// Truth.
    Flag(bool),
    /// Number, also of bytes.
    Count(u64),
    /// Time span.
    Span(Duration),
    /// Texts.
    List(Vec<String>),
    /// Secrets; one or none for [`Kind::Secret`].
    Secrets(Vec<Secret>),
}

impl Value {
    /// Understands a value of a kind.
    ///
    /// # Errors
    /// What would be right; without the value itself when the kind is secret.
    pub fn parse(kind: Kind, raw: &Raw) -> Result<Self, String> {
        match kind {
            Kind::Text => text(raw).map(Self::Text),
            Kind::Path => text(raw).and_then(path),
            Kind::Address => text(raw).and_then(|text| address(&text)),
            Kind::Flag => flag(raw),
            Kind::Count(least, most) => count(raw).and_then(|n| within(n, least, most)),
            Kind::Bytes(least, most) => bytes(raw).and_then(|n| within(n, least, most)),
            Kind::Span(least, most) => span(raw, least, most),
            Kind::SpanOrOff(..) if *raw == Raw::Text("off".to_owned()) => Ok(Self::Text("off".to_owned())),
            Kind::SpanOrOff(least, most) => {
                span(raw, least, most).map_err(|text| format!("{text}, or \"off\""))
            }
            Kind::Choice(words) => choice(raw, words),
            Kind::List => list(raw).map(Self::List),
            Kind::Secret => secret_text(raw).map(|one| Self::Secrets(one.into_iter().collect())),
            Kind::Secrets => secrets(raw),
        }
    }

    /// For people; secrets are only counted.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Unset => String::new(),
            Self::Text(text) => text.clone(),
            Self::Path(path) => path.display().to_string(),
            Self::Address(address) => address.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Count(count) => count.to_string(),
            Self::Span(span) => duration::text(*span),
            Self::List(texts) => texts.join(","),
            Self::Secrets(secrets) => vec!["***"; secrets.len()].join(","),
        }
    }
}

impl Raw {
    /// For an error about it.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::List(_) => "an array".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }

    /// As JSON. A text from the environment or a flag (`loose`) that reads as a number, a truth value or a JSON
    /// array or object is one.
    #[must_use]
    pub fn into_json(self, loose: bool) -> serde_json::Value {
        match self {
            Self::Text(text) if loose => loose_json(text),
            Self::Text(text) => text.into(),
            Self::Number(number) => number.into(),
            Self::Flag(flag) => flag.into(),
            Self::List(items) => items.into_iter().map(|item| item.into_json(false)).collect(),
            Self::Table(entries) => entries
                .into_iter()
                .map(|(name, raw)| (name, raw.into_json(false)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

fn loose_json(text: String) -> serde_json::Value {
    match serde_json::from_str(text.trim()) {
        Ok(value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => value,
        Ok(value @ (serde_json::Value::Array(_) | serde_json::Value::Object(_))) => value,
        _ => text.into(),
    }
}

fn text(raw: &Raw) -> Result<String, String> {
    match raw {
        Raw::Text(text) => Ok(text.clone()),
        other => Err(format!("is {}; write a text in quotes", other.shown())),
    }
}

fn path(text: String) -> Result<Value, String> {
    if text.is_empty() {
        Err("is empty; name a file or directory".to_owned())
    } else {
        Ok(Value::Path(text.into()))
    }
}

fn address(text: &str) -> Result<Value, String> {
    let spelled_out = text
        .strip_prefix("localhost:")
        .map(|port| format!("127.0.0.1:{port}"));
    spelled_out
        .as_deref()
        .unwrap_or(text)
        .parse()
        .map(Value::Address)
        .map_err(|_| format!("is {text:?}; write ADDRESS:PORT, such as 127.0.0.1:3333 or [::]:3333"))
}

fn flag(raw: &Raw) -> Result<Value, String> {
    match raw {
        Raw::Flag(flag) => Ok(Value::Flag(*flag)),
        Raw::Text(text) if text == "true" => Ok(Value::Flag(true)),
        Raw::Text(text) if text == "false" => Ok(Value::Flag(false)),
        other => Err(format!("is {}; write true or false", other.shown())),
    }
}

fn count(raw: &Raw) -> Result<u64, String> {
    let parsed = match raw {
        Raw::Number(number) => number.as_u64(),
        Raw::Text(text) => text.trim().replace('_', "").parse().ok(),
        _ => None,
    };
    parsed.ok_or_else(|| format!("is {}; write a whole number", raw.shown()))
}

fn bytes(raw: &Raw) -> Result<u64, String> {
    let Raw::Text(text) = raw else { return count(raw) };
    let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text.trim()[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kib" => Some(1 << 10),
        "m" | "mib" => Some(1 << 20),
        "g" | "gib" => Some(1 << 30),
        "kb" => Some(1_000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        _ => None,
    };
    let number = digits.trim().replace('_', "").parse::<u64>().ok();
    factor
        .zip(number)
        .and_then(|(factor, number)| number.checked_mul(factor))
        .ok_or_else(|| {
            format!(
                "is {}; write a number of bytes, such as 16KiB or 1MiB",
                raw.shown()
            )
        })
}

fn within(number: u64, least: u64, most: u64) -> Result<Value, String> {
    if (least..=most).contains(&number) {
        Ok(Value::Count(number))
    } else {
        Err(format!("is {number}; must be from {least} to {most}"))
    }
}

fn span(raw: &Raw, least: Duration, most: Duration) -> Result<Value, String> {
    let shown = raw.shown();
    let Raw::Text(text) = raw else {
        return Err(format!(
            "is {shown}; write a time span with its unit in quotes, such as \"5s\""
        ));
    };
    let span = duration::parse(text.trim()).map_err(|error| format!("is {shown}; {error}"))?;
    if (least..=most).contains(&span) {
        Ok(Value::Span(span))
    } else {
        let [span, least, most] = [span, least, most].map(duration::text);
        Err(format!("is {span}; must be from {least} to {most}"))
    }
}

fn choice(raw: &Raw, words: &[&str]) -> Result<Value, String> {
    match raw {
        Raw::Text(text) if words.contains(&text.as_str()) => Ok(Value::Text(text.clone())),
        other => Err(format!(
            "is {}; must be one of: {}",
            other.shown(),
            words.join(", ")
        )),
    }
}

/// Of a text the parts that are not empty; an array as it is, so that positions in it stay what they are.
fn list(raw: &Raw) -> Result<Vec<String>, String> {
    match raw {
        Raw::Text(text) => Ok(text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect()),
        Raw::List(items) => texts(items),
        other => Err(format!("is {}; write an array of texts", other.shown())),
    }
}

fn texts(items: &[Raw]) -> Result<Vec<String>, String> {
    let (mut texts, mut wrong) = (Vec::new(), Vec::new());
    for (index, item) in items.iter().enumerate() {
        match item {
            Raw::Text(text) => texts.push(text.clone()),
            other => wrong.push(format!("entry {} is {}", index + 1, other.shown())),
        }
    }
    if wrong.is_empty() {
        Ok(texts)
    } else {
        Err(format!(
            "is no array of texts: {}; write texts in quotes",
            wrong.join(", ")
        ))
    }
}

fn secret_text(raw: &Raw) -> Result<Option<Secret>, String> {
    match raw {
        Raw::Text(text) if text.is_empty() => Ok(None),
        Raw::Text(text) => Ok(Some(Secret::new(text.as_str()))),
        _ => Err("is not a text; write it in quotes".to_owned()),
    }
}

fn secrets(raw: &Raw) -> Result<Value, String> {
    let not_texts = || "is neither a text nor an array of texts".to_owned();
    let items: Vec<&str> = match raw {
        Raw::Text(text) if text.is_empty() => Vec::new(),
        Raw::Text(text) => text.split(',').map(str::trim).collect(),
        Raw::List(items) => items
            .iter()
            .map(|item| {
                if let Raw::Text(text) = item {
                    Ok(text.as_str())
                } else {
                    Err(not_texts())
                }
            })
            .collect::<Result<_, _>>()?,
        _ => return Err(not_texts()),
    };
    for (index, item) in items.iter().enumerate() {
        let position = index + 1;
        if item.is_empty() {
            return Err(format!(
                "has an empty entry at position {position}; an empty key never opens the API, remove it"
            ));
        }
        if !item.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "has an entry at position {position} that no HTTP header can carry; use letters, digits and signs only"
            ));
        }
    }
    Ok(Value::Secrets(items.into_iter().map(Secret::new).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }

    fn shown(kind: Kind, raw: &Raw) -> Result<String, String> {
        Value::parse(kind, raw).map(|value| value.shown())
    }

    #[test]
    fn good_values() {
        let hour = Duration::from_secs(3_600);
        let table: [(Kind, Raw, &str); 14] = [
            (Kind::Address, text("[::1]:80"), "[::1]:80"),
            (Kind::Address, text("localhost:3333"), "127.0.0.1:3333"),
            (Kind::Flag, text("true"), "true"),
            (Kind::Flag, Raw::Flag(false), "false"),
            (Kind::Count(1, 10), text("10"), "10"),
            (Kind::Count(1, 100_000), text("10_000"), "10000"),
            (Kind::Bytes(0, 1 << 30), text("16KiB"), "16384"),
            (Kind::Bytes(0, 1 << 30), Raw::Number(1_048_576.into()), "1048576"),
            (Kind::Span(Duration::ZERO, hour), text("1m30s"), "1m30s"),
            (Kind::SpanOrOff(hour, hour * 24), text("off"), "off"),
            (Kind::SpanOrOff(hour, hour * 24), text("2h"), "2h"),
            (Kind::Choice(&["a", "b"]), text("b"), "b"),
            (
                Kind::List,
                text(" 10.0.0.0/8, 192.168.1.5,"),
                "10.0.0.0/8,192.168.1.5",
            ),
            (Kind::Secrets, text("key-one, key-two"), "***,***"),
        ];
        for (kind, raw, right) in table {
            assert_eq!(shown(kind, &raw).as_deref(), Ok(right), "{kind:?}");
        }
    }

    #[test]
    fn bad_values_say_what_would_be_right() {
        let second = Duration::from_secs(1);
        let table: [(Kind, Raw, &str); 11] = [
            (
                Kind::Address,
                text(":3333"),
                "is \":3333\"; write ADDRESS:PORT, such as 127.0.0.1:3333 or [::]:3333",
            ),
            (Kind::Flag, text("yes"), "is \"yes\"; write true or false"),
            (Kind::Count(1, 10), text("11"), "is 11; must be from 1 to 10"),
            (Kind::Count(1, 10), text("-1"), "is \"-1\"; write a whole number"),
            (
                Kind::Bytes(0, 10),
                text("1XB"),
                "is \"1XB\"; write a number of bytes, such as 16KiB or 1MiB",
            ),
            (
                Kind::Span(second, second * 60),
                text("2m"),
                "is 2m; must be from 1s to 1m",
            ),
            (
                Kind::Span(second, second * 60),
                Raw::Number(5.into()),
                "is 5; write a time span with its unit in quotes, such as \"5s\"",
            ),
            (
                Kind::SpanOrOff(second, second * 60),
                text("2m"),
                "is 2m; must be from 1s to 1m, or \"off\"",
            ),
            (
                Kind::Choice(&["a", "b"]),
                text("c"),
                "is \"c\"; must be one of: a, b",
            ),
            (
                Kind::Secrets,
                text("one,,three"),
                "has an empty entry at position 2; an empty key never opens the API, remove it",
            ),
            (
                Kind::Secrets,
                text("sesame öffne"),
                "has an entry at position 1 that no HTTP header can carry; use letters, digits and signs only",
            ),
        ];
        for (kind, raw, right) in table {
            assert_eq!(shown(kind, &raw), Err(right.to_owned()), "{kind:?}");
        }
    }

    #[test]
    fn texts_of_the_environment_become_json_where_they_read_as_it() {
        let table = [
            ("20", serde_json::json!(20)),
            ("true", serde_json::json!(true)),
            ("[\"1m\",\"5m\"]", serde_json::json!(["1m", "5m"])),
            ("72h", serde_json::json!("72h")),
            ("\"20\"", serde_json::json!("\"20\"")),
        ];
        for (written, right) in table {
            assert_eq!(text(written).into_json(true), right, "{written}");
        }
    }
}
