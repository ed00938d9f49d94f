//! The RateLimit header fields: a receiver that says that nothing remains of its quota, and for how long.
//!
//! Pure parsing: whether it means a hold is [`crate::policy`]'s business, the cap included. Understood are the current draft
//! (draft-ietf-httpapi-ratelimit-headers-10, `RateLimit: "default";r=0;t=30`), its drafts 03 to 07 (`RateLimit: limit=100,
//! remaining=0, reset=30`), the three fields of the drafts before (`RateLimit-Remaining`, `RateLimit-Reset`), and the same
//! with `X-` as long as their reset can only be a number of seconds. The newest form that is there decides; what is not
//! understood is not there.

use std::time::Duration;

/// Longer values are garbage.
const MAX_BYTES: usize = 1_024;
/// Integers of structured fields have no more digits (RFC 9651 §3.3.1).
const MAX_DIGITS: usize = 15;
/// A larger `X-RateLimit-Reset` may be an instant (a Unix time) instead of a number of seconds.
const MAX_UNSPECIFIED_SECONDS: u64 = 86_400;

/// The values of one pair of fields.
#[derive(Debug, Default, Clone, Copy)]
struct Pair<'a> {
    remaining: Option<&'a str>,
    reset: Option<&'a str>,
}

/// For how long, from the moment of the answer, nothing remains. `None` when something does, or nothing is said that is
/// understood. Of several quotas that are used up, the longest counts. Names are compared in lower case.
#[must_use]
pub fn parse<'a>(fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Option<Duration> {
    let mut lines = Vec::new();
    let (mut plain, mut extended) = (Pair::default(), Pair::default());
    for (name, value) in fields {
        let Some(text) = text(value) else { continue };
        match name {
            "ratelimit" => lines.push(text),
            "ratelimit-remaining" => plain.remaining = Some(text),
            "ratelimit-reset" => plain.reset = Some(text),
            "x-ratelimit-remaining" => extended.remaining = Some(text),
            "x-ratelimit-reset" => extended.reset = Some(text),
            _ => {}
        }
    }
    let quotas: Vec<_> = lines.iter().flat_map(|line| quotas(line)).collect();
    if !quotas.is_empty() {
        let used_up = quotas.into_iter().filter(|(remaining, _)| *remaining == 0);
        return used_up.map(|(_, reset)| Duration::from_secs(reset)).max();
    }
    let extended = extended
        .quota()
        .filter(|(_, reset)| *reset <= MAX_UNSPECIFIED_SECONDS);
    let (remaining, reset) = plain.quota().or(extended)?;
    (remaining == 0).then(|| Duration::from_secs(reset))
}

impl Pair<'_> {
    fn quota(self) -> Option<(u64, u64)> {
        Some((integer(self.remaining?)?, integer(self.reset?)?))
    }
}

/// What remains and after how many seconds there is more, for each quota of one line.
fn quotas(line: &str) -> Vec<(u64, u64)> {
    let members: Vec<_> = split(line, ',').collect();
    if let Some(quota) = dictionary(&members) {
        return vec![quota];
    }
    let quota = |member: &&str| {
        let mut parts = split(member, ';');
        let is_named = parts
            .next()
            .is_some_and(|name| name.starts_with('"') || (!name.is_empty() && !name.contains('=')));
        let parameters: Vec<_> = parts.collect();
        let value = |name| integer(parameter(&parameters, name)?);
        is_named.then_some(())?;
        Some((value("r")?, value("t")?))
    };
    members.iter().filter_map(quota).collect()
}

/// `limit=100, remaining=0, reset=30`.
fn dictionary(members: &[&str]) -> Option<(u64, u64)> {
    let value = |name| integer(parameter(members, name)?);
    Some((value("remaining")?, value("reset")?))
}

/// The value of the last `name=value`, as structured fields have it.
fn parameter<'a>(parts: &[&'a str], name: &str) -> Option<&'a str> {
    let values = parts.iter().rev().filter_map(|part| part.split_once('='));
    values
        .filter(|(known, _)| *known == name)
        .map(|(_, value)| value)
        .next()
}

/// The parts between separators that are not within quotes, without the spaces around them.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    text.split(move |character| {
        let is_end = character == separator && !quoted;
        match character {
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = character == '\\' && quoted && !escaped;
        is_end
    })
    .map(|part| part.trim_matches([' ', '\t']))
}

fn integer(text: &str) -> Option<u64> {
    let is_number = (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    (!text.is_empty() && text.len() <= MAX_BYTES).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(fields: &[(&str, &str)]) -> Option<u64> {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        parse(fields).map(|wait| wait.as_secs())
    }

    #[test]
    fn the_current_draft() {
        let table = [
            (r#""default";r=0;t=30"#, Some(30)),
            (r#""default";r=50;t=30"#, None),
            (r#" "default" ; r=0 ; t=30 "#, Some(30)),
            (r#""default";t=30;r=0"#, Some(30)),
            (r#"default;r=0;t=30"#, Some(30)),
            (r#""default";r=0;t=0"#, Some(0)),
            // Several quotas: the longest of those that are used up.
            (r#""second";r=0;t=1, "day";r=900;t=36000"#, Some(1)),
            (r#""second";r=0;t=1,"hour";r=0;t=1800"#, Some(1_800)),
            // A name may have anything in it.
            (r#""a,b;r=7;t=9\"";r=0;t=5"#, Some(5)),
            // A partition key and unknown parameters.
            (r#""default";pk=:cGsx:;r=0;t=12;x="y;r=9""#, Some(12)),
            (r#""default";r=9;r=0;t=4"#, Some(4)),
        ];
        for (value, right) in table {
            assert_eq!(parsed(&[("ratelimit", value)]), right, "{value}");
        }
        let lines = [("ratelimit", r#""a";r=1;t=2"#), ("ratelimit", r#""b";r=0;t=7"#)];
        assert_eq!(parsed(&lines), Some(7), "two lines are one list");
    }

    #[test]
    fn the_older_drafts() {
        assert_eq!(
            parsed(&[("ratelimit", "limit=100, remaining=0, reset=30")]),
            Some(30)
        );
        assert_eq!(parsed(&[("ratelimit", "limit=100, remaining=1, reset=30")]), None);
        let pair = |remaining, reset| {
            parsed(&[
                ("ratelimit-limit", "100"),
                ("ratelimit-remaining", remaining),
                ("ratelimit-reset", reset),
            ])
        };
        assert_eq!(pair("0", "30"), Some(30));
        assert_eq!(pair("3", "30"), None);
        assert_eq!(
            pair("0", "1800000000"),
            Some(1_800_000_000),
            "it is specified as seconds"
        );
    }

    #[test]
    fn with_x_only_what_cannot_be_an_instant() {
        let pair =
            |remaining, reset| parsed(&[("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)]);
        assert_eq!(pair("0", "30"), Some(30));
        assert_eq!(pair("0", "86400"), Some(86_400));
        for reset in [
            "86401",
            "1767225600",
            "1767225600000",
            "30.5",
            "Thu, 01 Jan 2026 00:00:00 GMT",
        ] {
            assert_eq!(pair("0", reset), None, "{reset}");
        }
        assert_eq!(pair("1", "30"), None);
    }

    #[test]
    fn the_newest_form_decides() {
        let old = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "60")];
        let with = |more: &[(&'static str, &'static str)]| parsed(&[&old[..], more].concat());
        assert_eq!(with(&[("ratelimit", r#""a";r=5;t=9"#)]), None);
        assert_eq!(
            with(&[("ratelimit-remaining", "5"), ("ratelimit-reset", "9")]),
            None
        );
        assert_eq!(with(&[("ratelimit", "garbage")]), Some(60));
    }

    #[test]
    fn what_is_not_understood_says_nothing() {
        let table = [
            "",
            " ",
            ",",
            ";",
            "0",
            r#""default""#,
            r#""default";r=0"#,
            r#""default";t=30"#,
            r#""default";r=-1;t=30"#,
            r#""default";r=0;t=-30"#,
            r#""default";r=0.0;t=30"#,
            r#""default";r=0;t=1e3"#,
            r#""default";r=0;t="30""#,
            r#""default";r=0;t=9999999999999999"#,
            r#""default;r=0;t=30"#,
            "r=0;t=30",
            "remaining=0",
            "reset=30",
            "remaining=0, reset=x",
            "limit=0",
        ];
        for value in table {
            assert_eq!(parsed(&[("ratelimit", value)]), None, "{value:?}");
        }
        assert_eq!(parsed(&[("ratelimit-remaining", "0")]), None);
        assert_eq!(parsed(&[("ratelimit-reset", "30")]), None);
        assert_eq!(parsed(&[]), None);
        let long = format!("{}\"a\";r=0;t=30", "\"x\";r=1;t=1,".repeat(200));
        assert_eq!(parsed(&[("ratelimit", &long)]), None);
        assert_eq!(parse([("ratelimit", b"\xff;r=0;t=30".as_slice())]), None);
    }
}
