//! What a dead letter keeps of the destination it was meant for, so that it can be understood, and sent again as it was
//! meant, after the destination has changed.
//!
//! JSON text with the words of the API: the configuration, custom headers included, and the retry policy that was in
//! force with every value written out. Never credentials: a signature is made with those that are valid when it is made.

use postrider_core::time::Timestamp;
use postrider_store::letter::DeadContext;
use postrider_store::record::{Destination, Metadata};
use serde::Serialize;
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

/// JSON text that is kept as it is; nothing when it is none.
fn raw(text: Option<&str>) -> Option<&RawValue> {
    text.and_then(|text| serde_json::from_str(text).ok())
}
