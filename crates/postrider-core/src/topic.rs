//! Topics: the category of an event, and the patterns by which destinations subscribe to categories.
//!
//! A pattern is a topic in which `*` stands for any run of characters, also an empty one and also across dots:
//! `user.*` takes `user.created` and `user.profile.updated`. That is what Outpost does, whose subscriptions work here
//! unchanged; so is that an event without a topic, or with the topic `*`, goes to every destination of its tenant
//! (`docs/decisions/0022-topics-and-filters.md`). Which topics exist at all is not known here.

/// Longest topic or pattern in bytes.
pub const MAX_TOPIC_BYTES: usize = 256;

/// Most patterns of one destination.
pub const MAX_PATTERNS: usize = 1_000;

/// In a pattern: any run of characters. As a topic: every destination.
const ANY: &str = "*";

/// A topic or pattern that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTopic(pub String);

/// What a destination subscribes to. However many patterns fit an event, the answer is one yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSet {
    /// Sorted, without repeats.
    patterns: Vec<String>,
    /// Those of `patterns` with a `*`.
    wildcards: Vec<String>,
    everything: bool,
}

impl TopicSet {
    /// From patterns; `*` alone is everything. No pattern at all takes only events that go to every destination.
    ///
    /// # Errors
    /// Names the first pattern that is wrong and what is wrong with it.
    pub fn new(mut patterns: Vec<String>) -> Result<Self, InvalidTopic> {
        if patterns.len() > MAX_PATTERNS {
            return Err(InvalidTopic(format!(
                "has {} topics, at most {MAX_PATTERNS} are possible",
                patterns.len()
            )));
        }
        for pattern in &patterns {
            check(pattern)?;
        }
        patterns.sort_unstable();
        patterns.dedup();
        let wildcards: Vec<_> = patterns
            .iter()
            .filter(|pattern| pattern.contains('*'))
            .cloned()
            .collect();
        let everything = wildcards
            .iter()
            .any(|pattern| pattern.bytes().all(|byte| byte == b'*'));
        Ok(Self {
            patterns,
            wildcards,
            everything,
        })
    }

    /// Whether an event of this topic is wanted; an event without one has the empty topic.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        self.everything
            || topic.is_empty()
            || topic == ANY
            || self
                .patterns
                .binary_search_by(|pattern| pattern.as_str().cmp(topic))
                .is_ok()
            || self
                .wildcards
                .iter()
                .any(|pattern| matches_wildcard(pattern, topic))
    }

    /// The patterns, sorted, without repeats.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }
}

/// Checks the topic of an event: 1 to 256 bytes, no spaces or control characters, and no `*` except as the whole.
///
/// # Errors
/// Says what is wrong with it.
pub fn validate(topic: &str) -> Result<(), InvalidTopic> {
    check(topic)?;
    if topic != ANY && topic.contains('*') {
        return Err(InvalidTopic(format!(
            "{topic:?} is a pattern: an event has one topic"
        )));
    }
    Ok(())
}

fn check(text: &str) -> Result<(), InvalidTopic> {
    let why = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > MAX_TOPIC_BYTES {
        format!("has {} bytes, at most {MAX_TOPIC_BYTES} are possible", text.len())
    } else if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "has a space or control character".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = text.chars().take(64).collect();
    Err(InvalidTopic(format!("{shown:?} {why}")))
}

/// Whether the pieces between the stars of `pattern` occur in `topic` in this order, the first at its start and the
/// last at its end. Taking each piece where it first occurs leaves the most room for the others.
fn matches_wildcard(pattern: &str, topic: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == topic;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(topic) = topic
        .strip_prefix(start)
        .and_then(|topic| topic.strip_suffix(end))
    else {
        return false;
    };
    let mut left = Some(topic);
    for piece in middle.split('*') {
        left = left.and_then(|text| text.find(piece).map(|at| &text[at + piece.len()..]));
    }
    left.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(patterns: &[&str]) -> TopicSet {
        TopicSet::new(patterns.iter().map(|&pattern| pattern.to_owned()).collect()).unwrap()
    }

    #[test]
    fn patterns_match_as_in_outpost() {
        let table = [
            ("user.created", "user.created", true),
            ("user.created", "user.deleted", false),
            ("user.created", "user.created.v2", false),
            ("*", "user.created", true),
            ("**", "user.created", true),
            ("user.*", "user.created", true),
            ("user.*", "user.profile.updated", true),
            ("user.*", "user.", true),
            ("user.*", "user", false),
            ("user.*", "order.created", false),
            ("*.created", "order.created", true),
            ("*.created", "user.deleted", false),
            ("order.*.completed", "order.payment.completed", true),
            ("order.*.completed", "order..completed", true),
            ("order.*.completed", "order.completed", false),
            ("order.*.completed", "order.payment.failed", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*ab*ab*", "ab", false),
            ("*ab*ab*", "xababx", true),
            ("é*", "éa", true),
        ];
        for (pattern, topic, wanted) in table {
            assert_eq!(set(&[pattern]).matches(topic), wanted, "{pattern} and {topic}");
        }
    }

    #[test]
    fn case_123_three_patterns_that_fit_are_one_yes() {
        let topics = set(&["order.*", "order.paid", "*"]);
        assert!(topics.matches("order.paid"));
    }

    #[test]
    fn events_without_a_topic_go_everywhere() {
        for topics in [set(&["user.created"]), set(&[])] {
            assert!(topics.matches("") && topics.matches("*"));
            assert!(!topics.matches("order.paid"));
        }
    }

    #[test]
    fn patterns_are_sorted_without_repeats() {
        assert_eq!(set(&["b", "a.*", "b", "a"]).patterns(), ["a", "a.*", "b"]);
    }

    #[test]
    fn refusals_name_the_pattern() {
        for (bad, why) in [
            ("", "empty"),
            ("a b", "space"),
            ("a\n", "control"),
            ("a\u{a0}b", "space"),
        ] {
            let message = TopicSet::new(vec!["fine".to_owned(), bad.to_owned()])
                .unwrap_err()
                .to_string();
            assert!(
                message.contains(why) && message.starts_with(&format!("{bad:?}")),
                "{message}"
            );
        }
        assert!(validate(&"a".repeat(256)).is_ok());
        assert!(validate(&"a".repeat(257)).is_err());
        assert!(TopicSet::new(vec!["x".to_owned(); 1_001]).is_err());
    }

    #[test]
    fn an_event_has_no_pattern_as_its_topic() {
        assert!(validate("order.paid").is_ok() && validate("*").is_ok() && validate("größe").is_ok());
        assert!(validate("order.*").unwrap_err().to_string().contains("pattern"));
    }

    /// The definition, without any cleverness.
    fn reference(pattern: &[u8], topic: &[u8]) -> bool {
        match pattern.split_first() {
            None => topic.is_empty(),
            Some((b'*', rest)) => (0..=topic.len()).any(|at| reference(rest, &topic[at..])),
            Some((first, rest)) => topic.first() == Some(first) && reference(rest, &topic[1..]),
        }
    }

    proptest! {
        #[test]
        fn wildcards_mean_what_their_definition_says(pattern in "[ab*]{0,8}", topic in "[ab]{0,8}") {
            prop_assert_eq!(matches_wildcard(&pattern, &topic), reference(pattern.as_bytes(), topic.as_bytes()));
        }
    }
}
