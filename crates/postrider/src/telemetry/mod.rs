//! What Postrider says about itself: logs, metrics, health.

pub mod destination_label;
pub mod health;
pub mod log;
pub mod metrics;
pub mod process;
pub mod protection;
pub mod supervisor;
