//! Replays beside live traffic: what is paused or slow stands before nothing, and is not forgotten.

use super::*;

const DESTINATION: DestinationKey = DestinationKey(1);

fn replayed(key: i64) -> PendingDelivery {
    PendingDelivery {
        replayed: true,
        ..pending(key, 1, START)
    }
}

/// A lane of eight that is full of replays, which are paused.
fn full_of_paused() -> Dispatcher<Bytes> {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.limit_replays(DESTINATION, None, START);
    for key in 0..8 {
        dispatcher.rescheduled(replayed(key), START);
    }
    dispatcher
}

#[test]
fn a_fresh_delivery_has_its_place_beside_paused_replays() {
    let mut dispatcher = full_of_paused();
    dispatcher.accepted(pending(100, 1, at(1)), None, at(1));
    let started = started(dispatcher.next_action(at(1))).map(|delivery| delivery.key.0);
    assert_eq!(started, Some(100));
}

#[test]
fn the_store_is_read_for_live_deliveries_while_paused_replays_fill_the_lane() {
    let mut dispatcher = full_of_paused();
    assert!(dispatcher.next_action(START).is_none(), "everything is in memory");
    dispatcher.spilled(DESTINATION, at(1));
    let Some(Action::Refill { replays, .. }) = dispatcher.next_action(at(1)) else {
        panic!("no read");
    };
    assert!(!replays, "these would stand before live ones");
    dispatcher.refilled(
        DESTINATION,
        [(pending(100, 1, at(1)), None)],
        Unread::NOTHING,
        at(2),
    );
    let started = started(dispatcher.next_action(at(2))).map(|delivery| delivery.key.0);
    assert_eq!(started, Some(100));
}

#[test]
fn replays_that_were_left_in_the_store_are_read_when_they_may_go() {
    let mut dispatcher = full_of_paused();
    // The ninth is one too many, and goes back.
    dispatcher.rescheduled(replayed(8), START);
    assert!(dispatcher.next_action(START).is_none());
    dispatcher.limit_replays(DESTINATION, NonZeroU32::new(10), at(1_000));
    let mut keys = Vec::new();
    for tick in 0..200 {
        let now = at(1_000 + tick * 10);
        while let Some(action) = dispatcher.next_action(now) {
            match action {
                Action::Start(delivery, _, waited_for) => {
                    assert_eq!(waited_for, Some(WaitCause::ReplayPaused));
                    keys.push(delivery.key.0);
                    let key = (delivery.destination, delivery.key);
                    dispatcher.finished(answered(delivery, 200), now);
                    dispatcher.settled([key], now);
                }
                Action::Refill { skip, replays, .. } => {
                    assert!(replays);
                    let rows: Vec<_> = (0..9)
                        .filter(|key| !keys.contains(key) && !skip.contains(&DeliveryKey(*key)))
                        .map(|key| (replayed(key), None))
                        .collect();
                    dispatcher.refilled(DESTINATION, rows, Unread::NOTHING, now);
                }
                Action::End(..) => unreachable!(),
            }
        }
    }
    keys.sort_unstable();
    assert_eq!(keys, [0, 1, 2, 3, 4, 5, 6, 7, 8], "each once");
}

#[test]
fn a_replay_that_is_due_goes_although_retries_of_later_fill_the_lane() {
    let mut dispatcher = Dispatcher::new(small());
    for key in 0..8 {
        let mut retry = pending(key, 1, at(3_600_000));
        retry.progress.attempts = 1;
        dispatcher.accepted(retry, None, START);
    }
    dispatcher.rescheduled(replayed(100), START);
    let started = started(dispatcher.next_action(START)).map(|delivery| delivery.key.0);
    assert_eq!(started, Some(100));
    assert!(
        dispatcher.next_action(START).is_none(),
        "and the store is not read over and over"
    );
}

#[test]
fn replays_that_are_stopped_do_not_end_with_those_that_nobody_waits_for() {
    let mut dispatcher = full_of_paused();
    let patience = Terms {
        patience: Some(Duration::ZERO),
        ..Terms::default()
    };
    dispatcher.agree(DESTINATION, patience, START);
    for key in 100..105 {
        dispatcher.accepted(pending(key, 1, START), None, START);
        let out = started(dispatcher.next_action(START)).unwrap();
        dispatcher.finished(answered(out, 500), START);
        dispatcher.settled([(DESTINATION, out.key)], START);
    }
    assert_eq!(dispatcher.view(DESTINATION, START).standing, Standing::Open);
    assert!(dispatcher.next_action(START).is_none(), "none of them ends");
    dispatcher.limit_replays(DESTINATION, Some(DEFAULT_REPLAY_RATE), START);
    assert!(matches!(dispatcher.next_action(START), Some(Action::End(..))));
}

#[test]
fn the_rank_of_a_lane_with_replays_stays_while_only_time_passes() {
    let mut dispatcher = Dispatcher::<Bytes>::new(small());
    for key in 0..4 {
        dispatcher.accepted(replayed(key), None, START);
    }
    assert!(started(dispatcher.next_action(START)).is_some());
    let ranks = |now| dispatcher.ranks(now);
    assert_eq!(ranks(at(1)), ranks(at(2)));
    assert_eq!(ranks(at(1)), ranks(at(50_000)));
}

#[test]
fn a_lane_that_only_paused_replays_wait_in_says_so() {
    let dispatcher = full_of_paused();
    let view = dispatcher.view(DESTINATION, at(60_000));
    assert_eq!((view.standing, view.until), (Standing::ReplaysPaused, None));
    assert_eq!(
        view.explanation(),
        "Nothing is due but deliveries of replays, and all replays of the destination are paused."
    );
}

/// A lane whose replays are paused, after a read that brought one live delivery, which was delivered.
fn read_while_paused(unread: Unread) -> Dispatcher<Bytes> {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.limit_replays(DESTINATION, None, START);
    dispatcher.spilled(DESTINATION, START);
    let Some(Action::Refill { replays: false, .. }) = dispatcher.next_action(START) else {
        panic!("no read");
    };
    dispatcher.refilled(DESTINATION, [(pending(100, 1, START), None)], unread, START);
    let delivery = started(dispatcher.next_action(START)).unwrap();
    dispatcher.finished(answered(delivery, 200), START);
    dispatcher.settled([(DESTINATION, DeliveryKey(100))], START);
    assert!(dispatcher.next_action(START).is_none());
    dispatcher
}

#[test]
fn a_read_that_passed_over_no_replay_leaves_none_to_wait() {
    let mut dispatcher = read_while_paused(Unread::NOTHING);
    let view = dispatcher.view(DESTINATION, START);
    assert_eq!((view.standing, view.replays_stopped), (Standing::Idle, true));
    dispatcher.limit_replays(DESTINATION, Some(DEFAULT_REPLAY_RATE), START);
    assert!(dispatcher.next_action(START).is_none(), "nothing to read again");
    dispatcher.sweep(at(600_000));
    assert!(!dispatcher.has_lane(DESTINATION));
}

#[test]
fn replays_that_a_read_passed_over_are_read_when_they_may_go() {
    let mut dispatcher = read_while_paused(Unread {
        more: false,
        replays: true,
    });
    let view = dispatcher.view(DESTINATION, START);
    assert_eq!(view.standing, Standing::ReplaysPaused);
    dispatcher.limit_replays(DESTINATION, Some(DEFAULT_REPLAY_RATE), at(1));
    let action = dispatcher.next_action(at(1));
    assert!(
        matches!(action, Some(Action::Refill { replays: true, .. })),
        "{action:?}"
    );
}

#[test]
fn a_view_tells_whether_replays_are_stopped_whatever_the_lane_does() {
    let mut dispatcher = full_of_paused();
    assert!(dispatcher.view(DESTINATION, START).replays_stopped);
    dispatcher.accepted(pending(100, 1, START), None, START);
    let view = dispatcher.view(DESTINATION, START);
    assert_eq!((view.standing, view.replays_stopped), (Standing::Flowing, true));
    dispatcher.limit_replays(DESTINATION, NonZeroU32::new(7), START);
    assert!(!dispatcher.view(DESTINATION, START).replays_stopped);
    assert!(!dispatcher.view(DestinationKey(2), START).replays_stopped);
}

#[test]
fn the_same_rate_again_is_no_work_and_makes_no_lane() {
    let mut dispatcher = Dispatcher::<Bytes>::new(small());
    dispatcher.limit_replays(DESTINATION, Some(DEFAULT_REPLAY_RATE), START);
    assert!(!dispatcher.has_lane(DESTINATION));
    dispatcher.limit_replays(DESTINATION, NonZeroU32::new(7), START);
    assert!(dispatcher.next_action(START).is_none(), "looked at once");
    dispatcher.limit_replays(DESTINATION, NonZeroU32::new(7), START);
    assert_eq!(
        dispatcher.lanes.get(&DESTINATION).map(|lane| lane.listed),
        Some(false)
    );
}

#[test]
fn a_lane_whose_replays_are_paced_is_not_forgotten() {
    let mut dispatcher = Dispatcher::<Bytes>::new(small());
    dispatcher.limit_replays(DESTINATION, NonZeroU32::new(7), START);
    assert!(dispatcher.next_action(START).is_none());
    dispatcher.sweep(at(3_600_000));
    assert!(dispatcher.has_lane(DESTINATION));
    dispatcher.limit_replays(DESTINATION, Some(DEFAULT_REPLAY_RATE), at(3_600_000));
    assert!(dispatcher.next_action(at(3_600_000)).is_none());
    dispatcher.sweep(at(7_200_000));
    assert!(!dispatcher.has_lane(DESTINATION));
}

#[test]
fn what_another_receiver_answered_says_nothing_of_this_one() {
    let mut dispatcher = Dispatcher::new(small());
    let window = dispatcher.view(DESTINATION, START).window;
    for key in 0..40 {
        let now = at(u64::try_from(key).unwrap() * 1_000);
        dispatcher.rescheduled(replayed(key), now);
        let delivery = started(dispatcher.next_action(now)).unwrap();
        let finished = Finished {
            elsewhere: true,
            permanent: true,
            hold_until: Some(now.plus(Duration::from_secs(600))),
            ..answered(delivery, 503)
        };
        assert_eq!(dispatcher.finished(finished, now), Learned::NOTHING);
        dispatcher.settled([(DESTINATION, DeliveryKey(key))], now);
    }
    let view = dispatcher.view(DESTINATION, at(40_000));
    assert_eq!(
        (view.standing, view.failures, view.hold_until, view.window),
        (Standing::Idle, 0, None, window)
    );
}

#[test]
fn a_lane_that_has_no_turn_to_read_the_store_wakes_for_its_next_replay() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig {
        max_refills: 0,
        ..DispatcherConfig::default()
    });
    for key in 0..3 {
        dispatcher.accepted(replayed(key), None, START);
    }
    dispatcher.spilled(DESTINATION, START);
    assert!(started(dispatcher.next_action(START)).is_some());
    assert!(dispatcher.next_action(START).is_none(), "50 a second");
    let (wake, _) = dispatcher.poll_timeout().expect("it has a time");
    assert!(wake <= at(20), "{wake}");
}
