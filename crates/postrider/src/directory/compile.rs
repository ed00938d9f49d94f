//! From a record to a target.
//!
//! The one place that says what a valid destination is: it is asked when one is saved, where every fault is an error
//! for its owner, and when one is loaded, where a fault must not hide it. Faults name the field as the API does.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::filter::Filter;
use postrider_core::guard::DestinationUrl;
use postrider_core::header::CustomHeaders;
use postrider_core::policy::{Problem, RetryPolicy};
use postrider_core::secret::Secret;
use postrider_core::signing::Keyring;
use postrider_core::time::{ParseTimestampError, Timestamp};
use postrider_core::topic::TopicSet;
use postrider_store::record::Destination;

use super::Rules;
use super::target::Target;

/// Keys of `config` that a webhook destination knows.
pub const CONFIG_FIELDS: [&str; 4] = [
    "url",
    "custom_headers",
    "timeout_seconds",
    "rate_limit_per_second",
];
/// Keys of `credentials` that a webhook destination knows.
pub const CREDENTIAL_FIELDS: [&str; 3] = ["secret", "previous_secret", "previous_secret_invalid_at"];

const MAX_TIMEOUT_SECONDS: u64 = 60;
const MAX_RATE_LIMIT: u32 = 100_000;

/// The target of a record, and everything that is wrong with it. A target with faults refuses to be sent to, unless only
/// its retry policy is wrong (the global one may have changed below it): then the global one stands in.
#[must_use]
pub fn compile(record: &Destination, tenant_id: &str, rules: &Rules) -> (Target, Vec<String>) {
    let mut faults = Vec::new();
    let url = url(record, rules, &mut faults);
    let topics = topics(record, rules, &mut faults);
    let filter = filter(record, &mut faults);
    let headers = headers(record, &mut faults);
    let keyring = keyring(record, &mut faults);
    let timeout = timeout(record, rules, &mut faults);
    let rate_limit = rate_limit(record, &mut faults);
    unknown_fields(record, &mut faults);
    let url = match url {
        Some(url) if faults.is_empty() => Ok(url),
        _ => Err(faults.join("; ")),
    };
    let policy = policy(record, rules, &mut faults);
    let target = Target {
        name: format!("{tenant_id}/{}", record.id),
        key: record.key,
        tenant: record.tenant,
        tenant_id: tenant_id.to_owned(),
        id: record.id.clone(),
        topics,
        filter,
        url,
        headers,
        delivery_metadata: record.delivery_metadata.clone().unwrap_or_default(),
        keyring,
        timeout,
        rate_limit,
        share: rules.shares.of(tenant_id),
        policy,
        disabled: record.disabled.is_some(),
    };
    (target, faults)
}

fn url(record: &Destination, rules: &Rules, faults: &mut Vec<String>) -> Option<DestinationUrl> {
    let Some(text) = record.config.get("url").filter(|text| !text.is_empty()) else {
        faults.push("config.url is required".to_owned());
        return None;
    };
    rules
        .guard
        .url(text)
        .map_err(|refused| faults.push(format!("config.url is not allowed: {refused}")))
        .ok()
}

fn topics(record: &Destination, rules: &Rules, faults: &mut Vec<String>) -> TopicSet {
    if record.topics.is_empty() {
        faults.push("topics is required".to_owned());
    }
    if !rules.topics.is_empty() {
        for (at, topic) in record.topics.iter().enumerate() {
            if !topic.contains('*') && !rules.topics.contains(topic) {
                faults.push(format!("topics[{at}] {}", rules.must_be_a_topic()));
            }
        }
    }
    let everything = || TopicSet::new(vec!["*".to_owned()]).expect("`*` is a pattern");
    TopicSet::new(record.topics.clone()).unwrap_or_else(|invalid| {
        faults.push(format!("topics is invalid: {invalid}"));
        everything()
    })
}

fn filter(record: &Destination, faults: &mut Vec<String>) -> Option<Filter> {
    let text = record.filter.as_deref()?;
    let compiled = serde_json::from_str(text)
        .map_err(|error| error.to_string())
        .and_then(|value| Filter::compile(&value).map_err(|invalid| invalid.to_string()));
    compiled.unwrap_or_else(|error| {
        faults.push(format!("filter is invalid: {error}"));
        None
    })
}

fn headers(record: &Destination, faults: &mut Vec<String>) -> CustomHeaders {
    let custom = match record
        .config
        .get("custom_headers")
        .filter(|text| !text.is_empty())
    {
        Some(text) => CustomHeaders::parse(text),
        None => Ok(CustomHeaders::default()),
    };
    let custom = custom.unwrap_or_else(|invalid| {
        faults.extend(
            invalid
                .0
                .iter()
                .map(|text| format!("config.custom_headers is invalid: {text}")),
        );
        CustomHeaders::default()
    });
    let Some(metadata) = &record.delivery_metadata else {
        return custom;
    };
    let mut merged = metadata.clone();
    merged.extend(
        custom
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    CustomHeaders::from_metadata(&merged).unwrap_or_else(|invalid| {
        faults.extend(
            invalid
                .0
                .iter()
                .map(|text| format!("delivery_metadata is invalid: {text}")),
        );
        custom
    })
}

fn keyring(record: &Destination, faults: &mut Vec<String>) -> Keyring {
    let fields = &record.credentials.fields;
    let Some(current) = fields.get("secret") else {
        faults.push("credentials.secret is required".to_owned());
        return Keyring::default();
    };
    let end = fields.get("previous_secret_invalid_at").and_then(|text| {
        let parsed = Timestamp::parse(text.expose());
        parsed
            .map_err(|refused| {
                let fault = match refused {
                    ParseTimestampError::Malformed(_) => "failed datetime validation",
                    ParseTimestampError::OutOfRange(_) => "must lie in the years 1970 to 9999",
                };
                faults.push(format!("credentials.previous_secret_invalid_at {fault}"));
            })
            .ok()
    });
    let previous = fields
        .get("previous_secret")
        .map(|secret| (secret, end.unwrap_or(Timestamp::EPOCH)));
    if let Err(invalid) = Keyring::new(current, None) {
        faults.push(format!("credentials.secret is invalid: {invalid}"));
        return Keyring::default();
    }
    Keyring::new(current, previous).unwrap_or_else(|invalid| {
        faults.push(format!("credentials.previous_secret is invalid: {invalid}"));
        Keyring::default()
    })
}

fn timeout(record: &Destination, rules: &Rules, faults: &mut Vec<String>) -> Duration {
    let Some(text) = record.config.get("timeout_seconds") else {
        return rules.default_timeout;
    };
    match text.parse::<u64>() {
        Ok(seconds) if (1..=MAX_TIMEOUT_SECONDS).contains(&seconds) => Duration::from_secs(seconds),
        _ => {
            faults.push(format!(
                "config.timeout_seconds must be a whole number from 1 to {MAX_TIMEOUT_SECONDS}"
            ));
            rules.default_timeout
        }
    }
}

fn rate_limit(record: &Destination, faults: &mut Vec<String>) -> Option<NonZeroU32> {
    let text = record.config.get("rate_limit_per_second")?;
    let limit = text.parse::<NonZeroU32>().ok();
    let limit = limit.filter(|limit| limit.get() <= MAX_RATE_LIMIT);
    if limit.is_none() {
        faults.push(format!(
            "config.rate_limit_per_second must be a whole number from 1 to {MAX_RATE_LIMIT}"
        ));
    }
    limit
}

fn policy(record: &Destination, rules: &Rules, faults: &mut Vec<String>) -> Arc<RetryPolicy> {
    let global = || Arc::clone(&rules.default_policy);
    let Some(text) = &record.retry_policy else {
        return global();
    };
    match rules.policies.read_effective(text) {
        Ok(effective) => Arc::new(effective.policy),
        Err(problems) => {
            faults.extend(policy_faults(&problems));
            global()
        }
    }
}

/// Problems of a policy as faults of the field `retry_policy`.
pub fn policy_faults(problems: &[Problem]) -> impl Iterator<Item = String> {
    problems.iter().map(|problem| match problem.field.as_str() {
        "retry_policy" => format!("retry_policy {}", problem.message),
        field => format!("retry_policy.{field} {}", problem.message),
    })
}

fn unknown_fields(record: &Destination, faults: &mut Vec<String>) {
    let config = record
        .config
        .keys()
        .filter(|key| !CONFIG_FIELDS.contains(&key.as_str()));
    faults.extend(config.map(|key| format!("config.{key} is forbidden")));
    let fields: &BTreeMap<String, Secret> = &record.credentials.fields;
    let credentials = fields
        .keys()
        .filter(|key| !CREDENTIAL_FIELDS.contains(&key.as_str()));
    faults.extend(credentials.map(|key| format!("credentials.{key} is forbidden")));
}
