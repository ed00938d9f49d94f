//! What becomes of dead letters: their archive, sending them again, and forgetting them in time.
//!
//! The store keeps them, the API shows them, the engine sends them; here are the parts that work on many of them over
//! a long time, and the one format in which they leave and come back.

pub mod archive;
pub mod attempts;
pub mod gather;
pub mod line;
pub mod masked;
mod object_client;
pub mod replayer;
pub mod retention;
mod wire_bytes;
