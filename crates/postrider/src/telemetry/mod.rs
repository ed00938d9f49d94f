//! What Postrider says about itself: logs, metrics, health.

pub mod health;
pub mod metrics;
