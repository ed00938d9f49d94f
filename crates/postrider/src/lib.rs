//! Postrider acts: HTTP in (`api`), HTTP out (`courier`), and the loop between them (`engine`).

pub mod alerts;
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod courier;
pub mod directory;
pub mod engine;
pub mod letters;
pub mod simulate;
pub mod telemetry;
