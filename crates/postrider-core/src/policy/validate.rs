//! Validation: from a complete written policy to one that can judge.
//!
//! Everything that is wrong is found in one pass and reported with its field, what is wrong and how to put it
//! right. What passes is safe for every input: no arithmetic on it overflows, and every wait has a bound.

use std::time::Duration;

use super::backoff::{Backoff, Shape};
use super::classify::{Match, Rule, Then};
use super::duration::{DurationText, parse, text};
use super::layers::{Problem, ShapeKind};
use super::limits::{
    MAX_AGE, MAX_ATTEMPTS, MAX_DELAY, MAX_IMMEDIATE_DELAY, MAX_IMMEDIATE_RETRIES, MAX_MATCHES,
    MAX_MULTIPLIER, MAX_RULES, MAX_SCHEDULE,
};
use super::raw::{RawBackoff, RawImmediate, RawLongTerm, RawPolicy, RawRule};
use super::{Immediate, Jitter, LongTerm, RetryPolicy};

/// Compiles a policy in which every value is set. `own(field)` says whether the uppermost layer set it: only there
/// is a tier that can never come a mistake, and not just a leftover of the layer below.
pub(super) fn compile(raw: &RawPolicy, own: impl Fn(&str) -> bool) -> Result<RetryPolicy, Vec<Problem>> {
    let mut check = Check { problems: Vec::new() };
    let immediate = check.immediate(raw.immediate.as_ref());
    let backoff = check.backoff(raw.backoff.as_ref());
    let long_term = check.long_term(raw.long_term.as_ref());
    let jitter = check.word("jitter", raw.jitter.as_deref());
    let max_attempts = check.count("max_attempts", raw.max_attempts, 1, MAX_ATTEMPTS);
    let max_age = check.delay("max_age", raw.max_age.as_ref(), MAX_AGE);
    let retry_after_max = check.delay("retry_after_max", raw.retry_after_max.as_ref(), MAX_DELAY);
    let rate_limited_multiplier = check.factor("rate_limited_multiplier", raw.rate_limited_multiplier);
    let on_gone = check.word("on_gone", raw.on_gone.as_deref());
    let while_open = check.word("while_open", raw.while_open.as_deref());
    let dead_letter_after = check.duration("dead_letter_after", raw.dead_letter_after.as_ref(), MAX_AGE);
    let rate_limit_fields = check.word("rate_limit_fields", raw.rate_limit_fields.as_deref());
    let on_disabled = check.word("on_disabled", raw.on_disabled.as_deref());
    let rules = check.rules(raw.rules.as_deref().unwrap_or_default());
    let assembled = (|| {
        Some(RetryPolicy {
            immediate: immediate?,
            backoff: backoff?,
            long_term: long_term?,
            jitter: jitter?,
            max_attempts: max_attempts?,
            max_age: max_age?,
            retry_after_max: retry_after_max?,
            rate_limited_multiplier: rate_limited_multiplier?,
            on_gone: on_gone?,
            while_open: while_open?,
            dead_letter_after: dead_letter_after?,
            rate_limit_fields: rate_limit_fields?,
            on_disabled: on_disabled?,
            rules,
        })
    })();
    if let Some(policy) = &assembled {
        check.together(policy, own);
    }
    match assembled {
        Some(policy) if check.problems.is_empty() => Ok(policy),
        _ => Err(check.problems),
    }
}

/// The problems found so far. Each method returns a value only when it is valid.
struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn refuse<T>(&mut self, field: impl Into<String>, message: impl Into<String>) -> Option<T> {
        self.problems.push(Problem::new(field, message));
        None
    }

    fn required<'a, T>(&mut self, field: &str, value: Option<&'a T>) -> Option<&'a T> {
        if value.is_none() {
            self.refuse::<()>(field, "is required");
        }
        value
    }

    fn duration(&mut self, field: &str, value: Option<&DurationText>, most: Duration) -> Option<Duration> {
        let written = self.required(field, value)?;
        match parse(&written.0) {
            Err(error) => self.refuse(field, error.to_string()),
            Ok(parsed) if parsed > most => {
                let message = format!("is {}, more than {}; shorten it", written.0, text(most));
                self.refuse(field, message)
            }
            Ok(parsed) => Some(parsed),
        }
    }

    /// A duration that must not be zero.
    fn delay(&mut self, field: &str, value: Option<&DurationText>, most: Duration) -> Option<Duration> {
        let parsed = self.duration(field, value, most)?;
        if parsed.is_zero() {
            return self.refuse(field, "must be longer than zero; the shortest is \"1ms\"");
        }
        Some(parsed)
    }

    fn count(&mut self, field: &str, value: Option<i64>, least: u32, most: u32) -> Option<u32> {
        let written = *self.required(field, value.as_ref())?;
        let valid = u32::try_from(written)
            .ok()
            .filter(|count| (least..=most).contains(count));
        valid.or_else(|| {
            self.refuse(
                field,
                format!("is {written}; it must be a whole number from {least} to {most}"),
            )
        })
    }

    fn factor(&mut self, field: &str, value: Option<f64>) -> Option<f64> {
        let written = *self.required(field, value.as_ref())?;
        if written.is_finite() && (1.0..=MAX_MULTIPLIER).contains(&written) {
            return Some(written);
        }
        let why = if written < 1.0 {
            ", since a smaller one would shorten the delays"
        } else {
            ""
        };
        self.refuse(
            field,
            format!("is {written}; it must be a number from 1 to {MAX_MULTIPLIER}{why}"),
        )
    }

    fn word<T: std::str::FromStr>(&mut self, field: &str, value: Option<&str>) -> Option<T>
    where
        T::Err: std::fmt::Display,
    {
        let Some(written) = value else {
            return self.refuse(field, "is required");
        };
        written
            .parse()
            .map_err(|unknown: T::Err| self.refuse::<T>(field, unknown.to_string()))
            .ok()
    }

    fn immediate(&mut self, raw: Option<&RawImmediate>) -> Option<Immediate> {
        let raw = self.required("immediate", raw)?;
        let retries = self.count("immediate.retries", raw.retries, 0, MAX_IMMEDIATE_RETRIES);
        let min_delay = self.duration("immediate.min_delay", raw.min_delay.as_ref(), MAX_IMMEDIATE_DELAY);
        let max_delay = self.duration("immediate.max_delay", raw.max_delay.as_ref(), MAX_IMMEDIATE_DELAY);
        let tier = Immediate {
            retries: retries?,
            min_delay: min_delay?,
            max_delay: max_delay?,
        };
        if tier.min_delay > tier.max_delay {
            return self.refuse(
                "immediate.min_delay",
                format!(
                    "is {}, above immediate.max_delay ({}); lower it or raise max_delay",
                    text(tier.min_delay),
                    text(tier.max_delay)
                ),
            );
        }
        Some(tier)
    }

    fn backoff(&mut self, raw: Option<&RawBackoff>) -> Option<Backoff> {
        let raw = self.required("backoff", raw)?;
        let shape = match ShapeKind::of(raw) {
            Err(problem) => return self.refuse(problem.field, problem.message),
            Ok(None | Some(ShapeKind::Exponential)) => self.exponential(raw),
            Ok(Some(ShapeKind::Schedule)) => self.schedule(raw.schedule.as_deref().unwrap_or_default()),
            Ok(Some(ShapeKind::Curve)) => self.curve(raw),
        };
        shape.map(Backoff::new)
    }

    fn exponential(&mut self, raw: &RawBackoff) -> Option<Shape> {
        let base = self.delay("backoff.base", raw.base.as_ref(), MAX_DELAY);
        let multiplier = self.factor("backoff.multiplier", raw.multiplier);
        let max_delay = self.delay("backoff.max_delay", raw.max_delay.as_ref(), MAX_DELAY);
        let (base, multiplier, max_delay) = (base?, multiplier?, max_delay?);
        if base > max_delay {
            return self.above_cap("backoff.base", base, max_delay);
        }
        Some(Shape::Exponential {
            base,
            multiplier,
            max_delay,
        })
    }

    fn above_cap<T>(&mut self, field: &str, least: Duration, most: Duration) -> Option<T> {
        let message = format!(
            "is {}, above backoff.max_delay ({}); lower it or raise max_delay",
            text(least),
            text(most)
        );
        self.refuse(field, message)
    }

    fn schedule(&mut self, raw: &[DurationText]) -> Option<Shape> {
        if raw.is_empty() || raw.len() > MAX_SCHEDULE {
            let message = format!("has {} delays; it must have 1 to {MAX_SCHEDULE}", raw.len());
            return self.refuse("backoff.schedule", message);
        }
        let delays = raw.iter().enumerate();
        let delays: Vec<_> = delays
            .map(|(n, delay)| self.delay(&format!("backoff.schedule[{n}]"), Some(delay), MAX_DELAY))
            .collect();
        delays.into_iter().collect::<Option<_>>().map(Shape::Schedule)
    }

    fn curve(&mut self, raw: &RawBackoff) -> Option<Shape> {
        let most = u32::try_from(MAX_SCHEDULE).unwrap_or(u32::MAX);
        let curve = self.word("backoff.curve", raw.curve.as_deref());
        let min_delay = self.delay("backoff.min_delay", raw.min_delay.as_ref(), MAX_DELAY);
        let max_delay = self.delay("backoff.max_delay", raw.max_delay.as_ref(), MAX_DELAY);
        let retries = self.count("backoff.retries", raw.retries, 1, most);
        let (curve, min_delay, max_delay, retries) = (curve?, min_delay?, max_delay?, retries?);
        if min_delay > max_delay {
            return self.above_cap("backoff.min_delay", min_delay, max_delay);
        }
        Some(Shape::Curve {
            curve,
            min_delay,
            max_delay,
            retries,
        })
    }

    #[expect(
        clippy::option_option,
        reason = "outside: whether it is valid; inside: whether there is one"
    )]
    fn long_term(&mut self, raw: Option<&RawLongTerm>) -> Option<Option<LongTerm>> {
        let raw = self.required("long_term", raw)?;
        if raw.enabled == Some(false) {
            return Some(None);
        }
        let after = self.delay("long_term.after", raw.after.as_ref(), MAX_AGE);
        let interval = self.delay("long_term.interval", raw.interval.as_ref(), MAX_DELAY);
        Some(Some(LongTerm {
            after: after?,
            interval: interval?,
        }))
    }

    fn rules(&mut self, raw: &[RawRule]) -> Vec<Rule> {
        if raw.len() > MAX_RULES {
            self.refuse::<()>(
                "rules",
                format!("has {} rules; at most {MAX_RULES} are allowed", raw.len()),
            );
            return Vec::new();
        }
        let mut rules: Vec<Rule> = Vec::new();
        for (n, written) in raw.iter().enumerate() {
            if let Some(rule) = self.rule(n, written, &rules) {
                rules.push(rule);
            }
        }
        rules
    }

    fn rule(&mut self, n: usize, raw: &RawRule, earlier: &[Rule]) -> Option<Rule> {
        let then = self.word(&format!("rules[{n}].then"), Some(&raw.then));
        let field = format!("rules[{n}].max_attempts");
        let max_attempts = match raw.max_attempts {
            None => Some(None),
            Some(_) if then == Some(Then::DeadLetter) => self.refuse(
                field,
                "has no meaning with then = \"dead_letter\"; remove it or use \"retry\"",
            ),
            written => self.count(&field, written, 1, MAX_ATTEMPTS).map(Some),
        };
        let matches = self.matches(&format!("rules[{n}].match"), raw, earlier);
        Some(Rule {
            matches: matches?,
            then: then?,
            max_attempts: max_attempts?,
        })
    }

    fn matches(&mut self, field: &str, raw: &RawRule, earlier: &[Rule]) -> Option<Vec<Match>> {
        if raw.matches.is_empty() || raw.matches.len() > MAX_MATCHES {
            let message = format!("has {} words; it must have 1 to {MAX_MATCHES}", raw.matches.len());
            return self.refuse(field, message);
        }
        let mut matches = Vec::new();
        for written in &raw.matches {
            match Match::parse(&written.0) {
                Err(message) => self.refuse(field, message),
                Ok(word) if earlier.iter().any(|rule| rule.matches.contains(&word)) => self.refuse(
                    field,
                    format!(
                        "repeats {}, which an earlier rule decides; remove one",
                        word.word()
                    ),
                ),
                Ok(word) => {
                    matches.push(word);
                    Some(())
                }
            };
        }
        (matches.len() == raw.matches.len()).then_some(matches)
    }

    /// What is wrong only between values that are each within bounds.
    fn together(&mut self, policy: &RetryPolicy, own: impl Fn(&str) -> bool) {
        let (first, window) = (policy.backoff.base(), policy.max_age);
        if policy.jitter == Jitter::Decorrelated
            && !matches!(policy.backoff.shape(), Shape::Exponential { .. })
        {
            self.refuse::<()>(
                "jitter",
                "\"decorrelated\" makes its own delays from a base, so a schedule or a curve would be ignored; use \
                 \"full\" or \"equal\"",
            );
        }
        if policy.max_attempts > 1 && first > window {
            let (first, window) = (text(first), text(window));
            self.refuse::<()>(
                "max_age",
                format!("is {window}, shorter than the first delay ({first}), so nothing would be retried; raise it"),
            );
        }
        let owned = ["long_term.enabled", "long_term.after", "long_term.interval"]
            .into_iter()
            .any(own);
        if let Some(slow) = policy.long_term.filter(|_| owned) {
            self.long_term_is_reached(policy, slow.after);
        }
    }

    fn long_term_is_reached(&mut self, policy: &RetryPolicy, after: Duration) {
        if after > policy.max_age {
            let message = format!(
                "is {}, past max_age ({}), so the tier never comes; lower it or raise max_age",
                text(after),
                text(policy.max_age)
            );
            self.refuse::<()>("long_term.after", message);
            return;
        }
        let last = policy.latest_planning();
        if last < after {
            let message = format!(
                "is {}, but the last of {} attempts is planned after at most {}, so the tier never comes; lower it, \
                 raise max_attempts, or set long_term.enabled to false",
                text(after),
                policy.max_attempts,
                text(last)
            );
            self.refuse::<()>("long_term.after", message);
        }
    }
}
