//! What protects receivers: from the keys of `[breaker]`, `[window]` and `[failures]` to the configurations of core.
//!
//! A trigger is off when its first key is 0. Keys that contradict each other are problems here, since core takes any
//! numbers.

use postrider_core::breaker::{BreakerConfig, LastTrigger, RateTrigger, SlowTrigger};
use postrider_core::streak::StreakConfig;
use postrider_core::window::WindowConfig;

use super::error::Problem;
use super::resolve::Resolved;

/// The circuit breaker of every destination.
pub(super) fn breaker(resolved: &Resolved, problems: &mut Vec<Problem>) -> BreakerConfig {
    let failures: u32 = resolved.count("breaker.failures");
    let attempts: u32 = resolved.count("breaker.last_attempts");
    let percent: u32 = resolved.count("breaker.rate_percent");
    let p95 = resolved.span("breaker.slow_p95");
    let permanent_run: u32 = resolved.count("breaker.permanent_run");
    let (open, max_open) = (resolved.span("breaker.open"), resolved.span("breaker.max_open"));
    if failures > attempts {
        let text = format!(
            "is {failures}, more than the {attempts} attempts of breaker.last_attempts: it could never open"
        );
        problems.push(about(resolved, "breaker.failures", text));
    }
    if open > max_open {
        let text = format!("is shorter than breaker.open ({} s)", open.as_secs());
        problems.push(about(resolved, "breaker.max_open", text));
    }
    BreakerConfig {
        last: (failures > 0).then_some(LastTrigger {
            failures,
            attempts,
            in_a_row: resolved.count("breaker.failures_in_a_row"),
        }),
        rate: (percent > 0).then_some(RateTrigger {
            percent,
            min_attempts: resolved.count("breaker.rate_min_attempts"),
        }),
        slow: (!p95.is_zero()).then_some(SlowTrigger {
            p95,
            min_attempts: resolved.count("breaker.slow_min_attempts"),
        }),
        permanent_run: (permanent_run > 0).then_some(permanent_run),
        window: resolved.span("breaker.look_back"),
        open,
        max_open,
    }
}

/// The window of every destination.
pub(super) fn window(resolved: &Resolved, problems: &mut Vec<Problem>) -> WindowConfig {
    let config = WindowConfig {
        floor: resolved.count("window.floor"),
        initial: resolved.count("window.initial"),
        ceiling: resolved.count("window.ceiling"),
    };
    if config.floor > config.ceiling {
        let text = format!("is {}, above window.ceiling ({})", config.floor, config.ceiling);
        problems.push(about(resolved, "window.floor", text));
    } else if !(config.floor..=config.ceiling).contains(&config.initial) {
        let WindowConfig {
            floor,
            initial,
            ceiling,
        } = config;
        let text = format!("is {initial}; must be from window.floor ({floor}) to window.ceiling ({ceiling})");
        problems.push(about(resolved, "window.initial", text));
    }
    config
}

/// Who is told of failures in a row, and when a destination is given up.
pub(super) fn streak(resolved: &Resolved) -> StreakConfig {
    StreakConfig {
        alert_at: resolved.count("failures.alert_at"),
        disable_after: resolved.span("failures.disable_after"),
    }
}

fn about(resolved: &Resolved, path: &str, text: String) -> Problem {
    Problem::at(path, &resolved.origin(path), text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::settings::Settings;
    use super::super::sources::Environment;
    use super::super::{Sources, load};
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (format!("POSTRIDER_{name}"), (*value).to_owned()));
        let sources = Sources {
            environment: Environment::from_pairs(pairs),
            ..Sources::default()
        };
        load(&sources)
            .map(|loaded| loaded.settings)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_knob_arrives() {
        let settings = settings(&[
            ("BREAKER__FAILURES", "7"),
            ("BREAKER__LAST_ATTEMPTS", "20"),
            ("BREAKER__FAILURES_IN_A_ROW", "6"),
            ("BREAKER__RATE_PERCENT", "80"),
            ("BREAKER__RATE_MIN_ATTEMPTS", "30"),
            ("BREAKER__SLOW_P95", "3s"),
            ("BREAKER__SLOW_MIN_ATTEMPTS", "40"),
            ("BREAKER__PERMANENT_RUN", "50"),
            ("BREAKER__LOOK_BACK", "2m"),
            ("BREAKER__OPEN", "10s"),
            ("BREAKER__MAX_OPEN", "1h"),
            ("WINDOW__FLOOR", "2"),
            ("WINDOW__INITIAL", "8"),
            ("WINDOW__CEILING", "16"),
            ("FAILURES__ALERT_AT", "20"),
            ("FAILURES__DISABLE_AFTER", "3d"),
        ])
        .unwrap();
        let dispatcher = settings.engine.dispatcher;
        let breaker = BreakerConfig {
            last: Some(LastTrigger {
                failures: 7,
                attempts: 20,
                in_a_row: 6,
            }),
            rate: Some(RateTrigger {
                percent: 80,
                min_attempts: 30,
            }),
            slow: Some(SlowTrigger {
                p95: Duration::from_secs(3),
                min_attempts: 40,
            }),
            permanent_run: Some(50),
            window: Duration::from_secs(120),
            open: Duration::from_secs(10),
            max_open: Duration::from_secs(3_600),
        };
        let window = WindowConfig {
            floor: 2,
            initial: 8,
            ceiling: 16,
        };
        assert_eq!((dispatcher.breaker, dispatcher.window), (breaker, window));
        let streak = StreakConfig {
            alert_at: 20,
            disable_after: Duration::from_secs(3 * 86_400),
        };
        assert_eq!(dispatcher.streak, streak);
    }

    #[test]
    fn each_trigger_can_be_turned_off() {
        let settings = settings(&[
            ("BREAKER__FAILURES", "0"),
            ("BREAKER__RATE_PERCENT", "0"),
            ("BREAKER__SLOW_P95", "0s"),
            ("BREAKER__PERMANENT_RUN", "0"),
        ]);
        assert_eq!(settings.unwrap().engine.dispatcher.breaker, BreakerConfig::off());
    }

    #[test]
    fn contradictions_are_named() {
        let table = [
            (
                vec![("BREAKER__FAILURES", "11")],
                "breaker.failures (environment POSTRIDER_BREAKER__FAILURES) is 11, more than the 10 attempts of breaker.last_attempts: it could never open",
            ),
            (
                vec![("BREAKER__MAX_OPEN", "29s")],
                "breaker.max_open (environment POSTRIDER_BREAKER__MAX_OPEN) is shorter than breaker.open (30 s)",
            ),
            (
                vec![("WINDOW__FLOOR", "65")],
                "window.floor (environment POSTRIDER_WINDOW__FLOOR) is 65, above window.ceiling (64)",
            ),
            (
                vec![("WINDOW__CEILING", "3")],
                "window.initial (default) is 4; must be from window.floor (1) to window.ceiling (3)",
            ),
            (
                vec![("WINDOW__CEILING", "0")],
                "window.ceiling (environment POSTRIDER_WINDOW__CEILING) is 0; must be from 1 to 10000",
            ),
        ];
        for (pairs, right) in table {
            let error = settings(&pairs).unwrap_err();
            assert_eq!(error, format!("read the configuration: {right}"));
        }
    }
}
