//! A policy as it is written: in the configuration file, in a named policy, inline on a destination.
//!
//! Everything is optional, because a policy may say only what differs from the ones below it. Nothing is checked here
//! but the shape; [`super::resolve`] judges the values, so that all that is wrong is reported at once.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::duration::DurationText;

/// The written form of a retry policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawPolicy {
    /// Start from this preset instead of the policy below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Retries at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immediate: Option<RawImmediate>,
    /// The delays of scheduled retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<RawBackoff>,
    /// The slow tier at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_term: Option<RawLongTerm>,
    /// `none`, `full`, `equal`, `decorrelated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// Scheduled attempts, the first one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// The window since publish in which attempts are planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age: Option<DurationText>,
    /// The longest `Retry-After` that is honoured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_max: Option<DurationText>,
    /// Factor of the delay after a 429 without `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limited_multiplier: Option<f64>,
    /// `disable`, `ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_gone: Option<String>,
    /// `hold`, `dead_letter`: what is due while the circuit breaker is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub while_open: Option<String>,
    /// With `hold`: after so long without a success what is due becomes a dead letter; zero never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_after: Option<DurationText>,
    /// `ignore`, `hold`: what a receiver's RateLimit fields do when nothing remains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit_fields: Option<String>,
    /// `dead_letter`, `discard`: events for the destination while it is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_disabled: Option<String>,
    /// Classification before the defaults; the first match wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<RawRule>>,
}

/// Tier `immediate`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawImmediate {
    /// How many for each scheduled attempt; 0 switches the tier off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
    /// Shortest delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_delay: Option<DurationText>,
    /// Longest delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<DurationText>,
}

/// Tier `backoff`: `base`, `multiplier`, `max_delay`; or `schedule`; or `curve`, `min_delay`, `max_delay`, `retries`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawBackoff {
    /// First delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<DurationText>,
    /// Factor from one delay to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    /// Longest delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<DurationText>,
    /// The delays one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Vec<DurationText>>,
    /// `linear`, `arithmetic`, `geometric`, `exponential`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<String>,
    /// First delay of a curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_delay: Option<DurationText>,
    /// Retries from the first to the longest delay of a curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
}

/// Tier `long_term`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawLongTerm {
    /// False switches the tier off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Age at which it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<DurationText>,
    /// Its delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<DurationText>,
}

/// One rule of classification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRule {
    /// Codes, classes, categories, error kinds.
    #[serde(rename = "match")]
    pub matches: Vec<MatchText>,
    /// `retry`, `dead_letter`.
    pub then: String,
    /// At most so many scheduled attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
}

/// One word of a rule; a status code may be written as a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchText(pub String);

impl<'de> Deserialize<'de> for MatchText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl de::Visitor<'_> for Word {
            type Value = MatchText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word to match, such as \"404\", \"5xx\" or \"timeout\"")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<MatchText, E> {
                Ok(MatchText(word.into()))
            }

            fn visit_i64<E: de::Error>(self, code: i64) -> Result<MatchText, E> {
                Ok(MatchText(code.to_string()))
            }

            fn visit_u64<E: de::Error>(self, code: u64) -> Result<MatchText, E> {
                Ok(MatchText(code.to_string()))
            }
        }
        deserializer.deserialize_any(Word)
    }
}
