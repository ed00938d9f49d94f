//! Something that happens again and again, told at most once a window, and when it becomes critical.

use std::time::Duration;

use super::level::{Firing, Transition};
use super::{Severity, Told};
use crate::time::Timestamp;

/// It is told at most once within this unless it becomes critical, and over when it did not happen for as long.
pub const WINDOW: Duration = Duration::from_secs(3_600);

/// So many times since it was raised are critical.
const CRITICAL_COUNT: u64 = 100;

/// One alert about something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recurrence(Option<Seen>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    firing: Firing,
    /// How often it happened since it was raised.
    count: u64,
    last_at: Timestamp,
}

impl Recurrence {
    /// As it was kept. When it last happened is not: the window is counted from when it was last told.
    #[must_use]
    pub const fn restore(firing: Firing) -> Self {
        Self(Some(Seen {
            firing,
            count: firing.value,
            last_at: firing.told_at,
        }))
    }

    /// What is known of it while it fires.
    #[must_use]
    pub fn firing(&self) -> Option<&Firing> {
        self.0.as_ref().map(|seen| &seen.firing)
    }

    /// It happened so many times more. The first time raises it; after that it is told as worse, once a window, and when it
    /// becomes critical.
    pub fn happened(&mut self, times: u64, now: Timestamp) -> Option<Transition> {
        let Some(seen) = &mut self.0 else {
            let firing = Firing {
                since: now,
                told_at: now,
                value: times,
                severity: severity(times),
            };
            *self = Self::restore(firing);
            let told = Told::Raised;
            return Some(Transition { told, firing });
        };
        seen.count = seen.count.saturating_add(times);
        seen.last_at = now.max(seen.last_at);
        let becomes_critical = severity(seen.count) > seen.firing.severity;
        if now.since(seen.firing.told_at) < WINDOW && !becomes_critical {
            return None;
        }
        seen.firing = Firing {
            since: seen.firing.since,
            told_at: now,
            value: seen.count,
            severity: severity(seen.count),
        };
        Some(Transition {
            told: Told::Worsened,
            firing: seen.firing,
        })
    }

    /// Clears it when it has not happened for a window. To be called now and then.
    pub fn rest(&mut self, now: Timestamp) -> Option<Transition> {
        let is_over = self.0.is_some_and(|seen| now.since(seen.last_at) >= WINDOW);
        is_over.then(|| self.clear(now)).flatten()
    }

    /// Clears it: what it was about is gone.
    pub fn clear(&mut self, now: Timestamp) -> Option<Transition> {
        let Seen { firing, count, .. } = self.0.take()?;
        Some(Transition {
            told: Told::Cleared,
            firing: Firing {
                told_at: now.max(firing.told_at),
                value: count,
                ..firing
            },
        })
    }
}

const fn severity(count: u64) -> Severity {
    if count >= CRITICAL_COUNT {
        Severity::Critical
    } else {
        Severity::Warning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn at(minutes: u64) -> Timestamp {
        START.plus(Duration::from_secs(minutes * 60))
    }

    fn seen(transition: Option<Transition>) -> Option<(Told, u64, Severity, u64)> {
        let Transition { told, firing } = transition?;
        let since = firing.since.since(START).as_secs() / 60;
        Some((told, firing.value, firing.severity, since))
    }

    #[test]
    fn it_is_told_once_a_window_and_ends_after_a_quiet_one() {
        use Severity::{Critical, Warning};
        let mut exhausted = Recurrence::default();
        assert_eq!(seen(exhausted.rest(at(0))), None);
        assert_eq!(
            seen(exhausted.happened(1, at(0))),
            Some((Told::Raised, 1, Warning, 0))
        );
        assert_eq!(seen(exhausted.happened(7, at(1))), None);
        assert_eq!(seen(exhausted.happened(2, at(59))), None);
        assert_eq!(
            seen(exhausted.happened(90, at(60))),
            Some((Told::Worsened, 100, Critical, 0))
        );
        assert_eq!(seen(exhausted.happened(5, at(61))), None);
        assert_eq!(seen(exhausted.rest(at(120))), None, "59 minutes of quiet");
        assert_eq!(
            seen(exhausted.rest(at(121))),
            Some((Told::Cleared, 105, Critical, 0))
        );
        assert_eq!(
            seen(exhausted.happened(1, at(122))),
            Some((Told::Raised, 1, Warning, 122))
        );
    }

    #[test]
    fn it_is_told_at_once_when_it_becomes_critical() {
        use Severity::{Critical, Warning};
        let mut exhausted = Recurrence::default();
        assert_eq!(
            seen(exhausted.happened(1, at(0))),
            Some((Told::Raised, 1, Warning, 0))
        );
        assert_eq!(seen(exhausted.happened(98, at(1))), None);
        assert_eq!(
            seen(exhausted.happened(300, at(1))),
            Some((Told::Worsened, 399, Critical, 0))
        );
        assert_eq!(seen(exhausted.happened(300, at(2))), None, "once");
    }

    #[test]
    fn a_clock_that_goes_back_tells_nothing_twice_and_ends_nothing() {
        let mut exhausted = Recurrence::default();
        exhausted.happened(1, at(100));
        assert_eq!(seen(exhausted.happened(1, at(0))), None);
        assert_eq!(seen(exhausted.rest(at(99))), None);
        let cleared = exhausted.clear(at(5)).unwrap();
        assert_eq!((cleared.firing.since, cleared.firing.told_at), (at(100), at(100)));
        assert_eq!(cleared.firing.value, 2);
    }

    #[test]
    fn a_restored_one_is_not_raised_again() {
        let mut before = Recurrence::default();
        let firing = before.happened(3, at(0)).unwrap().firing;
        let mut after = Recurrence::restore(firing);
        assert_eq!(seen(after.happened(1, at(10))), None);
        assert_eq!(after.firing(), Some(&firing));
        assert_eq!(
            seen(after.rest(at(70))),
            Some((Told::Cleared, 4, Severity::Warning, 0))
        );
    }
}
