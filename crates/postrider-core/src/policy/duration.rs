//! Durations as people write them: `"100ms"`, `"30s"`, `"5m"`, `"4h"`, `"2d"`, and `"1h30m"`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units from long to short, with their milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];
/// Longer texts are no durations.
const MAX_BYTES: usize = 64;

/// A duration as it was written, not yet parsed, so that every wrong one can be reported with its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationText(pub String);

/// Why a text is not a duration; a fragment that fits after the field's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// Not numbers with units.
    #[error("must be a duration such as \"500ms\", \"30s\", \"5m\", \"4h\", \"2d\" or \"1h30m\"")]
    Malformed,
    /// A sign in front.
    #[error("must not be negative; write a duration such as \"30s\"")]
    Negative,
    /// A number without a unit.
    #[error("needs a unit; write \"30s\" for 30 seconds")]
    UnitMissing,
    /// More milliseconds than 64 bits hold.
    #[error("is too long to be a duration")]
    Overflow,
}

/// Parses whole numbers with units, each unit at most once, from long to short. Zero is a duration.
///
/// # Errors
/// When the text is anything else, or more than 64 bits of milliseconds.
pub fn parse(text: &str) -> Result<Duration, ParseDurationError> {
    use ParseDurationError::{Malformed, Negative, Overflow, UnitMissing};
    if text.starts_with('-') {
        return Err(Negative);
    }
    if text.is_empty() || text.len() > MAX_BYTES {
        return Err(Malformed);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnitMissing);
    }
    let mut rest = text;
    let mut total = 0_u64;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let (digits, after) = split(rest, |byte| byte.is_ascii_digit());
        let (unit, after) = split(after, |byte| byte.is_ascii_lowercase());
        let (_, millis) = units.find(|(name, _)| *name == unit).ok_or(Malformed)?;
        if digits.is_empty() {
            return Err(Malformed);
        }
        let count: u64 = digits.parse().map_err(|_| Overflow)?;
        let part = count.checked_mul(*millis).ok_or(Overflow)?;
        total = total.checked_add(part).ok_or(Overflow)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

fn split(text: &str, belongs: impl Fn(&u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().take_while(belongs).count())
}

/// The shortest text that [`parse`] reads as `duration` in whole milliseconds: `1h30m`, `90d`, `0s`.
#[must_use]
pub fn text(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut written = String::new();
    for (unit, millis) in UNITS {
        if left >= millis {
            written.push_str(&format!("{}{unit}", left / millis));
            left %= millis;
        }
    }
    if written.is_empty() { "0s".into() } else { written }
}

impl From<Duration> for DurationText {
    fn from(duration: Duration) -> Self {
        Self(text(duration))
    }
}

impl From<&str> for DurationText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = DurationText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"500ms\", \"30s\", \"5m\", \"4h\" or \"2d\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationText, E> {
                Ok(text.into())
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit() {
        let table = [
            ("100ms", 100),
            ("1s", 1_000),
            ("5m", 300_000),
            ("4h", 14_400_000),
            ("2d", 172_800_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90s", 90_000),
            ("0s", 0),
        ];
        for (text, millis) in table {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        use ParseDurationError::{Malformed, Negative, Overflow, UnitMissing};
        let table = [
            ("", Malformed),
            ("-5s", Negative),
            ("30", UnitMissing),
            ("s", Malformed),
            ("5 s", Malformed),
            ("1.5s", Malformed),
            ("5w", Malformed),
            ("5S", Malformed),
            ("1m1h", Malformed),
            ("1s1s", Malformed),
            ("1h30", Malformed),
            ("99999999999999999999s", Overflow),
            ("18446744073709551615d", Overflow),
            ("5m\u{b5}s", Malformed),
        ];
        for (text, error) in table {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for millis in [
            0,
            1,
            999,
            1_000,
            64_000,
            3_600_000,
            5_400_000,
            86_400_000,
            93_784_005,
            u64::MAX,
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(&text(duration)), Ok(duration));
        }
        assert_eq!(text(Duration::from_secs(64)), "1m4s");
        assert_eq!(text(Duration::from_secs(259_200)), "3d");
    }
}
