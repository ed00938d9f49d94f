//! What the writer thread does inside a transaction: one file for each group of intents.
//!
//! A function here gets [`Work`], writes, and answers; it neither commits nor tells anybody. What must happen after the
//! commit (announce deliveries, count) is left in [`Effects`]. It may run twice for one call, when a batch was rolled back
//! because of a neighbour, so it keeps nothing outside of `Work`.

pub(super) mod accept;
pub(super) mod alerts;
pub(super) mod destinations;
pub(super) mod expire;
pub(super) mod import;
pub(super) mod index;
pub(super) mod letters;
pub(super) mod names;
pub(super) mod policies;
pub(super) mod protection;
pub(super) mod remove;
pub(super) mod replays;
pub(super) mod retry;
pub(super) mod settle;
mod statements;
pub(super) mod sweep;
pub(super) mod tenants;
pub(super) mod withdraw;

use std::path::Path;

use postrider_core::delivery::PendingDelivery;
use postrider_core::id::{DeliveryKey, DestinationKey, IdCodec, first_key_within};
use postrider_core::time::Timestamp;
use rusqlite::Connection;

use self::expire::Rounds;
use self::names::Names;
use self::statements::Statements;
use super::failure::Fault;
use super::log::Log;
use super::schema::{self, meta};
use crate::record::{DueDelivery, Ended};
use crate::seal::SealKey;

/// What has to happen once the transaction is committed, and not at all when it is not.
#[derive(Default)]
pub(super) struct Effects {
    /// Accepted and due, for the feed.
    pub(super) accepted: Vec<DueDelivery>,
    /// Given another plan on request, for the feed.
    pub(super) rescheduled: Vec<PendingDelivery>,
    /// Ended on request, for the feed.
    pub(super) withdrawn: Vec<(DeliveryKey, DestinationKey)>,
    /// Change of the number of pending deliveries.
    pub(super) pending: i64,
    /// Change of the number of dead letters.
    pub(super) dead: i64,
    /// Deliveries that nobody but the store ended.
    pub(super) ended: Ended,
    /// Deliveries and events that the listing tables do not have yet.
    pub(super) unlisted_events: usize,
    /// Attempts that the listing tables do not have yet.
    pub(super) unlisted_attempts: usize,
}

/// Gives keys: strictly increasing, also when the clock goes back, also over a restart.
#[derive(Debug)]
pub(super) struct KeyIssuer {
    last: i64,
}

impl KeyIssuer {
    /// `last` is the highest key ever stored.
    pub(super) const fn new(last: i64) -> Self {
        Self { last }
    }

    /// The highest key that was given.
    pub(super) const fn last(&self) -> i64 {
        self.last
    }

    /// The first of `count` keys that belong together. A clock beyond what keys can hold counts as one that stands
    /// still, so that it does not use up all keys.
    pub(super) fn take(&mut self, now: Timestamp, count: usize) -> i64 {
        let first = first_key_within(now)
            .unwrap_or(0)
            .max(self.last.saturating_add(1));
        self.last = first.saturating_add(i64::try_from(count).unwrap_or(i64::MAX) - 1);
        first
    }
}

/// The most by which a row's own time ever differed from the time in its key, so that a time range is a key range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Skew {
    ahead_ms: i64,
    behind_ms: i64,
    ahead_name: &'static str,
    behind_name: &'static str,
}

impl Skew {
    fn load(conn: &Connection, ahead_name: &'static str, behind_name: &'static str) -> Result<Self, Fault> {
        let ahead_ms = schema::number(conn, ahead_name)?.unwrap_or(0);
        let behind_ms = schema::number(conn, behind_name)?.unwrap_or(0);
        Ok(Self {
            ahead_ms,
            behind_ms,
            ahead_name,
            behind_name,
        })
    }

    /// Notes a row whose own time is `time` and whose key says `keyed`. Writes only when it is a new extreme; then with some
    /// room, so that a slow drift does not write each time.
    fn note(&mut self, conn: &Connection, time: Timestamp, keyed: Timestamp) -> Result<(), Fault> {
        const ROOM_MS: i64 = 1_000;
        let ahead = time.as_millis() - keyed.as_millis();
        if ahead > self.ahead_ms {
            self.ahead_ms = ahead + ROOM_MS;
            schema::put_number(conn, self.ahead_name, self.ahead_ms)?;
        } else if -ahead > self.behind_ms {
            self.behind_ms = -ahead + ROOM_MS;
            schema::put_number(conn, self.behind_name, self.behind_ms)?;
        }
        Ok(())
    }
}

/// The writer's connection and all that it remembers between transactions.
pub(super) struct Work<'c> {
    pub(super) conn: &'c Connection,
    pub(super) hot: Statements<'c>,
    pub(super) ids: IdCodec,
    pub(super) seal: SealKey,
    pub(super) keys: KeyIssuer,
    pub(super) names: Names,
    pub(super) event_skew: Skew,
    pub(super) attempt_skew: Skew,
    pub(super) effects: Effects,
    /// Deleted destinations whose pending deliveries are still to be canceled.
    pub(super) unswept: Vec<i64>,
    /// Where retention goes on with what it has passed over.
    pub(super) rounds: Rounds,
    pub(super) log: Log,
    /// A transaction was rolled back, and what it taught is not forgotten yet: nothing may be written.
    pub(super) is_stale: bool,
}

impl<'c> Work<'c> {
    /// Reads what has to be remembered.
    pub(super) fn new(conn: &'c Connection, ids: IdCodec, seal: SealKey) -> Result<Self, Fault> {
        Ok(Self {
            conn,
            hot: Statements::prepare(conn)?,
            ids,
            seal,
            keys: KeyIssuer::new(highest_key(conn)?),
            names: Names::load(conn)?,
            event_skew: event_skew(conn)?,
            attempt_skew: attempt_skew(conn)?,
            effects: Effects::default(),
            unswept: sweep::unswept(conn)?,
            rounds: Rounds::default(),
            log: Log::new(Path::new(conn.path().unwrap_or_default())),
            is_stale: false,
        })
    }

    /// Forgets what a rolled-back transaction taught. After a failure it can be repeated.
    pub(super) fn forget(&mut self) -> Result<(), Fault> {
        self.effects = Effects::default();
        self.names.forget(self.conn)?;
        self.event_skew = event_skew(self.conn)?;
        self.attempt_skew = attempt_skew(self.conn)?;
        self.unswept = sweep::unswept(self.conn)?;
        self.is_stale = false;
        Ok(())
    }
}

fn event_skew(conn: &Connection) -> Result<Skew, Fault> {
    Skew::load(conn, meta::EVENT_TIME_AHEAD_MS, meta::EVENT_TIME_BEHIND_MS)
}

fn attempt_skew(conn: &Connection) -> Result<Skew, Fault> {
    Skew::load(conn, meta::ATTEMPT_TIME_AHEAD_MS, meta::ATTEMPT_TIME_BEHIND_MS)
}

/// The highest key that any row has or ever had: the marks stay when rows are removed.
fn highest_key(conn: &Connection) -> Result<i64, Fault> {
    let mut statement = conn.prepare_cached(
        "SELECT max(
            coalesce((SELECT key + deliveries FROM event ORDER BY key DESC LIMIT 1), 0),
            coalesce((SELECT max(key) FROM pending), 0),
            coalesce((SELECT max(key) FROM history), 0),
            coalesce((SELECT max(key) FROM attempt), 0),
            coalesce((SELECT max(serial) FROM dead), 0),
            coalesce((SELECT max(key) FROM dead_context), 0),
            coalesce((SELECT max(max(key), max(upper)) FROM replay), 0),
            coalesce((SELECT max(value) FROM meta WHERE name IN (?1, ?2, ?3)), 0))",
    )?;
    let marks = (
        meta::EVENTS_INDEXED_UPTO,
        meta::ATTEMPTS_INDEXED_UPTO,
        meta::KEYS_GIVEN_UPTO,
    );
    Ok(statement.query_row(marks, |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_grow_whatever_the_clock_does() {
        let mut keys = KeyIssuer::new(0);
        let noon = Timestamp::from_millis(1_000);
        assert_eq!(keys.take(noon, 3), 1_000 << 20);
        assert_eq!(keys.take(noon, 1), (1_000 << 20) + 3);
        assert_eq!(
            keys.take(Timestamp::from_millis(10), 2),
            (1_000 << 20) + 4,
            "the clock went back"
        );
        assert_eq!(keys.take(Timestamp::from_millis(1_001), 1), 1_001 << 20);
        assert_eq!(
            KeyIssuer::new(5_000 << 20).take(noon, 1),
            (5_000 << 20) + 1,
            "after a restart"
        );
        assert_eq!(
            keys.take(Timestamp::MAX, 1),
            (1_001 << 20) + 1,
            "no key holds 9999"
        );
        assert_eq!(keys.take(Timestamp::from_millis(1_002), 1), 1_002 << 20);
    }

    #[test]
    fn a_burst_runs_into_the_next_millisecond() {
        let mut keys = KeyIssuer::new(0);
        let now = Timestamp::from_millis(7);
        keys.take(now, 1 << 20);
        assert_eq!(keys.take(now, 1), 8 << 20);
        assert_eq!(keys.take(Timestamp::from_millis(8), 1), (8 << 20) + 1);
    }
}
