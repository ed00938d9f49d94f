//! The circuit breaker of one destination: no requests to a receiver that is down, and one at a time to find out
//! whether it is up again.
//!
//! Closed, it gathers evidence; open, nothing may go; half open, exactly one probe may. Waiting for it uses up no
//! attempt of any delivery, and what it keeps does not grow with them. It knows nothing of queues or clocks, and what
//! a failure is comes from [`crate::outcome`] and the policy's word whether it is permanent. The rules are in
//! `docs/decisions/0023-breaker.md`.

mod config;
mod evidence;
mod reason;
mod seen;
mod snapshot;
mod state;

use std::time::Duration;

pub use config::{BreakerConfig, LastTrigger, RateTrigger, SlowTrigger};
use evidence::Evidence;
pub use reason::{OpenKind, Reason};
use seen::Seen;
pub use snapshot::BreakerSnapshot;
use state::{Event, Opening, State, open_time};

use crate::outcome::Outcome;
use crate::time::Timestamp;
use crate::words::words;

words! {
    /// What a breaker does with requests.
    pub enum BreakerState {
        /// They flow.
        Closed = 0 => "closed",
        /// They are stopped.
        Open = 1 => "open",
        /// One may go, or is out, as a probe.
        HalfOpen = 2 => "half_open",
    }
}

/// One destination's breaker.
#[derive(Debug, Clone)]
pub struct Breaker {
    seed: u64,
    state: State,
    /// None before the first attempt.
    evidence: Option<Box<Evidence>>,
}

/// Whether a request may go out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Yes.
    Closed,
    /// One, as a probe.
    Probe,
    /// Not before this.
    Open(Timestamp),
    /// A probe is out; nothing else may go.
    Probing,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It opened (again).
    Opened {
        /// Why, in words.
        reason: String,
        /// Until.
        until: Timestamp,
    },
    /// It closed: the window starts again from 1.
    Closed,
}

/// What there is to be seen of a breaker that is not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble<'a> {
    /// Why it opened.
    pub reason: &'a Reason,
    /// When it first opened without having closed since.
    pub failing_since: Timestamp,
    /// From when a probe may go.
    pub until: Timestamp,
    /// Probes that failed since it first opened.
    pub failed_probes: u32,
}

impl Breaker {
    /// Closed. `seed` jitters the open time.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            state: State::Closed,
            evidence: None,
        }
    }

    /// Asks whether a request may go out at `now`.
    #[must_use]
    pub fn gate(&self, now: Timestamp) -> Gate {
        match &self.state {
            State::Closed => Gate::Closed,
            State::Open(opening) if opening.is_over(now) => Gate::Probe,
            State::Open(opening) => Gate::Open(opening.until),
            State::HalfOpen { .. } if self.is_probe_overdue(now) => Gate::Probe,
            State::HalfOpen { .. } => Gate::Probing,
        }
    }

    /// A request goes out, after [`Gate::Closed`] or [`Gate::Probe`].
    pub fn started(&mut self, now: Timestamp) {
        self.step(Event::Started, now);
    }

    /// A started request was given up by us before it saw anything. If it was the probe, another may go soon.
    pub fn aborted(&mut self, now: Timestamp) {
        self.step(Event::ProbeAborted, now);
    }

    /// A started request turned out not to be needed, and nothing was sent. If it was to be the probe, the next one may
    /// go at once.
    pub fn returned(&mut self, now: Timestamp) {
        self.step(Event::ProbeReturned, now);
    }

    /// Somebody has a reason to believe that the receiver is well (its address was changed, a delivery was retried by
    /// hand): when open, a probe may go at once, but not within a second of the opening. Should it fail, the open time
    /// is not doubled.
    pub fn hurry(&mut self, now: Timestamp) {
        self.step(Event::Hurried, now);
    }

    /// A request came back. `permanent`: the policy called the outcome permanent. Outcomes that are not the receiver's
    /// fault count for nothing.
    pub fn finished(
        &mut self,
        outcome: &Outcome,
        permanent: bool,
        latency: Duration,
        now: Timestamp,
        config: &BreakerConfig,
    ) -> Change {
        let Some(seen) = Seen::of(outcome, permanent) else {
            self.aborted(now);
            return Change::None;
        };
        let open = |failed_probes| open_time(failed_probes, now, config, self.seed);
        let event = match (&self.state, seen) {
            (State::Closed, _) => {
                let evidence = self.evidence.get_or_insert_default();
                match evidence.add(seen, outcome, latency, now, config) {
                    Some(reason) => Event::Tripped {
                        reason,
                        open: open(0),
                    },
                    None => return Change::None,
                }
            }
            (State::Open(_), _) => return Change::None,
            (State::HalfOpen { .. }, Seen::Success) => Event::ProbeSucceeded,
            (State::HalfOpen { opening, .. }, Seen::Failure | Seen::Permanent | Seen::Limited) => {
                Event::ProbeFailed {
                    detail: seen::detail(outcome),
                    open: open(opening.next_failed_probes()),
                }
            }
        };
        self.step(event, now)
    }

    /// Somebody says that it is to close.
    pub fn reset(&mut self, now: Timestamp) -> Change {
        self.step(Event::Reset, now)
    }

    /// Whether the probe that is out has not come back within any time that a request can take.
    #[must_use]
    pub fn is_probe_overdue(&self, now: Timestamp) -> bool {
        match &self.state {
            State::Closed | State::Open(_) => false,
            State::HalfOpen { opening, deadline } => now >= *deadline || opening.is_set_back(now),
        }
    }

    /// When its answer changes by itself, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Timestamp, &'static str)> {
        match &self.state {
            State::Closed => None,
            State::Open(opening) => Some((opening.until, "a probe may go")),
            State::HalfOpen { deadline, .. } => Some((*deadline, "the probe is overdue")),
        }
    }

    /// Its state in a word. It is half open from the moment when a probe may go.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> BreakerState {
        match self.gate(now) {
            Gate::Closed => BreakerState::Closed,
            Gate::Open(_) => BreakerState::Open,
            Gate::Probe | Gate::Probing => BreakerState::HalfOpen,
        }
    }

    /// Why it is not closed; `None` when it is.
    #[must_use]
    pub fn trouble(&self) -> Option<Trouble<'_>> {
        let opening = self.opening()?;
        Some(Trouble {
            reason: &opening.reason,
            failing_since: opening.failing_since,
            until: opening.until,
            failed_probes: opening.failed_probes,
        })
    }

    fn opening(&self) -> Option<&Opening> {
        match &self.state {
            State::Closed => None,
            State::Open(opening) | State::HalfOpen { opening, .. } => Some(opening),
        }
    }

    fn step(&mut self, event: Event, now: Timestamp) -> Change {
        let was_closed = self.state == State::Closed;
        let opens = match event {
            Event::Tripped { .. } => was_closed,
            Event::ProbeFailed { .. } => matches!(self.state, State::HalfOpen { .. }),
            Event::Started
            | Event::ProbeSucceeded
            | Event::ProbeAborted
            | Event::ProbeReturned
            | Event::Hurried
            | Event::Reset => false,
        };
        let state = std::mem::replace(&mut self.state, State::Closed);
        self.state = state.step(event, now);
        match &self.state {
            State::Closed if was_closed => Change::None,
            State::Closed => {
                self.evidence = None;
                Change::Closed
            }
            State::Open(opening) if opens => {
                self.evidence = None;
                Change::Opened {
                    reason: opening.reason.text.clone(),
                    until: opening.until,
                }
            }
            State::Open(_) | State::HalfOpen { .. } => Change::None,
        }
    }
}

#[cfg(test)]
mod tests;
