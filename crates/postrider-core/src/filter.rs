//! Filters.
use serde_json::Value;

/// A filter that is not one; names the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidFilter(pub String);

/// A compiled filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {}

impl Filter {
    /// Compiles; `None` for an empty filter, which matches everything.
    ///
    /// # Errors
    /// Names the path and the operator that is wrong.
    pub fn compile(_filter: &Value) -> Result<Option<Self>, InvalidFilter> {
        todo!()
    }
    /// Matches against `{"id":…,"topic":…,"time":…,"metadata":…,"data":…}`.
    #[must_use]
    pub fn matches(&self, _event: &Value) -> bool {
        todo!()
    }
}
