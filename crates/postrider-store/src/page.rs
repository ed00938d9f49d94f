//! Pages of lists: exact cursors over keys.
//!
//! A cursor names the last key that was looked at, so rows that arrive or vanish between two pages neither repeat nor
//! hide others. A page may be shorter than its limit and still have a next one: a filter that matches little
//! stops after a bounded number of rows and goes on from there.

use postrider_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Which way a list runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Oldest first.
    Ascending,
    /// Newest first.
    #[default]
    Descending,
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cursor {
    /// At the first row of the list's direction.
    #[default]
    Start,
    /// Rows that follow this key in the list's direction.
    After(i64),
    /// Rows that precede this key in the list's direction: the page before. Still answered in the list's direction.
    Before(i64),
}

/// One page wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    /// Rows at most, 1 to 1,000.
    pub limit: usize,
    /// Which way.
    pub direction: Direction,
    /// From where.
    pub cursor: Cursor,
}

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows, in the list's direction.
    pub rows: Vec<T>,
    /// Key for [`Cursor::After`] of the next page; `None` at the end.
    pub next: Option<i64>,
    /// Key for [`Cursor::Before`] of the previous page; `None` at the beginning.
    pub prev: Option<i64>,
}

/// A range of instants; every bound optional, all that are given hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeRange {
    /// At or after.
    pub gte: Option<Timestamp>,
    /// After.
    pub gt: Option<Timestamp>,
    /// At or before.
    pub lte: Option<Timestamp>,
    /// Before.
    pub lt: Option<Timestamp>,
}
