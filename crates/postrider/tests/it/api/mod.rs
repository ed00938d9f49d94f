//! The HTTP API in process: the real router over a real store in a directory of its own.

mod alerts;
mod auth;
mod batch;
mod change;
mod dead_letter_changes;
mod dead_letters;
mod destination_health;
mod destinations;
mod durability;
mod errors;
mod health;
mod health_standings;
mod lists;
mod publish;
mod replays;
mod retry;
mod retry_policies;
mod secrets;
mod server;
mod tenants;
