//! Walking a list: keys from one or several sources, merged in order, read and filtered one by one.
//!
//! Every list is in the order of its keys, which are given in commit order. So a page is exact whatever arrives meanwhile:
//! it begins after a key and ends at a key. A filter that no index answers is applied while walking; a walk that has looked
//! at its fill of rows stops with a short page whose cursor goes on from there.

use postrider_core::id::first_key_at;
use postrider_core::time::Timestamp;
use rusqlite::Connection;
use tokio::time::Instant;

use crate::page::{Cursor, Direction, Page, PageRequest, TimeRange};
use crate::sqlite::failure::Fault;

/// Bytes of contents that one page may have, unless its first row alone has more. So the largest answer is bounded.
pub(super) const MAX_PAGE_BYTES: usize = 8 << 20;
/// Rows that one page may look at.
const MAX_LOOKED_AT: usize = 20_000;
/// Keys fetched at a time from each source.
const MIN_CHUNK: usize = 32;
const MAX_CHUNK: usize = 512;

/// Keys that lie between two others, both excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) low: i64,
    pub(super) high: i64,
}

impl Span {
    pub(super) const ALL: Self = Self {
        low: -1,
        high: i64::MAX,
    };

    /// Keys up to and including `upto`.
    pub(super) const fn upto(upto: i64) -> Self {
        Self {
            low: -1,
            high: upto.saturating_add(1),
        }
    }

    /// Keys after `key`.
    pub(super) const fn after(key: i64) -> Self {
        Self {
            low: key,
            high: i64::MAX,
        }
    }

    /// Keys in both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        }
    }

    /// Keys of rows whose own time can lie in `range`, when it is at most `ahead_ms` later and `behind_ms` earlier than the
    /// time in the key.
    pub(super) fn of_times(range: &TimeRange, ahead_ms: i64, behind_ms: i64) -> Self {
        let first_at = |millis: i64| first_key_at(Timestamp::from_millis(millis));
        let earliest = [range.gte, range.gt]
            .into_iter()
            .flatten()
            .map(Timestamp::as_millis)
            .max();
        let latest = [range.lte, range.lt]
            .into_iter()
            .flatten()
            .map(Timestamp::as_millis)
            .min();
        Self {
            low: earliest.map_or(-1, |millis| first_at(millis - ahead_ms) - 1),
            high: latest.map_or(i64::MAX, |millis| first_at(millis + behind_ms + 1)),
        }
    }
}

/// Whether `time` lies in `range`.
pub(super) fn is_within(range: &TimeRange, time: Timestamp) -> bool {
    range.gte.is_none_or(|bound| time >= bound)
        && range.gt.is_none_or(|bound| time > bound)
        && range.lte.is_none_or(|bound| time <= bound)
        && range.lt.is_none_or(|bound| time < bound)
}

/// Where keys come from.
pub(super) enum Source {
    /// `SELECT … WHERE … key > ?1 AND key < ?2` up to its order: `?3` is the limit, `?4` the value.
    Select {
        ascending: &'static str,
        descending: &'static str,
        value: i64,
        span: Span,
    },
    /// Keys that are known, ascending.
    Keys(Vec<i64>),
}

/// Declares both orders of a source's statement. A second column of the order follows the first where that is not unique.
macro_rules! select {
    ($head:literal, $first:literal $(then $second:literal)?, $value:expr, $span:expr) => {
        $crate::sqlite::read::walk::Source::Select {
            ascending: concat!($head, " ORDER BY ", $first, $(", ", $second,)? " LIMIT ?3"),
            descending: concat!($head, " ORDER BY ", $first, " DESC", $(", ", $second, " DESC",)? " LIMIT ?3"),
            value: $value,
            span: $span,
        }
    };
}
pub(super) use select;

impl Source {
    fn fetch(
        &self,
        conn: &Connection,
        within: Span,
        ascending: bool,
        limit: usize,
        into: &mut Vec<i64>,
    ) -> Result<(), Fault> {
        match self {
            Self::Select {
                ascending: up,
                descending: down,
                value,
                span,
            } => {
                let span = span.and(within);
                let mut statement = conn.prepare_cached(if ascending { up } else { down })?;
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let mut found = statement.query((span.low, span.high, limit, value))?;
                while let Some(row) = found.next()? {
                    into.push(row.get(0)?);
                }
            }
            Self::Keys(keys) => {
                let from = keys.partition_point(|&key| key <= within.low);
                let to = keys.partition_point(|&key| key < within.high).max(from);
                if ascending {
                    into.extend(keys[from..to].iter().take(limit));
                } else {
                    into.extend(keys[from..to].iter().rev().take(limit));
                }
            }
        }
        Ok(())
    }
}

/// One page over `sources` within `span`: the rows for which `read` answers one. For rows that are small.
pub(super) fn page<T>(
    conn: &Connection,
    sources: &[Source],
    span: Span,
    request: &PageRequest,
    until: Instant,
    mut read: impl FnMut(i64) -> Result<Option<T>, Fault>,
) -> Result<Page<T>, Fault> {
    heavy_page(conn, sources, span, request, until, |key| {
        Ok(read(key)?.map(|row| (row, 0)))
    })
}

/// The same for rows that may be large: `read` also answers how many bytes a row has, and the page ends before the row with
/// which it would have too many.
pub(super) fn heavy_page<T>(
    conn: &Connection,
    sources: &[Source],
    span: Span,
    request: &PageRequest,
    until: Instant,
    mut read: impl FnMut(i64) -> Result<Option<(T, usize)>, Fault>,
) -> Result<Page<T>, Fault> {
    let limit = request.limit.max(1);
    let forward_ascending = request.direction == Direction::Ascending;
    let (start, is_backward) = match request.cursor {
        Cursor::Start => (None, false),
        Cursor::After(key) => (Some(key), false),
        Cursor::Before(key) => (Some(key), true),
    };
    let ascending = forward_ascending != is_backward;
    let mut walk = Walk {
        conn,
        sources,
        ascending,
        left: ahead_of(span, start, ascending),
    };
    let mut rows: Vec<(i64, T)> = Vec::new();
    let mut looked_at = 0;
    let mut bytes_left = MAX_PAGE_BYTES;
    let mut last_looked_at = start;
    let chunk_len = (limit + 1).clamp(MIN_CHUNK, MAX_CHUNK);
    // Where the page after this one begins, in the order of the walk; none when the walk came to the end.
    let onward = 'walk: loop {
        let chunk = walk.next_chunk(chunk_len)?;
        for &key in &chunk {
            if looked_at >= MAX_LOOKED_AT
                || (looked_at > 0 && looked_at % MIN_CHUNK == 0 && Instant::now() > until)
            {
                break 'walk last_looked_at;
            }
            looked_at += 1;
            if let Some((row, bytes)) = read(key)? {
                if rows.len() == limit || (!rows.is_empty() && bytes > bytes_left) {
                    break 'walk last_looked_at;
                }
                bytes_left = bytes_left.saturating_sub(bytes);
                rows.push((key, row));
            }
            last_looked_at = Some(key);
        }
        if chunk.len() < chunk_len {
            break None;
        }
    };
    // The page that this one came from: it ends where this one began, its cursor's own row included.
    let backward = start.map(|start| match rows.first() {
        Some((key, _)) => *key,
        None if ascending => start.saturating_add(1),
        None => start.saturating_sub(1),
    });
    if is_backward {
        rows.reverse();
    }
    let (next, prev) = if is_backward {
        (backward, onward)
    } else {
        (onward, backward)
    };
    Ok(Page {
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        next,
        prev,
    })
}

fn ahead_of(span: Span, start: Option<i64>, ascending: bool) -> Span {
    match start {
        None => span,
        Some(key) if ascending => Span {
            low: span.low.max(key),
            ..span
        },
        Some(key) => Span {
            high: span.high.min(key),
            ..span
        },
    }
}

struct Walk<'a> {
    conn: &'a Connection,
    sources: &'a [Source],
    ascending: bool,
    left: Span,
}

impl Walk<'_> {
    /// The next keys of all sources together; fewer than `len` only at the end.
    fn next_chunk(&mut self, len: usize) -> Result<Vec<i64>, Fault> {
        let mut keys = Vec::with_capacity(len);
        if self.left.low.saturating_add(1) >= self.left.high {
            return Ok(keys);
        }
        for source in self.sources {
            source.fetch(self.conn, self.left, self.ascending, len, &mut keys)?;
        }
        keys.sort_unstable();
        keys.dedup();
        if !self.ascending {
            keys.reverse();
        }
        // The first `len` of the whole are among the first `len` of each source.
        keys.truncate(len);
        if let Some(&last) = keys.last() {
            self.left = ahead_of(self.left, Some(last), self.ascending);
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn request(limit: usize, direction: Direction, cursor: Cursor) -> PageRequest {
        PageRequest {
            limit,
            direction,
            cursor,
        }
    }

    fn walk(keys: &[i64], request: &PageRequest, keep: impl Fn(i64) -> bool) -> Page<i64> {
        let conn = Connection::open_in_memory().unwrap();
        let (odd, even) = keys.iter().partition(|&key| key % 2 == 1);
        let sources = [Source::Keys(odd), Source::Keys(even), Source::Keys(keys.to_vec())];
        let until = Instant::now() + Duration::from_secs(3_600);
        page(&conn, &sources, Span::ALL, request, until, |key| {
            Ok(keep(key).then_some(key))
        })
        .unwrap()
    }

    #[test]
    fn pages_forward_and_back_see_each_row_once() {
        let keys: Vec<i64> = (1..=100).collect();
        for direction in [Direction::Ascending, Direction::Descending] {
            let mut seen = Vec::new();
            let mut cursor = Cursor::Start;
            let mut last_prev = None;
            loop {
                let page = walk(&keys, &request(7, direction, cursor), |key| key % 3 == 0);
                seen.extend(page.rows);
                last_prev = page.prev.or(last_prev);
                match page.next {
                    Some(next) => cursor = Cursor::After(next),
                    None => break,
                }
            }
            let mut expected: Vec<i64> = (1..=33).map(|n| n * 3).collect();
            if direction == Direction::Descending {
                expected.reverse();
            }
            assert_eq!(seen, expected);

            let mut back = Vec::new();
            let mut before = last_prev;
            while let Some(key) = before {
                let page = walk(&keys, &request(7, direction, Cursor::Before(key)), |key| {
                    key % 3 == 0
                });
                assert!(page.next.is_some());
                back.splice(0..0, page.rows);
                before = page.prev;
            }
            assert_eq!(back, expected[..28], "all but the last page of five");
        }
    }

    #[test]
    fn a_full_last_page_has_no_next() {
        let page = walk(
            &[1, 2, 3],
            &request(3, Direction::Ascending, Cursor::Start),
            |_| true,
        );
        assert_eq!((page.rows, page.next, page.prev), (vec![1, 2, 3], None, None));
    }

    #[test]
    fn a_rare_match_ends_the_page_early_and_goes_on() {
        let keys: Vec<i64> = (1..=50_000).collect();
        let rare = |key| key == 45_000;
        let first = walk(&keys, &request(10, Direction::Ascending, Cursor::Start), rare);
        assert_eq!((first.rows, first.next), (vec![], Some(20_000)));
        let second = walk(
            &keys,
            &request(10, Direction::Ascending, Cursor::After(20_000)),
            rare,
        );
        assert_eq!(
            (second.rows, second.next, second.prev),
            (vec![], Some(40_000), Some(20_001))
        );
        let third = walk(
            &keys,
            &request(10, Direction::Ascending, Cursor::After(40_000)),
            rare,
        );
        assert_eq!((third.rows, third.next), (vec![45_000], None));
    }

    #[test]
    fn a_page_of_large_rows_ends_before_it_is_too_large_and_goes_on_exactly() {
        let conn = Connection::open_in_memory().unwrap();
        let keys: Vec<i64> = (1..=9).collect();
        let sources = [Source::Keys(keys)];
        let until = Instant::now() + Duration::from_secs(3_600);
        // The fifth has more than a page may have; of the others three fit.
        let bytes = |key| {
            if key == 5 {
                MAX_PAGE_BYTES + 1
            } else {
                MAX_PAGE_BYTES / 3
            }
        };
        let paged = |cursor| {
            let request = request(100, Direction::Ascending, cursor);
            heavy_page(&conn, &sources, Span::ALL, &request, until, |key| {
                Ok(Some((key, bytes(key))))
            })
            .unwrap()
        };
        let mut cursor = Cursor::Start;
        let mut pages = Vec::new();
        loop {
            let page = paged(cursor);
            pages.push(page.rows);
            match page.next {
                Some(next) => cursor = Cursor::After(next),
                None => break,
            }
        }
        assert_eq!(pages, [vec![1, 2, 3], vec![4], vec![5], vec![6, 7, 8], vec![9]]);
        let back = paged(Cursor::Before(9));
        assert_eq!(
            (back.rows, back.next, back.prev),
            (vec![6, 7, 8], Some(8), Some(6))
        );
    }

    #[test]
    fn times_become_keys() {
        let range = TimeRange {
            gte: Some(at(10)),
            lt: Some(at(20)),
            ..TimeRange::default()
        };
        let exact = Span::of_times(&range, 0, 0);
        assert_eq!((exact.low, exact.high), ((10_000 << 20) - 1, 20_001 << 20));
        let wide = Span::of_times(&range, 1_000, 5_000);
        assert_eq!((wide.low, wide.high), ((9_000 << 20) - 1, 25_001 << 20));
        let distant = TimeRange {
            gte: Some(Timestamp::MAX),
            ..TimeRange::default()
        };
        assert_eq!(Span::of_times(&distant, 0, 0).low, i64::MAX - 1, "no key");
        let all = TimeRange {
            lte: Some(Timestamp::MAX),
            ..TimeRange::default()
        };
        assert_eq!(Span::of_times(&all, 0, 5_000).high, i64::MAX, "every key");
        assert_eq!(Span::of_times(&TimeRange::default(), 9, 9), Span::ALL);
    }

    #[test]
    fn bounds_of_a_range_are_as_named() {
        let range = |gte: Option<i64>, gt: Option<i64>, lte: Option<i64>, lt: Option<i64>| TimeRange {
            gte: gte.map(at),
            gt: gt.map(at),
            lte: lte.map(at),
            lt: lt.map(at),
        };
        assert!(is_within(&range(Some(5), None, Some(5), None), at(5)));
        assert!(!is_within(&range(None, Some(5), None, None), at(5)));
        assert!(!is_within(&range(None, None, None, Some(5)), at(5)));
        assert!(is_within(&range(None, None, None, None), at(5)));
    }
}
