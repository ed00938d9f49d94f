//! Limits of this server, clocks that are set back, answers that never come, and what people are told.

use super::*;
use crate::breaker::{BreakerSnapshot, OpenKind, Reason};

const DAY: Duration = Duration::from_secs(86_400);

/// Deliveries of destination 1 that have been due for two days.
fn overdue(keys: std::ops::Range<i64>) -> Dispatcher<Bytes> {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    for key in keys {
        dispatcher.accepted(pending(key, 1, START.minus(2 * DAY)), None, START);
    }
    dispatcher
}

/// Five failures in a row; until when the breaker is open.
fn opened(dispatcher: &mut Dispatcher<Bytes>) -> Timestamp {
    for _ in 0..5 {
        let delivery = started(dispatcher.next_action(START)).unwrap();
        dispatcher.finished(answered(delivery, 500), START);
    }
    assert!(dispatcher.next_action(START).is_none());
    dispatcher.view(DestinationKey(1), START).until.unwrap()
}

#[test]
fn an_open_breaker_does_not_wait_for_the_clock_that_was_set_back() {
    let mut dispatcher = overdue(0..8);
    let until = opened(&mut dispatcher);
    assert!(
        dispatcher
            .next_action(START.minus(Duration::from_secs(60)))
            .is_none()
    );
    assert_eq!(
        dispatcher.poll_timeout().map(|(at, _)| at),
        Some(until),
        "a correction"
    );
    let before = START.minus(DAY);
    assert!(started(dispatcher.next_action(before)).is_some());
    let next = dispatcher.next_action(before);
    assert!(next.is_none(), "one probe: {next:?}");
}

#[test]
fn what_is_left_of_a_hold_stays_when_the_clock_is_set_back() {
    let mut dispatcher = overdue(0..8);
    let hour = Terms {
        longest_hold: Some(Duration::from_secs(3_600)),
        ..Terms::default()
    };
    dispatcher.agree(DestinationKey(1), hour, START);
    let delivery = started(dispatcher.next_action(START)).unwrap();
    let limited = Finished {
        hold_until: Some(at(60_000)),
        ..answered(delivery, 429)
    };
    dispatcher.finished(limited, START);
    assert!(dispatcher.next_action(START).is_none());
    let before = START.minus(DAY);
    assert!(dispatcher.next_action(before).is_none());
    let end = before.plus(Duration::from_secs(60));
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(end));
    assert!(started(dispatcher.next_action(end)).is_some());
}

/// Whatever is heard first after the clock was set back: what the owner wants, or the end of an attempt that asks for a pause.
#[test]
fn a_hold_stays_whatever_is_heard_first_after_the_clock_was_set_back() {
    let minute = Duration::from_secs(60);
    let before = START.minus(DAY);
    for (held, asks) in [(true, false), (false, true), (true, true)] {
        let mut dispatcher = overdue(0..8);
        let mut out: Vec<_> = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
        let limited = |delivery, now: Timestamp| Finished {
            hold_until: Some(now.plus(minute)),
            ..answered(delivery, 429)
        };
        if held {
            dispatcher.finished(limited(out.pop().unwrap(), START), START);
            assert!(dispatcher.next_action(START).is_none());
        }
        if asks {
            dispatcher.finished(limited(out.pop().unwrap(), before), before);
        } else {
            let hour = Terms {
                longest_hold: Some(Duration::from_secs(3_600)),
                ..Terms::default()
            };
            dispatcher.agree(DestinationKey(1), hour, before);
        }
        assert!(dispatcher.next_action(before).is_none());
        let view = dispatcher.view(DestinationKey(1), before);
        assert_eq!(
            (view.standing, view.until),
            (Standing::Held, Some(before.plus(minute))),
            "held before: {held}, asks for one: {asks}"
        );
    }
}

#[test]
fn a_tenants_limit_starts_afresh_when_the_clock_is_set_back() {
    let mut dispatcher = overdue(0..8);
    let one = Terms {
        tenant: TenantKey(1),
        share: Share {
            rate_limit: NonZeroU32::new(1),
            ..Share::default()
        },
        ..Terms::default()
    };
    dispatcher.agree(DestinationKey(1), one, START);
    assert!(started(dispatcher.next_action(START)).is_some());
    assert!(dispatcher.next_action(START).is_none());
    let before = START.minus(DAY);
    assert!(started(dispatcher.next_action(before)).is_some());
    assert!(dispatcher.next_action(before).is_none());
}

#[test]
fn a_read_that_failed_is_repeated_soon_when_the_clock_is_set_back() {
    let mut dispatcher = Dispatcher::<Bytes>::new(DispatcherConfig::default());
    dispatcher.spilled(DestinationKey(1), START);
    assert!(matches!(
        dispatcher.next_action(START),
        Some(Action::Refill { .. })
    ));
    dispatcher.refill_failed(DestinationKey(1), START);
    assert!(dispatcher.next_action(START).is_none());
    let before = START.minus(DAY);
    assert!(dispatcher.next_action(before).is_none());
    let again = before.plus(Duration::from_secs(1));
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(again));
    assert!(matches!(
        dispatcher.next_action(again),
        Some(Action::Refill { .. })
    ));
}

#[test]
fn a_probe_that_never_answers_is_followed_by_another_after_two_minutes() {
    let mut dispatcher = overdue(0..12);
    let until = opened(&mut dispatcher);
    let lost = started(dispatcher.next_action(until)).unwrap();
    assert!(dispatcher.next_action(until).is_none());
    let deadline = until.plus(Duration::from_secs(120));
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(deadline));
    let probe = started(dispatcher.next_action(deadline)).unwrap();
    assert!(dispatcher.next_action(deadline).is_none(), "one at a time");
    assert_eq!(dispatcher.load().in_flight, 1, "nothing is heard of the lost one");
    let learned = dispatcher.finished(answered(probe, 200), deadline);
    assert_eq!(learned.change, Change::Closed);
    let next = started(dispatcher.next_action(deadline)).unwrap();
    dispatcher.finished(answered(next, 200), deadline);
    let last = started(dispatcher.next_action(deadline)).unwrap();
    // It comes back after all, and nothing is taken from it.
    let learned = dispatcher.finished(answered(lost, 500), deadline);
    assert_eq!(learned, Learned::NOTHING);
    assert_eq!(dispatcher.load().in_flight, 1);
    assert!(dispatcher.next_action(deadline).is_none(), "the window is one");
    dispatcher.finished(answered(last, 200), deadline);
    assert_eq!(dispatcher.load().in_flight, 0);
    assert_eq!(dispatcher.load().unsettled, 9);
}

/// Destinations 1 to `lanes` with four deliveries each, as far as they start.
fn crowd(config: DispatcherConfig, lanes: i64) -> (Dispatcher<Bytes>, Vec<PendingDelivery>) {
    let mut dispatcher = Dispatcher::new(config);
    for key in 0..4 * lanes {
        dispatcher.accepted(pending(key, 1 + key % lanes, START), None, START);
    }
    let out = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
    (dispatcher, out)
}

fn told(dispatcher: &Dispatcher<Bytes>, destination: i64) -> (Standing, String) {
    let view = dispatcher.view(DestinationKey(destination), START);
    (view.standing, view.explanation())
}

#[test]
fn a_server_at_its_limit_says_so() {
    let (dispatcher, out) = crowd(small(), 9);
    assert_eq!(out.len(), 8);
    let text = "All 8 requests that this server may have out are out; the next one goes out when one of them ends and this \
                destination has its turn.";
    assert_eq!(told(&dispatcher, 9), (Standing::AtCapacity, text.to_owned()));
    let narrow = DispatcherConfig {
        max_unsettled: 3,
        ..small()
    };
    let (mut dispatcher, out) = crowd(narrow, 1);
    assert_eq!(out.len(), 4);
    for delivery in out.into_iter().take(3) {
        dispatcher.finished(answered(delivery, 500), START);
    }
    dispatcher.accepted(pending(100, 1, START), None, START);
    let text =
        "Nothing is sent by this server, because 3 results are not written yet; see its health and the disk.";
    assert_eq!(told(&dispatcher, 1), (Standing::AtCapacity, text.to_owned()));
}

#[test]
fn a_lane_that_has_its_share_says_so() {
    let (dispatcher, out) = crowd(small(), 4);
    assert_eq!(out.len(), 8, "two of each");
    let view = dispatcher.view(DestinationKey(1), START);
    assert_eq!((view.standing, view.share), (Standing::WindowFull, Some(2)));
    assert_eq!(
        view.explanation(),
        "2 of 2 requests are out, the destination's share of all that may be out at once; the next one goes out when one of them \
         ends."
    );
}

/// A lane that does this, until five seconds after the start where that is said.
fn doing(standing: Standing, has_end: bool) -> LaneView {
    let dispatcher = Dispatcher::<Bytes>::new(DispatcherConfig::default());
    LaneView {
        standing,
        until: has_end.then(|| at(5_000)),
        ..dispatcher.view(DestinationKey(1), START)
    }
}

fn assert_sentences(table: impl IntoIterator<Item = (LaneView, &'static str)>) {
    for (view, sentence) in table {
        assert_eq!(view.explanation(), sentence);
    }
}

#[test]
fn each_standing_has_a_sentence_that_says_why() {
    let waiting = LaneView {
        more_in_store: true,
        ..doing(Standing::Idle, false)
    };
    let out = LaneView {
        in_flight: 1,
        ..doing(Standing::Idle, false)
    };
    let full = LaneView {
        in_flight: 4,
        ..doing(Standing::WindowFull, false)
    };
    let limited = LaneView {
        rate: NonZeroU32::new(10),
        ..doing(Standing::RateLimited, true)
    };
    let of_tenant = LaneView {
        tenant_rate: NonZeroU32::new(20),
        waits_for_tenant: true,
        ..doing(Standing::RateLimited, true)
    };
    assert_sentences([
        (doing(Standing::Idle, false), "Nothing waits."),
        (out, "Nothing waits. Requests that are out: 1."),
        (
            doing(Standing::Idle, true),
            "Nothing is due; the next delivery is due at 2023-11-14T22:13:25.000Z.",
        ),
        (waiting, "Nothing in memory is due; the store is read next."),
        (doing(Standing::Flowing, false), "Deliveries flow."),
        (
            full,
            "4 of 4 requests are out; the next one goes out when one of them ends.",
        ),
        (
            limited,
            "The next request goes out at 2023-11-14T22:13:25.000Z, because the destination allows 10 a second.",
        ),
        (
            of_tenant,
            "The next request goes out at 2023-11-14T22:13:25.000Z or later, because all destinations of the tenant together get \
             20 a second.",
        ),
        (
            doing(Standing::Held, true),
            "Nothing is sent before 2023-11-14T22:13:25.000Z, because the receiver asked for a pause.",
        ),
        (
            doing(Standing::Disabled, false),
            "Nothing is sent, because the destination is disabled.",
        ),
        (
            doing(Standing::ReplaysPaused, false),
            "Nothing is due but deliveries of replays, and all replays of the destination are paused.",
        ),
    ]);
}

#[test]
fn an_open_breaker_says_why_and_what_comes_next() {
    let tripped = |standing, has_end, in_flight| LaneView {
        opening: Some(BreakerSnapshot {
            reason: Reason {
                kind: OpenKind::Failures,
                text: "the last 5 attempts failed".to_owned(),
            },
            failing_since: START,
            opened_at: START,
            until: at(5_000),
            failed_probes: 0,
        }),
        in_flight,
        ..doing(standing, has_end)
    };
    let impatient = LaneView {
        gives_up_at: Some(at(6_000)),
        ..tripped(Standing::Open, true, 0)
    };
    assert_sentences([
        (
            tripped(Standing::Open, true, 0),
            "Nothing is sent before 2023-11-14T22:13:25.000Z, when one request goes out as a probe: the circuit breaker is open, \
             because the last 5 attempts failed.",
        ),
        (
            impatient,
            "Nothing is sent before 2023-11-14T22:13:25.000Z, when one request goes out as a probe: the circuit breaker is open, \
             because the last 5 attempts failed. From 2023-11-14T22:13:26.000Z on, deliveries that are due meanwhile become dead \
             letters.",
        ),
        (
            tripped(Standing::Probing, false, 0),
            "The next request is a probe, and the others wait for its answer: the circuit breaker had opened, because the last 5 \
             attempts failed.",
        ),
        (
            tripped(Standing::Probing, false, 1),
            "One request is out as a probe, and the others wait for its answer: the circuit breaker had opened, because the last \
             5 attempts failed.",
        ),
    ]);
}

/// One delivery that came back after so long.
fn took(dispatcher: &mut Dispatcher<Bytes>, destination: i64, latency: Duration) {
    dispatcher.accepted(pending(10_000 + destination, destination, START), None, START);
    let delivery = started(dispatcher.next_action(START)).unwrap();
    let finished = Finished {
        latency,
        ..answered(delivery, 200)
    };
    dispatcher.finished(finished, START);
}

fn starts(dispatcher: &mut Dispatcher<Bytes>) -> Vec<PendingDelivery> {
    std::iter::from_fn(|| started(dispatcher.next_action(START))).collect()
}

/// Of 16 slots, slow receivers may have 14 together.
fn with_16_slots() -> Dispatcher<Bytes> {
    Dispatcher::new(DispatcherConfig {
        max_in_flight: 16,
        ..DispatcherConfig::default()
    })
}

fn keys(deliveries: &[PendingDelivery]) -> Vec<i64> {
    deliveries.iter().map(|delivery| delivery.key.0).collect()
}

fn late(delivery: PendingDelivery) -> Finished<Bytes> {
    Finished {
        latency: Duration::from_secs(2),
        ..answered(delivery, 200)
    }
}

#[test]
fn the_last_slots_are_for_receivers_that_answer_soon() {
    let mut dispatcher = with_16_slots();
    let (slow, prompt, never_seen) = (0..20, 101..104, 200);
    for key in slow.clone() {
        took(&mut dispatcher, key, Duration::from_millis(1_001));
    }
    for key in prompt.clone() {
        took(&mut dispatcher, key, Duration::from_secs(1));
    }
    for key in slow.chain([never_seen]) {
        dispatcher.accepted(pending(key, key, START), None, START);
    }
    let mut out = starts(&mut dispatcher);
    assert_eq!(out.len(), 14);
    let text = "14 requests are out or more; the rest of those that this server may have out are kept for receivers that are \
                known to answer within a second, and the last request to this one took longer, or there was none.";
    for waits in [15, never_seen] {
        assert_eq!(told(&dispatcher, waits), (Standing::AtCapacity, text.to_owned()));
    }
    for key in prompt {
        dispatcher.accepted(pending(key, key, START), None, START);
    }
    let others = starts(&mut dispatcher);
    assert_eq!(keys(&others), [101, 102], "until really all are out");
    let mut next_of = |dispatcher: &mut Dispatcher<Bytes>| {
        dispatcher.finished(late(out.pop().unwrap()), START);
        keys(&starts(dispatcher))
    };
    assert_eq!(next_of(&mut dispatcher), [103]);
    for next in [14, 15, 16] {
        assert_eq!(next_of(&mut dispatcher), [next], "in turn");
    }
}

#[test]
fn as_long_as_few_are_slow_one_that_was_never_seen_gets_a_slot() {
    let mut dispatcher = with_16_slots();
    took(&mut dispatcher, 100, Duration::from_secs(2));
    for key in (0..15).chain([100, 15, 16]) {
        dispatcher.accepted(pending(key, key, START), None, START);
    }
    assert_eq!(starts(&mut dispatcher).len(), 16);
}

/// Slow receivers with more to send each, and 14 slots for them: none gets two more than another.
#[test]
fn slow_receivers_have_slots_in_turn() {
    for lanes in [15, 20, 28] {
        let mut dispatcher = with_16_slots();
        for lane in 0..lanes {
            took(&mut dispatcher, lane, Duration::from_secs(2));
        }
        for key in 0..10 * lanes {
            dispatcher.accepted(pending(key, key % lanes, START), None, START);
        }
        let mut made = vec![0; usize::try_from(lanes).unwrap()];
        let mut out = VecDeque::new();
        for _ in 0..7 * lanes {
            for delivery in starts(&mut dispatcher) {
                made[usize::try_from(delivery.destination.0).unwrap()] += 1;
                out.push_back(delivery);
            }
            assert_eq!(out.len(), 14);
            let (least, most) = (made.iter().min().unwrap(), made.iter().max().unwrap());
            assert!(most - least <= 1, "{made:?}");
            dispatcher.finished(late(out.pop_front().unwrap()), START);
        }
    }
}

/// However busy prompt ones are: what they have out does not count against slow ones.
#[test]
fn prompt_receivers_do_not_starve_a_slow_one() {
    let mut dispatcher = with_16_slots();
    took(&mut dispatcher, 500, Duration::from_secs(2));
    for lane in 0..20 {
        took(&mut dispatcher, lane, Duration::from_millis(5));
    }
    for key in 0..1_000 {
        dispatcher.accepted(pending(key, key % 20, START), None, START);
    }
    let mut out: VecDeque<_> = starts(&mut dispatcher).into();
    assert_eq!(out.len(), 16);
    dispatcher.accepted(pending(9_999, 500, START), None, START);
    let waited = (0..100).find(|_| {
        dispatcher.finished(answered(out.pop_front().unwrap(), 200), START);
        let next = starts(&mut dispatcher);
        out.extend(&next);
        next.iter().any(|delivery| delivery.destination.0 == 500)
    });
    assert!(waited.is_some_and(|starts| starts <= 21), "{waited:?}");
}

#[test]
fn whoever_waits_for_a_slot_gets_one_although_those_before_it_cannot_use_theirs() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig {
        max_in_flight: 8,
        ..DispatcherConfig::default()
    });
    for key in 0..12 {
        took(&mut dispatcher, key, Duration::from_secs(2));
    }
    for key in 0..12 {
        dispatcher.accepted(pending(key, key, START), None, START);
    }
    let out = starts(&mut dispatcher);
    assert_eq!(out.len(), 7);
    let is_out = |key: &i64| out.iter().any(|delivery| delivery.key.0 == *key);
    let mut waiting: Vec<_> = (0..12).filter(|key| !is_out(key)).collect();
    let last = waiting.pop().unwrap();
    for key in waiting {
        dispatcher.pause(DestinationKey(key), START);
    }
    dispatcher.finished(answered(out[0], 200), START);
    let next = starts(&mut dispatcher);
    let next: Vec<_> = next.iter().map(|delivery| delivery.key.0).collect();
    assert_eq!(next, [last]);
}

/// A tenant with a limit of 10 a second has a busy prompt receiver and a slow one, and twenty slow ones of another hold all slots that
/// slow ones may have, in turn. Each of them has a slot about every 3 s; so has the limited one.
#[test]
fn a_tenants_limit_and_the_queue_for_slots_do_not_starve_a_lane_together() {
    let (mut dispatcher, mut now) = (with_16_slots(), START);
    let (prompt, slow) = (500, 600);
    for destination in [prompt, slow] {
        let terms = Terms {
            tenant: TenantKey(2),
            share: Share {
                weight: 1,
                rate_limit: std::num::NonZeroU32::new(10),
            },
            ..Terms::default()
        };
        dispatcher.agree(DestinationKey(destination), terms, now);
    }
    let of = |key: i64, destination: i64| PendingDelivery {
        tenant: TenantKey(if destination < 500 { 1 } else { 2 }),
        ..pending(key, destination, START)
    };
    let mut key = 0;
    let destinations: Vec<_> = (0..20).chain([prompt, slow]).collect();
    for destination in destinations.iter().flat_map(|key| [*key; 3]) {
        key += 1;
        dispatcher.accepted(of(key, destination), None, now);
    }
    let mut out: BTreeSet<(Timestamp, i64, i64)> = BTreeSet::new();
    let mut deliveries = HashMap::new();
    let mut made = HashMap::<i64, u32>::new();
    while now < START.plus(Duration::from_secs(120)) {
        while let Some(delivery) = started(dispatcher.next_action(now)) {
            let destination = delivery.destination.0;
            let takes = if destination == prompt { 5 } else { 2_000 };
            *made.entry(destination).or_default() += 1;
            deliveries.insert(delivery.key.0, delivery);
            out.insert((
                now.plus(Duration::from_millis(takes)),
                delivery.key.0,
                destination,
            ));
            // There is always more.
            key += 1;
            dispatcher.accepted(of(key, destination), None, now);
        }
        let answer = out.first().map(|(at, ..)| *at);
        let timer = dispatcher.poll_timeout().map(|(at, _)| at);
        now = answer.into_iter().chain(timer).min().unwrap().max(now);
        while let Some((at, key, destination)) = out.first().copied().filter(|(at, ..)| *at <= now) {
            out.remove(&(at, key, destination));
            let delivery = deliveries.remove(&key).unwrap();
            let latency = Duration::from_millis(if destination == prompt { 5 } else { 2_000 });
            let finished = Finished {
                latency,
                ..answered(delivery, 200)
            };
            dispatcher.finished(finished, now);
            dispatcher.settled([(delivery.destination, delivery.key)], now);
        }
    }
    assert!(made[&slow] >= 20, "{made:?}");
    assert!(made[&prompt] >= 1_000, "{made:?}");
}
