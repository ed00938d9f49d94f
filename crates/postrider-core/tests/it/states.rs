//! `docs/states.md` against the enums: whoever adds a state must draw and explain it.

use std::collections::BTreeSet;

use postrider_core::alert::{AlertKind, AlertState, Severity, Told};
use postrider_core::breaker::{BreakerState, OpenKind};
use postrider_core::delivery::{DeadReason, DelayCause, DeliveryStatus, Tier, WaitCause};
use postrider_core::dispatcher::Standing;
use postrider_core::outcome::{Category, ErrorKind};
use postrider_core::replay::ReplayState;

const PAGE: &str = include_str!("../../../../docs/states.md");

/// The text from a heading to the next.
fn section(title: &str) -> &'static str {
    let start = PAGE
        .find(&format!("\n## {title}\n"))
        .unwrap_or_else(|| panic!("no section {title}"))
        + 4;
    let length = PAGE[start..].find("\n## ").unwrap_or(PAGE.len() - start);
    &PAGE[start..start + length]
}

/// The cells of a section's table, without its head.
fn rows(title: &str) -> Vec<Vec<&'static str>> {
    section(title)
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

fn first_column(title: &str) -> Vec<String> {
    rows(title)
        .iter()
        .map(|cells| cells[0].trim_matches('`').to_owned())
        .collect()
}

/// The names that the diagram of a section connects.
fn drawn(title: &str) -> BTreeSet<String> {
    section(title)
        .lines()
        .filter_map(|line| line.split_once(" --> "))
        .flat_map(|(from, to)| [from, to.split(':').next().unwrap_or_default()])
        .map(|name| name.trim().to_owned())
        .filter(|name| name != "[*]")
        .collect()
}

fn words<T: ToString>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn every_word_has_its_row() {
    assert_eq!(first_column("Delivery status"), words(DeliveryStatus::ALL));
    assert_eq!(first_column("Dead-letter reason"), words(DeadReason::ALL));
    assert_eq!(first_column("Tier"), words(Tier::ALL));
    assert_eq!(first_column("Cause of a delay"), words(DelayCause::ALL));
    assert_eq!(first_column("Reason to wait"), words(WaitCause::ALL));
    assert_eq!(first_column("Standing of a destination"), words(Standing::ALL));
    assert_eq!(first_column("Category"), words(Category::ALL));
    assert_eq!(first_column("Error"), words(ErrorKind::ALL));
    assert_eq!(first_column("Circuit breaker"), words(BreakerState::ALL));
    assert_eq!(first_column("Breaker trigger"), words(OpenKind::ALL));
    assert_eq!(first_column("Alert"), words(AlertKind::ALL));
    assert_eq!(first_column("Alert state"), words(AlertState::ALL));
    assert_eq!(first_column("Told about an alert"), words(Told::ALL));
    assert_eq!(first_column("Severity of an alert"), words(Severity::ALL));
    assert_eq!(first_column("Replay"), words(ReplayState::ALL));
}

#[test]
fn every_state_is_drawn() {
    assert_eq!(
        drawn("Delivery status"),
        words(DeliveryStatus::ALL).into_iter().collect()
    );
    assert_eq!(drawn("Replay"), words(ReplayState::ALL).into_iter().collect());
    assert_eq!(
        drawn("Circuit breaker"),
        words(BreakerState::ALL).into_iter().collect()
    );
    assert_eq!(drawn("Alert state"), words(AlertState::ALL).into_iter().collect());
}

#[test]
fn each_error_stands_beside_its_category() {
    for cells in rows("Error") {
        let kind: ErrorKind = cells[0].trim_matches('`').parse().unwrap();
        assert_eq!(cells[1].trim_matches('`'), kind.category().as_str(), "{kind}");
    }
}
