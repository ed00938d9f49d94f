//! Tests of the stores: one conformance suite that every backend runs, and what is particular to each.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod conformance;
mod sqlite;
