//! Who subscribes to what, in memory.
//!
//! Compiled once from the store's records at start and after each change, so that neither publish nor send reads the
//! store. Every change of a tenant or destination goes through here: it is written to the store first and appears in
//! memory before the caller is answered, and the two steps run in a task of their own, so that a client that goes
//! away between them cannot leave memory and store apart. It knows nothing of HTTP. See [`target::Target`] for what
//! the courier needs.

pub mod change;
pub mod compile;
pub mod context;
mod index;
mod matching;
mod originals;
pub mod policies;
pub mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use postrider_core::dispatcher::Share;
use postrider_core::guard::Guard;
use postrider_core::id::DestinationKey;
use postrider_core::policy::{Policies, RawPolicy, RetryPolicy};
use postrider_store::letter::DeadContext;
use postrider_store::record::{Destination, Tenant};
use postrider_store::{Store, StoreError};

use self::index::Index;
use self::originals::Originals;
use self::target::Target;

pub use self::matching::Published;

/// Reason of a destination that somebody disabled by the API.
pub const DISABLED_BY_REQUEST: &str = "disabled by request";

/// What all destinations have in common, from the configuration.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Which addresses a destination may have.
    pub guard: Guard,
    /// The policy of destinations without one of their own.
    pub default_policy: Arc<RetryPolicy>,
    /// What destinations may choose by name, and what their own policies are laid over. The store adds names.
    pub policies: Policies,
    /// Topics that may be published and subscribed to; empty means any.
    pub topics: Vec<String>,
    /// Timeout of a whole request for destinations without one of their own.
    pub default_timeout: Duration,
    /// Destinations that one tenant may have.
    pub max_destinations_per_tenant: u32,
    /// What tenants may have of what all share.
    pub shares: Shares,
}

/// Configured topics that a message names.
const MAX_TOPICS_SHOWN: usize = 10;

impl Rules {
    /// `must be one of: order.paid, order.canceled`, about a topic that none of the configured is; of many, the first 10.
    #[must_use]
    pub fn must_be_a_topic(&self) -> String {
        let shown = self.topics.iter().take(MAX_TOPICS_SHOWN).map(String::as_str);
        let shown = shown.collect::<Vec<_>>().join(", ");
        match self.topics.len().saturating_sub(MAX_TOPICS_SHOWN) {
            0 => format!("must be one of: {shown}"),
            more => format!("must be one of: {shown}, or {more} more (GET /topics has all)"),
        }
    }
}

/// What tenants may have of what all share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shares {
    /// Most of them.
    pub usual: Share,
    /// Some, by id.
    pub special: BTreeMap<String, Share>,
}

impl Shares {
    /// One tenant's.
    #[must_use]
    pub fn of(&self, tenant_id: &str) -> Share {
        self.special.get(tenant_id).copied().unwrap_or(self.usual)
    }
}

impl Default for Rules {
    /// Any topic, 15 s, at most 100,000 destinations a tenant.
    fn default() -> Self {
        Self {
            guard: Guard::default(),
            default_policy: Arc::default(),
            policies: Policies::default(),
            topics: Vec::new(),
            default_timeout: Duration::from_secs(15),
            max_destinations_per_tenant: 100_000,
            shares: Shares::default(),
        }
    }
}

/// A destination as it is stored, and as it is used.
#[derive(Debug, Clone)]
pub struct Entry {
    /// For its owner's eyes.
    pub record: Destination,
    /// For matching, judging and sending.
    pub target: Arc<Target>,
    /// Made when the first of its deliveries dies: most destinations never need it.
    context: OnceLock<DeadContext>,
}

impl Entry {
    /// A record with the target that was compiled from it.
    #[must_use]
    pub fn new(record: Destination, target: Target) -> Self {
        Self {
            record,
            target: Arc::new(target),
            context: OnceLock::new(),
        }
    }

    /// What a dead letter keeps of it.
    #[must_use]
    pub fn context(&self) -> DeadContext {
        let make = || context::write(&self.record, &self.target);
        self.context.get_or_init(make).clone()
    }
}

/// A tenant with what its destinations add to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// The tenant.
    pub tenant: Tenant,
    /// How many destinations it has.
    pub destinations_count: usize,
    /// Union of their topic patterns, sorted; `["*"]` when one subscribes to everything.
    pub topics: Vec<String>,
}

/// All tenants and destinations, compiled.
pub struct Directory {
    store: Arc<dyn Store>,
    /// Replaced when a named policy changes.
    rules: RwLock<Arc<Rules>>,
    /// Held for look-ups and swaps only, never over an await.
    index: RwLock<Index>,
    originals: Originals,
    locks: change::Locks,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory")
            .field("destinations", &self.len())
            .finish_non_exhaustive()
    }
}

impl Directory {
    /// Reads everything from the store. A destination that the rules no longer allow stays listed; its target cannot be
    /// sent to and says why.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn load(store: Arc<dyn Store>, mut rules: Rules) -> Result<Arc<Self>, StoreError> {
        for stored in store.retry_policies().await? {
            match RawPolicy::read(&stored.policy) {
                Ok(policy) => drop(rules.policies.named.insert(stored.name, policy)),
                Err(unread) => {
                    tracing::error!(
                        name = stored.name,
                        problems = ?unread.problems,
                        "a stored retry policy cannot be read"
                    );
                }
            }
        }
        let (tenants, destinations) = store.directory().await?;
        let index = Index::build(tenants, destinations, &rules);
        Ok(Arc::new(Self {
            store,
            rules: RwLock::new(Arc::new(rules)),
            index: RwLock::new(index),
            originals: Originals::default(),
            locks: change::Locks::default(),
        }))
    }

    /// What all destinations have in common.
    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// A destination that exists, disabled ones included; `None` once it is deleted.
    #[must_use]
    pub fn target(&self, key: DestinationKey) -> Option<Arc<Target>> {
        self.index
            .read()
            .entry(key)
            .map(|entry| Arc::clone(&entry.target))
    }

    /// A destination by its key.
    #[must_use]
    pub fn entry(&self, key: DestinationKey) -> Option<Arc<Entry>> {
        self.index.read().entry(key).cloned()
    }

    /// Every destination, and whether it is disabled, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<(DestinationKey, bool)> {
        self.index.read().all().collect()
    }

    /// Some of the destinations that were disabled, but not by request, with the reasons; `limit` at most. Looks at all.
    #[must_use]
    pub fn given_up(&self, limit: usize) -> Vec<(DestinationKey, String)> {
        let index = self.index.read();
        let reason = |key| {
            let disabled = index.entry(key)?.record.disabled.as_ref()?;
            (disabled.reason != DISABLED_BY_REQUEST).then(|| (key, disabled.reason.clone()))
        };
        index.disabled().filter_map(reason).take(limit).collect()
    }

    /// A destination by its public id.
    #[must_use]
    pub fn destination(&self, tenant_id: &str, id: &str) -> Option<Arc<Entry>> {
        self.index.read().tenant(tenant_id)?.destination(id).cloned()
    }

    /// The destinations of a tenant in order of creation; `None` when there is no such tenant.
    #[must_use]
    pub fn destinations(&self, tenant_id: &str) -> Option<Vec<Arc<Entry>>> {
        self.index
            .read()
            .tenant(tenant_id)
            .map(|tenant| tenant.destinations.clone())
    }

    /// A tenant.
    #[must_use]
    pub fn tenant(&self, id: &str) -> Option<TenantView> {
        let tenant = Arc::clone(self.index.read().tenant(id)?);
        Some(tenant.view())
    }

    /// Whether there is such a tenant.
    #[must_use]
    pub fn has_tenant(&self, id: &str) -> bool {
        self.index.read().tenant(id).is_some()
    }

    /// How many destinations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.read().len()
    }

    /// Whether there is no destination.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether events of this topic may be published.
    #[must_use]
    pub fn is_known_topic(&self, topic: &str) -> bool {
        let topics = &self.rules.read().topics;
        topics.is_empty() || topics.iter().any(|known| known == topic)
    }
}
