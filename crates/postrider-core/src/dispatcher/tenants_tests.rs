//! Tenants beside each other: who starts when there is not enough for all.

use std::collections::BTreeMap;

use super::*;

fn terms(tenant: i64, weight: u32, per_second: u32) -> Terms {
    Terms {
        tenant: TenantKey(tenant),
        share: Share {
            weight,
            rate_limit: NonZeroU32::new(per_second),
        },
        ..Terms::default()
    }
}

/// `events` deliveries for each destination, as `terms` says.
fn publish(
    dispatcher: &mut Dispatcher<Bytes>,
    destinations: std::ops::Range<i64>,
    events: i64,
    terms: Terms,
) {
    for destination in destinations {
        dispatcher.agree(DestinationKey(destination), terms, START);
        for n in 0..events {
            let key = destination * 10_000 + n;
            dispatcher.accepted(pending(key, destination, START), None, START);
        }
    }
}

/// The destinations of the next starts, each answered well 10 ms later, with no more than the configured requests out.
fn starts(dispatcher: &mut Dispatcher<Bytes>, count: usize) -> Vec<(Timestamp, i64)> {
    let mut now = START;
    let mut out = VecDeque::new();
    let mut seen = Vec::new();
    while seen.len() < count {
        while let Some(action) = dispatcher.next_action(now) {
            if let Some(delivery) = started(action) {
                seen.push((now, delivery.destination.0));
                out.push_back((now.plus(Duration::from_millis(10)), delivery));
            }
        }
        let answer = out.front().map(|(at, _)| *at);
        let timer = dispatcher.poll_timeout().map(|(at, _)| at);
        let Some(next) = answer.into_iter().chain(timer).min() else {
            break;
        };
        now = next.max(now);
        while let Some((_, delivery)) = out.pop_front_if(|(at, _)| *at <= now) {
            dispatcher.finished(answered(delivery, 200), now);
            dispatcher.settled([(delivery.destination, delivery.key)], now);
        }
    }
    seen
}

fn narrow() -> Dispatcher<Bytes> {
    Dispatcher::new(DispatcherConfig {
        max_in_flight: 3,
        max_lane: 4_096,
        ..DispatcherConfig::default()
    })
}

fn of(starts: &[(Timestamp, i64)], destinations: std::ops::Range<i64>) -> usize {
    starts
        .iter()
        .filter(|(_, destination)| destinations.contains(destination))
        .count()
}

#[test]
fn twice_the_weight_is_twice_the_turns() {
    let mut dispatcher = narrow();
    publish(&mut dispatcher, 0..2, 400, terms(1, 2, 0));
    publish(&mut dispatcher, 10..12, 400, terms(2, 1, 0));
    let seen = starts(&mut dispatcher, 300);
    assert_eq!((of(&seen[..300], 0..2), of(&seen[..300], 10..12)), (200, 100));
}

#[test]
fn a_tenant_with_many_destinations_gets_no_more_than_one_with_a_few() {
    let mut dispatcher = narrow();
    publish(
        &mut dispatcher,
        0..50,
        20,
        Terms {
            tenant: TenantKey(1),
            ..Terms::default()
        },
    );
    publish(
        &mut dispatcher,
        100..103,
        200,
        Terms {
            tenant: TenantKey(2),
            ..Terms::default()
        },
    );
    let seen = starts(&mut dispatcher, 400);
    let few = of(&seen[..400], 100..103);
    assert!((199..=201).contains(&few), "every second start: {few}");
    // Within the large tenant each destination has its turn: 200 starts over 50.
    for destination in 0..50 {
        let count = of(&seen[..400], destination..destination + 1);
        assert!((3..=5).contains(&count), "{destination}: {count}");
    }
}

#[test]
fn a_heavy_tenant_does_not_wait_for_one_with_nothing_to_send() {
    let mut dispatcher = narrow();
    publish(&mut dispatcher, 0..1, 10, terms(1, 9, 0));
    publish(&mut dispatcher, 10..11, 100, terms(2, 1, 0));
    let seen = starts(&mut dispatcher, 110);
    assert_eq!(of(&seen, 0..1), 10);
    assert_eq!(
        of(&seen, 10..11),
        100,
        "what nobody else wants is for whoever is there"
    );
}

#[test]
fn ten_a_second_over_all_destinations_of_a_tenant_are_never_more_than_eleven() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    publish(&mut dispatcher, 0..40, 25, terms(1, 1, 10));
    publish(
        &mut dispatcher,
        50..51,
        100,
        Terms {
            tenant: TenantKey(2),
            ..Terms::default()
        },
    );
    let seen = starts(&mut dispatcher, 1_100);
    let other = seen.iter().filter(|(_, destination)| *destination == 50);
    let last = other.map(|(at, _)| at.since(START)).max().unwrap();
    assert!(last < Duration::from_secs(1), "nobody else is slowed: {last:?}");
    let limited: Vec<_> = seen.iter().filter(|(_, destination)| *destination < 40).collect();
    assert_eq!(limited.len(), 1_000);
    for (n, (first, _)) in limited.iter().enumerate() {
        let second = limited[n..]
            .iter()
            .take_while(|(at, _)| at.since(*first) < Duration::from_secs(1));
        assert!(second.count() <= 11, "from {first}");
    }
    let took = limited[999].0.since(limited[0].0);
    assert!(took <= Duration::from_secs(100), "and it is used: {took:?}");
    // In turn: after each round of forty, every destination has had as many as the others, or one more.
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for (n, (_, destination)) in limited.iter().enumerate() {
        *counts.entry(*destination).or_default() += 1;
        if n % 40 == 39 {
            let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            assert!(
                counts.len() == 40 && most - least <= 1,
                "after {n}: {least} to {most}"
            );
        }
    }
}

#[test]
fn a_lane_that_is_offered_a_request_and_does_not_want_it_passes_it_on() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    publish(&mut dispatcher, 1..4, 1, terms(1, 1, 1));
    assert_eq!(started(dispatcher.next_action(START)).unwrap().destination.0, 1);
    assert!(dispatcher.next_action(START).is_none());
    // The next in the queue is disabled before its time comes.
    dispatcher.pause(DestinationKey(2), at(500));
    assert_eq!(dispatcher.poll_timeout().map(|(at, _)| at), Some(at(990)));
    assert_eq!(started(dispatcher.next_action(at(990))).unwrap().destination.0, 3);
}

#[test]
fn what_ends_by_itself_uses_up_nothing_of_its_tenant() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    publish(&mut dispatcher, 1..4, 1, terms(1, 1, 1));
    for _ in 0..2 {
        let expired = started(dispatcher.next_action(START)).unwrap();
        let ended = Finished {
            outcome: None,
            ..answered(expired, 0)
        };
        dispatcher.finished(ended, START);
    }
    assert!(
        started(dispatcher.next_action(START)).is_some(),
        "the third is the first request"
    );
}

#[test]
fn a_lane_says_that_it_waits_for_its_tenant() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    publish(&mut dispatcher, 1..3, 1, terms(1, 1, 2));
    assert!(started(dispatcher.next_action(START)).is_some());
    assert!(dispatcher.next_action(START).is_none());
    let view = dispatcher.view(DestinationKey(2), START);
    assert_eq!(
        (view.standing, view.until),
        (Standing::RateLimited, Some(at(490)))
    );
    assert_eq!(
        view.explanation(),
        format!(
            "The next request goes out at {} or later, because all destinations of the tenant together get 2 a second.",
            at(490)
        )
    );
    let started = started(dispatcher.next_action(at(490))).unwrap();
    assert_eq!(started.destination, DestinationKey(2));
}

#[test]
fn tenants_without_lanes_are_forgotten() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig::default());
    publish(&mut dispatcher, 1..3, 2, terms(1, 3, 100));
    assert_eq!(starts(&mut dispatcher, 5).len(), 4, "there are no more");
    assert_eq!(dispatcher.tenants.weight(TenantKey(1)), 3);
    dispatcher.sweep(at(3_600_000));
    assert_eq!(dispatcher.tenants.weight(TenantKey(1)), 1);
    assert_eq!(dispatcher.load().lanes, 0);
}
