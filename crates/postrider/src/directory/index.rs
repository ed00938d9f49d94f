//! The maps behind the directory: tenants by id with their destinations in order of creation, destinations by key.
//!
//! Plain data under the directory's lock. A tenant is shared with readers by `Arc` and copied on change only while
//! one of them still looks at it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use postrider_core::id::{DestinationKey, TenantKey};
use postrider_store::record::{Destination, Tenant};

use super::compile::compile;
use super::{Entry, Rules, TenantView};

/// All tenants and destinations.
#[derive(Debug, Default)]
pub(super) struct Index {
    tenants: HashMap<String, Arc<TenantEntry>>,
    entries: HashMap<DestinationKey, Arc<Entry>>,
}

/// A tenant and its destinations.
#[derive(Debug, Clone)]
pub(super) struct TenantEntry {
    pub(super) tenant: Tenant,
    /// In order of creation.
    pub(super) destinations: Vec<Arc<Entry>>,
}

impl TenantEntry {
    /// One of its destinations.
    pub(super) fn destination(&self, id: &str) -> Option<&Arc<Entry>> {
        self.destinations.iter().find(|entry| entry.record.id == id)
    }

    /// As others see it.
    pub(super) fn view(&self) -> TenantView {
        let patterns: BTreeSet<&str> = self
            .destinations
            .iter()
            .flat_map(|entry| &entry.record.topics)
            .map(String::as_str)
            .collect();
        let topics = if patterns.contains("*") {
            vec!["*".to_owned()]
        } else {
            patterns.into_iter().map(str::to_owned).collect()
        };
        TenantView {
            tenant: self.tenant.clone(),
            destinations_count: self.destinations.len(),
            topics,
        }
    }

    fn position(&self, entry: &Entry) -> Result<usize, usize> {
        let order = |entry: &Entry| (entry.record.created_at, entry.record.key);
        self.destinations
            .binary_search_by_key(&order(entry), |other| order(other))
    }
}

impl Index {
    /// Compiles everything the store holds.
    pub(super) fn build(tenants: Vec<Tenant>, destinations: Vec<Destination>, rules: &Rules) -> Self {
        let mut index = Self::default();
        let ids: HashMap<TenantKey, String> = tenants
            .iter()
            .map(|tenant| (tenant.key, tenant.id.clone()))
            .collect();
        for tenant in tenants {
            index.put_tenant(tenant);
        }
        let mut records = destinations;
        records.sort_by_key(|record| (record.created_at, record.key));
        for record in records {
            let Some(tenant_id) = ids.get(&record.tenant) else {
                tracing::error!(destination = %record.key, "a stored destination has no tenant; it is left out");
                continue;
            };
            let (target, faults) = compile(&record, tenant_id, rules);
            if !faults.is_empty() {
                tracing::warn!(
                    tenant_id,
                    destination_id = record.id,
                    ?faults,
                    "a stored destination is no longer valid"
                );
            }
            index.put(Arc::new(Entry::new(record, target)));
        }
        index
    }

    pub(super) fn tenant(&self, id: &str) -> Option<&Arc<TenantEntry>> {
        self.tenants.get(id)
    }

    pub(super) fn entry(&self, key: DestinationKey) -> Option<&Arc<Entry>> {
        self.entries.get(&key)
    }

    pub(super) fn disabled(&self) -> impl Iterator<Item = DestinationKey> {
        self.all().filter(|(_, disabled)| *disabled).map(|(key, _)| key)
    }

    /// Every destination, and whether it is disabled.
    pub(super) fn all(&self) -> impl Iterator<Item = (DestinationKey, bool)> {
        self.entries
            .iter()
            .map(|(key, entry)| (*key, entry.target.disabled))
    }

    /// The destinations whose retry policy is this JSON text.
    pub(super) fn with_policy(&self, text: &str) -> Vec<Arc<Entry>> {
        self.entries
            .values()
            .filter(|entry| entry.record.retry_policy.as_deref() == Some(text))
            .cloned()
            .collect()
    }

    /// How many destinations there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a tenant, or replaces what is said about it.
    pub(super) fn put_tenant(&mut self, tenant: Tenant) {
        match self.tenants.get_mut(&tenant.id) {
            Some(known) => Arc::make_mut(known).tenant = tenant,
            None => {
                let id = tenant.id.clone();
                self.tenants.insert(
                    id,
                    Arc::new(TenantEntry {
                        tenant,
                        destinations: Vec::new(),
                    }),
                );
            }
        }
    }

    /// Adds a destination, or replaces it. Without effect when its tenant is gone.
    pub(super) fn put(&mut self, entry: Arc<Entry>) {
        let Some(tenant) = self.tenants.get_mut(&entry.target.tenant_id) else {
            return;
        };
        let tenant = Arc::make_mut(tenant);
        if let Some(old) = self.entries.insert(entry.record.key, Arc::clone(&entry))
            && let Ok(at) = tenant.position(&old)
        {
            tenant.destinations.remove(at);
        }
        let at = tenant.position(&entry).unwrap_or_else(|at| at);
        tenant.destinations.insert(at, entry);
    }

    /// Forgets a destination.
    pub(super) fn remove(&mut self, key: DestinationKey) {
        let Some(entry) = self.entries.remove(&key) else {
            return;
        };
        if let Some(tenant) = self.tenants.get_mut(&entry.target.tenant_id) {
            let tenant = Arc::make_mut(tenant);
            if let Ok(at) = tenant.position(&entry) {
                tenant.destinations.remove(at);
            }
        }
    }

    /// Forgets a tenant and its destinations.
    pub(super) fn remove_tenant(&mut self, id: &str) {
        if let Some(tenant) = self.tenants.remove(id) {
            for entry in &tenant.destinations {
                self.entries.remove(&entry.record.key);
            }
        }
    }
}
