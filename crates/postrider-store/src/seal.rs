//! Sealing.
