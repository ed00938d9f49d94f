//! Section `[retry]`: the global retry policy. Its keys belong to the policy in core, which also judges the values;
//! here the leaves that were written are put together, and what is wrong is told with where it was written.

use postrider_core::policy::{Layer, Origin, RawPolicy, RetryPolicy, resolve};
use serde_json::{Map, Value};

use super::error::Problem;
use super::resolve::RetryLeaf;
use super::sources::{Environment, OUTPOST_NAMES};

/// The global policy as it is written, and as it is used: `[retry]`, laid over what Outpost's names in the environment
/// say. A preset in `[retry]` starts afresh, and a backoff there replaces theirs as a whole.
pub(super) fn policy(
    leaves: &[&RetryLeaf],
    environment: &Environment,
    problems: &mut Vec<Problem>,
) -> (RawPolicy, RetryPolicy) {
    let mut root = outpost(environment, problems);
    if leaves.iter().any(|leaf| leaf.path == "preset") {
        root.clear();
    }
    if leaves
        .iter()
        .any(|leaf| leaf.path.split('.').next() == Some("backoff"))
    {
        root.remove("backoff");
    }
    let Some(written) = written(root, leaves, problems) else {
        return (RawPolicy::default(), RetryPolicy::default());
    };
    match resolve(&[Layer {
        origin: Origin::Global,
        policy: &written,
    }]) {
        Ok(effective) => (written, effective.policy),
        Err(found) => {
            problems.extend(
                found
                    .iter()
                    .map(|problem| placed(leaves, &problem.field, &problem.message)),
            );
            (written, RetryPolicy::default())
        }
    }
}

/// A problem of the field, with the place of the leaf that the field belongs to.
fn placed(leaves: &[&RetryLeaf], field: &str, text: &str) -> Problem {
    let path = format!("retry.{field}");
    let without_index = field.split('[').next().unwrap_or(field);
    let leaf = leaves
        .iter()
        .find(|leaf| leaf.path == without_index || leaf.path.starts_with(&format!("{field}.")));
    leaf.map_or_else(
        || Problem::about(&path, text),
        |leaf| Problem::at(&path, &leaf.origin, text),
    )
}

/// The section as one policy; `None` (and problems) when a key is unknown or a value has the wrong type.
fn written(
    root: Map<String, Value>,
    leaves: &[&RetryLeaf],
    problems: &mut Vec<Problem>,
) -> Option<RawPolicy> {
    let before = problems.len();
    for leaf in leaves {
        // Each leaf alone, so that all that are wrong are told, each with its place.
        if let Err(error) = serde_json::from_value::<RawPolicy>(nested(Map::new(), &[leaf])) {
            let text = format!("is {}; {}", leaf.value, readable(&error.to_string()));
            problems.push(Problem::at(&format!("retry.{}", leaf.path), &leaf.origin, text));
        }
    }
    if problems.len() > before {
        return None;
    }
    match serde_json::from_value(nested(root, leaves)) {
        Ok(policy) => Some(policy),
        Err(error) => {
            problems.push(Problem::about(
                "retry",
                format!("cannot be read: {}", readable(&error.to_string())),
            ));
            None
        }
    }
}

fn readable(error: &str) -> String {
    match error.split_once(", expected one of ") {
        Some((unknown, known)) => format!("{unknown}; the known ones are {}", known.replace('`', "")),
        None => error.to_owned(),
    }
}

/// `backoff.base = "1s"` as `{"backoff": {"base": "1s"}}`.
fn nested(mut root: Map<String, Value>, leaves: &[&RetryLeaf]) -> Value {
    for leaf in leaves {
        let mut names: Vec<&str> = leaf.path.split('.').collect();
        let last = names.pop().unwrap_or_default();
        let mut table = &mut root;
        for name in names {
            let inner = table.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            let Value::Object(inner) = inner else {
                unreachable!("it was made one above")
            };
            table = inner;
        }
        table.insert(last.to_owned(), leaf.value.clone());
    }
    Value::Object(root)
}

/// What Outpost's three names mean; empty when none is set.
fn outpost(environment: &Environment, problems: &mut Vec<Problem>) -> Map<String, Value> {
    let [interval_name, limit_name, schedule_name] = OUTPOST_NAMES;
    let [interval, limit, schedule] = OUTPOST_NAMES.map(|name| environment.value(name));
    if interval.is_none() && limit.is_none() && schedule.is_none() {
        return Map::new();
    }
    let mut seconds = |name: &str, text: &str| {
        let parsed = text.trim().parse::<u64>().ok();
        if parsed.is_none() {
            problems.push(Problem::about(
                name,
                format!("(environment) is {text:?}; write whole seconds"),
            ));
        }
        parsed
    };
    let interval = interval.and_then(|text| seconds(interval_name, text));
    let schedule: Vec<u64> = schedule
        .into_iter()
        .flat_map(|text| text.split(','))
        .filter_map(|text| seconds(schedule_name, text))
        .collect();
    let limit = limit.and_then(|text| {
        let parsed = text.trim().parse::<u32>().ok();
        if parsed.is_none() {
            problems.push(Problem::about(
                limit_name,
                format!("(environment) is {text:?}; write a whole number of retries"),
            ));
        }
        parsed
    });
    match serde_json::to_value(RawPolicy::from_outpost(interval, limit, &schedule)) {
        Ok(Value::Object(policy)) => policy,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::Origin as Place;
    use super::*;

    fn leaf(path: &str, value: serde_json::Value) -> RetryLeaf {
        RetryLeaf {
            path: path.to_owned(),
            value,
            origin: Place::File("p.toml".into(), 3),
        }
    }

    fn judged(leaves: &[RetryLeaf], environment: &[(&str, &str)]) -> (RetryPolicy, Vec<String>) {
        let pairs = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut problems = Vec::new();
        let (_, policy) = policy(
            &leaves.iter().collect::<Vec<_>>(),
            &Environment::from_pairs(pairs),
            &mut problems,
        );
        (policy, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn keys_lie_over_the_standard_preset() {
        let leaves = [
            leaf("max_attempts", 3.into()),
            leaf("immediate.retries", 0.into()),
        ];
        let (policy, problems) = judged(&leaves, &[]);
        assert_eq!(problems, [""; 0]);
        let written = policy.written();
        assert_eq!(written.max_attempts, Some(3));
        assert_eq!(written.immediate.and_then(|it| it.retries), Some(0));
        assert_eq!(written.jitter.as_deref(), Some("full"));
    }

    #[test]
    fn outposts_names_keep_their_meaning_below_our_keys() {
        let environment = [("RETRY_SCHEDULE", "5, 60"), ("MAX_RETRY_LIMIT", "7")];
        let (policy, problems) = judged(&[], &environment);
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            policy.written().max_attempts,
            Some(3),
            "two retries, as the schedule has"
        );
        let (policy, problems) = judged(&[leaf("backoff.base", "2s".into())], &environment);
        assert_eq!(problems, [""; 0]);
        assert_eq!(policy.written().backoff.and_then(|it| it.base), Some("2s".into()));
        let (policy, _) = judged(&[leaf("preset", "batch".into())], &environment);
        assert_eq!(policy.written().max_attempts, Some(20));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let leaves = [leaf("max_attemps", 3.into()), leaf("jitter", 5.into())];
        let (_, problems) = judged(&leaves, &[("RETRY_INTERVAL_SECONDS", "30s")]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems[0].starts_with("RETRY_INTERVAL_SECONDS (environment) is \"30s\"; write whole seconds")
        );
        assert!(
            problems[1].starts_with(
                "retry.max_attemps (p.toml:3) is 3; unknown field `max_attemps`; the known ones are preset, "
            ),
            "{}",
            problems[1]
        );
        assert!(
            problems[2].starts_with("retry.jitter (p.toml:3) is 5; invalid type: "),
            "{}",
            problems[2]
        );
    }

    #[test]
    fn values_out_of_bounds_are_told_by_the_policy() {
        let (_, problems) = judged(&[leaf("max_attempts", 0.into())], &[]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with("retry.max_attempts (p.toml:3) "),
            "{}",
            problems[0]
        );
    }
}
