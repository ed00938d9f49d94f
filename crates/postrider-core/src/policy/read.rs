//! Reading a policy from JSON so that everything that is wrong with it is named at once, each with its field.
//!
//! serde stops at the first thing that it cannot read. So when it does, each setting is read once more on its own, and
//! the values of those that could be read are judged beside the ones that could not.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::layers::{Effective, Policies, PolicyChoice, Problem};
use super::raw::{RawPolicy, RawRule};

/// Settings that are objects with settings of their own.
const GROUPS: [&str; 3] = ["immediate", "backoff", "long_term"];
/// The settings of a rule.
const OF_A_RULE: [&str; 3] = ["match", "then", "max_attempts"];
/// The field of a problem that belongs to no setting.
const WHOLE: &str = "retry_policy";

/// A policy that cannot be read whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Unread {
    /// Every setting that is unknown or has a value of the wrong type. Field `retry_policy` stands for the whole.
    pub problems: Vec<Problem>,
    /// The other settings, whose values nobody has judged. In a rule, what cannot be read is empty.
    pub rest: Box<RawPolicy>,
}

impl RawPolicy {
    /// Reads a policy from its JSON text. Only shapes are checked; [`super::resolve`] judges the values, and
    /// [`Policies::problems`] those of what could be read of an unreadable one.
    ///
    /// # Errors
    /// When something has a wrong shape.
    pub fn read(json: &str) -> Result<Self, Unread> {
        // serde would take an array for a struct, too.
        if !json.trim_start().starts_with('{') {
            return Err(Unread::whole("cannot be read: it is not an object"));
        }
        serde_json::from_str(json).map_err(|whole| {
            let mut unread = match serde_json::from_str(json) {
                Ok(Value::Object(settings)) => Unread::of(settings),
                Ok(_) | Err(_) => Unread::whole(format!("cannot be read: {whole}")),
            };
            if unread.problems.is_empty() {
                let problem = Problem::new(WHOLE, format!("cannot be read: {whole}"));
                unread.problems.push(problem);
            }
            unread
        })
    }
}

impl PolicyChoice {
    /// Reads a choice from its JSON text: a string is a name, an object is a policy.
    ///
    /// # Errors
    /// As [`RawPolicy::read`], and when it is neither.
    pub fn read(json: &str) -> Result<Self, Unread> {
        if json.trim_start().starts_with('{') {
            return RawPolicy::read(json).map(|policy| Self::Inline(Box::new(policy)));
        }
        serde_json::from_str(json)
            .map(Self::Named)
            .map_err(|_| Unread::whole("must be the name of a retry policy, or an object with its settings"))
    }
}

impl Policies {
    /// The policy of a destination with this choice as JSON text.
    ///
    /// # Errors
    /// Everything that is wrong with it, in shape and in value.
    pub fn read_effective(&self, json: &str) -> Result<Effective, Vec<Problem>> {
        match PolicyChoice::read(json) {
            Ok(choice) => self.effective(Some(&choice)),
            Err(unread) => Err(self.problems(unread)),
        }
    }
}

impl Unread {
    fn whole(message: impl Into<String>) -> Self {
        Self {
            problems: vec![Problem::new(WHOLE, message)],
            rest: Box::default(),
        }
    }

    fn of(mut settings: Map<String, Value>) -> Self {
        let mut problems = Vec::new();
        settings.retain(|name, value| match value {
            Value::Object(inner) if GROUPS.contains(&name.as_str()) => {
                inner.retain(|setting, value| {
                    let alone = json!({ name: { setting: value } });
                    keep::<RawPolicy>(format!("{name}.{setting}"), alone, &mut problems)
                });
                true
            }
            Value::Array(rules) if name == "rules" => {
                for (at, rule) in rules.iter_mut().enumerate() {
                    read_rule(&format!("rules[{at}]"), rule, &mut problems);
                }
                true
            }
            value => keep::<RawPolicy>(name.clone(), json!({ name: value }), &mut problems),
        });
        let rest = serde_json::from_value(Value::from(settings)).unwrap_or_default();
        Self { problems, rest }
    }
}

/// Leaves of a rule what can be read, and gives it the settings that it must have, so that it keeps its place.
fn read_rule(field: &str, rule: &mut Value, problems: &mut Vec<Problem>) {
    let Value::Object(mut settings) = rule.take() else {
        problems.push(Problem::new(field, "must be an object with match and then"));
        *rule = json!({ "match": [], "then": "" });
        return;
    };
    for (name, empty) in [("match", json!([])), ("then", json!(""))] {
        if !settings.contains_key(name) {
            problems.push(Problem::new(format!("{field}.{name}"), "is required"));
            settings.insert(name.to_owned(), empty);
        }
    }
    settings.retain(|name, value| {
        let field = format!("{field}.{name}");
        if !OF_A_RULE.contains(&name.as_str()) {
            let message = format!("is not known; the known settings are {}", OF_A_RULE.join(", "));
            problems.push(Problem::new(field, message));
            return false;
        }
        let mut alone = json!({ "match": [], "then": "" });
        alone[name] = value.clone();
        if !keep::<RawRule>(field, alone, problems) {
            *value = match name.as_str() {
                "match" => json!([]),
                "then" => json!(""),
                _ => Value::Null,
            };
        }
        true
    });
    *rule = Value::from(settings);
}

/// Whether what stands alone in `alone` can be read; what is wrong with it is told of `field`.
fn keep<T: DeserializeOwned>(field: String, alone: Value, problems: &mut Vec<Problem>) -> bool {
    let Err(error) = serde_json::from_value::<T>(alone) else {
        return true;
    };
    let error = error.to_string();
    let known = error
        .strip_prefix("unknown field ")
        .and_then(|rest| rest.split_once(", expected "));
    let message = match known {
        Some((_, known)) => {
            let known = known.trim_start_matches("one of ").replace('`', "");
            format!("is not known; the known settings are {known}")
        }
        None => format!("cannot be read: {error}"),
    };
    problems.push(Problem::new(field, message));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> Vec<String> {
        let unread = RawPolicy::read(json).expect_err(json);
        unread.problems.iter().map(ToString::to_string).collect()
    }

    fn all_problems(global: &RawPolicy, json: &str) -> Vec<String> {
        let policies = Policies {
            global: global.clone(),
            ..Policies::default()
        };
        let problems = policies.read_effective(json).expect_err(json);
        problems.iter().map(ToString::to_string).collect()
    }

    fn all_fields(json: &str) -> Vec<String> {
        let problems = all_problems(&RawPolicy::default(), json);
        let field = |text: &String| text.split(' ').next().unwrap().to_owned();
        problems.iter().map(field).collect()
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
            "rules[1].match",
            "rules[2].match",
            "rules[2].then",
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
    fn an_unknown_setting_hides_no_other_mistake() {
        let json = |more: &str| {
            format!(
                r#"{{"max_attempts": -1, "backoff": {{"base": "-1s"{more}}}, "jitter": 5,
                    "rules": [{{"match": ["999x"], "then": "z"{more}}}, 7, {{"match": ["404"], "then": "q"}}]{more}}}"#
            )
        };
        let expected = [
            "backoff.foo",
            "foo",
            "jitter",
            "rules[0].foo",
            "rules[1]",
            "backoff.base",
            "max_attempts",
            "rules[0].then",
            "rules[0].match",
            "rules[2].then",
        ];
        assert_eq!(all_fields(&json(r#", "foo": 1"#)), expected);
        let without: Vec<_> = expected
            .into_iter()
            .filter(|field| !field.ends_with("foo"))
            .collect();
        assert_eq!(all_fields(&json("")), without);
    }

    #[test]
    fn an_unknown_preset_or_mixed_shapes_hide_no_other_mistake() {
        assert_eq!(
            all_fields(r#"{"preset": "fast", "max_attempts": -1}"#),
            ["preset", "max_attempts"]
        );
        assert_eq!(
            all_fields(r#"{"backoff": {"base": "1s", "schedule": ["1m"]}, "jitter": "some"}"#),
            ["backoff", "jitter"]
        );
    }

    #[test]
    fn what_cannot_be_read_makes_nothing_else_wrong() {
        let global = RawPolicy::read(r#"{"backoff": {"base": "100ms"}}"#).unwrap();
        let found = all_problems(&global, r#"{"backoff": {"max_delay": "500ms"}, "foo": 1}"#);
        assert!(
            found.len() == 1 && found[0].starts_with("foo is not known"),
            "{found:?}"
        );
        let misspelt = r#"{"backoff": {"bse": "100ms", "max_delay": "500ms"}}"#;
        assert_eq!(
            all_fields(misspelt),
            ["backoff.bse"],
            "the base of `standard` is not theirs"
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
