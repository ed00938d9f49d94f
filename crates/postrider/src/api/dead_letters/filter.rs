//! Which dead letters are meant: one filter for the list, the summary, the export, a purge and a replay.
//!
//! In a query as in every list.

use std::str::FromStr;

use postrider_core::words::UnknownWord;
use postrider_store::letter::DeadLetterFilter;

use super::super::query::Query;

/// Longest text to look for.
const MAX_TEXT_BYTES: usize = 300;

/// Reads it from a query; faults are noted there.
pub(super) fn from_query(query: &mut Query) -> DeadLetterFilter {
    let mut faults = Vec::new();
    let filter = DeadLetterFilter {
        tenant_ids: query.list("tenant_id"),
        destination_ids: query.list("destination_id"),
        topics: query.list("topic"),
        reasons: words("reason", &query.list("reason"), &mut faults),
        categories: words("category", &query.list("category"), &mut faults),
        codes: codes(&query.list("code"), &mut faults),
        died: query.time("died_at"),
        text: query.one("text").map(str::to_owned),
        ids: query.list("id"),
    };
    check_text(filter.text.as_deref(), &mut faults);
    for (field, text) in faults {
        query.fault(field, text);
    }
    filter
}

fn words<T: FromStr<Err = UnknownWord>>(
    field: &'static str,
    texts: &[String],
    faults: &mut Vec<(&'static str, String)>,
) -> Vec<T> {
    let mut words = Vec::with_capacity(texts.len());
    for text in texts {
        match text.parse() {
            Ok(word) => words.push(word),
            Err(unknown) => faults.push((field, UnknownWord::to_string(&unknown))),
        }
    }
    words
}

fn codes(texts: &[String], faults: &mut Vec<(&'static str, String)>) -> Vec<u16> {
    let parsed: Vec<Option<u16>> = texts
        .iter()
        .map(|text| text.parse().ok().filter(|code| (100..=999).contains(code)))
        .collect();
    if parsed.contains(&None) {
        faults.push(("code", "must be a status code from 100 to 999".to_owned()));
    }
    parsed.into_iter().flatten().collect()
}

fn check_text(text: Option<&str>, faults: &mut Vec<(&'static str, String)>) {
    if text.is_some_and(|text| text.len() > MAX_TEXT_BYTES) {
        faults.push(("text", format!("must have at most {MAX_TEXT_BYTES} bytes")));
    }
}
