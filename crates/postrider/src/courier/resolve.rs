//! Names to addresses.
//!
//! Nothing here decides whether an address may be dialled: [`super::connect`] asks the guard about each one, at each
//! use, so that a name which changes its mind between two answers gains nothing.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Where addresses come from.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a name, in the order in which to try them.
    ///
    /// # Errors
    /// When the name has none, or nobody answers.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver (`getaddrinfo`), which orders addresses by RFC 6724.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let addresses = tokio::net::lookup_host((host, 0)).await?;
        Ok(addresses.map(|address| address.ip()).collect())
    }
}

type Lookup = Shared<BoxFuture<'static, Result<Arc<[IpAddr]>, Arc<io::Error>>>>;

/// Asks once for all who want the same name at the same time, and keeps the answer for a few seconds.
///
/// `getaddrinfo` blocks a thread until it answers, so a name whose servers are silent must not take one for each
/// waiting delivery; and no more than [`Self::MAX_LOOKUPS`] names are asked for at once.
pub(super) struct CachingResolver {
    inner: Arc<dyn Resolve>,
    keep: Duration,
    slots: Arc<Semaphore>,
    names: Mutex<HashMap<Box<str>, Cached>>,
}

struct Cached {
    asked: Instant,
    lookup: Lookup,
}

impl CachingResolver {
    const MAX_LOOKUPS: usize = 64;
    const MAX_NAMES: usize = 4096;
    const LONGEST_LOOKUP: Duration = Duration::from_secs(30);

    pub(super) fn new(inner: Arc<dyn Resolve>, keep: Duration) -> Self {
        Self {
            inner,
            keep,
            slots: Arc::new(Semaphore::new(Self::MAX_LOOKUPS)),
            names: Mutex::default(),
        }
    }

    /// The addresses of a name.
    pub(super) async fn resolve(&self, host: &str) -> Result<Arc<[IpAddr]>, Arc<io::Error>> {
        self.lookup(host, Instant::now()).await
    }

    fn lookup(&self, host: &str, now: Instant) -> Lookup {
        let mut names = self.names.lock();
        if let Some(cached) = names.get(host) {
            let age = now.duration_since(cached.asked);
            let usable = match cached.lookup.peek() {
                // Nobody has seen an answer: it may still be asked for, or have come when everybody had given up.
                None => age < Self::LONGEST_LOOKUP,
                Some(Ok(_)) => age < self.keep,
                Some(Err(_)) => false,
            };
            if usable {
                return cached.lookup.clone();
            }
        }
        if names.len() >= Self::MAX_NAMES {
            names.retain(|_, cached| now.duration_since(cached.asked) < self.keep);
        }
        let lookup = self.ask(host);
        names.insert(
            host.into(),
            Cached {
                asked: now,
                lookup: lookup.clone(),
            },
        );
        lookup
    }

    /// A lookup that goes on when those who wait for it give up, so that the next asker joins it.
    fn ask(&self, host: &str) -> Lookup {
        let (inner, slots, host) = (Arc::clone(&self.inner), Arc::clone(&self.slots), host.to_owned());
        let task = tokio::spawn(async move {
            let _slot = slots.acquire_owned().await.map_err(io::Error::other)?;
            inner.resolve(&host).await
        });
        async move {
            match task.await {
                Ok(Ok(addresses)) => Ok(addresses.into()),
                Ok(Err(error)) => Err(Arc::new(error)),
                Err(error) => Err(Arc::new(io::Error::other(error))),
            }
        }
        .boxed()
        .shared()
    }
}
