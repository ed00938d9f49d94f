//! An alert in words: what is so, and what to do about it.

use super::AlertKind;

/// Whom an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// All destinations together.
    Overall,
    /// One destination.
    Destination {
        /// Its tenant's id.
        tenant_id: &'a str,
        /// Its public id.
        destination_id: &'a str,
    },
}

/// What people read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wording {
    /// What is so, in a sentence.
    pub text: String,
    /// What to do, in a sentence or two that name the call or the command.
    pub todo: String,
}

impl Wording {
    /// Of an alert with this value. `detail` is what the receiver or the breaker said, if anything.
    #[must_use]
    pub fn of(
        kind: AlertKind,
        subject: Subject<'_>,
        value: u64,
        threshold: u64,
        detail: Option<&str>,
    ) -> Self {
        Self {
            text: text(kind, subject, value, threshold, detail),
            todo: todo(kind, subject),
        }
    }
}

fn text(kind: AlertKind, subject: Subject<'_>, value: u64, threshold: u64, detail: Option<&str>) -> String {
    let whose = match subject {
        Subject::Overall => String::new(),
        Subject::Destination {
            tenant_id,
            destination_id,
        } => format!(" of destination {destination_id} (tenant {tenant_id})"),
    };
    let because = detail.map_or_else(String::new, |detail| format!(": {detail}"));
    match kind {
        AlertKind::DeadLetterDepth => format!(
            "{}{whose} in the queue (alarming from {threshold} on).",
            count(value, "dead letter", "dead letters")
        ),
        AlertKind::DeadLetterGrowth => format!(
            "{}{whose} came within the last hour (alarming from {threshold} on).",
            count(value, "dead letter", "dead letters")
        ),
        AlertKind::TimeToSuccessP99 => format!(
            "1 in 100 deliveries of the last 10 minutes took longer than {} from publish to success (alarming from {} on).",
            span(value),
            span(threshold)
        ),
        AlertKind::OldestDueAge => format!(
            "A delivery has been due for {} without being sent (alarming from {} on).",
            span(value),
            span(threshold)
        ),
        AlertKind::BreakerOpen => format!("The circuit breaker{whose} is open{because}."),
        AlertKind::DestinationDisabled => match subject {
            Subject::Overall => format!("A destination was disabled{because}."),
            Subject::Destination {
                tenant_id,
                destination_id,
            } => format!("Destination {destination_id} (tenant {tenant_id}) was disabled{because}."),
        },
        AlertKind::RetriesExhausted => format!(
            "{}{whose} used up all attempts{because}.",
            count(value, "delivery", "deliveries")
        ),
        AlertKind::ConsecutiveFailures => format!(
            "{}{whose} failed in a row (alarming from {threshold} on){because}.",
            count(value, "attempt", "attempts")
        ),
    }
}

fn todo(kind: AlertKind, subject: Subject<'_>) -> String {
    let path = |rest: &str| match subject {
        Subject::Overall => "GET /api/v1/destinations/health".to_owned(),
        Subject::Destination {
            tenant_id,
            destination_id,
        } => format!("/api/v1/tenants/{tenant_id}/destinations/{destination_id}{rest}"),
    };
    let filter = match subject {
        Subject::Overall => String::new(),
        Subject::Destination {
            tenant_id,
            destination_id,
        } => format!("?tenant_id={tenant_id}&destination_id={destination_id}"),
    };
    match kind {
        AlertKind::DeadLetterDepth | AlertKind::DeadLetterGrowth | AlertKind::RetriesExhausted => format!(
            "Ask GET /api/v1/dead-letters/summary{filter} (or `postrider dead-letters summary`) what they have in common; \
             once the cause is cured, replay them by POST /api/v1/replays or remove them by POST /api/v1/dead-letters/purge."
        ),
        AlertKind::TimeToSuccessP99 | AlertKind::OldestDueAge => {
            "Ask GET /api/v1/destinations/health which destinations are stopped and why. If none is, the disk or the limits of \
             [engine] are the bottleneck: look at postrider_store_commit_seconds and postrider_deliveries_in_flight in /metrics."
                .to_owned()
        }
        AlertKind::BreakerOpen => format!(
            "Ask GET {} why; nothing is lost meanwhile, and a probe goes out by itself. Once the receiver works, POST {} sends at once.",
            path("/health"),
            path("/breaker/reset")
        ),
        AlertKind::DestinationDisabled => format!(
            "Tell its owner. Once the receiver works, PUT {} and replay what died meanwhile by POST /api/v1/replays.",
            path("/enable")
        ),
        AlertKind::ConsecutiveFailures => format!(
            "Tell its owner before it is disabled: GET {} says since when it fails, and GET {} what it answers.",
            path("/health"),
            path("/attempts")
        ),
    }
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Milliseconds for people, in the largest unit of which there are at least two, rounded down.
fn span(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (86_400_000, "days"),
        (3_600_000, "hours"),
        (60_000, "minutes"),
        (1_000, "seconds"),
    ];
    let unit = UNITS.iter().find(|(unit, _)| millis >= unit * 2);
    unit.map_or_else(
        || format!("{millis} ms"),
        |(unit, name)| format!("{} {name}", millis / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Subject<'_> = Subject::Destination {
        tenant_id: "acme",
        destination_id: "des_1",
    };

    #[test]
    fn texts_name_the_subject_the_value_and_the_threshold() {
        let table = [
            (
                AlertKind::DeadLetterDepth,
                Subject::Overall,
                1_200,
                1_000,
                None,
                "1200 dead letters in the queue (alarming from 1000 on).",
            ),
            (
                AlertKind::DeadLetterGrowth,
                ONE,
                1,
                1,
                None,
                "1 dead letter of destination des_1 (tenant acme) came within the last hour (alarming from 1 on).",
            ),
            (
                AlertKind::OldestDueAge,
                Subject::Overall,
                1_900_000,
                900_000,
                None,
                "A delivery has been due for 31 minutes without being sent (alarming from 15 minutes on).",
            ),
            (
                AlertKind::BreakerOpen,
                ONE,
                1,
                1,
                Some("5 of the last 10 attempts failed, the last: timeout"),
                "The circuit breaker of destination des_1 (tenant acme) is open: 5 of the last 10 attempts failed, the last: timeout.",
            ),
            (
                AlertKind::ConsecutiveFailures,
                ONE,
                70,
                100,
                Some("401"),
                "70 attempts of destination des_1 (tenant acme) failed in a row (alarming from 100 on): 401.",
            ),
        ];
        for (kind, subject, value, threshold, detail, right) in table {
            assert_eq!(Wording::of(kind, subject, value, threshold, detail).text, right);
        }
    }

    #[test]
    fn every_kind_says_what_to_do_with_a_call() {
        for kind in AlertKind::ALL {
            for subject in [Subject::Overall, ONE] {
                let todo = Wording::of(*kind, subject, 1, 1, None).todo;
                assert!(todo.contains("/api/v1/"), "{kind}: {todo}");
            }
        }
    }

    #[test]
    fn spans_are_rounded_down_in_a_unit_that_people_read() {
        let table = [
            (0, "0 ms"),
            (1_999, "1999 ms"),
            (2_000, "2 seconds"),
            (119_999, "119 seconds"),
            (120_000, "2 minutes"),
            (7_200_000, "2 hours"),
            (172_800_000, "2 days"),
        ];
        for (millis, right) in table {
            assert_eq!(span(millis), right);
        }
    }
}
