//! What an attempt says about its receiver's health.

use crate::outcome::{Answer, Outcome};

/// Kinds of outcome, as a breaker sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// 2xx: the only thing that speaks for the receiver.
    Success,
    /// Broken or unreachable.
    Failure,
    /// It answered, and will answer the same again: a wrong URL or token, or this one event.
    Permanent,
    /// 429: it is well, and asks for less. Hold and window see to that.
    Limited,
}

impl Seen {
    /// `None` when the receiver is not to blame.
    pub(super) fn of(outcome: &Outcome, permanent: bool) -> Option<Self> {
        match outcome {
            Outcome::Answered(Answer {
                status: 200..=299, ..
            }) => Some(Self::Success),
            Outcome::Answered(_) if permanent => Some(Self::Permanent),
            Outcome::Answered(Answer { status: 429, .. }) => Some(Self::Limited),
            Outcome::Answered(_) => Some(Self::Failure),
            Outcome::Failed(kind) if !kind.blames_receiver() => None,
            Outcome::Failed(_) if permanent => Some(Self::Permanent),
            Outcome::Failed(_) => Some(Self::Failure),
        }
    }
}

/// The outcome in a word or a number, for reasons.
pub(super) fn detail(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answered(answer) => answer.status.to_string(),
        Outcome::Failed(kind) => kind.as_str().to_owned(),
    }
}
