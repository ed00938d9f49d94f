//! Postrider's decisions: what to send, when, and what an answer means.
//!
//! This crate has no runtime, no SQL, no HTTP client, no clock and no source of randomness: the present time
//! and seeds are parameters, so that a forecast, a restart and a test agree to the millisecond. A failed
//! attempt is a value ([`outcome::Outcome`]), never an `Err`.

pub mod alert;
pub mod breaker;
pub mod delivery;
pub mod dispatcher;
pub mod filter;
pub mod guard;
pub mod hash;
pub mod header;
pub mod id;
pub mod outcome;
pub mod policy;
pub mod pulse;
pub mod rate;
pub mod rate_fields;
pub mod replay;
pub mod retry_after;
pub mod secret;
pub mod signing;
pub mod streak;
pub mod time;
pub mod topic;
pub mod window;
pub mod words;
