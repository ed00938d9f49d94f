//! One attempt: look the target up, send, judge, and say what is to be recorded.
//!
//! It reports every end it can come to as a value, so that the loop never waits for one in vain.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider_core::delivery::{DeadReason, PendingDelivery, WaitCause};
use postrider_core::dispatcher::Finished;
use postrider_core::outcome::{Category, ErrorKind, Outcome};
use postrider_core::policy::{Case, Verdict};
use postrider_core::time::Timestamp;
use postrider_store::letter::DeadContext;
use postrider_store::record::{NewAttempt, Next, Payload, Settlement, Timings};

use super::{Freight, Parts, trouble};
use crate::courier::{Parcel, Report};
use crate::directory::Entry;
use crate::directory::target::Target;

/// A delivery whose payload could not be read is tried again after this.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// What the loop learns.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) finished: Finished<Freight>,
    /// To be committed.
    pub(super) settlement: Option<Settlement>,
    /// The destination is disabled: stop its lane.
    pub(super) pause: bool,
}

/// Makes one attempt of a delivery. A panic on the way puts the delivery back.
pub(super) async fn attempt_safely(
    parts: Parts,
    delivery: PendingDelivery,
    payload: Option<Freight>,
    waited_for: Option<WaitCause>,
) -> Done {
    let clock = Arc::clone(&parts.clock);
    AssertUnwindSafe(attempt(parts, delivery, payload, waited_for))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            tracing::error!(delivery = %delivery.key, "an attempt panicked; the delivery is tried again");
            let mut later = delivery;
            later.plan.due_at = clock.now().plus(READ_PAUSE);
            put_back(later, None)
        })
}

async fn attempt(
    parts: Parts,
    delivery: PendingDelivery,
    payload: Option<Freight>,
    waited_for: Option<WaitCause>,
) -> Done {
    let now = parts.clock.now();
    let Some(mut entry) = parts.directory.entry(delivery.destination) else {
        return ended(&parts, None, delivery, Next::Canceled, now);
    };
    let today = Arc::clone(&entry.target);
    if let Some(context) = delivery.context {
        match parts.directory.as_it_was(&entry, context).await {
            Ok(original) => entry = original,
            Err(error) => {
                tracing::warn!(delivery = %delivery.key, %error, "failed to read an earlier configuration; trying again");
                let mut later = delivery;
                later.plan.due_at = now.plus(READ_PAUSE);
                return put_back(later, payload);
            }
        }
    }
    let target = &entry.target;
    if target.disabled {
        return Done {
            pause: true,
            ..put_back(delivery, payload)
        };
    }
    if target.policy.expired(&delivery.progress, now) {
        return ended(
            &parts,
            Some(&entry),
            delivery,
            Next::Dead(DeadReason::Expired, Category::NotAttempted),
            now,
        );
    }
    let payload = match payload {
        Some(Freight(payload)) => payload,
        None => match parts.store.payload(delivery.event).await {
            Ok(Some(payload)) => payload,
            Ok(None) => {
                let next = Next::Dead(DeadReason::InvalidPayload, Category::NotAttempted);
                return ended(&parts, Some(&entry), delivery, next, now);
            }
            Err(error) => {
                tracing::warn!(delivery = %delivery.key, %error, "failed to read a payload; trying again");
                let mut later = delivery;
                later.plan.due_at = now.plus(READ_PAUSE);
                return put_back(later, None);
            }
        },
    };
    let elsewhere = entry.target.url != today.url;
    send(&parts, &entry, delivery, payload, waited_for, elsewhere).await
}

async fn send(
    parts: &Parts,
    entry: &Entry,
    delivery: PendingDelivery,
    payload: Arc<Payload>,
    waited_for: Option<WaitCause>,
    elsewhere: bool,
) -> Done {
    let started_at = parts.clock.now();
    let target = &entry.target;
    let parcel = Parcel {
        target: Arc::clone(target),
        payload: Arc::clone(&payload),
        delivery,
        number: delivery.progress.attempts.saturating_add(1),
        now: started_at,
    };
    if let Some(cause) = waited_for {
        parts.metrics.protection.delayed(cause);
    }
    let report = AssertUnwindSafe(parts.courier.send(parcel))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| died());
    let now = parts.clock.now();
    let progress = delivery.progress.attempted(&delivery.plan);
    let case = Case {
        delivery: delivery.key,
        progress,
        retryable: delivery.retryable,
    };
    let verdict = target.policy.judge(&case, &report.outcome, now);
    let next = match verdict {
        Verdict::Succeeded => Next::Succeeded,
        Verdict::Retry(plan) => Next::Retry(plan, progress),
        Verdict::Dead(reason, category) => Next::Dead(reason, category),
    };
    let again = match verdict {
        Verdict::Retry(plan) => Some((
            PendingDelivery {
                plan,
                progress,
                ..delivery
            },
            Some(Freight(payload)),
        )),
        Verdict::Succeeded | Verdict::Dead(..) => None,
    };
    count(parts, target, &delivery, &report, &next, now);
    // What another address answers is no reason to disable the one of today.
    if !elsewhere && target.policy.disables(&report.outcome) {
        let reason = format!(
            "the receiver answered 410 Gone{}",
            trouble::excerpt(&report.response_body)
        );
        parts.directory.disable(delivery.destination, reason, now).await;
    }
    Done {
        finished: Finished {
            delivery,
            elsewhere,
            permanent: matches!(verdict, Verdict::Dead(DeadReason::PermanentFailure, _)),
            latency: report.timings.first_byte.unwrap_or(report.timings.total),
            hold_until: target.policy.hold(&report.outcome).map(|hold| now.plus(hold)),
            outcome: Some(report.outcome.clone()),
            again,
            unsettled: true,
        },
        settlement: Some(Settlement {
            delivery,
            attempt: Some(record(&delivery, started_at, waited_for, report)),
            next,
            context: context(Some(entry), &delivery, &next),
        }),
        pause: false,
    }
}

fn record(
    delivery: &PendingDelivery,
    started_at: Timestamp,
    waited_for: Option<WaitCause>,
    report: Report,
) -> NewAttempt {
    let queue = started_at.since(delivery.plan.due_at);
    NewAttempt {
        number: delivery.progress.attempts.saturating_add(1),
        started_at,
        plan: delivery.plan,
        waited_for,
        manual: delivery.plan.cause == postrider_core::delivery::DelayCause::Manual,
        status: report.outcome.code(),
        error: match report.outcome {
            Outcome::Answered(_) => None,
            Outcome::Failed(kind) => Some(kind),
        },
        detail: report.detail,
        timings: Timings {
            queue,
            ..report.timings
        },
        request_headers: report.request_headers,
        response_headers: report.response_headers,
        response_body: report.response_body,
        response_truncated: report.response_truncated,
    }
}

fn count(
    parts: &Parts,
    target: &Target,
    delivery: &PendingDelivery,
    report: &Report,
    next: &Next,
    now: Timestamp,
) {
    parts
        .metrics
        .attempt_finished(target.key, &target.name, report.outcome.category());
    match next {
        Next::Retry(plan, _) => parts.metrics.retry_planned(plan.delay),
        Next::Succeeded => parts
            .metrics
            .delivery_ended("succeeded", now.since(delivery.progress.window_start)),
        Next::Dead(reason, _) => {
            parts
                .metrics
                .delivery_ended(reason.as_str(), now.since(delivery.event.accepted_at()));
        }
        Next::Canceled => {}
    }
}

/// What is in force, for a delivery that dies and does not bring what it was replayed with.
fn context(entry: Option<&Entry>, delivery: &PendingDelivery, next: &Next) -> Option<DeadContext> {
    match next {
        Next::Dead(..) if delivery.context.is_none() => entry.map(Entry::context),
        Next::Dead(..) | Next::Succeeded | Next::Retry(..) | Next::Canceled => None,
    }
}

/// Nothing was sent, because the delivery ends without an attempt.
fn ended(
    parts: &Parts,
    entry: Option<&Entry>,
    delivery: PendingDelivery,
    next: Next,
    now: Timestamp,
) -> Done {
    Done {
        finished: Finished {
            unsettled: true,
            again: None,
            ..put_back(delivery, None).finished
        },
        settlement: Some(settlement(parts, entry, delivery, next, now)),
        pause: false,
    }
}

/// The end of a delivery without an attempt.
pub(super) fn settlement(
    parts: &Parts,
    entry: Option<&Entry>,
    delivery: PendingDelivery,
    next: Next,
    now: Timestamp,
) -> Settlement {
    let status = match next {
        Next::Dead(reason, _) => reason.as_str(),
        Next::Succeeded | Next::Retry(..) | Next::Canceled => "canceled",
    };
    parts
        .metrics
        .delivery_ended(status, now.since(delivery.event.accepted_at()));
    Settlement {
        delivery,
        attempt: None,
        next,
        context: context(entry, &delivery, &next),
    }
}

/// The delivery goes back into its lane; nothing was sent.
fn put_back(delivery: PendingDelivery, payload: Option<Freight>) -> Done {
    Done {
        finished: Finished {
            delivery,
            outcome: None,
            elsewhere: false,
            permanent: false,
            latency: Duration::ZERO,
            hold_until: None,
            again: Some((delivery, payload)),
            unsettled: false,
        },
        settlement: None,
        pause: false,
    }
}

/// The courier panicked.
fn died() -> Report {
    tracing::error!("the courier panicked; the delivery is tried again");
    Report {
        outcome: Outcome::Failed(ErrorKind::Internal),
        detail: Some("an internal error of the sender".to_owned()),
        timings: Timings::default(),
        request_headers: Vec::new(),
        response_headers: Vec::new(),
        response_body: bytes::Bytes::new(),
        response_truncated: false,
    }
}
