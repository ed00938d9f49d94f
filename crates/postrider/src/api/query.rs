//! Query strings: lists in their three spellings, times, pages. Every wrong parameter is named at once.

use std::num::IntErrorKind;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use postrider_core::id::IdCodec;
use postrider_core::time::{ParseTimestampError, Timestamp};
use postrider_store::page::{Cursor, Direction, Page, PageRequest, TimeRange};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::cursor::List;
use super::error::ApiError;
use super::json::OUT_OF_RANGE;

/// Values that one request may name in all.
const MAX_VALUES: usize = 1_000;

/// The parameters of a query, and what was found wrong with them so far.
#[derive(Debug, Default)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
    faults: Map<String, Value>,
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

impl Query {
    pub(super) fn parse(query: &str) -> Result<Self, ApiError> {
        let pairs = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        let pairs: Vec<_> = pairs.take(MAX_VALUES + 1).collect();
        if pairs.len() > MAX_VALUES {
            return Err(ApiError::bad_request(format!(
                "more than {MAX_VALUES} query parameters"
            )));
        }
        Ok(Self {
            pairs,
            faults: Map::new(),
        })
    }

    /// `f[0]=a&f[1]=b`, `f[]=a&f[]=b` or `f=a&f=b`; bracket forms win. Empty values are left out.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let bracketed = |key: &str| {
            let index = key.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
            if index.is_empty() {
                Some(0)
            } else {
                index.parse::<usize>().ok()
            }
        };
        let mut indexed: Vec<(usize, &String)> = self
            .pairs
            .iter()
            .filter_map(|(key, value)| Some((bracketed(key)?, value)))
            .collect();
        indexed.sort_by_key(|(index, _)| *index);
        if indexed.is_empty() {
            indexed.extend(
                self.pairs
                    .iter()
                    .filter(|(key, _)| key == name)
                    .map(|(_, value)| (0, value)),
            );
        }
        let values = indexed.into_iter().map(|(_, value)| value);
        values.filter(|value| !value.is_empty()).cloned().collect()
    }

    /// The last value of a parameter; an empty one counts as absent.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        let value = self
            .pairs
            .iter()
            .rfind(|(key, _)| key == name)
            .map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }

    /// `true` or `false` by one of two words.
    pub(super) fn choice(&mut self, name: &str, yes: &str, no: &str) -> Option<bool> {
        let value = self.one(name)?.to_owned();
        if value == yes {
            Some(true)
        } else if value == no {
            Some(false)
        } else {
            self.fault(name, format!("must be '{yes}' or '{no}'"));
            None
        }
    }

    /// `name[gte]`, `name[gt]`, `name[lte]`, `name[lt]`: RFC 3339, or a date.
    pub(super) fn time(&mut self, name: &str) -> TimeRange {
        let mut range = TimeRange::default();
        let mut faults = Vec::new();
        for (key, value) in &self.pairs {
            let Some(rest) = key.strip_prefix(name) else {
                continue;
            };
            let bound = match rest {
                "[gte]" => &mut range.gte,
                "[gt]" => &mut range.gt,
                "[lte]" => &mut range.lte,
                "[lt]" => &mut range.lt,
                _ if rest.is_empty() || rest.starts_with('[') => {
                    let text = format!("must be one of: {name}[gte], {name}[gt], {name}[lte], {name}[lt]");
                    faults.push((key.clone(), text));
                    continue;
                }
                _ => continue,
            };
            match Timestamp::parse(value) {
                Ok(instant) => *bound = Some(instant),
                Err(refused) => {
                    let text = match refused {
                        ParseTimestampError::Malformed(_) => "must be an RFC 3339 date-time or YYYY-MM-DD",
                        ParseTimestampError::OutOfRange(_) => OUT_OF_RANGE,
                    };
                    faults.push((key.clone(), text.to_owned()));
                }
            }
        }
        for (key, text) in faults {
            self.fault(&key, text);
        }
        range
    }

    /// `limit`, `dir`, `order_by`, `next` and `prev` of a list in order of time. Limits above 1,000 are 1,000.
    pub(super) fn page(&mut self, list: List, ids: &IdCodec) -> Result<PageRequest, ApiError> {
        let sent = self.one("limit");
        let limit = match sent.map(str::parse::<u64>) {
            None => 100,
            Some(Ok(limit)) if limit >= 1 => usize::try_from(limit.min(1_000)).unwrap_or(1_000),
            Some(Err(error)) if *error.kind() == IntErrorKind::PosOverflow => 1_000,
            Some(_) => {
                self.fault("limit", "must be a number from 1 to 1000");
                1
            }
        };
        if self.one("order_by").is_some_and(|order| order != "time") {
            self.fault("order_by", "must be 'time'");
        }
        Ok(PageRequest {
            limit,
            direction: self.direction(),
            cursor: self.cursor(list, ids)?,
        })
    }

    /// `dir`: newest first unless it says otherwise.
    pub(super) fn direction(&mut self) -> Direction {
        match self.choice("dir", "asc", "desc") {
            Some(true) => Direction::Ascending,
            Some(false) | None => Direction::Descending,
        }
    }

    /// `next` or `prev`, not both.
    pub(super) fn cursor(&self, list: List, ids: &IdCodec) -> Result<Cursor, ApiError> {
        let decode = |name: &str, cursor: &str| {
            list.decode(ids, cursor)
                .ok_or_else(|| ApiError::bad_request(format!("invalid {name} cursor")))
        };
        match (self.one("next"), self.one("prev")) {
            (Some(_), Some(_)) => Err(ApiError::bad_request("cannot specify both next and prev cursors")),
            (Some(next), None) => decode("next", next).map(Cursor::After),
            (None, Some(prev)) => decode("prev", prev).map(Cursor::Before),
            (None, None) => Ok(Cursor::Start),
        }
    }

    /// Notes what is wrong with a parameter.
    pub(super) fn fault(&mut self, name: &str, text: impl Into<String>) {
        self.faults
            .insert(format!("query.{name}"), Value::String(text.into()));
    }

    /// Refuses the request if any parameter was wrong. A filter by an empty id is refused too: it comes from a variable
    /// that was not set, and would show everybody's rows.
    pub(super) fn finish(mut self) -> Result<(), ApiError> {
        for (key, value) in &self.pairs {
            let name = key.split('[').next().unwrap_or_default();
            if value.is_empty() && matches!(name, "tenant_id" | "event_id" | "destination_id") {
                let text = Value::String("must not be empty".to_owned());
                self.faults.insert(format!("query.{name}"), text);
            }
        }
        if self.faults.is_empty() {
            return Ok(());
        }
        let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "validation error");
        Err(error.with_data(Value::Object(self.faults)))
    }
}

/// A page as it is answered.
#[derive(Debug, Serialize)]
pub(super) struct Models<T> {
    pub(super) models: Vec<T>,
    pub(super) pagination: Value,
}

/// The `pagination` of a page.
pub(super) fn pagination<T>(
    list: List,
    ids: &IdCodec,
    order_by: &str,
    request: PageRequest,
    page: &Page<T>,
) -> Value {
    let dir = match request.direction {
        Direction::Ascending => "asc",
        Direction::Descending => "desc",
    };
    json!({
        "order_by": order_by,
        "dir": dir,
        "limit": request.limit,
        "next": page.next.map(|key| list.encode(ids, key)),
        "prev": page.prev.map(|key| list.encode(ids, key)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text).unwrap()
    }

    #[test]
    fn lists_in_their_three_spellings() {
        assert_eq!(query("id=a&id=b").list("id"), ["a", "b"]);
        assert_eq!(query("id[]=a&id[]=b").list("id"), ["a", "b"]);
        assert_eq!(query("id[1]=b&id[0]=a").list("id"), ["a", "b"]);
        assert_eq!(
            query("id=x&id%5B%5D=a%20b").list("id"),
            ["a b"],
            "bracket forms win"
        );
        assert!(query("id=&idx=1&id[x]=2").list("id").is_empty());
    }

    #[test]
    fn every_wrong_parameter_is_named() {
        let mut query = query("dir=up&limit=-1&order_by=id&time[gte]=soon&time[on]=2026-01-01&status=ok");
        query.time("time");
        query.choice("status", "success", "failed");
        query.page(List::Events, &IdCodec::new(&[0; 16])).unwrap();
        let named: Vec<_> = query.faults.keys().map(String::as_str).collect();
        let expected = [
            "query.dir",
            "query.limit",
            "query.order_by",
            "query.status",
            "query.time[gte]",
            "query.time[on]",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn limits_are_capped() {
        let limit = |text: &str| {
            query(text)
                .page(List::Events, &IdCodec::new(&[0; 16]))
                .unwrap()
                .limit
        };
        assert_eq!(
            [
                limit(""),
                limit("limit=1"),
                limit("limit=1000"),
                limit("limit=99999"),
                limit("limit=99999999999999999999")
            ],
            [100, 1, 1000, 1000, 1000]
        );
    }

    #[test]
    fn both_cursors_are_refused() {
        let ids = IdCodec::new(&[0; 16]);
        assert!(query("next=a&prev=b").cursor(List::Events, &ids).is_err());
        assert!(query("next=a").cursor(List::Events, &ids).is_err());
        let cursor = List::Events.encode(&ids, 5);
        assert_eq!(
            query(&format!("prev={cursor}"))
                .cursor(List::Events, &ids)
                .unwrap(),
            Cursor::Before(5)
        );
    }
}
