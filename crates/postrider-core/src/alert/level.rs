//! A number against a threshold, with room between raising and clearing.

use super::{AlertKind, Severity, Told};
use crate::time::Timestamp;

/// It clears below this share of the threshold, in percent.
const CLEAR_BELOW_PERCENT: u128 = 80;
/// From so many times the threshold on it is critical.
const CRITICAL_FACTOR: u64 = 4;
/// Shares (percent) of the alarming number of failures at which [`crate::streak`] tells; the first is the threshold.
const FAILURE_SHARES: [u64; 4] = [50, 70, 90, 100];

/// When a [`Level`] is alarming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// From this value on it fires; at least 1.
    pub raise: u64,
    /// From this value on it is critical.
    pub critical: u64,
    /// What makes it worse while it fires.
    steps: Steps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// Twice the value that was last told.
    Doubling,
    /// Each of these values.
    At([u64; 3]),
}

impl Threshold {
    /// Of a kind of alert: critical from four times the threshold on, a disabled destination always.
    /// For [`AlertKind::ConsecutiveFailures`] the threshold is the alarming number: it is raised at 50 % of it, worse at 70
    /// and 90, and critical at 100.
    #[must_use]
    pub fn of(kind: AlertKind, threshold: u64) -> Self {
        let raise = threshold.max(1);
        let doubling = |critical| Self {
            raise,
            critical,
            steps: Steps::Doubling,
        };
        match kind {
            AlertKind::DeadLetterDepth
            | AlertKind::DeadLetterGrowth
            | AlertKind::TimeToSuccessP99
            | AlertKind::OldestDueAge
            | AlertKind::RetriesExhausted => doubling(raise.saturating_mul(CRITICAL_FACTOR)),
            AlertKind::BreakerOpen => doubling(u64::MAX),
            AlertKind::DestinationDisabled => doubling(raise),
            AlertKind::ConsecutiveFailures => {
                let [first, rest @ ..] = FAILURE_SHARES.map(|share| share_of(raise, share));
                Self {
                    raise: first,
                    critical: raise,
                    steps: Steps::At(rest),
                }
            }
        }
    }

    fn severity(&self, value: u64) -> Severity {
        if value >= self.critical {
            Severity::Critical
        } else {
            Severity::Warning
        }
    }

    fn is_worse(&self, value: u64, told: u64) -> bool {
        match self.steps {
            Steps::Doubling => value > told && value >= told.saturating_mul(2),
            Steps::At(steps) => {
                let reached = |value| steps.iter().filter(|step| value >= **step).count();
                reached(value) > reached(told)
            }
        }
    }

    fn is_over(&self, value: u64) -> bool {
        value == 0 || u128::from(value) * 100 < u128::from(self.raise) * CLEAR_BELOW_PERCENT
    }
}

/// The least whole number that is at least so many percent of another; at least 1.
fn share_of(whole: u64, percent: u64) -> u64 {
    let share = (u128::from(whole) * u128::from(percent)).div_ceil(100);
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

/// What is known of an alert that fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// Since when.
    pub since: Timestamp,
    /// When it was last told.
    pub told_at: Timestamp,
    /// The value that was last told.
    pub value: u64,
    /// The worst that it has been since it was raised.
    pub severity: Severity,
}

/// Something to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// What.
    pub told: Told,
    /// The alert as it is now; as it was last told, when it cleared.
    pub firing: Firing,
}

/// One alert about a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level(Option<Firing>);

impl Level {
    /// As it was kept.
    #[must_use]
    pub const fn restore(firing: Firing) -> Self {
        Self(Some(firing))
    }

    /// What is known of it while it fires.
    #[must_use]
    pub const fn firing(&self) -> Option<&Firing> {
        self.0.as_ref()
    }

    /// Takes in the number as it is now. The severity never falls while it fires.
    pub fn observe(&mut self, value: u64, now: Timestamp, threshold: &Threshold) -> Option<Transition> {
        let Some(firing) = self.0 else {
            return (value >= threshold.raise).then(|| {
                let firing = Firing {
                    since: now,
                    told_at: now,
                    value,
                    severity: threshold.severity(value),
                };
                self.tell(Told::Raised, firing)
            });
        };
        if threshold.is_over(value) {
            return self.clear(now);
        }
        let severity = threshold.severity(value).max(firing.severity);
        let is_worse = severity > firing.severity || threshold.is_worse(value, firing.value);
        is_worse.then(|| {
            let firing = Firing {
                since: firing.since,
                told_at: now.max(firing.told_at),
                value,
                severity,
            };
            self.tell(Told::Worsened, firing)
        })
    }

    /// Clears it whatever the number is: what it was about is gone.
    pub fn clear(&mut self, now: Timestamp) -> Option<Transition> {
        let firing = self.0.take()?;
        Some(Transition {
            told: Told::Cleared,
            firing: Firing {
                told_at: now.max(firing.told_at),
                ..firing
            },
        })
    }

    fn tell(&mut self, told: Told, firing: Firing) -> Transition {
        self.0 = Some(firing);
        Transition { told, firing }
    }
}

#[cfg(test)]
mod tests {
    use AlertKind::{BreakerOpen, ConsecutiveFailures, DeadLetterDepth, DestinationDisabled};

    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn at(seconds: u64) -> Timestamp {
        START.plus(std::time::Duration::from_secs(seconds))
    }

    /// Each value a second after the one before; what was told, in words.
    fn told(kind: AlertKind, threshold: u64, values: &[u64]) -> Vec<String> {
        let threshold = Threshold::of(kind, threshold);
        let mut level = Level::default();
        let observed = values.iter().zip(0..).filter_map(|(value, second)| {
            let transition = level.observe(*value, at(second), &threshold)?;
            let Transition { told, firing } = transition;
            let since = firing.since.since(START).as_secs();
            Some(format!(
                "{second}: {told} {} {} since {since}",
                firing.value, firing.severity
            ))
        });
        observed.collect()
    }

    /// Name, kind, threshold, values a second apart, what is told.
    type Timeline = (
        &'static str,
        AlertKind,
        u64,
        &'static [u64],
        &'static [&'static str],
    );

    const TIMELINES: [Timeline; 9] = [
        (
            "below the threshold nothing is told",
            DeadLetterDepth,
            100,
            &[0, 50, 99],
            &[],
        ),
        (
            "raised once, cleared below 80 %",
            DeadLetterDepth,
            100,
            &[100, 101, 130, 99, 80, 79, 79],
            &["0: raised 100 warning since 0", "5: cleared 100 warning since 0"],
        ),
        (
            "a number that trembles around the threshold is told once",
            DeadLetterDepth,
            100,
            &[99, 100, 99, 100, 85, 100],
            &["1: raised 100 warning since 1"],
        ),
        (
            "worse with each doubling of what was told",
            DeadLetterDepth,
            100,
            &[150, 299, 300, 599, 600, 700],
            &[
                "0: raised 150 warning since 0",
                "2: worsened 300 warning since 0",
                // Critical from 400 on, although 300 was told.
                "3: worsened 599 critical since 0",
            ],
        ),
        (
            "the severity does not fall while it fires",
            DeadLetterDepth,
            10,
            &[40, 12, 80, 0],
            &[
                "0: raised 40 critical since 0",
                "2: worsened 80 critical since 0",
                "3: cleared 80 critical since 0",
            ],
        ),
        (
            "a threshold of one clears at zero",
            DeadLetterDepth,
            1,
            &[1, 1, 0, 1],
            &[
                "0: raised 1 warning since 0",
                "2: cleared 1 warning since 0",
                "3: raised 1 warning since 3",
            ],
        ),
        (
            "a breaker that opens again after each probe is told once",
            BreakerOpen,
            1,
            &[1, 1, 1, 0],
            &["0: raised 1 warning since 0", "3: cleared 1 warning since 0"],
        ),
        (
            "a disabled destination is critical",
            DestinationDisabled,
            1,
            &[1, 0],
            &["0: raised 1 critical since 0", "1: cleared 1 critical since 0"],
        ),
        (
            "failures in a row at 50, 70, 90 and 100 percent of 100",
            ConsecutiveFailures,
            100,
            &[49, 50, 69, 70, 90, 99, 100, 300, 0],
            &[
                "1: raised 50 warning since 1",
                "3: worsened 70 warning since 1",
                "4: worsened 90 warning since 1",
                "6: worsened 100 critical since 1",
                "8: cleared 100 critical since 1",
            ],
        ),
    ];

    #[test]
    fn timelines() {
        for (name, kind, threshold, values, right) in TIMELINES {
            assert_eq!(told(kind, threshold, values), right, "{name}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_does_not_make_an_alert_end_before_it_began() {
        let threshold = Threshold::of(AlertKind::OldestDueAge, 100);
        let mut level = Level::default();
        level.observe(100, at(60), &threshold);
        let worse = level.observe(200, at(0), &threshold).unwrap();
        assert_eq!((worse.firing.since, worse.firing.told_at), (at(60), at(60)));
        let cleared = level.observe(0, at(30), &threshold).unwrap();
        assert_eq!((cleared.told, cleared.firing.told_at), (Told::Cleared, at(60)));
    }

    #[test]
    fn a_restored_alert_is_not_raised_again() {
        let threshold = Threshold::of(AlertKind::DeadLetterDepth, 100);
        let mut level = Level::default();
        let raised = level.observe(120, at(0), &threshold).unwrap();
        let mut restored = Level::restore(raised.firing);
        assert_eq!(restored.observe(130, at(9), &threshold), None);
        let cleared = restored.observe(10, at(10), &threshold).unwrap();
        assert_eq!((cleared.told, cleared.firing.since), (Told::Cleared, at(0)));
        assert_eq!(restored.clear(at(11)), None, "it is over already");
    }

    #[test]
    fn small_and_huge_thresholds_are_sound() {
        assert_eq!(
            told(AlertKind::DeadLetterDepth, 0, &[0, 1]),
            ["1: raised 1 warning since 1"]
        );
        let huge = u64::MAX;
        assert_eq!(
            told(AlertKind::DeadLetterDepth, huge, &[huge - 1, huge, huge]),
            [format!("1: raised {huge} critical since 1")]
        );
        // 50, 70, 90 and 100 % of 1 are all 1.
        assert_eq!(
            told(AlertKind::ConsecutiveFailures, 1, &[1, 2]),
            ["0: raised 1 critical since 0"]
        );
    }
}
