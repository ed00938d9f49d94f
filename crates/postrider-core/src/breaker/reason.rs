//! Why a breaker is open.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The trigger that opened a breaker.
    pub enum OpenKind {
        /// Too many of the last attempts failed.
        Failures = 1 => "failures",
        /// Too large a share of the attempts of the last minute failed.
        FailureRate = 2 => "failure_rate",
        /// Answers took too long.
        Slow = 3 => "slow",
        /// Permanent failures in a row: the URL or a token is wrong.
        Misconfigured = 4 => "misconfigured",
    }
}

/// The trigger, and what happened in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The trigger.
    pub kind: OpenKind,
    /// For people, as "5 of the last 10 attempts failed, the last: timeout".
    pub text: String,
}
