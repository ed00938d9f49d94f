//! Layers, origins, and every message of validation.

use serde_json::{Value, json};

use super::*;

fn raw(policy: Value) -> RawPolicy {
    serde_json::from_value(policy).expect("well formed")
}

fn over(global: Value, inline: Value) -> Result<Effective, Vec<Problem>> {
    let (global, inline) = (raw(global), raw(inline));
    resolve(&[
        Layer {
            origin: Origin::Global,
            policy: &global,
        },
        Layer {
            origin: Origin::Inline,
            policy: &inline,
        },
    ])
}

fn alone(policy: Value) -> Result<Effective, Vec<Problem>> {
    over(json!({}), policy)
}

#[test]
fn every_preset_is_valid_and_written_as_it_is_read() {
    for &preset in Preset::ALL {
        let policy = preset.policy();
        let text = serde_json::to_value(&policy).expect("serialises");
        assert_eq!(alone(text).expect("valid").policy, policy, "{preset}");
    }
}

#[test]
fn the_example_of_the_documentation_is_the_default() {
    let example = json!({
        "immediate": {"retries": 2, "min_delay": "100ms", "max_delay": "500ms"},
        "backoff": {"base": "1s", "multiplier": 2.0, "max_delay": "1h"},
        "long_term": {"after": "4h", "interval": "1h"},
        "jitter": "full",
        "max_attempts": 20,
        "max_age": "72h",
        "retry_after_max": "1h",
        "rate_limited_multiplier": 3,
    });
    assert_eq!(alone(example).expect("valid").policy, RetryPolicy::default());
}

#[test]
fn every_complete_example_of_the_documentation_is_valid() {
    let page = include_str!("../../../../docs/retry-policies.md");
    let blocks = page
        .split("```json")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let complete: Vec<_> = blocks.filter(|block| !block.contains("...")).collect();
    assert!(complete.len() >= 3, "{complete:?}");
    for block in complete {
        let policy = serde_json::from_str(block).expect("JSON");
        assert!(alone(policy).is_ok(), "{block}");
    }
}

#[test]
fn each_value_has_its_origin() {
    let effective = over(
        json!({"max_attempts": 12, "backoff": {"max_delay": "10m"}}),
        json!({"jitter": "equal", "backoff": {"base": "2s"}}),
    )
    .expect("valid");
    let origin = |field| effective.origins[field].to_string();
    assert_eq!(origin("backoff.base"), "inline");
    assert_eq!(origin("backoff.max_delay"), "global");
    assert_eq!(origin("backoff.multiplier"), "preset:standard");
    assert_eq!(origin("max_attempts"), "global");
    assert_eq!(origin("jitter"), "inline");
    assert_eq!(origin("max_age"), "preset:standard");
    let answer = serde_json::to_value(&effective).expect("serialises");
    assert_eq!(
        answer["policy"]["backoff"],
        json!({"base": "2s", "multiplier": 2.0, "max_delay": "10m"})
    );
    assert_eq!(answer["policy"]["max_age"], json!("3d"));
    assert_eq!(answer["origins"]["long_term.after"], json!("preset:standard"));
}

#[test]
fn a_preset_hides_what_is_below_it() {
    let effective = over(
        json!({"max_attempts": 12}),
        json!({"preset": "batch", "max_age": "1d"}),
    )
    .expect("valid");
    assert_eq!(effective.policy.max_attempts(), 20);
    assert_eq!(effective.policy.backoff, Preset::Batch.policy().backoff);
    assert_eq!(effective.origins["max_attempts"], Origin::Preset(Preset::Batch));
    assert_eq!(effective.origins["max_age"], Origin::Inline);
    let global = over(json!({"preset": "batch"}), json!({"max_attempts": 3})).expect("valid");
    assert_eq!(
        global.policy.backoff,
        Preset::Batch.policy().backoff,
        "the configuration's preset is the base"
    );
}

#[test]
fn another_shape_replaces_the_shape() {
    let schedule = over(
        json!({"backoff": {"base": "9s"}}),
        json!({"backoff": {"schedule": ["1m", "5m"]}}),
    );
    let schedule = schedule.expect("valid");
    let fields: Vec<_> = schedule
        .origins
        .keys()
        .filter(|field| field.starts_with("backoff."))
        .collect();
    assert_eq!(fields, [&"backoff.schedule"]);
    let back = over(
        json!({"preset": "three_tier"}),
        json!({"backoff": {"base": "9s"}}),
    )
    .expect("valid");
    assert_eq!(back.policy.written().backoff, Some(raw_backoff("9s", 2.0, "1h")));
    assert_eq!(
        back.origins["backoff.max_delay"],
        Origin::Preset(Preset::Standard)
    );
}

fn raw_backoff(base: &str, multiplier: f64, max_delay: &str) -> raw::RawBackoff {
    raw::RawBackoff {
        base: Some(base.into()),
        multiplier: Some(multiplier),
        max_delay: Some(max_delay.into()),
        ..raw::RawBackoff::default()
    }
}

#[test]
fn limiting_404_to_three_tries_is_one_line() {
    let policy = alone(json!({"rules": [{"match": ["404"], "then": "retry", "max_attempts": 3}]}));
    let policy = policy.expect("valid").policy;
    let attempts = |status| policy.preview(&Outcome::status(status)).attempts.len();
    assert_eq!(attempts(404), 3);
    assert_eq!(attempts(403), 1);
    assert_eq!(attempts(500), 20);
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = alone(json!({"rules": [
        {"match": ["501", 505, "connect_timeout"], "then": "dead_letter"},
        {"match": ["5xx", "timeout"], "then": "retry", "max_attempts": 2},
        {"match": ["tls"], "then": "dead_letter"},
        {"match": ["redirect", "409"], "then": "retry"},
    ]}));
    let policy = policy.expect("valid").policy;
    let table = [
        (Outcome::status(501), 1),
        (Outcome::status(505), 1),
        (Outcome::status(500), 2),
        (Outcome::Failed(ErrorKind::ConnectTimeout), 1),
        (Outcome::Failed(ErrorKind::Timeout), 2),
        (Outcome::Failed(ErrorKind::Tls), 1),
        (Outcome::Failed(ErrorKind::Dns), 20),
        (Outcome::status(307), 20),
        (Outcome::status(409), 20),
        (Outcome::status(429), 20),
        (Outcome::status(400), 1),
    ];
    for (outcome, attempts) in table {
        assert_eq!(policy.preview(&outcome).attempts.len(), attempts, "{outcome:?}");
    }
}

#[test]
fn a_class_has_every_code_and_a_category_has_its_own() {
    let class = alone(json!({"rules": [{"match": ["4xx"], "then": "dead_letter"}]}))
        .expect("valid")
        .policy;
    assert_eq!(class.preview(&Outcome::status(429)).attempts.len(), 1);
    let category = alone(json!({"rules": [{"match": ["http_4xx"], "then": "dead_letter"}]}));
    let category = category.expect("valid").policy;
    assert_eq!(
        category.preview(&Outcome::status(429)).attempts.len(),
        20,
        "429 is rate_limited"
    );
    assert_eq!(category.preview(&Outcome::status(408)).attempts.len(), 1);
}

/// Each policy has exactly one problem, whose text starts as given.
fn assert_explained(table: &[(Value, &str)]) {
    for (policy, message) in table {
        let problems = alone(policy.clone()).expect_err(message);
        assert_eq!(problems.len(), 1, "{policy}: {problems:?}");
        let found = problems[0].to_string();
        assert!(
            found.starts_with(message),
            "{policy}\nfound:    {found}\nexpected: {message}"
        );
    }
}

#[test]
fn wrong_words_are_explained() {
    let presets = "preset must be one of: standard, latency_sensitive, batch, three_tier, outpost";
    assert_explained(&[
        (json!({"preset": "fast"}), presets),
        (
            json!({"jitter": "half"}),
            "jitter must be one of: none, full, equal, decorrelated",
        ),
        (
            json!({"on_gone": "delete"}),
            "on_gone must be one of: disable, ignore",
        ),
        (
            json!({"while_open": "drop"}),
            "while_open must be one of: hold, dead_letter",
        ),
        (
            json!({"dead_letter_after": "91d"}),
            "dead_letter_after is 91d, more than 90d; shorten it",
        ),
        (
            json!({"rate_limit_fields": "honour"}),
            "rate_limit_fields must be one of: ignore, hold",
        ),
        (
            json!({"on_disabled": "drop"}),
            "on_disabled must be one of: dead_letter, discard",
        ),
    ]);
}

#[test]
fn wrong_numbers_are_explained() {
    assert_explained(&[
        (
            json!({"max_attempts": 0}),
            "max_attempts is 0; it must be a whole number from 1 to 1000",
        ),
        (
            json!({"max_attempts": -1}),
            "max_attempts is -1; it must be a whole number from 1 to 1000",
        ),
        (
            json!({"max_attempts": 1001}),
            "max_attempts is 1001; it must be a whole number from 1 to 1000",
        ),
        (
            json!({"immediate": {"retries": 11}}),
            "immediate.retries is 11; it must be a whole number from 0 to 10",
        ),
        (
            json!({"rate_limited_multiplier": 0}),
            "rate_limited_multiplier is 0; it must be a number from 1 to 100",
        ),
        (
            json!({"backoff": {"multiplier": 0.5}}),
            "backoff.multiplier is 0.5; it must be a number from 1 to 100, since a smaller one would shorten the \
             delays",
        ),
        (
            json!({"backoff": {"multiplier": 101}}),
            "backoff.multiplier is 101; it must be a number from 1 to 100",
        ),
    ]);
    for multiplier in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut policy = raw(json!({"backoff": {"base": "1s"}}));
        policy.backoff.get_or_insert_default().multiplier = Some(multiplier);
        assert!(
            resolve(&[Layer {
                origin: Origin::Inline,
                policy: &policy
            }])
            .is_err(),
            "{multiplier}"
        );
    }
}

#[test]
fn wrong_durations_are_explained() {
    assert_explained(&[
        (
            json!({"max_age": "91d"}),
            "max_age is 91d, more than 90d; shorten it",
        ),
        (
            json!({"max_age": "0s"}),
            "max_age must be longer than zero; the shortest is \"1ms\"",
        ),
        (
            json!({"max_age": "3"}),
            "max_age needs a unit; write \"30s\" for 30 seconds",
        ),
        (
            json!({"max_age": "-1h"}),
            "max_age must not be negative; write a duration such as \"30s\"",
        ),
        (
            json!({"max_age": "soon"}),
            "max_age must be a duration such as \"500ms\", \"30s\", \"5m\", \"4h\", \"2d\" or \"1h30m\"",
        ),
        (
            json!({"max_age": "99999999999999999999d"}),
            "max_age is too long to be a duration",
        ),
        (
            json!({"retry_after_max": "0s"}),
            "retry_after_max must be longer than zero; the shortest is \"1ms\"",
        ),
        (
            json!({"immediate": {"max_delay": "61s"}}),
            "immediate.max_delay is 61s, more than 1m; shorten it",
        ),
        (
            json!({"backoff": {"base": "0ms"}}),
            "backoff.base must be longer than zero; the shortest is \"1ms\"",
        ),
        (
            json!({"backoff": {"max_delay": "31d"}}),
            "backoff.max_delay is 31d, more than 30d; shorten it",
        ),
    ]);
}

#[test]
fn wrong_backoffs_are_explained() {
    let curve = |curve: &str, least: &str| json!({"backoff": {"curve": curve, "min_delay": least, "max_delay": "2s", "retries": 3}});
    assert_explained(&[
        (
            json!({"backoff": {"base": "1s", "schedule": ["1s"]}}),
            "backoff mixes shapes; use base, multiplier and max_delay, or schedule, or curve, min_delay, max_delay \
             and retries",
        ),
        (
            json!({"backoff": {"schedule": []}}),
            "backoff.schedule has 0 delays; it must have 1 to 100",
        ),
        (
            json!({"backoff": {"schedule": vec!["1s"; 101]}}),
            "backoff.schedule has 101 delays; it must have 1 to 100",
        ),
        (
            json!({"backoff": {"schedule": ["1s", "0s"]}}),
            "backoff.schedule[1] must be longer than zero; the shortest is \"1ms\"",
        ),
        (
            json!({"backoff": {"schedule": ["1s"], "max_delay": "1h"}}),
            "backoff.max_delay has no meaning for a schedule, whose last delay repeats; remove it",
        ),
        (
            curve("steep", "1s"),
            "backoff.curve must be one of: linear, arithmetic, geometric, exponential",
        ),
        (
            curve("linear", "3s"),
            "backoff.min_delay is 3s, above backoff.max_delay (2s); lower it or raise max_delay",
        ),
        (
            json!({"backoff": {"curve": "linear", "min_delay": "1s", "max_delay": "2s"}}),
            "backoff.retries is required",
        ),
    ]);
}

#[test]
fn values_that_contradict_each_other_are_explained() {
    assert_explained(&[
        (
            json!({"backoff": {"base": "2h"}}),
            "backoff.base is 2h, above backoff.max_delay (1h); lower it or raise max_delay",
        ),
        (
            json!({"immediate": {"min_delay": "2s"}}),
            "immediate.min_delay is 2s, above immediate.max_delay (500ms); lower it or raise max_delay",
        ),
        (
            json!({"max_age": "500ms"}),
            "max_age is 500ms, shorter than the first delay (1s), so nothing would be retried; raise it",
        ),
        (
            json!({"long_term": {"after": "5d"}}),
            "long_term.after is 5d, past max_age (3d), so the tier never comes; lower it or raise max_age",
        ),
        (
            // Four attempts: 1 + 2 s until the third has failed and the last one is planned.
            json!({"max_attempts": 4, "long_term": {"after": "4s"}}),
            "long_term.after is 4s, but the last of 4 attempts is planned after at most 3s, so the tier never comes; \
             lower it, raise max_attempts, or set long_term.enabled to false",
        ),
        (
            json!({"jitter": "decorrelated", "preset": "three_tier"}),
            "jitter \"decorrelated\" makes its own delays from a base, so a schedule or a curve would be ignored; use \
             \"full\" or \"equal\"",
        ),
    ]);
}

#[test]
fn wrong_rules_are_explained() {
    let rule = |words: Value, then: &str| json!({"rules": [{"match": words, "then": then}]});
    let limited =
        |then: &str, limit: i64| json!({"rules": [{"match": ["404"], "then": then, "max_attempts": limit}]});
    assert_explained(&[
        (
            rule(json!([]), "retry"),
            "rules[0].match has 0 words; it must have 1 to 50",
        ),
        (
            rule(json!(["404"]), "ignore"),
            "rules[0].then must be one of: retry, dead_letter",
        ),
        (
            limited("retry", 0),
            "rules[0].max_attempts is 0; it must be a whole number from 1 to 1000",
        ),
        (
            limited("dead_letter", 3),
            "rules[0].max_attempts has no meaning with then = \"dead_letter\"; remove it or use \"retry\"",
        ),
        (
            rule(json!(["204"]), "retry"),
            "rules[0].match 204 is always a success; remove it",
        ),
        (
            rule(json!(["2xx"]), "retry"),
            "rules[0].match 2xx is always a success; remove it",
        ),
        (
            rule(json!([100]), "retry"),
            "rules[0].match 100 is not a final status code; use one from 300 to 999",
        ),
        (
            rule(json!(["9xx"]), "retry"),
            "rules[0].match 9xx is no class of status codes; use 3xx, 4xx or 5xx",
        ),
        (
            rule(json!(["blocked_address"]), "retry"),
            "rules[0].match \"blocked_address\" matches nothing; use a status code (404), a class (5xx), or one of: \
             closed, connect, connect_failed, connect_refused, connect_timeout, connection_closed, connection_reset, \
             dns, http_4xx, http_5xx, protocol, rate_limited, redirect, timeout, tls",
        ),
    ]);
}

#[test]
fn all_mistakes_are_found_at_once() {
    let problems = alone(json!({
        "max_attempts": 0,
        "max_age": "soon",
        "backoff": {"base": "0s", "multiplier": 0.1},
        "rules": [{"match": ["nonsense", "2xx"], "then": "retry"}, {"match": ["404"], "then": "perhaps"}],
    }))
    .expect_err("wrong in every field");
    let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "backoff.base",
            "backoff.multiplier",
            "max_attempts",
            "max_age",
            "rules[0].match",
            "rules[0].match",
            "rules[1].then"
        ]
    );
}

#[test]
fn a_word_decided_before_is_a_mistake() {
    let problems = alone(json!({"rules": [
        {"match": ["404", "5xx"], "then": "retry"},
        {"match": ["5xx"], "then": "dead_letter"},
    ]}));
    let problems = problems.expect_err("the second can never match");
    assert_eq!(
        problems[0].to_string(),
        "rules[1].match repeats 5xx, which an earlier rule decides; remove one"
    );
}

#[test]
fn a_tier_of_a_lower_layer_that_never_comes_is_no_mistake() {
    assert!(alone(json!({"max_attempts": 3})).is_ok());
    assert!(over(json!({"long_term": {"after": "2h"}}), json!({"max_attempts": 3})).is_ok());
    assert!(alone(json!({"max_attempts": 3, "long_term": {"enabled": false}})).is_ok());
    assert!(
        alone(json!({"max_attempts": 1, "max_age": "1ms"})).is_ok(),
        "one attempt needs no window"
    );
}

#[test]
fn unknown_keys_are_refused_by_name() {
    for (policy, key) in [
        (json!({"max_attemps": 3}), "max_attemps"),
        (json!({"backoff": {"bse": "1s"}}), "bse"),
        (json!({"rules": [{"match": ["404"], "than": "retry"}]}), "than"),
    ] {
        let error = serde_json::from_value::<RawPolicy>(policy)
            .expect_err(key)
            .to_string();
        assert!(error.contains(key) && error.contains("expected"), "{error}");
    }
    let error = serde_json::from_value::<RawPolicy>(json!({"max_age": 3600}))
        .expect_err("no unit")
        .to_string();
    assert!(error.contains("expected a duration such as"), "{error}");
}

#[test]
fn a_destination_chooses_by_name_or_inline() {
    let policies = Policies {
        global: raw(json!({"max_attempts": 7})),
        named: [("slow".to_owned(), raw(json!({"backoff": {"base": "1m"}})))].into(),
    };
    let chosen = |choice: Value| {
        let choice: PolicyChoice = serde_json::from_value(choice).expect("a choice");
        policies.effective(Some(&choice))
    };
    let slow = chosen(json!("slow")).expect("known");
    assert_eq!(
        (slow.policy.max_attempts(), slow.policy.backoff.base()),
        (7, Duration::from_secs(60))
    );
    assert_eq!(slow.origins["backoff.base"].to_string(), "named:slow");
    assert_eq!(
        chosen(json!("batch")).expect("a preset").policy,
        Preset::Batch.policy()
    );
    assert_eq!(
        chosen(json!({"max_attempts": 2}))
            .expect("inline")
            .policy
            .max_attempts(),
        2
    );
    assert_eq!(policies.effective(None).expect("global").policy.max_attempts(), 7);
    let unknown = chosen(json!("fast")).expect_err("unknown");
    assert_eq!(
        unknown[0].to_string(),
        "retry_policy names no retry policy; use one of: slow, standard, latency_sensitive, batch, three_tier, outpost"
    );
    assert!(serde_json::from_value::<PolicyChoice>(json!(3)).is_err());
}

#[test]
fn names_of_policies() {
    for name in ["slow", "partner-7", "a_b", "0"] {
        assert_eq!(check_name(name), Ok(()), "{name}");
    }
    for name in ["", "Slow", "a b", "a/b", "standard", "outpost", &"a".repeat(65)] {
        assert!(check_name(name).is_err(), "{name}");
    }
}
