//! Changes of tenants and destinations: store first, then memory.
//!
//! Order is kept by locks that are held over both steps, taken in the order policies, tenant, destination: changes of one
//! destination follow one another; creations and changes within a tenant run side by side, but not beside the tenant's own,
//! or a destination of a tenant that was deleted and made anew meanwhile would come back; changes of a named retry policy run
//! alone. A task of its own carries out each change, so that dropping the caller's future interrupts nothing.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;
use postrider_store::StoreError;
use postrider_store::record::{Changed, Created, Destination, Disabled, Metadata, Tenant, Upserted};
use tokio::sync::{Mutex, RwLock};

use super::compile::compile;
use super::{Directory, Entry};

const SHARDS: usize = 64;

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such tenant.
    #[error("find the tenant")]
    TenantMissing,
    /// There is no such destination.
    #[error("find the destination")]
    DestinationMissing,
    /// The tenant has a destination with this id.
    #[error("create the destination: its id is taken")]
    Exists,
    /// The tenant has as many destinations as it may.
    #[error("create the destination: the tenant has as many as it may")]
    LimitReached,
    /// The destination or policy would be wrong: one text for each fault, with its field.
    #[error("accept the change: {}", .0.join("; "))]
    Invalid(Vec<String>),
    /// Another process changed the destination at the same time.
    #[error("change the destination: it was changed at the same time")]
    Conflict,
    /// The store did not do it.
    #[error("store the change")]
    Store(#[from] StoreError),
    /// The task that made the change died. It may or may not have happened.
    #[error("finish the change")]
    Interrupted,
}

/// Locks by hash; two things may share one.
#[derive(Debug)]
pub(super) struct Locks {
    hasher: RandomState,
    tenants: [RwLock<()>; SHARDS],
    destinations: [Mutex<()>; SHARDS],
    /// Written by changes of named policies; read by changes of destinations, which may come to name one.
    pub(super) policies: RwLock<()>,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            tenants: std::array::from_fn(|_| RwLock::new(())),
            destinations: std::array::from_fn(|_| Mutex::new(())),
            policies: RwLock::new(()),
        }
    }
}

impl Locks {
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    fn tenant(&self, id: &str) -> &RwLock<()> {
        &self.tenants[self.hasher.hash_one(id) as usize % SHARDS]
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    fn destination(&self, key: DestinationKey) -> &Mutex<()> {
        &self.destinations[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl Directory {
    /// Creates a tenant or replaces its metadata.
    ///
    /// # Errors
    /// [`ChangeError::Store`] and [`ChangeError::Interrupted`].
    pub async fn upsert_tenant(
        self: &Arc<Self>,
        id: String,
        metadata: Option<Metadata>,
        now: Timestamp,
    ) -> Result<Upserted, ChangeError> {
        self.carry_out(async move |directory| {
            let _guard = directory.locks.tenant(&id).write().await;
            let upserted = directory.store.upsert_tenant(&id, metadata, now).await?;
            let (Upserted::Created(tenant) | Upserted::Updated(tenant)) = &upserted;
            directory.index.write().put_tenant(tenant.clone());
            Ok(upserted)
        })
        .await
    }

    /// Deletes a tenant and its destinations.
    ///
    /// # Errors
    /// [`ChangeError::TenantMissing`], [`ChangeError::Store`] and [`ChangeError::Interrupted`].
    pub async fn delete_tenant(self: &Arc<Self>, id: String, now: Timestamp) -> Result<(), ChangeError> {
        self.carry_out(async move |directory| {
            let _guard = directory.locks.tenant(&id).write().await;
            let deleted = directory.store.delete_tenant(&id, now).await?;
            directory.index.write().remove_tenant(&id);
            for key in deleted.iter().flatten() {
                directory.store.feed().spilled(*key);
            }
            deleted.map(drop).ok_or(ChangeError::TenantMissing)
        })
        .await
    }

    /// Creates a destination of a tenant; key, tenant and revision of `draft` are filled in. `faults` are those that
    /// were found while it was read: with any, nothing is created, and all that is wrong is named together.
    ///
    /// # Errors
    /// All but [`ChangeError::DestinationMissing`] and [`ChangeError::Conflict`].
    pub async fn create(
        self: &Arc<Self>,
        tenant_id: String,
        mut draft: Destination,
        faults: Vec<String>,
    ) -> Result<Arc<Entry>, ChangeError> {
        self.carry_out(async move |directory| {
            let _policies = directory.locks.policies.read().await;
            let _guard = directory.locks.tenant(&tenant_id).read().await;
            draft.tenant = directory
                .tenant_record(&tenant_id)
                .ok_or(ChangeError::TenantMissing)?
                .key;
            let (_, compiled) = compile(&draft, &tenant_id, &directory.rules());
            let faults = join_faults(faults, compiled);
            if !faults.is_empty() {
                return Err(ChangeError::Invalid(faults));
            }
            let limit = directory.rules().max_destinations_per_tenant;
            match directory.store.create_destination(draft, limit).await? {
                Created::Created(record) => Ok(directory.install(record, &tenant_id)),
                Created::Exists => Err(ChangeError::Exists),
                Created::LimitReached => Err(ChangeError::LimitReached),
                Created::TenantMissing => Err(ChangeError::TenantMissing),
            }
        })
        .await
    }

    /// Changes a destination by `edit`, which sees it as it is and answers what is wrong with the edit, in texts for
    /// its owner. An edit that changes nothing writes nothing.
    ///
    /// # Errors
    /// All but [`ChangeError::Exists`] and [`ChangeError::LimitReached`]. [`ChangeError::Invalid`] names only faults
    /// that the destination did not have before, so that one which is no longer allowed can still be disabled.
    pub async fn change<F>(
        self: &Arc<Self>,
        tenant_id: &str,
        id: &str,
        now: Timestamp,
        edit: F,
    ) -> Result<Arc<Entry>, ChangeError>
    where
        F: FnOnce(&mut Destination) -> Vec<String> + Send + 'static,
    {
        let key = self.find(tenant_id, id)?.record.key;
        self.change_by_key(key, now, edit).await
    }

    /// Deletes a destination; its pending deliveries are canceled.
    ///
    /// # Errors
    /// [`ChangeError::TenantMissing`], [`ChangeError::DestinationMissing`], [`ChangeError::Store`] and
    /// [`ChangeError::Interrupted`].
    pub async fn delete(
        self: &Arc<Self>,
        tenant_id: &str,
        id: &str,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let entry = self.find(tenant_id, id)?;
        let (tenant, key) = (entry.record.tenant, entry.record.key);
        let tenant_id = tenant_id.to_owned();
        self.carry_out(async move |directory| {
            let _tenant = directory.locks.tenant(&tenant_id).read().await;
            let _guard = directory.locks.destination(key).lock().await;
            let was_there = directory.store.delete_destination(tenant, key, now).await?;
            directory.index.write().remove(key);
            // So that a lane that was paused lets go of what it holds.
            directory.store.feed().spilled(key);
            was_there.then_some(()).ok_or(ChangeError::DestinationMissing)
        })
        .await
    }

    /// Disables a destination on the system's behalf, with the reason in words. Does nothing if it is disabled or gone; a
    /// failure to store it is logged, since the next answer of the receiver will ask for it again.
    pub async fn disable(self: &Arc<Self>, key: DestinationKey, reason: String, now: Timestamp) {
        let edit = move |record: &mut Destination| {
            record.disabled.get_or_insert(Disabled { at: now, reason });
            Vec::new()
        };
        match self.change_by_key(key, now, edit).await {
            Ok(_) | Err(ChangeError::DestinationMissing) => {}
            Err(error) => tracing::error!(
                destination = %key,
                error = &error as &dyn std::error::Error,
                "failed to disable a destination"
            ),
        }
    }

    async fn change_by_key<F>(
        self: &Arc<Self>,
        key: DestinationKey,
        now: Timestamp,
        edit: F,
    ) -> Result<Arc<Entry>, ChangeError>
    where
        F: FnOnce(&mut Destination) -> Vec<String> + Send + 'static,
    {
        self.carry_out(async move |directory| {
            // A key never comes to another tenant.
            let found = || directory.entry(key).ok_or(ChangeError::DestinationMissing);
            let owner = found()?;
            let _policies = directory.locks.policies.read().await;
            let _tenant = directory.locks.tenant(&owner.target.tenant_id).read().await;
            let _guard = directory.locks.destination(key).lock().await;
            let old = found()?;
            let tenant_id = &old.target.tenant_id;
            let mut record = old.record.clone();
            let faults = edit(&mut record);
            if record == old.record && faults.is_empty() {
                return Ok(old);
            }
            record.updated_at = now;
            let (_, mut compiled) = compile(&record, tenant_id, &directory.rules());
            if !compiled.is_empty() {
                let (_, known) = compile(&old.record, tenant_id, &directory.rules());
                compiled.retain(|fault| !known.contains(fault));
            }
            let faults = join_faults(faults, compiled);
            if !faults.is_empty() {
                return Err(ChangeError::Invalid(faults));
            }
            match directory.store.change_destination(record).await? {
                Changed::Changed(record) => {
                    let entry = directory.install(record, tenant_id);
                    if old.target.disabled && !entry.target.disabled {
                        // What was pending when it was disabled goes on.
                        directory.store.feed().spilled(key);
                    }
                    Ok(entry)
                }
                Changed::Conflict => Err(ChangeError::Conflict),
                Changed::Missing => {
                    directory.index.write().remove(key);
                    Err(ChangeError::DestinationMissing)
                }
            }
        })
        .await
    }

    /// Runs a change in a task of its own.
    pub(super) async fn carry_out<T, F>(
        self: &Arc<Self>,
        change: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, ChangeError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ChangeError>> + Send + 'static,
    {
        let task = tokio::spawn(change(Arc::clone(self)));
        task.await.unwrap_or(Err(ChangeError::Interrupted))
    }

    fn install(&self, record: Destination, tenant_id: &str) -> Arc<Entry> {
        let (target, _) = compile(&record, tenant_id, &self.rules());
        let entry = Arc::new(Entry::new(record, target));
        self.index.write().put(Arc::clone(&entry));
        entry
    }

    fn tenant_record(&self, id: &str) -> Option<Tenant> {
        self.index.read().tenant(id).map(|tenant| tenant.tenant.clone())
    }

    fn find(&self, tenant_id: &str, id: &str) -> Result<Arc<Entry>, ChangeError> {
        let tenant = self
            .index
            .read()
            .tenant(tenant_id)
            .cloned()
            .ok_or(ChangeError::TenantMissing)?;
        tenant
            .destination(id)
            .cloned()
            .ok_or(ChangeError::DestinationMissing)
    }
}

/// All faults, but only the first word on each field: a field that could not be read is not missing as well.
fn join_faults(read: Vec<String>, compiled: Vec<String>) -> Vec<String> {
    let field = |fault: &str| fault.split(' ').next().unwrap_or_default().to_owned();
    let known: Vec<_> = read.iter().map(|fault| field(fault)).collect();
    let is_news = |fault: &String| {
        let field = field(fault);
        !known.iter().any(|known| {
            field == *known
                || field
                    .strip_prefix(known)
                    .is_some_and(|rest| rest.starts_with('.'))
        })
    };
    let mut faults = read;
    faults.extend(compiled.into_iter().filter(is_news));
    faults
}
