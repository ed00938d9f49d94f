//! Reading a policy from JSON so that everything that has a wrong shape is named at once, each with its field.
//!
//! serde stops at the first thing that it cannot read. So when it does, each setting is read once more on its own.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::layers::{PolicyChoice, Problem};
use super::raw::{RawPolicy, RawRule};

/// Settings that are objects with settings of their own.
const GROUPS: [&str; 3] = ["immediate", "backoff", "long_term"];
/// The field of a problem that belongs to no setting.
const WHOLE: &str = "retry_policy";

impl RawPolicy {
    /// Reads a policy from its JSON text. Only shapes are checked; [`super::resolve`] judges the values.
    ///
    /// # Errors
    /// Every setting that is unknown or has a value of the wrong type. Field `retry_policy` stands for the whole.
    pub fn read(json: &str) -> Result<Self, Vec<Problem>> {
        // serde would take an array for a struct, too.
        if !json.trim_start().starts_with('{') {
            return Err(vec![Problem::new(WHOLE, "cannot be read: it is not an object")]);
        }
        serde_json::from_str(json).map_err(|whole| {
            let problems = match serde_json::from_str(json) {
                Ok(Value::Object(fields)) => problems(fields),
                Ok(_) | Err(_) => Vec::new(),
            };
            if problems.is_empty() {
                vec![Problem::new(WHOLE, format!("cannot be read: {whole}"))]
            } else {
                problems
            }
        })
    }
}

impl PolicyChoice {
    /// Reads a choice from its JSON text: a string is a name, an object is a policy.
    ///
    /// # Errors
    /// As [`RawPolicy::read`], and when it is neither.
    pub fn read(json: &str) -> Result<Self, Vec<Problem>> {
        if json.trim_start().starts_with('{') {
            return RawPolicy::read(json).map(|policy| Self::Inline(Box::new(policy)));
        }
        serde_json::from_str(json).map(Self::Named).map_err(|_| {
            let message = "must be the name of a retry policy, or an object with its settings";
            vec![Problem::new(WHOLE, message)]
        })
    }
}

fn problems(fields: Map<String, Value>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) if GROUPS.contains(&name.as_str()) => {
                for (setting, value) in inner {
                    let field = format!("{name}.{setting}");
                    let group = Value::from(Map::from_iter([(setting, value)]));
                    let alone = Value::from(Map::from_iter([(name.clone(), group)]));
                    problems.extend(problem::<RawPolicy>(field, alone));
                }
            }
            Value::Array(rules) if name == "rules" => {
                let numbered = rules.into_iter().enumerate();
                problems.extend(
                    numbered.filter_map(|(at, rule)| problem::<RawRule>(format!("rules[{at}]"), rule)),
                );
            }
            value => {
                let alone = Value::from(Map::from_iter([(name.clone(), value)]));
                problems.extend(problem::<RawPolicy>(name, alone));
            }
        }
    }
    problems
}

fn problem<T: DeserializeOwned>(field: String, alone: Value) -> Option<Problem> {
    let error = serde_json::from_value::<T>(alone).err()?.to_string();
    let unknown = error
        .strip_prefix("unknown field ")
        .and_then(|rest| rest.split_once(", expected "));
    let message = match unknown {
        Some((name, known)) => {
            let known = known.trim_start_matches("one of ").replace('`', "");
            let subject = if field.ends_with(']') {
                format!("has {name}, which ")
            } else {
                String::new()
            };
            format!("{subject}is not known; the known settings are {known}")
        }
        None => format!("cannot be read: {error}"),
    };
    Some(Problem::new(field, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> Vec<String> {
        let problems = RawPolicy::read(json).expect_err(json);
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_setting_of_a_wrong_shape_is_named() {
        let found = refused(
            r#"{"jitter": 5, "max_atempts": 3, "max_attempts": 7, "backoff": {"bse": "1s", "multiplier": "2"},
                "long_term": 4, "rules": [{"match": ["404"], "then": "retry"}, {"match": "404", "then": "retry"}, {}]}"#,
        );
        let fields: Vec<_> = found.iter().map(|text| text.split(' ').next().unwrap()).collect();
        let expected = [
            "backoff.bse",
            "backoff.multiplier",
            "jitter",
            "long_term",
            "max_atempts",
            "rules[1]",
            "rules[2]",
        ];
        assert_eq!(fields, expected, "{found:#?}");
        assert!(
            found[0].starts_with(
                "backoff.bse is not known; the known settings are base, multiplier, max_delay, "
            )
        );
        assert_eq!(
            found[2],
            "jitter cannot be read: invalid type: integer `5`, expected a string"
        );
    }

    #[test]
    fn what_is_no_policy_at_all_is_told_as_a_whole() {
        for json in ["", "7", "[]", "{", r#"{"jitter":"full","jitter":"full"}"#] {
            let found = refused(json);
            assert_eq!(found.len(), 1, "{json}");
            assert!(found[0].starts_with("retry_policy cannot be read: "), "{found:?}");
        }
    }

    #[test]
    fn a_choice_is_a_name_or_a_policy() {
        assert_eq!(
            PolicyChoice::read(r#""slow""#),
            Ok(PolicyChoice::Named("slow".into()))
        );
        let inline = RawPolicy {
            max_attempts: Some(3),
            ..RawPolicy::default()
        };
        assert_eq!(
            PolicyChoice::read(r#" {"max_attempts": 3}"#),
            Ok(PolicyChoice::Inline(Box::new(inline)))
        );
        for neither in ["3", "null", "[]", "slow", ""] {
            assert!(PolicyChoice::read(neither).is_err(), "{neither}");
        }
    }
}
