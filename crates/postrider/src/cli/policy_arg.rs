//! Policies, outcomes and durations as they are written on a command line.

use std::path::Path;
use std::time::Duration;

use postrider_core::outcome::Outcome;
use postrider_core::policy::{Policies, PolicyChoice, Problem, RawPolicy, RetryPolicy, assume, duration};

/// A policy, and the text that stands for it.
#[derive(Debug, Clone)]
pub struct PolicyArg {
    /// As it was written.
    pub text: String,
    /// What it means, over preset `standard`.
    pub policy: RetryPolicy,
}

/// An outcome that is assumed, and the word that stands for it.
#[derive(Debug, Clone)]
pub struct OutcomeArg {
    /// As it was written.
    pub word: String,
    /// What it means.
    pub outcome: Outcome,
}

/// A policy: the name of a preset, JSON, or `@FILE` with JSON or (by its `.toml` ending) TOML.
///
/// # Errors
/// Names every wrong field.
pub fn policy(text: &str) -> Result<PolicyArg, String> {
    let over = Policies::default();
    let effective = match text.strip_prefix('@') {
        Some(file) => {
            let policy = from_file(Path::new(file), &over)?;
            over.effective(Some(&PolicyChoice::Inline(Box::new(policy))))
        }
        None if text.trim_start().starts_with('{') => over.read_effective(text),
        None => over.effective(Some(&PolicyChoice::Named(text.to_owned()))),
    };
    let effective = effective.map_err(|problems| told(&problems))?;
    Ok(PolicyArg {
        text: text.to_owned(),
        policy: effective.policy,
    })
}

/// A status code, or a kind of error.
///
/// # Errors
/// Says what would be accepted.
pub fn outcome(word: &str) -> Result<OutcomeArg, String> {
    let outcome = assume(word).map_err(|problem| problem.message)?;
    Ok(OutcomeArg {
        word: word.to_owned(),
        outcome,
    })
}

/// A duration such as `250ms`, `30s`, `5m`, `4h`, `2d`.
///
/// # Errors
/// Says what would be accepted.
pub fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

fn from_file(path: &Path, over: &Policies) -> Result<RawPolicy, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
    if path.extension().is_some_and(|ending| ending == "toml") {
        toml::from_str(&text).map_err(|error| format!("{name} is no policy in TOML: {error}"))
    } else {
        RawPolicy::read(&text).map_err(|unread| told(&over.problems(unread)))
    }
}

fn told(problems: &[Problem]) -> String {
    let text = |problem: &Problem| match problem.field.as_str() {
        "retry_policy" => problem.message.clone(),
        _ => problem.to_string(),
    };
    problems.iter().map(text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_preset_or_json_over_standard() {
        assert_eq!(
            policy("batch").unwrap().policy.written().backoff.unwrap().base,
            Some("5s".into())
        );
        let own = policy(r#"{"max_attempts": 3}"#).unwrap().policy;
        assert_eq!(own.max_attempts(), 3);
        assert_eq!(own.written().jitter.as_deref(), Some("full"));
    }

    #[test]
    fn everything_that_is_wrong_is_told() {
        assert!(policy("slow").unwrap_err().contains("use one of: standard, "));
        let told = policy(r#"{"jitter": "some", "max_attempts": 0}"#).unwrap_err();
        assert!(
            told.contains("jitter ") && told.contains("max_attempts "),
            "{told}"
        );
        let told = policy(r#"{"jitter": "some", "foo": 1}"#).unwrap_err();
        assert!(told.contains("foo is ") && told.contains("jitter "), "{told}");
        assert!(
            policy("@/nowhere/p.json")
                .unwrap_err()
                .starts_with("/nowhere/p.json cannot be read: ")
        );
        assert!(outcome("sometimes").is_err());
    }
}
