//! When a breaker opens, and for how long.

use std::time::Duration;

/// Thresholds of a breaker. Each trigger that is `None` is off; with all of them off it never opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// So many failures among the last attempts.
    pub last: Option<LastTrigger>,
    /// So large a share of failures within [`BreakerConfig::window`].
    pub rate: Option<RateTrigger>,
    /// So slow answers within [`BreakerConfig::window`].
    pub slow: Option<SlowTrigger>,
    /// So many failures in a row that the policy calls permanent.
    pub permanent_run: Option<u32>,
    /// Over what time `rate` and `slow` look back.
    pub window: Duration,
    /// How long it stays open at first. Jitter adds up to a fifth.
    pub open: Duration,
    /// The longest that it stays open, jitter included: each failed probe doubles the time up to here.
    pub max_open: Duration,
}

/// `failures` among the last `attempts` (at most [`LastTrigger::MAX_ATTEMPTS`]), the newest of them in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastTrigger {
    /// Opens at this many.
    pub failures: u32,
    /// Looks at this many.
    pub attempts: u32,
    /// So many of the newest attempts must all have failed, at most `failures`: a receiver that is down fails every time,
    /// one that fails now and then does not.
    pub in_a_row: u32,
}

impl LastTrigger {
    /// Most attempts that can be looked at.
    pub const MAX_ATTEMPTS: u32 = 64;
}

/// More than `percent` of at least `min_attempts` failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateTrigger {
    /// Opens above this share.
    pub percent: u32,
    /// Fewer attempts say nothing.
    pub min_attempts: u32,
}

/// The 95th percentile of at least `min_attempts` latencies is above `p95`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowTrigger {
    /// Opens above this latency.
    pub p95: Duration,
    /// Fewer attempts say nothing. With 20, one slow answer is not enough.
    pub min_attempts: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            last: Some(LastTrigger {
                failures: 5,
                attempts: 10,
                in_a_row: 4,
            }),
            rate: Some(RateTrigger {
                percent: 50,
                min_attempts: 10,
            }),
            slow: Some(SlowTrigger {
                p95: Duration::from_secs(10),
                min_attempts: 20,
            }),
            permanent_run: Some(10),
            window: Duration::from_secs(60),
            open: Duration::from_secs(30),
            max_open: Duration::from_secs(600),
        }
    }
}

impl BreakerConfig {
    /// A breaker that never opens.
    #[must_use]
    pub fn off() -> Self {
        Self {
            last: None,
            rate: None,
            slow: None,
            permanent_run: None,
            ..Self::default()
        }
    }
}
