//! What a retry policy does to a receiver, before anybody runs it: the real dispatcher and the real policy on a clock
//! that jumps from event to event.
//!
//! [`world`] plays one scenario and counts; [`variants`] takes jitter, breaker or window away;
//! [`chart`] and [`text`] show the counts. There is no network and no store here: the receiver is a model
//! ([`world::Receiver`]), and rows live in a map.

pub mod chart;
pub mod tally;
pub mod text;
pub mod variants;
pub mod world;
