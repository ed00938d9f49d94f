//! Which destinations an event goes to.

use std::sync::Arc;

use postrider_core::delivery::DeadReason;
use postrider_core::policy::OnDisabled;
use postrider_store::record::NewDelivery;
use serde_json::Value;

use super::Directory;

/// What matching looks at of an event that is being published.
#[derive(Debug, Clone, Copy)]
pub struct Published<'a> {
    /// The publisher's tenant; one that does not exist matches nothing.
    pub tenant_id: &'a str,
    /// Its topic, possibly empty.
    pub topic: &'a str,
    /// Only this destination (public id), if it matches as well.
    pub destination_id: Option<&'a str>,
}

impl Directory {
    /// The deliveries of an event, one a destination. For a disabled destination it is a dead letter from the
    /// beginning, or canceled if its policy says so. `document` makes `{"id":…,"topic":…,"time":…,"metadata":…,"data":…}` and is called at most once, only if
    /// a filter has to be asked.
    ///
    /// # Errors
    /// Passes on that of `document`.
    pub fn match_event<E>(
        &self,
        event: Published<'_>,
        document: impl FnOnce() -> Result<Value, E>,
    ) -> Result<Vec<NewDelivery>, E> {
        let Some(tenant) = self.index.read().tenant(event.tenant_id).map(Arc::clone) else {
            return Ok(Vec::new());
        };
        let mut make = Some(document);
        let mut made = None;
        let mut deliveries = Vec::new();
        for entry in &tenant.destinations {
            let target = &*entry.target;
            let is_wanted = event.destination_id.is_none_or(|id| id == target.id);
            if !is_wanted || !target.topics.matches(event.topic) {
                continue;
            }
            if let Some(filter) = &target.filter {
                if let Some(make) = make.take() {
                    made = Some(make()?);
                }
                if !made.as_ref().is_some_and(|document| filter.matches(document)) {
                    continue;
                }
            }
            let discarded = target.disabled && target.policy.on_disabled() == OnDisabled::Discard;
            let dead = (target.disabled && !discarded).then_some(DeadReason::DestinationDisabled);
            deliveries.push(NewDelivery {
                destination: target.key,
                context: dead.map(|_| entry.context()),
                dead,
                discarded,
            });
        }
        Ok(deliveries)
    }
}
