//! Deliveries that somebody ends behind the dispatcher's back.

use super::*;

#[test]
fn a_withdrawn_delivery_does_not_start() {
    let mut dispatcher = Dispatcher::new(small());
    for key in [1, 2] {
        dispatcher.accepted(pending(key, 1, START), Some(Bytes(10)), START);
    }
    dispatcher.withdrawn(DestinationKey(1), DeliveryKey(1), START);
    let order: Vec<_> =
        std::iter::from_fn(|| started(dispatcher.next_action(START)).map(|d| d.key.0)).collect();
    assert_eq!(order, [2]);
    assert_eq!(dispatcher.load().queued, 0);
    dispatcher.withdrawn(DestinationKey(7), DeliveryKey(99), START);
    assert!(dispatcher.next_action(START).is_none(), "nothing is known of it");
}

#[test]
fn a_withdrawn_delivery_that_is_out_is_not_tried_again() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let out = started(dispatcher.next_action(START)).unwrap();
    dispatcher.withdrawn(DestinationKey(1), DeliveryKey(1), START);
    let again = Some((pending(1, 1, at(10)), None));
    dispatcher.finished(
        Finished {
            again,
            ..answered(out, 500)
        },
        at(5),
    );
    assert!(started(dispatcher.next_action(at(10))).is_none());
    dispatcher.settled([(DestinationKey(1), DeliveryKey(1))], at(11));
    assert_eq!(
        dispatcher.load(),
        Load {
            lanes: 1,
            ..Load::default()
        }
    );
}

#[test]
fn a_read_that_began_before_does_not_bring_it_back() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.spilled(DestinationKey(1), START);
    assert!(matches!(
        dispatcher.next_action(START),
        Some(Action::Refill { .. })
    ));
    dispatcher.withdrawn(DestinationKey(1), DeliveryKey(1), START);
    let rows = [1, 2].map(|key| (pending(key, 1, START), None));
    dispatcher.refilled(DestinationKey(1), rows, Unread::NOTHING, START);
    let order: Vec<_> =
        std::iter::from_fn(|| started(dispatcher.next_action(START)).map(|d| d.key.0)).collect();
    assert_eq!(order, [2]);
}

#[test]
fn asked_for_again_after_it_was_withdrawn_it_starts() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let out = started(dispatcher.next_action(START)).unwrap();
    dispatcher.withdrawn(DestinationKey(1), DeliveryKey(1), START);
    dispatcher.rescheduled(pending(1, 1, at(1)), at(1));
    dispatcher.finished(answered(out, 500), at(5));
    dispatcher.settled([(DestinationKey(1), DeliveryKey(1))], at(6));
    assert!(started(dispatcher.next_action(at(6))).is_some());
}
