//! Time spans as people write them: `500ms`, `5s`, `1m30s`, `72h`, `5d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses whole numbers with units, largest first or not, without spaces.
///
/// # Errors
/// What would be right.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let refused = || format!("is {text:?}; write a time span such as 500ms, 5s, 1m30s, 72h or 5d");
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut millis = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
        let number: u64 = rest[..digits].parse().map_err(|_| refused())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = UNITS
            .iter()
            .find(|(name, _)| *name == &rest[..letters])
            .ok_or_else(refused)?;
        rest = &rest[letters..];
        let part = number.checked_mul(unit.1).ok_or_else(refused)?;
        millis = millis.checked_add(part).ok_or_else(refused)?;
    }
    if text.trim().is_empty() {
        Err(refused())
    } else {
        Ok(Duration::from_millis(millis))
    }
}

/// The shortest text that [`parse_span`] reads as the same span.
#[must_use]
pub fn show_span(span: Duration) -> String {
    let mut rest = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, millis) in UNITS {
        let count = rest / millis;
        rest %= millis;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_shown() {
        let table = [
            ("500ms", 500, "500ms"),
            ("5s", 5_000, "5s"),
            ("90s", 90_000, "1m30s"),
            ("1m30s", 90_000, "1m30s"),
            ("72h", 259_200_000, "3d"),
            ("1d1ms", 86_400_001, "1d1ms"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
        ];
        for (text, millis, shown) in table {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_span(Duration::from_millis(millis)), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "5 s",
            "5.5s",
            "-5s",
            "5sec",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }
}
