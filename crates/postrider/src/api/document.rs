//! The document that filters look at, from the text of an event.
//!
//! RFC 8259 allows texts that a parsed value cannot hold: numbers beyond a double, escapes of half a surrogate pair.
//! Whether an event is accepted must not depend on who filters it, so for filters, and only for them, such a number
//! counts as the largest double and such an escape as U+FFFD. The bytes that are sent stay as they are.

use serde_json::Value;

const REPLACEMENT: &str = "\\ufffd";

/// The value of a valid JSON text of bounded depth; `None` only if it is not one.
pub(super) fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&mended(text)))
        .ok()
}

fn mended(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, kind) = match first {
            '"' => (string(rest), Kind::String),
            '-' | '0'..='9' => (number(rest), Kind::Number),
            _ => (&rest[..first.len_utf8()], Kind::Other),
        };
        match kind {
            Kind::String => mend_string(token, &mut mended),
            Kind::Number => mended.push_str(finite(token)),
            Kind::Other => mended.push_str(token),
        }
        rest = &rest[token.len()..];
    }
    mended
}

enum Kind {
    String,
    Number,
    Other,
}

/// The string that a text begins with, quotes included.
fn string(text: &str) -> &str {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return &text[..=at],
            _ => {}
        }
    }
    text
}

/// The number that a text begins with.
fn number(text: &str) -> &str {
    let is_part = |byte: u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
    let end = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len());
    &text[..end]
}

fn finite(number: &str) -> &str {
    match number.parse::<f64>() {
        Ok(value) if value == f64::INFINITY => "1.7976931348623157e308",
        Ok(value) if value == f64::NEG_INFINITY => "-1.7976931348623157e308",
        _ => number,
    }
}

fn mend_string(string: &str, mended: &mut String) {
    let mut rest = string;
    while let Some(at) = rest.find('\\') {
        mended.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match unit(rest) {
            Some(0xd800..=0xdbff) if matches!(rest.get(6..).and_then(unit), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                mended.push_str(REPLACEMENT);
                rest = &rest[6..];
                continue;
            }
            Some(_) => 6,
            None => 2,
        };
        mended.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    mended.push_str(rest);
}

/// The code unit of an escape `\uXXXX` at the beginning.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_documents_are_what_they_are() {
        assert_eq!(
            value(r#"{"a":[1,"\ud83d\udc0e"]}"#),
            Some(json!({ "a": [1, "🐎"] }))
        );
        assert_eq!(value("{"), None);
    }

    #[test]
    fn numbers_beyond_a_double_count_as_the_largest() {
        let document = value(r#"{"a":1e999,"b":[-2E+400,-1],"c":"1e999","d":1e-999}"#);
        assert_eq!(
            document,
            Some(json!({ "a": f64::MAX, "b": [f64::MIN, -1], "c": "1e999", "d": 0.0 }))
        );
    }

    #[test]
    fn half_a_surrogate_pair_counts_as_the_replacement_character() {
        let document = value(r#"{"\udc00":"\ud800","pair":"\ud83d\udc0e\ud83d","kept":"\\ud800 \" \n ž"}"#);
        let expected = json!({ "\u{fffd}": "\u{fffd}", "pair": "🐎\u{fffd}", "kept": "\\ud800 \" \n ž" });
        assert_eq!(document, Some(expected));
        assert_eq!(
            value(r#"["\ud800\u0041","\ud800\ud800\udc00"]"#),
            Some(json!(["\u{fffd}A", "\u{fffd}\u{10000}"]))
        );
    }
}
