//! The trait's methods: each hands a function to the writer or to a reader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::dispatcher::Protection;
use postrider_core::id::{DestinationKey, EventKey, IdCodec, TenantKey};
use postrider_core::time::Timestamp;

use super::queue::{Class, Weight};
use super::write::accept::Prepared;
use super::writer::Life;
use super::{SqliteStore, json, read, schema, start, write};
use crate::Store;
use crate::error::StoreError;
use crate::feed::Feed;
use crate::page::Page;
use crate::record::{
    Accepted, Attempt, AttemptQuery, Backlog, Changed, Created, Delivery, DeliveryQuery, Destination,
    DuePage, DueQuery, Event, EventQuery, Metadata, NamedPolicy, NewEvent, Payload, PolicyChange,
    PolicyDeleted, PolicyPut, Retried, Settlement, Stats, Tenant, TenantQuery, Upserted,
};

/// Changes by operators: rare and small.
const CHANGE: Weight = Weight { rows: 1, bytes: 0 };

#[async_trait]
impl Store for SqliteStore {
    fn ids(&self) -> &IdCodec {
        &self.ids
    }

    fn feed(&self) -> &Feed {
        &self.feed
    }

    async fn upsert_tenant(
        &self,
        id: &str,
        metadata: Option<Metadata>,
        now: Timestamp,
    ) -> Result<Upserted, StoreError> {
        let id = id.to_owned();
        self.write(Class::Progress, CHANGE, move |work| {
            write::tenants::upsert(work, &id, metadata.as_ref(), now)
        })
        .await
    }

    async fn tenant(&self, id: &str) -> Result<Option<Tenant>, StoreError> {
        let id = id.to_owned();
        self.readers
            .run(move |conn| read::directory::tenant(conn, &id))
            .await
    }

    async fn tenants(&self, query: TenantQuery) -> Result<(Page<Tenant>, u64), StoreError> {
        self.readers
            .run(move |conn| read::directory::tenants(conn, &query))
            .await
    }

    async fn delete_tenant(
        &self,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<Vec<DestinationKey>>, StoreError> {
        let id = id.to_owned();
        self.write(Class::Progress, CHANGE, move |work| {
            write::tenants::delete(work, &id, now)
        })
        .await
    }

    async fn directory(&self) -> Result<(Vec<Tenant>, Vec<Destination>), StoreError> {
        let seal = self.seal.clone();
        self.readers
            .run_unbounded(move |conn| read::directory::all(conn, &seal))
            .await
    }

    async fn create_destination(&self, new: Destination, max_per_tenant: u32) -> Result<Created, StoreError> {
        self.write(Class::Progress, CHANGE, move |work| {
            write::destinations::create(work, &new, max_per_tenant)
        })
        .await
    }

    async fn change_destination(&self, destination: Destination) -> Result<Changed, StoreError> {
        self.write(Class::Progress, CHANGE, move |work| {
            write::destinations::change(work, &destination)
        })
        .await
    }

    async fn delete_destination(
        &self,
        tenant: TenantKey,
        key: DestinationKey,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write(Class::Progress, CHANGE, move |work| {
            write::destinations::delete(work, tenant, key, now)
        })
        .await
    }

    async fn retry_policies(&self) -> Result<Vec<NamedPolicy>, StoreError> {
        self.readers.run(read::policies::all).await
    }

    async fn put_retry_policy(
        &self,
        name: &str,
        policy: &str,
        max: u32,
        now: Timestamp,
    ) -> Result<PolicyPut, StoreError> {
        let (name, policy) = (name.to_owned(), policy.to_owned());
        self.write(Class::Progress, CHANGE, move |work| {
            write::policies::put(work, &name, &policy, max, now)
        })
        .await
    }

    async fn delete_retry_policy(&self, name: &str, now: Timestamp) -> Result<PolicyDeleted, StoreError> {
        let name = name.to_owned();
        self.write(Class::Progress, CHANGE, move |work| {
            write::policies::delete(work, &name, now)
        })
        .await
    }

    async fn retry_policy_changes(&self, name: &str, limit: usize) -> Result<Vec<PolicyChange>, StoreError> {
        let name = name.to_owned();
        self.readers
            .run(move |conn| read::policies::changes(conn, &name, limit))
            .await
    }

    async fn accept(&self, events: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Accepted>, StoreError> {
        let weight = Weight {
            rows: events.iter().map(|event| 1 + event.destinations.len()).sum(),
            bytes: events.iter().map(|event| event.data.len()).sum(),
        };
        let prepared: Vec<Prepared> = events
            .into_iter()
            .map(|event| Prepared {
                metadata: (!event.metadata.is_empty()).then(|| json::from_map(&event.metadata)),
                event,
            })
            .collect();
        self.write(Class::Intake, weight, move |work| {
            write::accept::accept(work, &prepared, now)
        })
        .await
    }

    async fn destinations_with_pending(&self) -> Result<Vec<DestinationKey>, StoreError> {
        self.readers
            .run_unbounded(read::lane::destinations_with_pending)
            .await
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .run_for_engine(move |conn| read::lane::due(conn, &ids, &query))
            .await
    }

    async fn payload(&self, event: EventKey) -> Result<Option<Arc<Payload>>, StoreError> {
        let ids = self.ids.clone();
        let payload = self
            .readers
            .run_for_engine(move |conn| read::lane::payload(conn, &ids, event))
            .await?;
        Ok(payload.map(Arc::new))
    }

    async fn settle(&self, batch: Arc<Vec<Settlement>>, now: Timestamp) -> Result<(), StoreError> {
        let kept = |settlement: &Settlement| {
            settlement
                .attempt
                .as_ref()
                .map_or(0, |attempt| attempt.response_body.len())
        };
        let weight = Weight {
            rows: batch.len(),
            bytes: batch.iter().map(kept).sum(),
        };
        self.write(Class::Result, weight, move |work| {
            write::settle::settle(work, &batch, now)
        })
        .await
    }

    async fn retry(
        &self,
        tenant: Option<&str>,
        event_id: &str,
        destination: DestinationKey,
        now: Timestamp,
    ) -> Result<Retried, StoreError> {
        let (tenant, event_id) = (tenant.map(str::to_owned), event_id.to_owned());
        self.write(Class::Progress, CHANGE, move |work| {
            write::retry::retry(work, tenant.as_deref(), &event_id, destination, now)
        })
        .await
    }

    async fn keep_protection(
        &self,
        changes: Vec<(DestinationKey, Option<Protection>)>,
    ) -> Result<(), StoreError> {
        let weight = Weight {
            rows: changes.len(),
            bytes: 0,
        };
        self.write(Class::Progress, weight, move |work| {
            write::protection::keep(work, &changes)
        })
        .await
    }

    async fn protections(&self) -> Result<Vec<(DestinationKey, Protection)>, StoreError> {
        self.readers.run_unbounded(read::protection::all).await
    }

    async fn backlog(&self, destination: DestinationKey, at_most: u32) -> Result<Backlog, StoreError> {
        self.readers
            .run(move |conn| read::protection::backlog(conn, destination, at_most))
            .await
    }

    async fn events(&self, query: EventQuery) -> Result<Page<Event>, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .walk(move |conn, until| read::events::events(conn, &ids, &query, until))
            .await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Page<Delivery>, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .walk(move |conn, until| read::deliveries::deliveries(conn, &ids, &query, until))
            .await
    }

    async fn delivery(&self, id: &str) -> Result<Option<Delivery>, StoreError> {
        let (ids, id) = (self.ids.clone(), id.to_owned());
        self.readers
            .run(move |conn| read::deliveries::by_id(conn, &ids, &id))
            .await
    }

    async fn attempts(&self, query: AttemptQuery) -> Result<Page<Attempt>, StoreError> {
        let ids = self.ids.clone();
        self.readers
            .walk(move |conn, until| read::attempts::attempts(conn, &ids, &query, until))
            .await
    }

    async fn attempt(&self, id: &str) -> Result<Option<Attempt>, StoreError> {
        let (ids, id) = (self.ids.clone(), id.to_owned());
        self.readers
            .run(move |conn| read::attempts::by_id(conn, &ids, &id))
            .await
    }

    async fn stats(&self, now: Timestamp) -> Result<Stats, StoreError> {
        let oldest_due_at = self
            .readers
            .run(move |conn| read::stats::oldest_due_at(conn, now))
            .await?;
        let counters = &self.counters;
        Ok(Stats {
            pending: u64::try_from(counters.pending.load(Ordering::Relaxed)).unwrap_or(0),
            dead: u64::try_from(counters.dead.load(Ordering::Relaxed)).unwrap_or(0),
            oldest_due_at,
            queued: self.queue.len() as u64,
            commits: counters.commits.load(Ordering::Relaxed),
            committed_operations: counters.operations.load(Ordering::Relaxed),
            commit_time: Duration::from_nanos(counters.commit_nanos.load(Ordering::Relaxed)),
            ended: *counters.ended.lock(),
        })
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.write(Class::Progress, CHANGE, |work| schema::count_ping(work.conn))
            .await
    }

    async fn death(&self) -> String {
        let mut life = self.writer.life.subscribe();
        loop {
            if let Life::Died(why) = &*life.borrow_and_update() {
                return why.clone();
            }
            // The sender lives as long as the store.
            drop(life.changed().await);
        }
    }

    async fn revive(&self) -> bool {
        self.start_again(start);
        let mut life = self.writer.life.subscribe();
        let settled = life.wait_for(|life| *life != Life::Starts).await;
        matches!(settled.as_deref(), Ok(Life::Works))
    }

    async fn close(&self) {
        self.queue.close();
        let tenure = self.tenure.lock().take();
        if let Some(tenure) = tenure {
            let ended = tokio::task::spawn_blocking(|| tenure.end()).await;
            if ended.is_err() {
                tracing::error!("the store was not closed in order");
            }
        }
        self.readers.close();
    }
}
