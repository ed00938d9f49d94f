//! Tests that look at core from outside.

mod states;
