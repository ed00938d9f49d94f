//! What protects a receiver, on the level of lanes: limits per second, failures in a row, what outlives a restart.

use std::num::NonZeroU32;

use super::*;
use crate::outcome::Answer;
use crate::policy::RetryPolicy;
use crate::streak::{Streak, StreakConfig};

fn limit(per_second: u32) -> Terms {
    Terms {
        rate_limit: NonZeroU32::new(per_second),
        ..Terms::default()
    }
}

fn dispatcher_with(keys: std::ops::Range<i64>) -> Dispatcher<Bytes> {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    for key in keys {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    dispatcher
}

/// Answers everything that starts with `status`, at once, until `end`; the instants of the starts.
fn run(dispatcher: &mut Dispatcher<Bytes>, status: u16, end: Timestamp) -> Vec<Timestamp> {
    let mut now = START;
    let mut starts = Vec::new();
    while now <= end {
        while let Some(action) = dispatcher.next_action(now) {
            let Action::Start(delivery, ..) = action else {
                continue;
            };
            starts.push(now);
            dispatcher.finished(answered(delivery, status), now);
            dispatcher.settled([(delivery.destination, delivery.key)], now);
        }
        let Some((next, _)) = dispatcher.poll_timeout() else {
            break;
        };
        now = next;
    }
    starts
}

/// Opens the breaker of destination 1 by five failures.
fn open(dispatcher: &mut Dispatcher<Bytes>) -> Timestamp {
    assert_eq!(run(dispatcher, 500, START).len(), 5);
    let view = dispatcher.view(DestinationKey(1), START);
    assert_eq!(view.standing, Standing::Open);
    view.until.unwrap()
}

#[test]
fn a_limit_of_ten_a_second_gives_no_more_than_eleven_in_any_second() {
    let mut dispatcher = dispatcher_with(0..1_000);
    dispatcher.agree(DestinationKey(1), limit(10), START);
    let starts = run(&mut dispatcher, 200, at(3_600_000));
    assert_eq!(starts.len(), 1_000);
    for (n, first) in starts.iter().enumerate() {
        let within = starts[n..]
            .iter()
            .take_while(|at| at.since(*first) < Duration::from_secs(1));
        assert!(within.count() <= 11, "from {first}");
    }
    let took = starts[999].since(starts[0]);
    assert!(took <= Duration::from_secs(100), "and it is used: {took:?}");
}

#[test]
fn a_limit_can_be_taken_away() {
    let mut dispatcher = dispatcher_with(0..10);
    dispatcher.agree(DestinationKey(1), limit(1), START);
    assert_eq!(run(&mut dispatcher, 200, START).len(), 1);
    let view = dispatcher.view(DestinationKey(1), START);
    assert_eq!(
        (view.standing, view.until),
        (Standing::RateLimited, Some(at(990)))
    );
    dispatcher.agree(DestinationKey(1), Terms::default(), START);
    assert_eq!(run(&mut dispatcher, 200, START).len(), 9);
}

#[test]
fn what_is_kept_brings_an_open_breaker_back_with_a_single_probe() {
    let mut before = dispatcher_with(0..8);
    let until = open(&mut before);
    let kept = before.protection(DestinationKey(1)).unwrap();
    let mut after = dispatcher_with(5..8);
    after.restore(DestinationKey(1), kept, at(1));
    assert!(after.next_action(at(1)).is_none());
    assert_eq!(after.poll_timeout().map(|(at, _)| at), Some(until));
    assert!(started(after.next_action(until)).is_some());
    assert!(after.next_action(until).is_none(), "one probe");
    assert_eq!(after.view(DestinationKey(1), until).failures, 5);
}

/// Holds destination 1 at `now`, by the answer of one delivery that was started before.
fn hold(dispatcher: &mut Dispatcher<Bytes>, delivery: PendingDelivery, hold: Duration, now: Timestamp) {
    let limited = Finished {
        hold_until: Some(now.plus(hold)),
        ..answered(delivery, 429)
    };
    dispatcher.finished(limited, now);
}

/// What is kept of destination 1 that was held for 60 s at 20 ms.
fn held() -> Protection {
    let mut dispatcher = dispatcher_with(0..1);
    let delivery = started(dispatcher.next_action(START)).unwrap();
    hold(&mut dispatcher, delivery, Duration::from_secs(60), at(20));
    dispatcher.protection(DestinationKey(1)).unwrap()
}

#[test]
fn what_is_kept_brings_a_hold_back_with_a_ramp() {
    let kept = held();
    assert_eq!(kept.hold_until, Some(at(61_000)), "60.02 s, never earlier");
    let mut after = dispatcher_with(1..9);
    after.restore(DestinationKey(1), kept, at(1_000));
    assert!(after.next_action(at(1_000)).is_none());
    let view = after.view(DestinationKey(1), at(1_000));
    assert_eq!((view.standing, view.until), (Standing::Held, Some(at(61_000))));
    assert_eq!(after.poll_timeout().map(|(at, _)| at), Some(at(61_000)));
    assert!(after.next_action(at(60_999)).is_none());
    assert!(started(after.next_action(at(61_000))).is_some());
    assert!(
        after.next_action(at(61_000)).is_none(),
        "the window starts from one"
    );
    assert_eq!(after.protection(DestinationKey(1)), None, "it is over");
}

#[test]
fn a_hold_that_is_over_when_it_is_read_back_holds_nothing_and_ends_in_a_ramp() {
    let mut after = dispatcher_with(1..9);
    after.restore(DestinationKey(1), held(), at(3_600_000));
    assert!(started(after.next_action(at(3_600_000))).is_some());
    assert!(after.next_action(at(3_600_000)).is_none(), "one, not four");
}

#[test]
fn a_hold_of_a_clock_that_was_ahead_is_no_longer_than_allowed() {
    let mut after = dispatcher_with(1..9);
    let hour = Terms {
        longest_hold: Some(Duration::from_secs(3_600)),
        ..Terms::default()
    };
    after.agree(DestinationKey(1), hour, START);
    let year = Duration::from_secs(365 * 86_400);
    let kept = Protection {
        hold_until: Some(START.plus(year)),
        ..held()
    };
    after.restore(DestinationKey(1), kept, START);
    let view = after.view(DestinationKey(1), START);
    assert_eq!((view.standing, view.until), (Standing::Held, Some(at(3_600_000))));
    // The clock is set back by a day while it runs.
    let before = START.minus(Duration::from_secs(86_400));
    after.agree(DestinationKey(1), hour, before);
    let until = after.view(DestinationKey(1), before).until;
    assert_eq!(until, Some(before.plus(Duration::from_secs(3_600))));
}

#[test]
fn a_hold_that_its_owner_shortens_ends_then() {
    let mut after = dispatcher_with(1..9);
    let at_most = |minutes: u64| Terms {
        longest_hold: Some(Duration::from_secs(60 * minutes)),
        ..Terms::default()
    };
    after.agree(DestinationKey(1), at_most(60), START);
    let kept = Protection {
        hold_until: Some(at(3_600_000)),
        ..held()
    };
    after.restore(DestinationKey(1), kept, START);
    assert!(after.next_action(START).is_none());
    assert_eq!(after.poll_timeout().map(|(at, _)| at), Some(at(3_600_000)));
    after.agree(DestinationKey(1), at_most(1), at(1_000));
    assert!(after.next_action(at(1_000)).is_none());
    assert_eq!(after.poll_timeout().map(|(at, _)| at), Some(at(61_000)));
    assert!(after.next_action(at(60_999)).is_none());
    assert!(started(after.next_action(at(61_000))).is_some());
}

#[test]
fn a_hold_without_deliveries_ends_by_itself_and_its_lane_is_forgotten() {
    let mut dispatcher = Dispatcher::<Bytes>::new(DispatcherConfig::default());
    dispatcher.restore(DestinationKey(1), held(), START);
    assert!(dispatcher.next_action(START).is_none());
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(at(61_000)));
    assert!(dispatcher.next_action(at(61_000)).is_none());
    dispatcher.sweep(at(600_000));
    assert!(!dispatcher.has_lane(DestinationKey(1)));
}

/// 64 requests at once to destination 1, and so many deliveries for it.
fn wide_open(deliveries: i64) -> Dispatcher<Bytes> {
    let mut dispatcher = Dispatcher::new(DispatcherConfig {
        window: WindowConfig {
            initial: 64,
            ..WindowConfig::default()
        },
        ..DispatcherConfig::default()
    });
    for key in 0..deliveries {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    dispatcher
}

#[test]
fn answers_that_come_in_together_ask_for_one_write_of_a_hold() {
    let mut dispatcher = wide_open(64);
    let out: Vec<_> = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
    assert_eq!(out.len(), 64);
    // From 20 ms to 335 ms, each asks for 60 s from then on.
    let mut kept: Option<Protection> = None;
    let mut writes = Vec::new();
    for (n, delivery) in (0..).zip(out) {
        let now = at(20 + 5 * n);
        hold(&mut dispatcher, delivery, Duration::from_secs(60), now);
        let protection = dispatcher.protection(DestinationKey(1)).unwrap();
        if protection.outdates(kept.as_ref(), now) {
            writes.push(protection.hold_until);
            kept = Some(protection);
        }
    }
    assert_eq!(writes, [Some(at(61_000))]);
    // The pause was too short for the receiver: the next answer asks for another.
    dispatcher.accepted(pending(100, 1, START), None, at(61_000));
    let delivery = started(dispatcher.next_action(at(61_000))).unwrap();
    hold(&mut dispatcher, delivery, Duration::from_secs(60), at(61_020));
    let protection = dispatcher.protection(DestinationKey(1)).unwrap();
    assert!(protection.outdates(kept.as_ref(), at(61_020)));
    // Its owner allows no more than ten seconds.
    let kept = Some(protection);
    let short = Terms {
        longest_hold: Some(Duration::from_secs(10)),
        ..Terms::default()
    };
    dispatcher.agree(DestinationKey(1), short, at(61_500));
    let shorter = dispatcher.protection(DestinationKey(1)).unwrap();
    assert_eq!(shorter.hold_until, Some(at(72_000)));
    assert!(shorter.outdates(kept.as_ref(), at(61_500)));
    assert!(!shorter.outdates(Some(&shorter), at(61_500)));
}

/// 64 are out when one of them is answered with 429, and the others succeed when the hold is over.
#[test]
fn late_answers_of_before_a_hold_do_not_skip_its_ramp() {
    let mut dispatcher = wide_open(200);
    let mut out: Vec<_> = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
    assert_eq!(out.len(), 64);
    hold(&mut dispatcher, out.pop().unwrap(), Duration::from_secs(1), START);
    for delivery in out {
        dispatcher.finished(answered(delivery, 200), at(1_100));
    }
    let first = started(dispatcher.next_action(at(1_100))).unwrap();
    assert!(dispatcher.next_action(at(1_100)).is_none(), "one at first");
    dispatcher.finished(answered(first, 200), at(1_200));
    let next = std::iter::from_fn(|| started(dispatcher.next_action(at(1_200))));
    assert_eq!(next.count(), 2);
}

#[test]
fn a_hold_of_a_second_is_worth_no_write() {
    for (seconds, is_worth_it) in [(1, false), (2, true)] {
        let mut dispatcher = dispatcher_with(0..1);
        let delivery = started(dispatcher.next_action(START)).unwrap();
        hold(&mut dispatcher, delivery, Duration::from_secs(seconds), START);
        let protection = dispatcher.protection(DestinationKey(1)).unwrap();
        assert_eq!(protection.outdates(None, START), is_worth_it, "{seconds} s");
    }
}

#[test]
fn failures_in_a_row_are_worth_a_write_after_an_hour_and_once_they_are_over() {
    let failed = |since: Timestamp, breaker| {
        let mut streak = Streak::default();
        streak.finished(&Outcome::status(404), since, &StreakConfig::default());
        Protection {
            breaker,
            streak,
            hold_until: None,
        }
    };
    let hour = 3_600_000;
    let now = failed(START, None);
    assert!(!now.outdates(None, at(hour - 1)));
    assert!(now.outdates(None, at(hour)));
    assert!(!now.outdates(Some(&now), at(100 * hour)), "once");
    // A success came between, and what is kept would bring the old beginning back.
    let later = failed(at(2 * hour), None);
    assert!(later.outdates(Some(&now), at(2 * hour)));
    let well = Protection {
        streak: Streak::default(),
        ..now.clone()
    };
    assert!(well.outdates(Some(&now), at(2 * hour)));
    assert!(!well.outdates(Some(&well), at(2 * hour)));
}

#[test]
fn what_an_earlier_version_kept_is_read() {
    let text = r#"{"breaker":null,"streak":{"failures":3,"since":"2023-11-14T22:13:20Z","told":0}}"#;
    let kept: Protection = serde_json::from_str(text).unwrap();
    assert_eq!((kept.streak.failures(), kept.streak.since()), (3, Some(START)));
    assert_eq!(kept.hold_until, None);
}

#[test]
fn a_reset_forgets_a_hold() {
    let mut dispatcher = dispatcher_with(0..9);
    let delivery = started(dispatcher.next_action(START)).unwrap();
    hold(&mut dispatcher, delivery, Duration::from_secs(60), START);
    assert!(dispatcher.protection(DestinationKey(1)).is_some());
    dispatcher.reset(DestinationKey(1), at(1));
    assert_eq!(dispatcher.protection(DestinationKey(1)), None);
    assert!(started(dispatcher.next_action(at(1))).is_some());
    assert!(
        dispatcher.next_action(at(1)).is_none(),
        "and the window starts from one"
    );
}

#[test]
fn a_reset_lets_one_go_at_once() {
    let mut dispatcher = dispatcher_with(0..8);
    open(&mut dispatcher);
    assert_eq!(dispatcher.reset(DestinationKey(1), at(1)), Change::Closed);
    assert!(started(dispatcher.next_action(at(1))).is_some());
    assert!(
        dispatcher.next_action(at(1)).is_none(),
        "and the window starts from one"
    );
    assert_eq!(dispatcher.protection(DestinationKey(1)), None);
    assert_eq!(dispatcher.reset(DestinationKey(99), at(1)), Change::None);
}

#[test]
fn a_lane_that_knows_of_trouble_is_not_forgotten() {
    let mut dispatcher = dispatcher_with(0..5);
    open(&mut dispatcher);
    dispatcher.sweep(at(86_400_000));
    assert!(dispatcher.protection(DestinationKey(1)).is_some());
}

#[test]
fn a_deleted_destination_is_forgotten_with_its_trouble() {
    let mut dispatcher = dispatcher_with(0..5);
    open(&mut dispatcher);
    dispatcher.limit_replays(DestinationKey(1), None, START);
    dispatcher.accepted(pending(8, 1, at(86_400_000)), None, START);
    dispatcher.accepted(pending(9, 2, START), None, START);
    let out = started(dispatcher.next_action(START)).unwrap();
    for key in [1, 2, 3] {
        dispatcher.forget(DestinationKey(key), at(1));
    }
    let view = dispatcher.view(DestinationKey(1), at(1));
    assert_eq!((view.standing, view.failures), (Standing::Idle, 0));
    assert_eq!(dispatcher.load().queued, 0, "its deliveries end in the store");
    assert_eq!(dispatcher.census(at(1)).breakers, [2, 0, 0]);
    assert!(dispatcher.next_action(at(1)).is_none());
    dispatcher.sweep(at(60_000));
    assert_eq!(
        dispatcher.destinations(),
        [DestinationKey(2)],
        "something of it is out"
    );
    let limited = Finished {
        elsewhere: true,
        hold_until: Some(at(600_000)),
        again: Some((pending(9, 2, at(86_400_000)), None)),
        ..answered(out, 503)
    };
    assert_eq!(dispatcher.finished(limited, at(60_000)), Learned::NOTHING);
    dispatcher.settled([(out.destination, out.key)], at(60_000));
    dispatcher.forget(DestinationKey(2), at(60_000));
    assert!(dispatcher.next_action(at(60_000)).is_none());
    dispatcher.sweep(at(120_000));
    assert_eq!(dispatcher.destinations(), []);
}

#[test]
fn the_worst_come_first() {
    let mut dispatcher = dispatcher_with(0..5);
    open(&mut dispatcher);
    dispatcher.accepted(pending(20, 2, START), None, START);
    dispatcher.accepted(pending(30, 3, START), None, START);
    while let Some(action) = dispatcher.next_action(START) {
        let Action::Start(delivery, ..) = action else {
            continue;
        };
        let status = if delivery.key.0 == 20 { 200 } else { 404 };
        dispatcher.finished(answered(delivery, status), START);
    }
    let order = |limit| {
        let views = dispatcher.worst(limit, at(1));
        views.iter().map(|view| view.destination.0).collect::<Vec<_>>()
    };
    assert_eq!(order(10), [1, 3, 2]);
    assert_eq!(order(1), [1]);
}

#[test]
fn a_lane_explains_itself() {
    let mut dispatcher = dispatcher_with(0..8);
    let say = |dispatcher: &Dispatcher<Bytes>, destination, now| {
        dispatcher.view(DestinationKey(destination), now).explanation()
    };
    assert_eq!(say(&dispatcher, 1, START), "Deliveries flow.");
    assert_eq!(say(&dispatcher, 9, START), "Nothing waits.");
    let until = open(&mut dispatcher);
    let reason = "5 of the last 5 attempts failed, the last: 500";
    assert_eq!(
        say(&dispatcher, 1, START),
        format!(
            "Nothing is sent before {until}, when one request goes out as a probe: the circuit breaker is open, because {reason}."
        )
    );
    assert!(dispatcher.next_action(until).is_some());
    assert_eq!(
        say(&dispatcher, 1, until),
        format!(
            "One request is out as a probe, and the others wait for its answer: the circuit breaker had opened, because {reason}."
        )
    );
    dispatcher.pause(DestinationKey(1), until);
    assert_eq!(
        say(&dispatcher, 1, until),
        "Nothing is sent, because the destination is disabled."
    );
}

fn replays(keys: std::ops::Range<i64>) -> Dispatcher<Bytes> {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    for key in keys {
        let replayed = PendingDelivery {
            replayed: true,
            ..pending(key, 1, START)
        };
        dispatcher.accepted(replayed, None, START);
    }
    dispatcher
}

#[test]
fn a_replay_at_fifty_a_second_never_gives_more_than_fifty_one_in_any_second() {
    let mut dispatcher = replays(0..1_000);
    let starts = run(&mut dispatcher, 200, at(3_600_000));
    assert_eq!(starts.len(), 1_000);
    for (n, first) in starts.iter().enumerate() {
        let within = starts[n..]
            .iter()
            .take_while(|at| at.since(*first) < Duration::from_secs(1));
        assert!(within.count() <= 51, "from {first}");
    }
    let took = starts[999].since(starts[0]);
    assert!(took <= Duration::from_secs(20), "and it is used: {took:?}");
}

#[test]
fn live_deliveries_start_at_once_beside_a_replay_that_waits_for_its_rate() {
    let mut dispatcher = replays(0..100);
    dispatcher.limit_replays(DestinationKey(1), NonZeroU32::new(1), START);
    assert_eq!(run(&mut dispatcher, 200, START).len(), 1);
    for key in 1_000..1_010 {
        dispatcher.accepted(pending(key, 1, at(5)), None, at(5));
    }
    let mut live = Vec::new();
    while let Some(action) = dispatcher.next_action(at(5)) {
        if let Action::Start(delivery, _, waited_for) = action {
            live.push((delivery.key.0, waited_for));
            dispatcher.finished(answered(delivery, 200), at(5));
            dispatcher.settled([(delivery.destination, delivery.key)], at(5));
        }
    }
    let right: Vec<_> = (1_000..1_010).map(|key| (key, None)).collect();
    assert_eq!(live, right);
}

#[test]
fn a_replay_stops_at_once_and_goes_on_where_it_was() {
    let mut dispatcher = replays(0..10);
    assert_eq!(run(&mut dispatcher, 200, at(29)).len(), 2);
    dispatcher.limit_replays(DestinationKey(1), None, at(30));
    assert!(dispatcher.next_action(at(60_000)).is_none());
    assert_eq!(dispatcher.poll_timeout(), None, "it costs nothing meanwhile");
    dispatcher.limit_replays(DestinationKey(1), NonZeroU32::new(100), at(60_000));
    assert!(started(dispatcher.next_action(at(60_000))).is_some());
}

/// Case 7: as for 429. The lane does not know the status: what the policy calls a hold, it keeps.
#[test]
fn case_7_a_503_with_retry_after_holds_every_delivery() {
    let policy = RetryPolicy::default();
    let twenty = Outcome::Answered(Answer {
        status: 503,
        retry_after: Some(Duration::from_secs(20)),
        used_up: None,
        location: None,
    });
    let mut dispatcher = dispatcher_with(0..1);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.accepted(pending(1, 1, START), None, START);
    let second = started(dispatcher.next_action(START)).unwrap();
    let hold_until = policy.hold(&twenty).map(|hold| START.plus(hold));
    for (delivery, outcome) in [(first, twenty), (second, Outcome::status(200))] {
        let finished = Finished {
            hold_until: hold_until.filter(|_| outcome.code() == Some(503)),
            outcome: Some(outcome),
            ..answered(delivery, 0)
        };
        dispatcher.finished(finished, START);
    }
    dispatcher.accepted(pending(2, 1, at(1)), None, at(1));
    assert!(dispatcher.next_action(at(19_999)).is_none());
    assert_eq!(
        dispatcher.view(DestinationKey(1), at(19_999)).standing,
        Standing::Held
    );
    assert!(started(dispatcher.next_action(at(20_000))).is_some());
}

/// Starts and answers until nothing is left: when each start came, and when the last answer. Destination 0 never answers.
fn play(dispatcher: &mut Dispatcher<Bytes>, latency: Duration) -> (Vec<Timestamp>, Timestamp) {
    let mut now = START;
    let mut out = VecDeque::new();
    let mut starts = Vec::new();
    loop {
        while let Some(action) = dispatcher.next_action(now) {
            let Some(delivery) = started(action) else {
                continue;
            };
            if delivery.destination.0 != 0 {
                starts.push(now);
                out.push_back((now.plus(latency), delivery));
            }
        }
        let Some((next, delivery)) = out.pop_front() else {
            return (starts, now);
        };
        now = next;
        dispatcher.finished(answered(delivery, 200), now);
        dispatcher.settled([(delivery.destination, delivery.key)], now);
    }
}

/// Case 129: one destination hangs, a thousand are well, each with ten deliveries.
#[test]
fn case_129_a_hanging_destination_delays_nobody_else() {
    let waits = |hanging: i64| {
        let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
        for key in 0..hanging {
            dispatcher.accepted(pending(key, 0, START), None, START);
        }
        for key in 0..10_000 {
            let destination = 1 + key % 1_000;
            dispatcher.accepted(pending(1_000 + key, destination, START), None, START);
        }
        let (mut starts, _) = play(&mut dispatcher, Duration::from_millis(20));
        assert_eq!(starts.len(), 10_000);
        starts.sort_unstable();
        starts[9_899].since(START)
    };
    let (without, with) = (waits(0), waits(500));
    assert!(with * 10 <= without * 11, "p99 {without:?} becomes {with:?}");
}

/// Case 131: a thousand destinations, each with a delivery that takes a second.
#[test]
fn case_131_slow_destinations_take_the_time_of_events_by_concurrency() {
    for (max_in_flight, seconds) in [(1_000, 1), (100, 10), (250, 4)] {
        let mut dispatcher = Dispatcher::new(DispatcherConfig {
            max_in_flight,
            ..DispatcherConfig::default()
        });
        for key in 0..1_000 {
            dispatcher.accepted(pending(key, 1 + key, START), None, START);
        }
        let (starts, end) = play(&mut dispatcher, Duration::from_secs(1));
        assert_eq!(starts.len(), 1_000);
        assert_eq!(
            end.since(START),
            Duration::from_secs(seconds),
            "{max_in_flight} at once"
        );
    }
}
