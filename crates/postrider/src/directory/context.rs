//! What a dead letter keeps of the destination it was meant for, so that it can be understood, and sent again as it was
//! meant, after the destination has changed.
//!
//! JSON text with the words of the API: the configuration, custom headers included, and the retry policy that was in
//! force with every value written out. Never credentials: a signature is made with those that are valid when it is made.

use postrider_core::time::Timestamp;
use postrider_store::letter::DeadContext;
use postrider_store::record::{Destination, Metadata};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::target::Target;

#[derive(Serialize)]
struct Context<'a> {
    destination: Configuration<'a>,
    retry_policy: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Configuration<'a> {
    id: &'a str,
    tenant_id: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    topics: &'a [String],
    filter: Option<&'a RawValue>,
    config: &'a Metadata,
    delivery_metadata: Option<&'a Metadata>,
    metadata: Option<&'a Metadata>,
    retry_policy: Option<&'a RawValue>,
    created_at: Timestamp,
    updated_at: Timestamp,
    revision: i64,
}

/// The context of a destination as it is now.
pub(super) fn write(record: &Destination, target: &Target) -> DeadContext {
    let context = Context {
        destination: Configuration {
            id: &record.id,
            tenant_id: &target.tenant_id,
            kind: &record.kind,
            topics: &record.topics,
            filter: raw(record.filter.as_deref()),
            config: &record.config,
            delivery_metadata: record.delivery_metadata.as_ref(),
            metadata: record.metadata.as_ref(),
            retry_policy: raw(record.retry_policy.as_deref()),
            created_at: record.created_at,
            updated_at: record.updated_at,
            revision: record.revision,
        },
        retry_policy: serde_json::value::to_raw_value(&*target.policy).ok(),
    };
    DeadContext::new(serde_json::to_string(&context).unwrap_or_else(|_| "{}".to_owned()))
}

/// What a context says of a destination, to be laid over the destination as it is now.
#[derive(Deserialize)]
struct Kept<'a> {
    #[serde(borrow)]
    destination: KeptConfiguration<'a>,
    #[serde(borrow)]
    retry_policy: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct KeptConfiguration<'a> {
    topics: Vec<String>,
    #[serde(borrow)]
    filter: Option<&'a RawValue>,
    config: Metadata,
    delivery_metadata: Option<Metadata>,
}

/// The destination with the configuration and policy of a context. Credentials, and whether it is disabled, stay as they are.
/// `None` when the context cannot be read.
#[must_use]
pub fn restore(record: &Destination, context: &DeadContext) -> Option<Destination> {
    let kept: Kept<'_> = serde_json::from_str(context.as_str()).ok()?;
    let text = |raw: &RawValue| raw.get().to_owned();
    Some(Destination {
        topics: kept.destination.topics,
        filter: kept.destination.filter.map(text),
        config: kept.destination.config,
        delivery_metadata: kept.destination.delivery_metadata,
        retry_policy: kept.retry_policy.map(text),
        ..record.clone()
    })
}

/// JSON text that is kept as it is; nothing when it is none.
fn raw(text: Option<&str>) -> Option<&RawValue> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::id::{DestinationKey, TenantKey};
    use postrider_core::policy::RetryPolicy;
    use postrider_core::secret::Secret;
    use postrider_core::signing::symmetric_secret;
    use postrider_store::record::Credentials;

    use super::super::compile::compile;
    use super::super::{Entry, Rules};
    use super::*;

    fn record(url: &str, policy: &str, secret: Secret) -> Destination {
        Destination {
            key: DestinationKey(1),
            tenant: TenantKey(1),
            id: "des_1".to_owned(),
            kind: "webhook".to_owned(),
            topics: vec!["*".to_owned()],
            filter: None,
            config: Metadata::from([
                ("url".to_owned(), url.to_owned()),
                ("custom_headers".to_owned(), r#"{"x-key":"then"}"#.to_owned()),
            ]),
            credentials: Credentials {
                fields: [("secret".to_owned(), secret)].into(),
            },
            delivery_metadata: None,
            metadata: None,
            retry_policy: Some(policy.to_owned()),
            created_at: Timestamp::EPOCH,
            updated_at: Timestamp::EPOCH,
            disabled: None,
            revision: 1,
        }
    }

    #[test]
    fn a_context_brings_url_headers_and_policy_back_but_not_the_secret() {
        let rules = Rules::default();
        let then = record(
            "https://then.example/",
            r#"{"max_attempts": 3, "long_term": {"enabled": false}}"#,
            symmetric_secret(&[1; 32]),
        );
        let (target, faults) = compile(&then, "acme", &rules);
        assert_eq!(faults, [""; 0]);
        let policy: Arc<RetryPolicy> = Arc::clone(&target.policy);
        let context = Entry::new(then, target).context();
        let now = record(
            "https://now.example/",
            r#""standard""#,
            symmetric_secret(&[2; 32]),
        );
        let restored = restore(&now, &context).unwrap();
        assert_eq!(restored.credentials, now.credentials);
        let (target, faults) = compile(&restored, "acme", &rules);
        assert_eq!(faults, [""; 0]);
        assert_eq!(target.url.unwrap().display(), "https://then.example/");
        assert_eq!(target.headers.iter().collect::<Vec<_>>(), [("x-key", "then")]);
        assert_eq!(format!("{:?}", target.policy), format!("{policy:?}"));
        assert_eq!(restore(&now, &DeadContext::new("{}")), None);
    }
}
