//! Custom headers.
/// Why headers are refused: one text for each wrong one, with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidHeaders(pub Vec<String>);

/// Validated names (lower case) and values, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CustomHeaders {
    entries: Vec<(String, String)>,
}

impl CustomHeaders {
    /// From the JSON text of `config.custom_headers`.
    ///
    /// # Errors
    /// Every header that is wrong, by name.
    pub fn parse(_json: &str) -> Result<Self, InvalidHeaders> {
        todo!()
    }
    /// From metadata that becomes headers.
    ///
    /// # Errors
    /// Every header that is wrong, by name.
    pub fn from_metadata(
        _metadata: &std::collections::BTreeMap<String, String>,
    ) -> Result<Self, InvalidHeaders> {
        todo!()
    }
    /// Name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
