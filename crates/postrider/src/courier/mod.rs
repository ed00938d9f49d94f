//! The HTTP side: one signed request out, one report back.
//!
//! [`http::HttpCourier`] is the real one. It reports and never judges: what an outcome means is the policy's business, and
//! a failure is a value in the [`Report`]. It knows nothing of the store, of lanes or of breakers.

mod capture;
pub mod config;
mod connect;
mod failure;
pub mod http;
mod lease;
mod pool;
mod request;
pub mod resolve;
pub mod tls;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::delivery::PendingDelivery;
use postrider_core::outcome::Outcome;
use postrider_core::time::Timestamp;
use postrider_store::record::{Headers, Payload, Timings};

use crate::directory::target::Target;

/// One request to make.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// Where to.
    pub target: Arc<Target>,
    /// What.
    pub payload: Arc<Payload>,
    /// For which delivery.
    pub delivery: PendingDelivery,
    /// Attempt number, from 1; sent as `webhook-attempt`.
    pub number: u32,
    /// When it starts: signed as `webhook-timestamp`.
    pub now: Timestamp,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Report {
    /// For the policy.
    pub outcome: Outcome,
    /// More in words, at most 1 KiB: the TLS alert, the redirect's target, why the body broke off.
    pub detail: Option<String>,
    /// Time spent; `queue` is left zero.
    pub timings: Timings,
    /// As sent, secrets masked.
    pub request_headers: Headers,
    /// As received, bounded.
    pub response_headers: Headers,
    /// As received, bounded.
    pub response_body: Bytes,
    /// Whether the body was longer.
    pub response_truncated: bool,
}

/// Makes requests. The engine knows only this, so that the simulation can stand in for the network.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Makes one request and waits for its end, at most the target's timeout. Dropping the future gives the request up.
    async fn send(&self, parcel: Parcel) -> Report;
}
