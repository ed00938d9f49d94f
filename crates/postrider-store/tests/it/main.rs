//! Tests of the stores: one conformance suite that every backend runs, and what is particular to each.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]
#![expect(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test is one story, and a table of filters is as long as there are filters"
)]

mod conformance;
mod sqlite;
