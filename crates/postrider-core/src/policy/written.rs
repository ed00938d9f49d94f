//! A policy written out again: what answers show, and what a dead letter keeps of the policy that was in force.

use super::RetryPolicy;
use super::backoff::Shape;
use super::classify::Rule;
use super::duration::DurationText;
use super::raw::{RawBackoff, RawImmediate, RawLongTerm, RawPolicy};

/// The written form, every value set.
pub(super) fn written(policy: &RetryPolicy) -> RawPolicy {
    let backoff = match policy.backoff.shape() {
        Shape::Exponential {
            base,
            multiplier,
            max_delay,
        } => RawBackoff {
            base: Some((*base).into()),
            multiplier: Some(*multiplier),
            max_delay: Some((*max_delay).into()),
            ..RawBackoff::default()
        },
        Shape::Schedule(delays) => RawBackoff {
            schedule: Some(delays.iter().copied().map(DurationText::from).collect()),
            ..RawBackoff::default()
        },
        Shape::Curve {
            curve,
            min_delay,
            max_delay,
            retries,
        } => RawBackoff {
            curve: Some(curve.as_str().into()),
            min_delay: Some((*min_delay).into()),
            max_delay: Some((*max_delay).into()),
            retries: Some(i64::from(*retries)),
            ..RawBackoff::default()
        },
    };
    let long_term = RawLongTerm {
        enabled: Some(policy.long_term.is_some()),
        after: policy.long_term.map(|slow| slow.after.into()),
        interval: policy.long_term.map(|slow| slow.interval.into()),
    };
    RawPolicy {
        preset: None,
        immediate: Some(RawImmediate {
            retries: Some(i64::from(policy.immediate.retries)),
            min_delay: Some(policy.immediate.min_delay.into()),
            max_delay: Some(policy.immediate.max_delay.into()),
        }),
        backoff: Some(backoff),
        long_term: Some(long_term),
        jitter: Some(policy.jitter.as_str().into()),
        max_attempts: Some(i64::from(policy.max_attempts)),
        max_age: Some(policy.max_age.into()),
        retry_after_max: Some(policy.retry_after_max.into()),
        rate_limited_multiplier: Some(policy.rate_limited_multiplier),
        on_gone: Some(policy.on_gone.as_str().into()),
        while_open: Some(policy.while_open.as_str().into()),
        dead_letter_after: Some(policy.dead_letter_after.into()),
        rate_limit_fields: Some(policy.rate_limit_fields.as_str().into()),
        on_disabled: Some(policy.on_disabled.as_str().into()),
        rules: Some(policy.rules.iter().map(Rule::written).collect()),
    }
}
