//! A destination, compiled: everything that matching, judging and sending need, and nothing that can be invalid.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::dispatcher::Share;
use postrider_core::filter::Filter;
use postrider_core::guard::DestinationUrl;
use postrider_core::header::CustomHeaders;
use postrider_core::id::{DestinationKey, TenantKey};
use postrider_core::policy::RetryPolicy;
use postrider_core::signing::Keyring;
use postrider_core::topic::TopicSet;

/// A destination ready for use. Replaced as a whole when the destination changes.
#[derive(Debug, Clone)]
pub struct Target {
    /// Tenant and id, as in logs and metrics: ids are unique within a tenant only.
    pub name: String,
    /// Its key.
    pub key: DestinationKey,
    /// Its owner.
    pub tenant: TenantKey,
    /// Its owner's id.
    pub tenant_id: String,
    /// Its public id.
    pub id: String,
    /// What it subscribes to.
    pub topics: TopicSet,
    /// Which of these it wants.
    pub filter: Option<Filter>,
    /// Where requests go; the reason in words when the address is not allowed (any more).
    pub url: Result<DestinationUrl, String>,
    /// Headers that its owner set, `delivery_metadata` included.
    pub headers: CustomHeaders,
    /// `delivery_metadata` as given, for the header mode that prefixes it.
    pub delivery_metadata: BTreeMap<String, String>,
    /// Signs.
    pub keyring: Keyring,
    /// A whole request, response body included: 1 to 60 s.
    pub timeout: Duration,
    /// Requests per second that its owner allows; any number when absent.
    pub rate_limit: Option<NonZeroU32>,
    /// What its owner may have of what all share.
    pub share: Share,
    /// Judges.
    pub policy: Arc<RetryPolicy>,
    /// Whether it gets nothing now.
    pub disabled: bool,
}
