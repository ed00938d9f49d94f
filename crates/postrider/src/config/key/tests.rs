//! The table of keys beside the page that describes it.

use std::collections::HashSet;

use super::*;

fn values(kind: Kind) -> String {
    use postrider_core::policy::duration::text;
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Address => "address:port".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Count(least, most) => format!("{least} to {most}"),
        Kind::Bytes(least, most) => format!("{least} to {most} bytes"),
        Kind::Span(least, most) => format!("{} to {}", text(least), text(most)),
        Kind::SpanOrOff(least, most) => format!("{} to {}, or `off`", text(least), text(most)),
        Kind::Choice(words) => format!("`{}`", words.join("`, `")),
        Kind::List => "list".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::Secrets => "list of secrets".to_owned(),
    }
}

#[test]
fn the_reference_lists_exactly_these_keys() {
    let page = include_str!("../../../../../docs/configuration.md");
    let listed: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let rows: Vec<String> = KEYS
        .iter()
        .map(|key| {
            let default = if key.default.is_empty() {
                "none".to_owned()
            } else {
                format!("`{}`", key.default)
            };
            let (path, name, values, about) = (key.path, key.environment_name(), values(key.kind), key.about);
            format!("| `{path}` | `{name}` | {values} | {default} | {about} |")
        })
        .collect();
    assert_eq!(listed, rows);
}

#[test]
fn names_are_unique_and_reversible() {
    let mut seen = HashSet::new();
    for key in KEYS {
        assert!(seen.insert(key.environment_name()), "{}", key.path);
        assert!(!key.path.contains("__"), "{}", key.path);
        assert!(key.about.ends_with('.'), "{}", key.path);
    }
    assert_eq!(
        environment_name("retry.max_attempts"),
        "POSTRIDER_RETRY__MAX_ATTEMPTS"
    );
}
