//! Tests of the program from outside: in process (`api`, `courier`, the simulation) and as a process (`e2e`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod cli;
mod courier;
mod deploy;
mod e2e;
mod simulation;
