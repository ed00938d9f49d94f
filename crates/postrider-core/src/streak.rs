//! Failures of one destination since its last success: who is told about them, and when it is given up.
//!
//! The breaker forgets within a minute; this counts for days. What waits for a breaker or a hold makes no request and
//! so counts for nothing. It knows neither queues nor clocks; what a failure is follows `docs/decisions/0025-failures-in-a-row.md`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::{Answer, Outcome};
use crate::time::Timestamp;

/// At these shares (percent) of [`StreakConfig::alert_at`] somebody is told.
const LEVELS: [u32; 4] = [50, 70, 90, 100];

/// Fewer failures do not disable, however long they took: two failures in five days are no five days of failing.
pub const MIN_DISABLE_FAILURES: u32 = 10;

/// When to tell, and when to give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreakConfig {
    /// Failures in a row that are alarming; 0 tells nobody.
    pub alert_at: u32,
    /// After so long without a success the destination is disabled; zero never does.
    pub disable_after: Duration,
}

impl Default for StreakConfig {
    /// 100 failures, 5 days.
    fn default() -> Self {
        Self {
            alert_at: 100,
            disable_after: Duration::from_secs(5 * 86_400),
        }
    }
}

/// What one more failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notice {
    /// A share of the alarming number that was reached just now, in percent. Each is told once a streak.
    pub alert: Option<u32>,
    /// It has failed for so long that it is to be disabled. Repeated with each failure until it is.
    pub give_up: bool,
}

/// Failures since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Streak {
    failures: u32,
    since: Option<Timestamp>,
    /// How many of [`LEVELS`] were told.
    told: usize,
}

impl Streak {
    /// Takes in what an attempt saw.
    pub fn finished(&mut self, outcome: &Outcome, now: Timestamp, config: &StreakConfig) -> Notice {
        match outcome {
            Outcome::Answered(Answer {
                status: 200..=299, ..
            }) => {
                *self = Self::default();
                return Notice::default();
            }
            // It is well, and asks for less.
            Outcome::Answered(Answer { status: 429, .. }) => return Notice::default(),
            Outcome::Failed(kind) if !kind.blames_receiver() => return Notice::default(),
            Outcome::Answered(_) | Outcome::Failed(_) => {}
        }
        self.failures = self.failures.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        let is_reached =
            |level: u32| u64::from(self.failures) * 100 >= u64::from(level) * u64::from(config.alert_at);
        let reached = if config.alert_at == 0 {
            0
        } else {
            LEVELS.iter().filter(|level| is_reached(**level)).count()
        };
        let alert = (reached > self.told).then(|| LEVELS[reached - 1]);
        self.told = self.told.max(reached);
        let give_up = !config.disable_after.is_zero()
            && self.failures >= MIN_DISABLE_FAILURES
            && now.since(since) >= config.disable_after;
        Notice { alert, give_up }
    }

    /// How many.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// When the first of them was; `None` when the last attempt succeeded, or there was none.
    #[must_use]
    pub const fn since(&self) -> Option<Timestamp> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::ErrorKind;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    fn fail(streak: &mut Streak, now: Timestamp) -> Notice {
        streak.finished(&Outcome::status(500), now, &StreakConfig::default())
    }

    #[test]
    fn alerts_come_at_50_70_90_and_100_percent_once_each() {
        let mut streak = Streak::default();
        let mut told = Vec::new();
        for n in 1..=250 {
            if let Some(percent) = fail(&mut streak, START).alert {
                told.push((n, percent));
            }
        }
        assert_eq!(told, [(50, 50), (70, 70), (90, 90), (100, 100)]);
    }

    #[test]
    fn a_success_starts_it_afresh() {
        let mut streak = Streak::default();
        for _ in 0..60 {
            fail(&mut streak, START);
        }
        streak.finished(&Outcome::status(204), START, &StreakConfig::default());
        assert_eq!((streak.failures(), streak.since()), (0, None));
        let later = START.plus(DAY);
        let alerts: Vec<_> = (0..50).filter_map(|_| fail(&mut streak, later).alert).collect();
        assert_eq!((alerts, streak.since()), (vec![50], Some(later)));
    }

    #[test]
    fn what_the_receiver_is_not_to_blame_for_counts_for_nothing() {
        let mut streak = Streak::default();
        let config = StreakConfig::default();
        for outcome in [
            Outcome::status(429),
            Outcome::Failed(ErrorKind::Internal),
            Outcome::Failed(ErrorKind::BlockedAddress),
        ] {
            streak.finished(&outcome, START, &config);
        }
        assert_eq!(streak, Streak::default());
        for outcome in [
            Outcome::status(404),
            Outcome::status(503),
            Outcome::Failed(ErrorKind::Timeout),
        ] {
            streak.finished(&outcome, START, &config);
        }
        assert_eq!(streak.failures(), 3);
    }

    #[test]
    fn five_days_of_nothing_but_failure_are_enough() {
        let mut streak = Streak::default();
        for hour in 0..120 {
            assert!(!fail(&mut streak, START.plus(DAY / 24 * hour)).give_up, "{hour}");
        }
        assert!(fail(&mut streak, START.plus(DAY * 5)).give_up);
        assert!(
            fail(&mut streak, START.plus(DAY * 6)).give_up,
            "until it is disabled"
        );
    }

    #[test]
    fn a_few_failures_far_apart_do_not_disable() {
        let mut streak = Streak::default();
        for day in 0..9 {
            assert!(!fail(&mut streak, START.plus(DAY * day)).give_up);
        }
        assert!(fail(&mut streak, START.plus(DAY * 9)).give_up, "the tenth");
    }

    #[test]
    fn both_can_be_turned_off() {
        let off = StreakConfig {
            alert_at: 0,
            disable_after: Duration::ZERO,
        };
        let mut streak = Streak::default();
        for day in 0..1_000 {
            let notice = streak.finished(&Outcome::status(500), START.plus(DAY * day), &off);
            assert_eq!(notice, Notice::default());
        }
    }
}
