//! The operator's webhook: a destination of a tenant of Postrider's own.
//!
//! So alerts are signed, retried, limited and kept like everybody's events, can be looked at in the same lists, and a
//! receiver that is down becomes a dead letter. The tenant's id is reserved: the API lets nobody publish for it or change
//! its destination, whose address and secret come from the configuration.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use postrider_core::id::{DestinationKey, IdCodec, TenantKey};
use postrider_core::time::Timestamp;
use postrider_store::alerts::Alert;
use postrider_store::record::{Credentials, Destination, NewEvent};
use serde::Serialize;
use serde_json::Value;

use super::Webhook;
use super::shape::{self, AlertShape};
use crate::directory::change::ChangeError;
use crate::directory::{Directory, Published};

/// Id of the tenant.
pub const TENANT: &str = "postrider.operator";
/// Id of its destination.
pub const DESTINATION: &str = "alerts";

/// The body of a webhook, in the form that Standard Webhooks recommends.
#[derive(Debug, Serialize)]
struct OperatorNotice<'a> {
    #[serde(rename = "type")]
    topic: &'a str,
    timestamp: Timestamp,
    data: AlertShape<'a>,
}

/// Creates, changes or removes the destination, so that it is as configured. One that was disabled stays so.
///
/// # Errors
/// When the address is not allowed, the secret is none, or the store does not do it.
pub async fn ensure(
    directory: &Arc<Directory>,
    webhook: Option<&Webhook>,
    now: Timestamp,
) -> Result<(), ChangeError> {
    let found = directory.destination(TENANT, DESTINATION);
    match (webhook, found) {
        (None, None) => Ok(()),
        (None, Some(_)) => directory.delete(TENANT, DESTINATION, now).await,
        (Some(webhook), None) => {
            if !directory.has_tenant(TENANT) {
                directory.upsert_tenant(TENANT.to_owned(), None, now).await?;
            }
            let draft = draft(webhook, now);
            directory
                .create(TENANT.to_owned(), draft, Vec::new())
                .await
                .map(drop)
        }
        (Some(webhook), Some(_)) => {
            let wanted = draft(webhook, now);
            let edit = move |record: &mut Destination| {
                record.config = wanted.config;
                record.credentials = wanted.credentials;
                Vec::new()
            };
            directory.change(TENANT, DESTINATION, now, edit).await.map(drop)
        }
    }
}

fn draft(webhook: &Webhook, now: Timestamp) -> Destination {
    Destination {
        key: DestinationKey(0),
        tenant: TenantKey(0),
        id: DESTINATION.to_owned(),
        kind: "webhook".to_owned(),
        topics: vec!["*".to_owned()],
        filter: None,
        config: BTreeMap::from([("url".to_owned(), webhook.url.clone())]),
        credentials: Credentials {
            fields: BTreeMap::from([("secret".to_owned(), webhook.secret.clone())]),
        },
        delivery_metadata: None,
        metadata: None,
        retry_policy: None,
        created_at: now,
        updated_at: now,
        disabled: None,
        revision: 0,
    }
}

/// What the webhook gets about the last version of an alert. Its id is made of the alert's and the version, so that a
/// second attempt to publish it is a duplicate.
pub(super) fn event(alert: &Alert, directory: &Directory, ids: &IdCodec) -> NewEvent {
    let topic = format!("alert.{}", shape::told(alert));
    let notice = OperatorNotice {
        topic: &topic,
        timestamp: alert.updated_at,
        data: AlertShape::of(alert, ids),
    };
    let published = Published {
        tenant_id: TENANT,
        topic: &topic,
        destination_id: Some(DESTINATION),
    };
    // Only a filter would look at the document, and the destination has none.
    let destinations = directory
        .match_event(published, || Ok::<_, Infallible>(Value::Null))
        .unwrap_or_else(|never| match never {});
    let data = serde_json::to_vec(&notice).expect("texts, numbers and times are JSON");
    NewEvent {
        tenant_id: TENANT.to_owned(),
        id: Some(format!("{}.{}", shape::id(alert, ids), alert.version)),
        topic: topic.clone(),
        time: Some(alert.updated_at),
        metadata: BTreeMap::new(),
        data: Bytes::from(data),
        retryable: true,
        destinations,
    }
}
