//! Classification: what an outcome means, before any question of when.
//!
//! The defaults follow what status codes say about repeating a request (RFC 9110 §15, RFC 6585 §4, RFC 8470
//! §5.2); a policy's rules come before them, and the first rule that matches decides.

use super::raw::{MatchText, RawRule};
use crate::outcome::{Answer, Category, ErrorKind, Outcome};
use crate::words::words;

words! {
    /// What a rule makes of an outcome that it matches.
    pub enum Then {
        /// Try again, as the policy's tiers say.
        Retry = 0 => "retry",
        /// Give up at once.
        DeadLetter = 1 => "dead_letter",
    }
}

words! {
    /// What 410 Gone does to the destination.
    pub enum OnGone {
        /// It is disabled, with a notice.
        Disable = 0 => "disable",
        /// Nothing: 410 is classified like any other 4xx.
        Ignore = 1 => "ignore",
    }
}

words! {
    /// What becomes of deliveries that are due while their destination's circuit breaker is open.
    pub enum WhileOpen {
        /// They wait.
        Hold = 0 => "hold",
        /// They become dead letters.
        DeadLetter = 1 => "dead_letter",
    }
}

words! {
    /// What an answer does whose RateLimit fields say that nothing remains.
    pub enum RateLimitFields {
        /// Nothing.
        Ignore = 0 => "ignore",
        /// No request goes to the destination until there is more.
        Hold = 1 => "hold",
    }
}

words! {
    /// What becomes of an event for a destination that is disabled.
    pub enum OnDisabled {
        /// Its delivery is a dead letter, which can be sent once the destination is enabled.
        DeadLetter = 0 => "dead_letter",
        /// Its delivery is canceled.
        Discard = 1 => "discard",
    }
}

/// What one word of a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// `404`
    Code(u16),
    /// `4xx`: the hundreds digit.
    Class(u16),
    /// `timeout`, `rate_limited`
    Category(Category),
    /// `connect_refused`
    Kind(ErrorKind),
}

/// One rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) matches: Vec<Match>,
    pub(super) then: Then,
    /// No further retry of a matching outcome after so many scheduled attempts.
    pub(super) max_attempts: Option<u32>,
}

/// What is to be done about a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Permanent,
    /// Retry while fewer than so many scheduled attempts were made.
    Retry(u32),
}

/// The class of a failure that rules may decide.
pub(super) fn classify(rules: &[Rule], max_attempts: u32, outcome: &Outcome) -> Class {
    let matching = rules
        .iter()
        .find(|rule| rule.matches.iter().any(|word| word.matches(outcome)));
    match matching {
        Some(Rule {
            then: Then::DeadLetter,
            ..
        }) => Class::Permanent,
        Some(Rule {
            then: Then::Retry,
            max_attempts: limit,
            ..
        }) => Class::Retry(limit.unwrap_or(max_attempts).min(max_attempts)),
        None if is_transient(outcome) => Class::Retry(max_attempts),
        None => Class::Permanent,
    }
}

const fn is_transient(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Answered(Answer { status, .. }) => matches!(status, 408 | 425 | 429 | 500..),
        Outcome::Failed(kind) => !matches!(kind, ErrorKind::BlockedAddress | ErrorKind::InvalidRequest),
    }
}

/// Whether a second try within a second often cures it: a broken connection, or a gateway that has just lost the
/// server behind it and does not ask for patience. Never 429, never a timeout: those need the time.
pub(super) const fn is_momentary(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Answered(answer) => matches!(answer.status, 502..=504) && answer.retry_after.is_none(),
        Outcome::Failed(kind) => matches!(
            kind,
            ErrorKind::ConnectRefused
                | ErrorKind::ConnectFailed
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionClosed
        ),
    }
}

impl Rule {
    pub(super) fn written(&self) -> RawRule {
        RawRule {
            matches: self.matches.iter().map(|word| MatchText(word.word())).collect(),
            then: self.then.as_str().into(),
            max_attempts: self.max_attempts.map(i64::from),
        }
    }
}

impl Match {
    /// Parses one word: a code, a class, a category or an error kind. Where a category and a kind share a word
    /// (`timeout`), it is the category, the wider of the two.
    pub(super) fn parse(word: &str) -> Result<Self, String> {
        if let Some(code) = digits(word, 3) {
            return match code {
                200..=299 => Err(format!("{word} is always a success; remove it")),
                300..=999 => Ok(Self::Code(code)),
                _ => Err(format!(
                    "{word} is not a final status code; use one from 300 to 999"
                )),
            };
        }
        if let Some(class) = word.strip_suffix("xx").and_then(|class| digits(class, 1)) {
            return match class {
                3..=5 => Ok(Self::Class(class)),
                2 => Err("2xx is always a success; remove it".into()),
                _ => Err(format!("{word} is no class of status codes; use 3xx, 4xx or 5xx")),
            };
        }
        let category = word
            .parse()
            .ok()
            .filter(|category| decidable(*category))
            .map(Self::Category);
        let kind = || {
            word.parse()
                .ok()
                .filter(|kind: &ErrorKind| decidable(kind.category()))
                .map(Self::Kind)
        };
        category.or_else(kind).ok_or_else(|| {
            format!(
                "{word:?} matches nothing; use a status code (404), a class (5xx), or one of: {}",
                known_words()
            )
        })
    }

    /// The word that it was parsed from.
    pub(super) fn word(self) -> String {
        match self {
            Self::Code(code) => code.to_string(),
            Self::Class(class) => format!("{class}xx"),
            Self::Category(category) => category.as_str().into(),
            Self::Kind(kind) => kind.as_str().into(),
        }
    }

    fn matches(self, outcome: &Outcome) -> bool {
        match self {
            Self::Code(code) => outcome.code() == Some(code),
            Self::Class(class) => outcome.code().is_some_and(|code| code / 100 == class),
            Self::Category(category) => outcome.category() == category,
            Self::Kind(kind) => *outcome == Outcome::Failed(kind),
        }
    }
}

/// Whether a rule may decide about it: a success, a refused address, an event that cannot be sent and a failure of
/// our own mean the same under every policy.
const fn decidable(category: Category) -> bool {
    !matches!(
        category,
        Category::Success
            | Category::BlockedAddress
            | Category::InvalidRequest
            | Category::Internal
            | Category::NotAttempted
    )
}

fn known_words() -> String {
    let categories = Category::ALL
        .iter()
        .filter(|category| decidable(**category))
        .map(|word| word.as_str());
    let kinds = ErrorKind::ALL
        .iter()
        .filter(|kind| decidable(kind.category()))
        .map(|word| word.as_str());
    let mut words: Vec<_> = categories.chain(kinds).collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

fn digits(text: &str, count: usize) -> Option<u16> {
    let all = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}
