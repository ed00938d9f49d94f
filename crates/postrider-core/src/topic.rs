//! Topics.
/// A topic or pattern that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTopic(pub String);

/// What a destination subscribes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSet {
    patterns: Vec<String>,
}

impl TopicSet {
    /// From patterns; `*` alone is everything.
    ///
    /// # Errors
    /// Names the pattern and what is wrong with it.
    pub fn new(patterns: Vec<String>) -> Result<Self, InvalidTopic> {
        Ok(Self { patterns })
    }
    /// Whether an event of this topic is wanted.
    #[must_use]
    pub fn matches(&self, _topic: &str) -> bool {
        todo!()
    }
    /// The patterns, sorted, without repeats.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }
}

/// Checks the topic of an event.
///
/// # Errors
/// Says what is wrong with it.
pub fn validate(_topic: &str) -> Result<(), InvalidTopic> {
    todo!()
}
