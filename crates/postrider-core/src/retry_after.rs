//! `Retry-After`.
use std::time::Duration;

use crate::time::Timestamp;

/// The delay that a `Retry-After` value asks for. `date` is the response's own `Date`.
#[must_use]
pub fn parse(_value: &[u8], _date: Option<&[u8]>, _now: Timestamp) -> Option<Duration> {
    todo!()
}
