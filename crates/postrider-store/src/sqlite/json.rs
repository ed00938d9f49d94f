//! Small structured values as JSON text in a column.

use std::collections::BTreeMap;

use super::failure::Fault;
use crate::record::Metadata;

/// A map as JSON.
pub(super) fn from_map(map: &Metadata) -> String {
    serde_json::to_string(map).unwrap_or_else(|_| "{}".to_owned())
}

/// A list as JSON.
pub(super) fn from_list(list: &[String]) -> String {
    serde_json::to_string(list).unwrap_or_else(|_| "[]".to_owned())
}

/// The inverse of [`from_map`].
pub(super) fn to_map(text: &str) -> Result<BTreeMap<String, String>, Fault> {
    serde_json::from_str(text).map_err(|_| Fault::corrupt("a column holds no JSON object of texts"))
}

/// The inverse of [`from_list`].
pub(super) fn to_list(text: &str) -> Result<Vec<String>, Fault> {
    serde_json::from_str(text).map_err(|_| Fault::corrupt("a column holds no JSON array of texts"))
}
