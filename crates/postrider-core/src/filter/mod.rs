//! Filters: which of the events of its topics a destination wants, by what is in them.
//!
//! The syntax is the one that Outpost publishes: a JSON object in the shape of the event, with values to be equal to
//! or operators in their place. It is compiled once, when the destination is saved, so that a wrong filter is refused
//! with the path of what is wrong, and matching cannot fail. `docs/decisions/0022-topics-and-filters.md` holds the
//! rules, those included that the published syntax leaves open.
//!
//! Nothing here parses an event: it gets a [`Value`], whose numbers are exact from -2^63 to 2^64-1 and otherwise
//! 64-bit floating point.

mod compile;
mod matching;
mod number;

use serde_json::Value;

use crate::time::Timestamp;

/// Deepest nesting of a filter.
pub const MAX_DEPTH: usize = 32;
/// Most values, operators and fields of a filter together.
pub const MAX_NODES: usize = 2_000;
/// Most bytes of all texts of a filter together, names of fields included.
pub const MAX_TEXT_BYTES: usize = 32 << 10;

/// A filter that is not one; names the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidFilter(pub String);

/// A compiled filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    root: Condition,
}

impl Filter {
    /// Compiles; `None` for an empty filter (`{}` or `null`), which matches everything.
    ///
    /// # Errors
    /// Names the path and the operator that is wrong, or the bound that it exceeds.
    pub fn compile(filter: &Value) -> Result<Option<Self>, InvalidFilter> {
        match filter {
            Value::Null => Ok(None),
            Value::Object(fields) if fields.is_empty() => Ok(None),
            Value::Object(fields) => Ok(Some(Self {
                root: compile::root(fields)?,
            })),
            _ => Err(InvalidFilter(
                "must be an object, as {\"data\": {\"status\": \"paid\"}}".to_owned(),
            )),
        }
    }

    /// Matches against `{"id":…,"topic":…,"time":…,"metadata":…,"data":…}`. Never panics, whatever the event is; takes
    /// at most time in proportion to the size of the filter times that of the event.
    #[must_use]
    pub fn matches(&self, event: &Value) -> bool {
        matching::matches(&self.root, Some(event))
    }
}

/// What a value must be like.
#[derive(Debug, Clone, PartialEq)]
enum Condition {
    /// Equal to a scalar, or an array that contains such a value.
    Is(Operand),
    /// An array in which each of these is met by some element.
    Has(Vec<Condition>),
    /// All of these.
    All(Clauses),
}

/// The members of one object of a filter.
#[derive(Debug, Clone, PartialEq, Default)]
struct Clauses {
    tests: Vec<Test>,
    fields: Vec<(String, Condition)>,
    logic: Vec<Logic>,
}

#[derive(Debug, Clone, PartialEq)]
enum Logic {
    Or(Vec<Condition>),
    And(Vec<Condition>),
    Not(Box<Condition>),
}

/// One operator with what it compares to.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    Exist(bool),
    Eq(Operand),
    Neq(Operand),
    Order(Comparison, Operand),
    /// In a list, or a part of a text, or an element of an array. False for `$nin`.
    In {
        wanted: bool,
        set: Membership,
    },
    StartsWith(Vec<String>),
    EndsWith(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Membership {
    /// The value is one of these.
    List(Vec<Operand>),
    /// This is a part of the text, or an element of the array, that the value is.
    Part(Operand),
}

/// A value to compare with. An event's `time` is compared as an instant, however it is written.
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Json(Value),
    Instant(Timestamp),
}

#[cfg(test)]
mod tests;
