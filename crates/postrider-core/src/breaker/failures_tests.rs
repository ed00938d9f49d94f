//! The trigger "so many of the last attempts": what opens a breaker, and what is no reason to.

use super::*;

/// However they are spread.
fn wherever() -> BreakerConfig {
    let last = BreakerConfig::default()
        .last
        .map(|last| LastTrigger { in_a_row: 1, ..last });
    BreakerConfig {
        last,
        ..BreakerConfig::default()
    }
}

#[test]
fn five_of_the_last_ten_open_it() {
    let mut rig = Rig::new(wherever());
    let changes = rig.statuses(&[500, 200, 500, 200, 500, 200, 500, 200]);
    assert!(
        changes.iter().all(|change| *change == Change::None),
        "{changes:?}"
    );
    let (reason, until) = opened(&rig.status(503));
    assert_eq!(reason, "5 of the last 9 attempts failed, the last: 503");
    assert_eq!(rig.gate(), Gate::Open(until));
    assert_eq!(rig.breaker.state(rig.now), BreakerState::Open);
    assert_eq!(
        rig.breaker.trouble().map(|trouble| trouble.reason.kind),
        Some(OpenKind::Failures)
    );
}

#[test]
fn of_five_failures_the_newest_four_must_be_in_a_row() {
    let mut rig = Rig::new(BreakerConfig::default());
    let changes = rig.statuses(&[500, 200, 500, 500, 200, 500, 500, 500]);
    assert!(
        changes.iter().all(|change| *change == Change::None),
        "{changes:?}"
    );
    let (reason, _) = opened(&rig.status(502));
    assert_eq!(reason, "7 of the last 9 attempts failed, the last: 502");
    let mut rig = Rig::new(BreakerConfig::default());
    rig.statuses(&[200; 1_000]);
    let changes = rig.statuses(&[500; 5]);
    assert_eq!(
        changes.iter().filter(|change| **change != Change::None).count(),
        1
    );
    assert!(
        matches!(changes[4], Change::Opened { .. }),
        "one that goes down is seen at the fifth"
    );
}

/// Attempts until a breaker opens at a receiver that fails at random, on average over 100 seeds; at ten requests a second.
fn attempts_until_open(config: &BreakerConfig, percent: u64) -> u64 {
    const SEEDS: u64 = 100;
    let total: u64 = (0..SEEDS)
        .map(|seed| {
            let mut rig = Rig::new(*config);
            (1..20_000)
                .find(|n| {
                    rig.wait(Duration::from_millis(100));
                    let fails = hash::mix(seed, *n) % 100 < percent;
                    rig.status(if fails { 500 } else { 200 }) != Change::None
                })
                .unwrap_or(20_000)
        })
        .sum();
    total / SEEDS
}

/// The measurement behind `docs/decisions/0088-failures-in-a-row-open.md`.
#[test]
fn one_failure_in_five_is_no_reason_to_open() {
    let default = BreakerConfig::default();
    let table = |percent| {
        (
            attempts_until_open(&wherever(), percent),
            attempts_until_open(&default, percent),
        )
    };
    assert_eq!(table(100), (5, 5), "down is down");
    let (before, now) = table(50);
    assert!(now <= 30 && before <= 15, "half: {before} and {now}");
    let (before, now) = table(20);
    assert!(before <= 160 && now >= 5 * before, "a fifth: {before} and {now}");
}

#[test]
fn older_failures_fall_out_of_the_last_ten() {
    let mut rig = Rig::new(BreakerConfig {
        rate: None,
        ..BreakerConfig::default()
    });
    // Four failures, then enough successes to push one out, each time.
    rig.statuses(&[500, 500, 500, 500, 200, 200, 200, 200, 200, 200]);
    for _ in 0..50 {
        let changes = rig.statuses(&[200, 500]);
        assert_eq!(changes, [Change::None, Change::None]);
        rig.statuses(&[200; 8]);
    }
}
