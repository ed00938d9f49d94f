//! A point in time as the rest of the crate sees it: UTC, in whole milliseconds.
//!
//! Nothing here reads a clock. Arithmetic saturates, so that no input can overflow.

use std::fmt;
use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::{self, DateTime};
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// 1970-01-01T00:00:00, in UTC wherever it is used.
const EPOCH: DateTime = civil::date(1970, 1, 1).at(0, 0, 0, 0);

/// Milliseconds since 1970-01-01T00:00:00Z. Ordered, cheap to copy, and never in a time zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// A text that is not an instant, shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseTimestampError {
    /// Neither RFC 3339 nor a date.
    #[error("parse {0:?} as an RFC 3339 instant such as 2026-01-31T12:00:00Z")]
    Malformed(String),
    /// An instant, but not of the years 1970 to 9999.
    #[error("use the instant {0:?}: it must lie in the years 1970 to 9999")]
    OutOfRange(String),
}

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// Later than every instant that can be written as RFC 3339 (9999-12-31T23:59:59.999Z).
    pub const MAX: Self = Self(253_402_300_799_999);

    /// From milliseconds since the epoch, clamped to `0..=MAX`.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        if millis < 0 {
            Self(0)
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since the epoch, `0..=MAX`.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, as `webhook-timestamp` wants them.
    #[must_use]
    pub const fn as_seconds(self) -> i64 {
        self.0 / 1000
    }

    /// The first whole second that is not before it.
    #[must_use]
    pub const fn whole_second(self) -> Self {
        Self::from_millis(self.0.saturating_add(999) / 1000 * 1000)
    }

    /// The instant `by` later, at most [`Timestamp::MAX`]. Sub-millisecond parts are dropped.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(duration_millis(by)))
    }

    /// The instant `by` earlier, at least the epoch.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(duration_millis(by)))
    }

    /// How long after `earlier` this is; zero when it is not after it (clocks go backwards).
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Parses RFC 3339, or a plain date `YYYY-MM-DD` as its first instant in UTC.
    ///
    /// # Errors
    /// When the text is neither, or lies outside years 1970 to 9999.
    pub fn parse(text: &str) -> Result<Self, ParseTimestampError> {
        let shortened = || text.chars().take(64).collect();
        let is_date = text.len() == 10 && text.is_ascii();
        let full = if is_date {
            format!("{text}T00:00:00Z")
        } else {
            text.to_owned()
        };
        let since_epoch = since_epoch(&full).ok_or_else(|| ParseTimestampError::Malformed(shortened()))?;
        let millis = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        if since_epoch.is_negative() || millis > Self::MAX.0 {
            return Err(ParseTimestampError::OutOfRange(shortened()));
        }
        Ok(Self(millis))
    }
}

/// How long after the epoch an RFC 3339 instant is; negative before it. From civil time and offset, because jiff's own
/// instants end a day before the year 9999 does, to leave room for time zones.
pub(crate) fn since_epoch(text: &str) -> Option<SignedDuration> {
    let pieces = Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset()?;
    let local = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH);
    local.checked_sub(SignedDuration::from_secs(offset.seconds().into()))
}

fn duration_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Civil time, for the reason that `since_epoch` has.
        let instant = EPOCH.saturating_add(SignedDuration::from_millis(self.0));
        write!(f, "{instant:.3}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_second_is_not_before() {
        for (millis, whole) in [(0, 0), (1, 1_000), (999, 1_000), (1_000, 1_000), (1_001, 2_000)] {
            assert_eq!(Timestamp::from_millis(millis).whole_second().as_millis(), whole);
        }
        assert_eq!(Timestamp::MAX.whole_second(), Timestamp::MAX);
    }

    #[test]
    fn shows_utc_with_milliseconds() {
        assert_eq!(
            Timestamp::from_millis(1_767_225_600_007).to_string(),
            "2026-01-01T00:00:00.007Z"
        );
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn parses_offsets_and_dates() {
        let noon = Timestamp::from_millis(1_767_268_800_000);
        assert_eq!(Timestamp::parse("2026-01-01T12:00:00Z"), Ok(noon));
        assert_eq!(Timestamp::parse("2026-01-01T17:30:00+05:30"), Ok(noon));
        assert_eq!(
            Timestamp::parse("2026-01-01"),
            Ok(Timestamp::from_millis(1_767_225_600_000))
        );
    }

    #[test]
    fn refuses_what_is_not_an_instant() {
        for text in [
            "",
            "tomorrow",
            "2026-13-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T12:00:00",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_instant_of_another_time_is_told_from_nonsense() {
        for text in [
            "1969-12-31T23:59:59Z",
            "1969-12-31T23:59:59.9999Z",
            "1970-01-01T00:00:00+00:01",
            "0001-01-01",
            "9999-12-31T23:59:59-00:01",
        ] {
            let refused = Timestamp::parse(text);
            let expected = ParseTimestampError::OutOfRange(text.to_owned());
            assert_eq!(refused, Err(expected), "{text}");
        }
    }

    #[test]
    fn the_last_days_of_9999_are_instants() {
        let last = |before_the_end: i64| Ok(Timestamp::from_millis(253_402_300_799_999 - before_the_end));
        for (text, wanted) in [
            ("9999-12-30T22:00:00Z", last(93_599_999)),
            ("9999-12-30T22:00:01Z", last(93_598_999)),
            ("9999-12-31", last(86_399_999)),
            ("9999-12-31T23:59:59.999Z", last(0)),
            ("9999-12-31T23:59:59.9999Z", last(0)),
            ("9999-12-31T23:59:59.999+01:00", last(3_600_000)),
            ("1970-01-01T01:00:00+01:00", Ok(Timestamp::EPOCH)),
        ] {
            assert_eq!(Timestamp::parse(text), wanted, "{text}");
        }
        let shown = Timestamp::MAX.to_string();
        assert_eq!(
            Timestamp::parse(&shown),
            Ok(Timestamp::MAX),
            "what is shown can be read"
        );
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::MAX.plus(Duration::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.minus(Duration::MAX), Timestamp::EPOCH);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
    }
}
