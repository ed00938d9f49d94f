//! Which dead letters are meant: one filter for the list, the summary, the export, a purge and a replay.
//!
//! In a query as in every list; in a body under the same names, each a value or an array of values. A body that
//! destroys or sends is read strictly: an unknown or empty field would widen it to more than was meant.

use std::str::FromStr;

use postrider_core::words::UnknownWord;
use postrider_store::letter::DeadLetterFilter;
use postrider_store::page::TimeRange;

use super::super::json::{EMPTY_FILTER, Fields, NULL, Sent};
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

/// Takes it from the fields of a body.
pub(in super::super) fn from_body(fields: &mut Fields<'_>, faults: &mut Vec<String>) -> DeadLetterFilter {
    let mut found = Vec::new();
    let filter = DeadLetterFilter {
        tenant_ids: fields.texts("tenant_id", faults),
        destination_ids: fields.texts("destination_id", faults),
        topics: fields.texts("topic", faults),
        reasons: words("reason", &fields.texts("reason", faults), &mut found),
        categories: words("category", &fields.texts("category", faults), &mut found),
        codes: codes(&fields.texts("code", faults), &mut found),
        died: died(fields, faults),
        text: fields.take("text").narrowing_text("text", faults),
        ids: fields.texts("id", faults),
    };
    check_text(filter.text.as_deref(), &mut found);
    faults.extend(found.into_iter().map(|(field, text)| format!("{field} {text}")));
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

fn died(fields: &mut Fields<'_>, faults: &mut Vec<String>) -> TimeRange {
    let mut range = TimeRange::default();
    let Some(bounds) = fields.take("died_at").fields("died_at", faults) else {
        return range;
    };
    if bounds.is_empty() {
        faults.push(format!("died_at {EMPTY_FILTER}"));
    }
    for (name, sent) in bounds {
        let field = format!("died_at.{name}");
        if matches!(sent, Sent::Null) {
            faults.push(format!("{field} {NULL}"));
            continue;
        }
        let bound = match name.as_str() {
            "gte" => &mut range.gte,
            "gt" => &mut range.gt,
            "lte" => &mut range.lte,
            "lt" => &mut range.lt,
            _ => {
                faults.push(format!("{field} is unknown; use gte, gt, lte or lt"));
                continue;
            }
        };
        *bound = sent.narrowing_instant(&field, faults);
    }
    range
}
