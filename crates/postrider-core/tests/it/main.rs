//! Tests that look at core from outside.

mod filters;
mod states;
