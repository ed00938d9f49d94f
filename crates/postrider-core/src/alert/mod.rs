//! What Postrider tells its operator about itself: when something is alarming, how bad it is, and when it is over.
//!
//! An alert is about one [`AlertKind`] of one destination, or of all together. It is *raised* once, *worsened* when what
//! it counts has doubled since it was last told or when it became critical, and *cleared* by itself. Telling is the
//! caller's; here is only when, and in which words ([`Wording`]). Two machines cover all kinds: a [`Level`] compares a number
//! with a threshold, with room between raising and clearing so that a number that trembles around it says nothing; a
//! [`Recurrence`] is about something that happens again and again and is told once a window, and when it becomes critical. Both take `now`, know no
//! clock, and hold when it goes backwards.

mod level;
mod quantile;
mod recurrence;
mod wording;

pub use level::{Firing, Level, Threshold, Transition};
pub use quantile::{LOOK_BACK, MIN_VALUES, RecentQuantile};
pub use recurrence::{Recurrence, WINDOW};
pub use wording::{Subject, Wording};

use crate::words::words;

words! {
    /// What an alert is about.
    pub enum AlertKind {
        /// Dead letters that are in the queue.
        DeadLetterDepth = 1 => "dead_letter_depth",
        /// Dead letters that came within the last hour.
        DeadLetterGrowth = 2 => "dead_letter_growth",
        /// The 99th percentile of the time from publish to success, in milliseconds.
        TimeToSuccessP99 = 3 => "time_to_success_p99",
        /// How long the longest overdue delivery has been due, in milliseconds.
        OldestDueAge = 4 => "oldest_due_age",
        /// A destination's circuit breaker is not closed.
        BreakerOpen = 5 => "breaker_open",
        /// A destination was disabled, not by request.
        DestinationDisabled = 6 => "destination_disabled",
        /// Deliveries of a destination that used up all their attempts.
        RetriesExhausted = 7 => "retries_exhausted",
        /// Failures of a destination without a success between them.
        ConsecutiveFailures = 8 => "consecutive_failures",
    }
}

words! {
    /// How bad.
    pub enum Severity {
        /// To be looked at today.
        Warning = 1 => "warning",
        /// To be looked at now.
        Critical = 2 => "critical",
    }
}

words! {
    /// Where an alert stands.
    pub enum AlertState {
        /// It is so now.
        Firing = 1 => "firing",
        /// It was so.
        Cleared = 2 => "cleared",
    }
}

words! {
    /// What is told about an alert.
    pub enum Told {
        /// It is new.
        Raised = 1 => "raised",
        /// It is worse than when it was last told.
        Worsened = 2 => "worsened",
        /// It is over.
        Cleared = 3 => "cleared",
    }
}

impl AlertKind {
    /// What its numbers count.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::DeadLetterDepth => "dead_letters",
            Self::DeadLetterGrowth => "dead_letters_per_hour",
            Self::TimeToSuccessP99 | Self::OldestDueAge => "milliseconds",
            Self::BreakerOpen | Self::DestinationDisabled => "destinations",
            Self::RetriesExhausted => "deliveries",
            Self::ConsecutiveFailures => "failures",
        }
    }
}
