//! Everything that is wrong with a configuration, told at once.

use std::fmt;

use super::sources::Origin;

/// One thing that is wrong: which key, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    subject: String,
    text: String,
}

impl Problem {
    /// About a key that was written somewhere.
    #[must_use]
    pub fn at(path: &str, origin: &Origin, text: impl Into<String>) -> Self {
        Self {
            subject: format!("{path} ({origin})"),
            text: text.into(),
        }
    }

    /// About something else.
    #[must_use]
    pub fn about(subject: &str, text: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.text)
    }
}

/// A configuration that cannot be used. `Display` fits after "failed to".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.problems.as_slice() {
            return write!(f, "read the configuration: {problem}");
        }
        write!(f, "read the configuration: {} problems", self.problems.len())?;
        self.problems
            .iter()
            .try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigError {}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
        }
    }
}
