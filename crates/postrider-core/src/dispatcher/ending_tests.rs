//! Deliveries that end while the breaker is open, deliveries that end by themselves, and probes on request.

use super::*;
use crate::delivery::DelayCause;

const DESTINATION: DestinationKey = DestinationKey(1);

fn patient_for(patience: Duration) -> Terms {
    Terms {
        patience: Some(patience),
        ..Terms::default()
    }
}

/// A destination whose first five deliveries failed at once, and with these left; and until when its breaker is open.
fn opened(left: std::ops::Range<i64>, terms: Terms) -> (Dispatcher<Bytes>, Timestamp) {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.agree(DESTINATION, terms, START);
    for key in 0..5 {
        dispatcher.accepted(pending(key, 1, START), None, START);
        let out = started(dispatcher.next_action(START)).unwrap();
        dispatcher.finished(answered(out, 500), START);
        dispatcher.settled([(DESTINATION, out.key)], START);
    }
    for key in left {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    let view = dispatcher.view(DESTINATION, START);
    assert_eq!(view.standing, Standing::Open);
    (dispatcher, view.until.unwrap())
}

/// Everything that ends at `now`, as it is committed.
fn ended(dispatcher: &mut Dispatcher<Bytes>, now: Timestamp) -> Vec<i64> {
    let mut keys = Vec::new();
    while let Some(action) = dispatcher.next_action(now) {
        match action {
            Action::End(delivery, reason) => {
                assert_eq!(reason, DeadReason::CircuitOpen);
                keys.push(delivery.key.0);
                dispatcher.settled([(DESTINATION, delivery.key)], now);
            }
            other => panic!("{other:?}"),
        }
    }
    keys
}

#[test]
fn with_hold_everything_waits_for_the_breaker() {
    let (mut dispatcher, until) = opened(5..9, Terms::default());
    assert!(dispatcher.next_action(at(20_000)).is_none());
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(until));
}

#[test]
fn with_dead_letter_all_but_the_probe_end_while_it_is_open() {
    let (mut dispatcher, until) = opened(5..9, patient_for(Duration::ZERO));
    assert_eq!(ended(&mut dispatcher, START), [5, 6, 7], "the youngest stays");
    dispatcher.accepted(pending(9, 1, at(1_000)), None, at(1_000));
    assert_eq!(ended(&mut dispatcher, at(1_000)), [8], "one is enough");
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(until));
    let probe = started(dispatcher.next_action(until)).unwrap();
    assert_eq!(probe.key, DeliveryKey(9));
    // What comes while the probe is out waits for its answer.
    dispatcher.accepted(pending(10, 1, until), None, until);
    dispatcher.accepted(pending(11, 1, until), None, until);
    assert!(dispatcher.next_action(until).is_none());
    dispatcher.finished(answered(probe, 200), until);
    assert!(started(dispatcher.next_action(until)).is_some(), "and flows then");
}

#[test]
fn a_retry_that_comes_too_late_to_be_the_probe_does_not_stand_for_it() {
    let (mut dispatcher, until) = opened(5..6, patient_for(Duration::ZERO));
    dispatcher.accepted(pending(6, 1, until.plus(Duration::from_secs(60))), None, START);
    assert!(ended(&mut dispatcher, START).is_empty(), "5 is the probe");
    dispatcher.accepted(pending(7, 1, until.minus(Duration::from_secs(1))), None, START);
    assert_eq!(ended(&mut dispatcher, START), [5], "7 is there in time");
}

#[test]
fn after_twenty_minutes_of_failure_holding_turns_into_ending() {
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let (mut dispatcher, mut until) = opened(5..9, patient_for(minutes(20)));
    let given_up = START.plus(minutes(20));
    let mut now = START;
    let mut probes = 0;
    while until < given_up {
        assert!(ended(&mut dispatcher, now).is_empty(), "at {now}");
        now = until;
        let probe = started(dispatcher.next_action(now)).unwrap();
        let again = (
            PendingDelivery {
                plan: Plan {
                    due_at: now,
                    ..probe.plan
                },
                ..probe
            },
            None,
        );
        let finished = Finished {
            again: Some(again),
            ..answered(probe, 503)
        };
        dispatcher.finished(finished, now);
        dispatcher.settled([(DESTINATION, probe.key)], now);
        probes += 1;
        until = dispatcher.view(DESTINATION, now).until.unwrap();
    }
    // 30, 60, 120, 240, 480 s, each up to a fifth longer: the sixth opening spans the end of patience.
    assert_eq!(probes, 5);
    assert!(
        dispatcher
            .next_action(given_up.minus(Duration::from_millis(1)))
            .is_none()
    );
    assert_eq!(
        dispatcher.poll_timeout().map(|(at, _)| at),
        Some(given_up),
        "it wakes for it"
    );
    assert_eq!(
        ended(&mut dispatcher, given_up).len(),
        3,
        "of four, one is left to probe"
    );
}

#[test]
fn a_success_gives_patience_back() {
    let (mut dispatcher, until) = opened(5..7, patient_for(Duration::from_secs(40)));
    let probe = started(dispatcher.next_action(until)).unwrap();
    dispatcher.finished(answered(probe, 200), until);
    for key in 10..18 {
        dispatcher.accepted(pending(key, 1, until), None, until);
    }
    while let Some(out) = started(dispatcher.next_action(until)) {
        dispatcher.finished(answered(out, 500), until);
        dispatcher.settled([(DESTINATION, out.key)], until);
    }
    assert_eq!(dispatcher.view(DESTINATION, until).standing, Standing::Open);
    assert!(
        dispatcher
            .next_action(until.plus(Duration::from_secs(29)))
            .is_none(),
        "29 s of failure"
    );
}

#[test]
fn what_is_in_the_store_ends_too_in_steps_that_leave_room() {
    let (mut dispatcher, _) = opened(5..5, patient_for(Duration::ZERO));
    dispatcher.spilled(DESTINATION, START);
    let Some(Action::Refill { limit, .. }) = dispatcher.next_action(START) else {
        panic!("an open breaker does not keep it from being read")
    };
    assert_eq!(limit, 4);
    let mut ends = Vec::new();
    let mut store: VecDeque<_> = (100..130).map(|key| pending(key, 1, START)).collect();
    let page =
        |store: &mut VecDeque<PendingDelivery>| store.drain(..4).map(|row| (row, None)).collect::<Vec<_>>();
    let more = Unread {
        more: true,
        replays: false,
    };
    let first = page(&mut store);
    dispatcher.refilled(DESTINATION, first, more, START);
    while let Some(action) = dispatcher.next_action(START) {
        match action {
            Action::End(delivery, _) => ends.push(delivery.key),
            Action::Refill { .. } => {
                let rows = page(&mut store);
                dispatcher.refilled(DESTINATION, rows, more, START);
            }
            Action::Start(..) => panic!("open means no traffic"),
        }
    }
    assert_eq!(ends.len(), 8, "results may take half of the room for 16");
    dispatcher.settled([(DESTINATION, ends[0])], START);
    assert!(
        matches!(dispatcher.next_action(START), Some(Action::End(..))),
        "a commit makes room"
    );
}

#[test]
fn a_disabled_destination_keeps_its_queue_although_its_breaker_is_open() {
    let (mut dispatcher, _) = opened(5..9, patient_for(Duration::ZERO));
    dispatcher.pause(DESTINATION, START);
    assert!(ended(&mut dispatcher, START).is_empty());
}

/// An expired backlog of any length leaves no gap before the probe.
#[test]
fn what_ends_by_itself_does_not_take_the_place_of_the_probe() {
    let (mut dispatcher, until) = opened(5..9, Terms::default());
    for key in 5..8 {
        let expired = started(dispatcher.next_action(until)).unwrap();
        assert_eq!(expired.key, DeliveryKey(key));
        dispatcher.finished(
            Finished {
                outcome: None,
                ..answered(expired, 0)
            },
            until,
        );
    }
    let probe = started(dispatcher.next_action(until)).expect("in the same instant");
    dispatcher.accepted(pending(20, 1, until), None, until);
    assert!(dispatcher.next_action(until).is_none(), "and there is one");
    dispatcher.finished(answered(probe, 200), until);
    assert!(started(dispatcher.next_action(until)).is_some());
}

#[test]
fn what_ends_by_itself_uses_up_none_of_so_many_a_second() {
    let mut dispatcher = Dispatcher::new(small());
    let one_a_second = Terms {
        rate_limit: NonZeroU32::new(1),
        ..Terms::default()
    };
    dispatcher.agree(DESTINATION, one_a_second, START);
    for key in 0..4 {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    for _ in 0..3 {
        let expired = started(dispatcher.next_action(START)).unwrap();
        dispatcher.finished(
            Finished {
                outcome: None,
                ..answered(expired, 0)
            },
            START,
        );
    }
    assert!(
        started(dispatcher.next_action(START)).is_some(),
        "the first request"
    );
    dispatcher.accepted(pending(9, 1, START), None, START);
    assert!(dispatcher.next_action(at(989)).is_none());
    assert!(started(dispatcher.next_action(at(990))).is_some(), "the second");
}

#[test]
fn a_manual_retry_is_a_probe_at_once() {
    let (mut dispatcher, _) = opened(5..9, Terms::default());
    let manual = PendingDelivery {
        plan: Plan {
            cause: DelayCause::Manual,
            ..Plan::first(at(2_000))
        },
        ..pending(7, 1, at(2_000))
    };
    dispatcher.rescheduled(manual, at(2_000));
    let probe = started(dispatcher.next_action(at(2_000))).unwrap();
    assert!(dispatcher.next_action(at(2_000)).is_none(), "one");
    dispatcher.finished(answered(probe, 500), at(2_000));
    let view = dispatcher.view(DESTINATION, at(2_000));
    let opening = view.opening.unwrap();
    assert_eq!(
        opening.reason.text,
        "5 of the last 5 attempts failed, the last: 500; probe on request failed: 500"
    );
    let open = opening.until.since(at(2_000));
    assert!(
        (Duration::from_secs(30)..=Duration::from_secs(36)).contains(&open),
        "not doubled: {open:?}"
    );
    assert_eq!(opening.failed_probes, 0);
}

#[test]
fn a_replay_waits_for_the_breaker() {
    let (mut dispatcher, until) = opened(5..6, Terms::default());
    let replayed = PendingDelivery {
        plan: Plan {
            cause: DelayCause::Manual,
            ..Plan::first(at(2_000))
        },
        replayed: true,
        ..pending(7, 1, at(2_000))
    };
    dispatcher.rescheduled(replayed, at(2_000));
    assert!(dispatcher.next_action(at(2_000)).is_none());
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(until));
}

#[test]
fn however_often_somebody_asks_probes_are_a_second_apart() {
    let (mut dispatcher, _) = opened(5..9, Terms::default());
    dispatcher.hurry(DESTINATION, at(10));
    dispatcher.hurry(DESTINATION, at(20));
    assert!(dispatcher.next_action(at(999)).is_none());
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(at(1_000)));
    assert!(started(dispatcher.next_action(at(1_000))).is_some());
    dispatcher.hurry(DESTINATION, at(1_500));
    assert!(dispatcher.next_action(at(1_500)).is_none(), "one is out already");
    dispatcher.hurry(DestinationKey(99), at(1_500));
    assert_eq!(dispatcher.load().lanes, 1, "and nobody else is troubled");
}
