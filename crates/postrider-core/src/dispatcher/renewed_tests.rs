//! Deliveries that somebody asks for while they are out, or while their result is not committed.

use super::*;

#[test]
fn asked_for_again_between_verdict_and_commit_it_is_sent_again() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.finished(answered(first, 404), at(1));
    dispatcher.rescheduled(pending(1, 1, at(2)), at(2));
    assert!(dispatcher.next_action(at(2)).is_none(), "its result comes first");
    dispatcher.settled([(first.destination, first.key)], at(3));
    assert_eq!(started(dispatcher.next_action(at(3))).map(|d| d.key.0), Some(1));
}

#[test]
fn asked_for_again_while_it_is_out_it_does_not_wait_for_the_backoff() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.rescheduled(pending(1, 1, at(1)), at(1));
    let again = Some((pending(1, 1, at(3_600_000)), None));
    dispatcher.finished(
        Finished {
            again,
            ..answered(first, 404)
        },
        at(2),
    );
    assert!(dispatcher.next_action(at(2)).is_none(), "its result comes first");
    dispatcher.settled([(first.destination, first.key)], at(3));
    let second = started(dispatcher.next_action(at(3))).unwrap();
    dispatcher.finished(answered(second, 200), at(4));
    dispatcher.settled([(second.destination, second.key)], at(5));
    assert!(
        dispatcher.next_action(at(7_200_000)).is_none(),
        "and the old plan is gone"
    );
}

#[test]
fn a_success_that_overtakes_a_request_for_another_attempt_ends_the_delivery() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.rescheduled(pending(1, 1, at(1)), at(1));
    dispatcher.finished(answered(first, 200), at(2));
    dispatcher.rescheduled(pending(1, 1, at(3)), at(3));
    dispatcher.settled([(first.destination, first.key)], at(4));
    assert!(dispatcher.next_action(at(7_200_000)).is_none());
}

#[test]
fn a_request_for_another_attempt_that_knows_of_the_success_is_carried_out() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.finished(answered(first, 200), at(1));
    // Committed after the success, but handed over before its commit is known.
    let mut revived = pending(1, 1, at(2));
    revived.progress.attempts = 1;
    dispatcher.rescheduled(revived, at(2));
    dispatcher.settled([(first.destination, first.key)], at(3));
    let second = started(dispatcher.next_action(at(3))).unwrap();
    assert_eq!(second.progress.attempts, 1);
}

#[test]
fn an_attempt_that_was_asked_for_meanwhile_gets_a_number_of_its_own() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.rescheduled(pending(1, 1, at(1)), at(1));
    dispatcher.finished(answered(first, 500), at(2));
    dispatcher.settled([(first.destination, first.key)], at(3));
    let second = started(dispatcher.next_action(at(3))).unwrap();
    assert_eq!(second.progress.attempts, 1, "one was made already");
}
