//! The states of a breaker and every step between them.
//!
//! ```text
//!            trip                  probe starts
//!  closed ─────────► open ───────────────────────► half_open
//!    ▲                ▲   (once its time is over)     │  │
//!    │                └───────────────────────────────┘  │
//!    │             probe fails, is given up, or returned  │
//!    └───────────────────────────────────────────────────┘
//!                  probe succeeds, or somebody resets
//! ```

use std::time::Duration;

use super::config::BreakerConfig;
use super::reason::Reason;
use crate::hash;
use crate::time::Timestamp;

/// After this a probe is taken for lost, and another may go. Longer than any request can take (60 s).
pub(super) const PROBE_DEADLINE: Duration = Duration::from_secs(120);

/// Until the next probe when one was given up by us: no reason to wait long, nor to spin.
pub(super) const ABORT_PAUSE: Duration = Duration::from_secs(1);

/// A clock that is this far before the opening has been set back; what is stored then says nothing any more.
const CLOCK_SET_BACK: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Open(Opening),
    HalfOpen {
        opening: Opening,
        /// When the probe is overdue.
        deadline: Timestamp,
    },
}

/// What is remembered from the first opening to the closing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) reason: Box<Reason>,
    /// When it first opened without having closed since.
    pub(super) failing_since: Timestamp,
    /// When it last opened.
    pub(super) opened_at: Timestamp,
    pub(super) until: Timestamp,
    pub(super) failed_probes: u32,
    /// The next probe goes on request, before its time: its failure lengthens nothing.
    pub(super) hurried: bool,
}

/// What happens to a breaker. Opening times come from the configuration, which states do not know.
#[derive(Debug)]
pub(super) enum Event {
    Tripped {
        reason: Reason,
        open: Duration,
    },
    Started,
    ProbeSucceeded,
    /// `detail`: what the probe saw.
    ProbeFailed {
        detail: String,
        open: Duration,
    },
    ProbeAborted,
    /// What was to be the probe sent nothing: its delivery ended by itself.
    ProbeReturned,
    /// Somebody has a reason to believe that the receiver is well.
    Hurried,
    Reset,
}

impl Opening {
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until || self.is_set_back(now)
    }

    pub(super) fn is_set_back(&self, now: Timestamp) -> bool {
        self.opened_at.since(now) > CLOCK_SET_BACK
    }

    fn again(self, detail: &str, open: Duration, now: Timestamp) -> Self {
        let failed_probes = self.next_failed_probes();
        let first = self.reason.text.split("; probe").next().unwrap_or_default();
        let text = if self.hurried {
            format!("{first}; probe on request failed: {detail}")
        } else {
            format!("{first}; probe {failed_probes} failed: {detail}")
        };
        Self {
            reason: Box::new(Reason {
                kind: self.reason.kind,
                text,
            }),
            failing_since: self.failing_since.min(now),
            opened_at: now,
            until: now.plus(open),
            failed_probes,
            hurried: false,
        }
    }

    /// A probe is out. Its deadline is of the clock of now: times before that clock was set back are forgotten.
    fn probing(self, now: Timestamp) -> State {
        State::HalfOpen {
            opening: Self {
                opened_at: self.opened_at.min(now),
                until: self.until.min(now),
                ..self
            },
            deadline: now.plus(PROBE_DEADLINE),
        }
    }

    /// Probes that will have failed when the next one does.
    pub(super) fn next_failed_probes(&self) -> u32 {
        self.failed_probes.saturating_add(u32::from(!self.hurried))
    }

    /// A probe may go at once, but no sooner than [`ABORT_PAUSE`] after it opened, however often somebody asks.
    fn hurry(self, now: Timestamp) -> Self {
        let soonest = now.max(self.opened_at.plus(ABORT_PAUSE));
        if self.until <= soonest {
            return self;
        }
        Self {
            until: soonest,
            hurried: true,
            ..self
        }
    }
}

impl State {
    pub(super) fn step(self, event: Event, now: Timestamp) -> Self {
        match (self, event) {
            (Self::Closed, Event::Tripped { reason, open }) => Self::Open(Opening {
                reason: Box::new(reason),
                failing_since: now,
                opened_at: now,
                until: now.plus(open),
                failed_probes: 0,
                hurried: false,
            }),
            (
                Self::Closed,
                Event::Started
                | Event::ProbeSucceeded
                | Event::ProbeFailed { .. }
                | Event::ProbeAborted
                | Event::ProbeReturned
                | Event::Hurried
                | Event::Reset,
            ) => Self::Closed,

            (Self::Open(opening), Event::Started) if opening.is_over(now) => opening.probing(now),
            (Self::Open(_), Event::Reset) => Self::Closed,
            (Self::Open(opening), Event::Hurried) => Self::Open(opening.hurry(now)),
            // What was sent before it opened comes back now: it changes nothing.
            (
                state @ Self::Open(_),
                Event::Started
                | Event::Tripped { .. }
                | Event::ProbeSucceeded
                | Event::ProbeFailed { .. }
                | Event::ProbeAborted
                | Event::ProbeReturned,
            ) => state,

            (Self::HalfOpen { .. }, Event::ProbeSucceeded | Event::Reset) => Self::Closed,
            (Self::HalfOpen { opening, .. }, Event::ProbeFailed { detail, open }) => {
                Self::Open(opening.again(&detail, open, now))
            }
            (Self::HalfOpen { opening, .. }, Event::ProbeAborted) => Self::Open(Opening {
                opened_at: now,
                until: now.plus(ABORT_PAUSE),
                ..opening
            }),
            // Its time is over, so the next one may go.
            (Self::HalfOpen { opening, .. }, Event::ProbeReturned) => Self::Open(opening),
            // Another one goes out for a probe that is lost.
            (Self::HalfOpen { opening, .. }, Event::Started) => opening.probing(now),
            (state @ Self::HalfOpen { .. }, Event::Tripped { .. } | Event::Hurried) => state,
        }
    }
}

/// `open` doubled by each failed probe, and up to a fifth more by jitter; never more than `max_open`.
pub(super) fn open_time(failed_probes: u32, now: Timestamp, config: &BreakerConfig, seed: u64) -> Duration {
    let longest = config.max_open.max(config.open);
    let doubled = config
        .open
        .saturating_mul(1_u32.checked_shl(failed_probes).unwrap_or(u32::MAX));
    let base = doubled.min(longest * 5 / 6);
    let share = hash::fraction(seed, now.as_millis().unsigned_abs());
    (base + base.mul_f64(share / 5.0)).min(longest)
}
