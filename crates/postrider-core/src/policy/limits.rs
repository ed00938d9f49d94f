//! The bounds of what a policy may ask for, so that every policy that validates is safe to run.

use std::time::Duration;

/// Most scheduled attempts of a delivery.
pub const MAX_ATTEMPTS: u32 = 1_000;
/// Most immediate retries after one scheduled attempt.
pub const MAX_IMMEDIATE_RETRIES: u32 = 10;
/// Longest delay before an immediate retry. Longer ones belong into the backoff.
pub const MAX_IMMEDIATE_DELAY: Duration = Duration::from_secs(60);
/// Longest of all other delays: 30 days.
pub const MAX_DELAY: Duration = Duration::from_secs(30 * 86_400);
/// Longest `max_age`: 90 days.
pub const MAX_AGE: Duration = Duration::from_secs(90 * 86_400);
/// Most entries of an explicit schedule, and most retries of a curve.
pub const MAX_SCHEDULE: usize = 100;
/// Most rules of a policy.
pub const MAX_RULES: usize = 50;
/// Most words of a rule.
pub const MAX_MATCHES: usize = 50;
/// Greatest factor, of `backoff.multiplier` and `rate_limited_multiplier`.
pub const MAX_MULTIPLIER: f64 = 100.0;
