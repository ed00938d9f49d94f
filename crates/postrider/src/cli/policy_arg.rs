//! Policies and durations as they are written on a command line.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use postrider_core::policy::duration;
use postrider_core::policy::{Policies, PolicyChoice, RawPolicy, RetryPolicy};

/// A policy: the name of a preset, JSON, or `@FILE` with JSON or (by its `.toml` ending) TOML.
///
/// # Errors
/// Names every wrong field.
pub fn policy(text: &str) -> anyhow::Result<RetryPolicy> {
    let choice = match text.strip_prefix('@') {
        Some(file) => PolicyChoice::Inline(Box::new(from_file(Path::new(file))?)),
        None if text.trim_start().starts_with('{') => {
            let raw =
                serde_json::from_str(text).with_context(|| format!("failed to read the policy {text}"))?;
            PolicyChoice::Inline(Box::new(raw))
        }
        None => PolicyChoice::Named(text.to_owned()),
    };
    let effective = Policies::default().effective(Some(&choice)).map_err(|problems| {
        let lines: Vec<_> = problems
            .iter()
            .map(|p| format!("{}: {}", p.field, p.message))
            .collect();
        anyhow!("failed to use the policy {text}: {}", lines.join("; "))
    })?;
    Ok(effective.policy)
}

fn from_file(path: &Path) -> anyhow::Result<RawPolicy> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {name}"))?;
    if path.extension().is_some_and(|ending| ending == "toml") {
        toml::from_str(&text).with_context(|| format!("failed to read {name} as a policy in TOML"))
    } else {
        serde_json::from_str(&text).with_context(|| format!("failed to read {name} as a policy in JSON"))
    }
}

/// A duration such as `250ms`, `30s`, `5m`, `4h`, `2d`.
///
/// # Errors
/// Says what would be accepted.
pub fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}
