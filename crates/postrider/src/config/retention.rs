//! How long things are kept: from the keys of `[retention]` to the configuration of the part that forgets.

use postrider_core::policy::duration::text;

use super::error::Problem;
use super::resolve::Resolved;
use super::sources::Origin;
use crate::letters::archive::Archive;
use crate::letters::retention::RetentionConfig;

/// Checks what contradicts itself.
pub(super) fn retention(resolved: &Resolved, problems: &mut Vec<Problem>) -> RetentionConfig {
    let events = resolved.span_or_off("retention.events");
    let mut attempts = resolved.span_or_off("retention.attempts");
    let dead_letters = resolved.span_or_off("retention.dead_letters");
    if let Some(events) = events
        && attempts.is_none_or(|attempts| attempts > events)
    {
        // Attempts go with their event in any case.
        attempts = Some(events);
        let origin = resolved.origin("retention.attempts");
        if origin != Origin::Default {
            let longest = text(events);
            let advice = format!(
                "is longer than retention.events ({longest}), with which attempts go; make it at most {longest}, or events longer"
            );
            problems.push(Problem::at("retention.attempts", &origin, advice));
        }
    }
    let target = Some(resolved.text("retention.archive")).filter(|target| !target.is_empty());
    let archive = target.and_then(|target| {
        let about = |text: String| Problem::at("retention.archive", &resolved.origin("retention.archive"), text);
        if dead_letters.is_none() {
            let advice = "is set, but retention.dead_letters is off, so nothing would ever be archived; set a time, or leave the archive out";
            problems.push(about(advice.to_owned()));
        }
        Archive::open(target)
            .map_err(|error| {
                let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
                problems.push(about(format!("cannot be used: {error}{cause}")));
            })
            .ok()
    });
    RetentionConfig {
        events,
        attempts,
        dead_letters,
        archive,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sources::Environment;
    use super::super::{Sources, load};
    use super::*;

    fn retention(pairs: &[(&str, &str)]) -> Result<RetentionConfig, String> {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (format!("POSTRIDER_RETENTION__{name}"), (*value).to_owned()));
        let sources = Sources {
            environment: Environment::from_pairs(pairs),
            ..Sources::default()
        };
        load(&sources)
            .map(|loaded| loaded.settings.retention)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn everything_is_kept_for_thirty_days_unless_said_otherwise() {
        let month = Some(Duration::from_secs(30 * 86_400));
        let kept = retention(&[]).unwrap();
        assert_eq!(
            (kept.events, kept.attempts, kept.dead_letters),
            (month, month, month)
        );
        assert!(kept.archive.is_none());
        let kept = retention(&[("EVENTS", "1d"), ("DEAD_LETTERS", "off")]).unwrap();
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(
            (kept.events, kept.attempts, kept.dead_letters),
            (day, day, None),
            "attempts go along"
        );
        let kept = retention(&[
            ("EVENTS", "off"),
            ("ATTEMPTS", "off"),
            ("ARCHIVE", "/var/archive"),
        ])
        .unwrap();
        assert_eq!(
            (kept.events, kept.attempts, kept.dead_letters),
            (None, None, month)
        );
        assert_eq!(
            kept.archive.map(|archive| archive.to_string()).as_deref(),
            Some("/var/archive")
        );
    }

    #[test]
    fn contradictions_are_named() {
        let table = [
            (
                vec![("EVENTS", "1d"), ("ATTEMPTS", "2d")],
                "retention.attempts (environment POSTRIDER_RETENTION__ATTEMPTS) is longer than retention.events (1d), with which attempts go; make it at most 1d, or events longer",
            ),
            (
                vec![("ATTEMPTS", "off")],
                "retention.attempts (environment POSTRIDER_RETENTION__ATTEMPTS) is longer than retention.events (30d), with which attempts go; make it at most 30d, or events longer",
            ),
            (
                vec![("DEAD_LETTERS", "off"), ("ARCHIVE", "/var/archive")],
                "retention.archive (environment POSTRIDER_RETENTION__ARCHIVE) is set, but retention.dead_letters is off, so nothing would ever be archived; set a time, or leave the archive out",
            ),
            (
                vec![("ARCHIVE", "ftp://host/x")],
                "retention.archive (environment POSTRIDER_RETENTION__ARCHIVE) cannot be used: \"ftp://host/x\" is neither a directory nor an address such as s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
            ),
            (
                vec![("ARCHIVE", "s3:/foo")],
                "retention.archive (environment POSTRIDER_RETENTION__ARCHIVE) cannot be used: \"s3:/foo\" is neither a directory nor an address such as s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
            ),
            (
                vec![("EVENTS", "30s")],
                "retention.events (environment POSTRIDER_RETENTION__EVENTS) is 30s; must be from 1m to 10000d, or \"off\"",
            ),
        ];
        for (pairs, right) in table {
            assert_eq!(
                retention(&pairs).unwrap_err(),
                format!("read the configuration: {right}")
            );
        }
    }
}
