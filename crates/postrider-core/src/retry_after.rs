//! `Retry-After`: how long a receiver asks to be left alone.
//!
//! Pure parsing: what the value means for a delivery or a destination is [`crate::policy`]'s business, the cap
//! included. A value that is not understood is no value at all, so that a broken header never stops a delivery.

use std::time::{Duration, SystemTime};

use crate::time::{Timestamp, since_epoch};

/// Longer values are garbage; the longest form that is understood has about 35 bytes.
const MAX_BYTES: usize = 64;

/// The delay that a `Retry-After` value asks for, counted from the moment of the answer, in whole milliseconds.
///
/// Understood are the two forms of RFC 9110 §10.2.3, seconds and HTTP-date (§5.6.7: IMF-fixdate, RFC 850,
/// asctime), and two that are found in practice: decimal seconds, rounded up to the millisecond, and an
/// ISO 8601 instant with offset (RFC 3339).
///
/// A date is measured against `date`, the response's own `Date`, when that is a valid HTTP-date, because the
/// receiver's clock may differ from ours; otherwise against `now`. A date that has passed means zero. Negative
/// numbers, an empty value, numbers beyond the range of milliseconds, and everything else are `None`.
#[must_use]
pub fn parse(value: &[u8], date: Option<&[u8]>, now: Timestamp) -> Option<Duration> {
    let text = header_text(value)?;
    if let Some(delay) = seconds(text) {
        return Some(delay);
    }
    let until = http_date(text).or_else(|| iso_instant(text))?;
    let from = date.and_then(header_text).and_then(http_date).unwrap_or(now);
    Some(until.since(from))
}

fn header_text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    (!text.is_empty() && text.len() <= MAX_BYTES).then_some(text)
}

fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let (kept, rest) = fraction.split_at(fraction.len().min(3));
    let millis: u64 = format!("{kept:0<3}").parse().ok()?;
    let rounded_up = u64::from(rest.bytes().any(|digit| digit != b'0'));
    let total = whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(millis + rounded_up)?;
    Some(Duration::from_millis(total))
}

fn http_date(text: &str) -> Option<Timestamp> {
    let instant = httpdate::parse_http_date(text).ok()?;
    let since_epoch = instant.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::EPOCH.plus(since_epoch))
}

fn iso_instant(text: &str) -> Option<Timestamp> {
    let millis = since_epoch(text)?.as_millis();
    Some(Timestamp::from_millis(i64::try_from(millis).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06T08:49:37Z, the instant of RFC 9110's examples.
    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000);

    fn parsed(value: &str) -> Option<Duration> {
        parse(value.as_bytes(), None, NOW)
    }

    #[test]
    fn seconds_whole_and_decimal() {
        let table = [
            ("30", 30_000),
            ("5", 5_000),
            ("20", 20_000),
            ("0", 0),
            ("1.5", 1_500),
            ("0.0001", 1),
            ("1.9999", 2_000),
            ("2.000", 2_000),
            ("007", 7_000),
            (" 120\t", 120_000),
            ("9999999999", 9_999_999_999_000),
        ];
        for (value, millis) in table {
            assert_eq!(parsed(value), Some(Duration::from_millis(millis)), "{value:?}");
        }
    }

    #[test]
    fn what_is_not_a_delay_is_ignored() {
        let table = [
            "",
            " ",
            "-5",
            "+5",
            "-0",
            "abc",
            "99999999999999999999",
            "18446744073709552",
            "1e3",
            "1.",
            ".5",
            "1.5.5",
            "1,5",
            "5s",
            "0x10",
            "NaN",
            "inf",
            "2026-01-01",
            "2026-01-01T12:00:00",
            "Sun, 06 Nov 1994 08:49:37",
            "Mon, 06 Nov 1994 08:50:22 GMT",
            "Sun, 31 Feb 1994 08:50:22 GMT",
        ];
        for value in table {
            assert_eq!(parsed(value), None, "{value:?}");
        }
        assert_eq!(parse(b"\xff\xfe5", None, NOW), None);
        assert_eq!(parse(&[b'1'; 100_000], None, NOW), None);
    }

    #[test]
    fn dates_in_every_form_give_45_seconds() {
        let forms = [
            "Sun, 06 Nov 1994 08:50:22 GMT",
            "Sunday, 06-Nov-94 08:50:22 GMT",
            "Sun Nov  6 08:50:22 1994",
            "1994-11-06T08:50:22Z",
            "1994-11-06T09:50:22+01:00",
            "1994-11-06t08:50:22.000z",
            "19941106T085022Z",
        ];
        for form in forms {
            assert_eq!(parsed(form), Some(Duration::from_secs(45)), "{form}");
        }
    }

    #[test]
    fn a_date_is_measured_against_the_receivers_own_clock() {
        let forms = [
            "Sun, 06 Nov 1994 09:50:22 GMT",
            "Sunday, 06-Nov-94 09:50:22 GMT",
            "Sun Nov  6 09:50:22 1994",
            "1994-11-06T09:50:22Z",
        ];
        for form in forms {
            let an_hour_ahead = Some(b"Sun, 06 Nov 1994 09:49:37 GMT".as_slice());
            assert_eq!(
                parse(form.as_bytes(), an_hour_ahead, NOW),
                Some(Duration::from_secs(45)),
                "{form}"
            );
        }
        let broken = Some(b"yesterday".as_slice());
        assert_eq!(
            parse(b"Sun, 06 Nov 1994 08:50:22 GMT", broken, NOW),
            Some(Duration::from_secs(45)),
            "without a valid Date, our clock stands"
        );
        assert_eq!(
            parse(b"45", broken, NOW),
            Some(Duration::from_secs(45)),
            "seconds need no clock"
        );
    }

    #[test]
    fn the_end_of_9999_is_a_date() {
        let until_the_end = Duration::from_millis(253_402_300_799_999 - 784_111_777_000);
        assert_eq!(parsed("9999-12-31T23:59:59.999Z"), Some(until_the_end));
    }

    #[test]
    fn a_date_that_has_passed_means_at_once() {
        assert_eq!(parsed("Sun, 06 Nov 1994 08:49:36 GMT"), Some(Duration::ZERO));
        assert_eq!(parsed("1969-12-31T23:59:59Z"), Some(Duration::ZERO));
    }
}
