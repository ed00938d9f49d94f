//! Timelines by hand, and a model: a store with delays, checked against the invariants for many seeds.

use std::num::NonZeroU32;

use super::*;
use crate::breaker::BreakerConfig;
use crate::delivery::{DeadReason, Plan, Progress, Tier, WaitCause};
use crate::hash;
use crate::id::{EventKey, TenantKey};
use crate::outcome::Outcome;
use crate::window::WindowConfig;

#[path = "ending_tests.rs"]
mod ending;
#[path = "limits_tests.rs"]
mod limits;
#[path = "protection_tests.rs"]
mod protection;
#[path = "recovery_tests.rs"]
mod recovery;
#[path = "renewed_tests.rs"]
mod renewed;
#[path = "replays_tests.rs"]
mod replays;
#[path = "seeds_tests.rs"]
mod seeds;
#[path = "tenants_tests.rs"]
mod tenants;
#[path = "withdrawn_tests.rs"]
mod withdrawn;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

#[derive(Debug, Clone, PartialEq)]
struct Bytes(usize);

impl Payload for Bytes {
    fn bytes(&self) -> usize {
        self.0
    }
}

fn at(ms: u64) -> Timestamp {
    START.plus(Duration::from_millis(ms))
}

fn pending(key: i64, destination: i64, due: Timestamp) -> PendingDelivery {
    PendingDelivery {
        key: DeliveryKey(key),
        event: EventKey(key),
        tenant: TenantKey(1),
        destination: DestinationKey(destination),
        plan: Plan {
            due_at: due,
            ..Plan::first(START)
        },
        progress: Progress::new(START),
        retryable: true,
        replayed: false,
        last_attempt: None,
        context: None,
    }
}

fn small() -> DispatcherConfig {
    DispatcherConfig {
        max_in_flight: 8,
        max_unsettled: 16,
        max_lane: 8,
        max_queued: 64,
        ..DispatcherConfig::default()
    }
}

fn started(action: impl Into<Option<Action<Bytes>>>) -> Option<PendingDelivery> {
    match action.into() {
        Some(Action::Start(delivery, ..)) => Some(delivery),
        Some(Action::End(..) | Action::Refill { .. }) | None => None,
    }
}

fn answered(delivery: PendingDelivery, status: u16) -> Finished<Bytes> {
    Finished {
        delivery,
        outcome: Some(Outcome::status(status)),
        permanent: false,
        elsewhere: false,
        latency: Duration::from_millis(5),
        hold_until: None,
        again: None,
        unsettled: true,
    }
}

#[test]
fn ready_lanes_start_in_turn() {
    let mut dispatcher = Dispatcher::new(small());
    for key in 0..4 {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    dispatcher.accepted(pending(10, 2, START), None, START);
    let order: Vec<_> =
        std::iter::from_fn(|| started(dispatcher.next_action(START)).map(|d| d.key.0)).collect();
    assert_eq!(order, [0, 10, 1, 2, 3]);
}

#[test]
fn the_window_bounds_what_is_out() {
    let mut dispatcher = Dispatcher::new(small());
    for key in 0..8 {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    let mut out: Vec<_> = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
    assert_eq!(out.len(), 4, "the initial window");
    let first = out.remove(0);
    dispatcher.finished(answered(first, 200), at(5));
    assert!(
        started(dispatcher.next_action(at(5))).is_some(),
        "a finish reopens it"
    );
}

#[test]
fn a_hold_stops_the_lane_and_ramps_up_from_one() {
    let mut dispatcher = Dispatcher::new(small());
    for key in 0..8 {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    let out: Vec<_> = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
    for (n, delivery) in out.into_iter().enumerate() {
        let again = (n == 0).then_some((pending(delivery.key.0, 1, at(30_000)), None));
        dispatcher.finished(
            Finished {
                hold_until: (n == 0).then_some(at(30_000)),
                again,
                ..answered(delivery, 429)
            },
            at(5),
        );
    }
    assert!(dispatcher.next_action(at(5)).is_none());
    assert_eq!(dispatcher.poll_timeout().map(|(when, _)| when), Some(at(30_000)));
    assert!(dispatcher.next_action(at(29_999)).is_none());
    assert!(started(dispatcher.next_action(at(30_000))).is_some());
    assert!(
        started(dispatcher.next_action(at(30_000))).is_none(),
        "one at first"
    );
}

#[test]
fn what_kept_a_late_delivery_is_told() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let Some(Action::Start(first, _, None)) = dispatcher.next_action(START) else {
        panic!("on time")
    };
    dispatcher.finished(
        Finished {
            hold_until: Some(at(30_000)),
            ..answered(first, 429)
        },
        at(5),
    );
    dispatcher.accepted(pending(2, 1, at(6)), None, at(6));
    dispatcher.accepted(pending(3, 1, at(40_000)), None, at(6));
    assert!(dispatcher.next_action(at(6)).is_none());
    let held = dispatcher.next_action(at(30_000));
    let Some(Action::Start(second, _, Some(WaitCause::Hold))) = held else {
        panic!("{held:?}")
    };
    assert!(dispatcher.next_action(at(35_000)).is_none());
    dispatcher.finished(answered(second, 200), at(35_000));
    let later = dispatcher.next_action(at(40_000));
    assert!(
        matches!(later, Some(Action::Start(_, _, None))),
        "due after the hold: {later:?}"
    );
}

#[test]
fn a_full_lane_keeps_what_is_due_first_and_reads_the_rest_later() {
    let mut dispatcher = Dispatcher::new(small());
    for key in 0..20 {
        let due = at(u64::try_from(20 - key).unwrap() * 1_000);
        dispatcher.accepted(pending(key, 1, due), None, START);
    }
    assert_eq!(dispatcher.load().queued, 8);
    assert!(
        dispatcher.next_action(START).is_none(),
        "memory holds what is due first"
    );
    for key in (12..20).rev() {
        let now = at(u64::try_from(20 - key).unwrap() * 1_000);
        let action = std::iter::from_fn(|| dispatcher.next_action(now)).find_map(started);
        assert_eq!(action.map(|d| d.key.0), Some(key));
        dispatcher.finished(answered(action.unwrap(), 200), now);
    }
}

#[test]
fn more_results_than_may_be_lost_stop_the_sending() {
    let mut dispatcher = Dispatcher::new(DispatcherConfig {
        max_unsettled: 2,
        ..small()
    });
    for key in 0..6 {
        dispatcher.accepted(pending(key, key, START), None, START);
    }
    let out: Vec<_> = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
    assert_eq!(out.len(), 6);
    for delivery in &out {
        dispatcher.finished(answered(*delivery, 200), at(1));
    }
    dispatcher.accepted(pending(100, 7, at(1)), None, at(1));
    assert!(dispatcher.next_action(at(1)).is_none());
    dispatcher.settled(out.iter().map(|d| (d.destination, d.key)), at(2));
    assert_eq!(started(dispatcher.next_action(at(2))).map(|d| d.key.0), Some(100));
}

#[test]
fn a_turn_to_read_the_store_is_not_lost_with_a_lane_that_cannot_use_it() {
    let mut dispatcher = Dispatcher::<Bytes>::new(DispatcherConfig {
        max_refills: 1,
        ..small()
    });
    for destination in 1..=3 {
        dispatcher.spilled(DestinationKey(destination), START);
    }
    assert!(matches!(
        dispatcher.next_action(START),
        Some(Action::Refill { .. })
    ));
    assert!(dispatcher.next_action(START).is_none(), "one read at a time");
    dispatcher.pause(DestinationKey(2), START);
    dispatcher.refilled(DestinationKey(1), [], Unread::NOTHING, at(1));
    let next = dispatcher.next_action(at(1));
    assert!(
        matches!(
            next,
            Some(Action::Refill {
                destination: DestinationKey(3),
                ..
            })
        ),
        "{next:?}"
    );
}

#[test]
fn a_disabled_destination_waits_until_it_is_named_again() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.accepted(pending(1, 1, START), None, START);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.pause(first.destination, START);
    dispatcher.finished(
        Finished {
            outcome: None,
            unsettled: false,
            again: Some((first, None)),
            ..answered(first, 200)
        },
        START,
    );
    assert!(dispatcher.next_action(at(86_400_000)).is_none());
    dispatcher.spilled(first.destination, at(86_400_000));
    let next = std::iter::from_fn(|| dispatcher.next_action(at(86_400_000))).find_map(started);
    assert_eq!(next.map(|d| d.key.0), Some(1));
}

#[test]
fn a_row_read_before_its_result_was_committed_is_not_sent_again() {
    let mut dispatcher = Dispatcher::new(small());
    dispatcher.spilled(DestinationKey(1), START);
    assert!(matches!(
        dispatcher.next_action(START),
        Some(Action::Refill { .. })
    ));
    dispatcher.accepted(pending(1, 1, START), None, START);
    let first = started(dispatcher.next_action(START)).unwrap();
    dispatcher.finished(answered(first, 200), at(1));
    dispatcher.settled([(first.destination, first.key)], at(2));
    dispatcher.refilled(
        DestinationKey(1),
        [(pending(1, 1, START), None)],
        Unread::NOTHING,
        at(3),
    );
    assert!(dispatcher.next_action(at(3)).is_none());
    assert!(
        dispatcher.next_action(at(5_000)).is_none(),
        "and nothing else is left to read"
    );
}

#[test]
fn slow_lanes_leave_slots_to_others() {
    let config = DispatcherConfig {
        max_in_flight: 16,
        ..small()
    };
    let mut dispatcher = Dispatcher::new(config);
    for key in 0..8_i64 {
        for destination in 0..8_i64 {
            dispatcher.accepted(pending(destination * 100 + key, destination, START), None, START);
        }
    }
    let out: Vec<_> = std::iter::from_fn(|| started(dispatcher.next_action(START))).collect();
    assert_eq!(out.len(), 16);
    for destination in 0..8 {
        assert_eq!(
            out.iter().filter(|d| d.destination.0 == destination).count(),
            2,
            "an equal share"
        );
    }
}

#[test]
fn an_idle_lane_is_forgotten_and_a_waiting_one_is_not() {
    let mut dispatcher = Dispatcher::<Bytes>::new(small());
    dispatcher.accepted(pending(1, 1, at(7_200_000)), None, START);
    dispatcher.spilled(DestinationKey(2), START);
    while let Some(action) = dispatcher.next_action(START) {
        if let Action::Refill { destination, .. } = action {
            dispatcher.refilled(destination, [], Unread::NOTHING, START);
        }
    }
    dispatcher.sweep(at(3_600_000));
    assert_eq!(dispatcher.load().lanes, 1);
}

/// A store and a network with delays, all derived from a seed.
struct Model {
    seed: u64,
    step: u64,
    now: Timestamp,
    dispatcher: Dispatcher<Bytes>,
    /// Committed, and not yet seen by the dispatcher: it may also be read from the store meanwhile.
    feed: Vec<PendingDelivery>,
    /// Committed rows.
    rows: HashMap<DeliveryKey, PendingDelivery>,
    out: Vec<PendingDelivery>,
    /// Judged, in order; committed from the front.
    unsettled: VecDeque<(PendingDelivery, Option<PendingDelivery>)>,
    /// Snapshots that were taken and not delivered.
    reads: Vec<(DestinationKey, Vec<PendingDelivery>, bool)>,
    /// Attempt numbers started, by delivery.
    starts: HashMap<DeliveryKey, u32>,
    next_key: i64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let config = DispatcherConfig {
            max_in_flight: 6,
            max_unsettled: 5,
            max_queued: 24,
            max_lane: 6,
            max_refills: 2,
            max_payload_bytes: 40,
            ..DispatcherConfig::default()
        };
        Self {
            seed,
            step: 0,
            now: START,
            dispatcher: Dispatcher::new(config),
            feed: Vec::new(),
            rows: HashMap::new(),
            out: Vec::new(),
            unsettled: VecDeque::new(),
            reads: Vec::new(),
            starts: HashMap::new(),
            next_key: 1,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.step += 1;
        hash::mix(self.seed, self.step) % below
    }

    fn publish(&mut self) {
        let destination = i64::try_from(self.random(3)).unwrap();
        let delivery = pending(self.next_key, destination, self.now);
        self.next_key += 1;
        self.rows.insert(delivery.key, delivery);
        self.feed.push(delivery);
    }

    fn hand_over(&mut self) {
        for delivery in std::mem::take(&mut self.feed) {
            if self.random(4) == 0 {
                self.dispatcher.spilled(delivery.destination, self.now);
            } else {
                self.dispatcher.accepted(delivery, Some(Bytes(10)), self.now);
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.dispatcher.next_action(self.now) {
            match action {
                Action::Start(delivery, ..) => {
                    let number = self.starts.entry(delivery.key).or_default();
                    assert_eq!(
                        *number, delivery.progress.attempts,
                        "each attempt once, with the newest progress"
                    );
                    *number += 1;
                    assert!(delivery.plan.due_at <= self.now, "nothing before its time");
                    assert!(self.out.iter().all(|other| other.key != delivery.key));
                    self.out.push(delivery);
                }
                Action::End(..) => unreachable!("nobody has lost patience"),
                Action::Refill {
                    destination,
                    skip,
                    replays: _,
                    limit,
                } => {
                    let mut rows: Vec<_> = self.rows.values().copied().collect();
                    rows.retain(|row| row.destination == destination && !skip.contains(&row.key));
                    rows.sort_by_key(|row| (row.plan.due_at, row.key));
                    let more = rows.len() > limit;
                    rows.truncate(limit);
                    self.reads.push((destination, rows, more));
                }
            }
        }
        let load = self.dispatcher.load();
        assert_eq!(load.in_flight, self.out.len());
        assert_eq!(load.unsettled, self.unsettled.len());
        assert!(load.in_flight <= 6 && load.unsettled <= 5 + 6, "{load:?}");
        assert!(load.queued <= 24 + 3 * 16, "{load:?}");
    }

    fn answer(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let index = usize::try_from(self.random(u64::try_from(self.out.len()).unwrap())).unwrap();
        let delivery = self.out.swap_remove(index);
        let fails = delivery.progress.attempts < 3 && self.random(3) == 0;
        let again = fails.then(|| {
            let delay = Duration::from_millis(self.random(5_000));
            let plan = Plan {
                due_at: self.now.plus(delay),
                delay,
                tier: Tier::Backoff,
                ..delivery.plan
            };
            PendingDelivery {
                plan,
                progress: delivery.progress.attempted(&delivery.plan),
                ..delivery
            }
        });
        let finished = Finished {
            again: again.map(|d| (d, Some(Bytes(10)))),
            ..answered(delivery, 200)
        };
        self.dispatcher.finished(finished, self.now);
        self.unsettled.push_back((delivery, again));
    }

    fn commit(&mut self) {
        self.hand_over();
        if let Some((delivery, again)) = self.unsettled.pop_front() {
            match again {
                Some(next) => self.rows.insert(next.key, next),
                None => self.rows.remove(&delivery.key),
            };
            self.dispatcher
                .settled([(delivery.destination, delivery.key)], self.now);
        }
    }

    fn deliver_read(&mut self) {
        if !self.reads.is_empty() {
            let (destination, rows, more) = self.reads.remove(0);
            let unread = Unread { more, replays: false };
            if self.random(10) == 0 {
                self.dispatcher.refill_failed(destination, self.now);
            } else {
                self.dispatcher
                    .refilled(destination, rows.into_iter().map(|r| (r, None)), unread, self.now);
            }
        }
    }

    fn pass_time(&mut self) {
        let ms = self.random(400);
        self.now = self.now.plus(Duration::from_millis(ms));
    }

    fn run(&mut self) {
        // Bursts of different size, so that lanes also run empty while reads and commits are under way.
        for burst in 0..40 {
            let publishes = 1 + self.random(12);
            for _ in 0..60 {
                match self.random(20 + 2 * (burst % 3)) {
                    n if n < publishes => self.publish(),
                    12 | 13 => self.answer(),
                    14 => self.commit(),
                    15 => self.deliver_read(),
                    16 => self.hand_over(),
                    17 => self.pass_time(),
                    _ => {}
                }
                self.act();
            }
            if self.random(2) == 0 {
                self.drain();
            }
        }
    }

    /// Nothing more is published: everything must come to its end.
    fn drain(&mut self) {
        for _ in 0..200_000 {
            if self.rows.is_empty() && self.out.is_empty() && self.unsettled.is_empty() {
                return;
            }
            self.answer();
            self.commit();
            self.deliver_read();
            self.act();
            let quiet = self.out.is_empty() && self.unsettled.is_empty() && self.reads.is_empty();
            if quiet && !self.rows.is_empty() {
                let next = self.dispatcher.poll_timeout().map(|(when, _)| when);
                assert!(
                    next.is_some(),
                    "{} rows and nothing that would wake",
                    self.rows.len()
                );
                self.now = self.now.max(next.unwrap());
                self.act();
            }
        }
        panic!("{} rows are left", self.rows.len());
    }
}

#[test]
fn every_delivery_comes_to_its_end_and_no_attempt_is_made_twice() {
    for seed in 0..40 {
        println!("seed {seed}");
        let mut model = Model::new(seed);
        model.run();
        model.drain();
        assert_eq!(model.starts.len(), usize::try_from(model.next_key - 1).unwrap());
        assert_eq!(
            model.dispatcher.load(),
            Load {
                lanes: 3,
                ..Load::default()
            }
        );
        assert_eq!(model.dispatcher.payload_bytes, 0);
    }
}

#[test]
fn an_overdue_backlog_is_read_although_retries_of_later_and_live_ones_fill_the_lane() {
    let mut dispatcher = Dispatcher::<Bytes>::new(small());
    for key in 0..4 {
        let mut retry = pending(key, 1, at(3_600_000));
        retry.progress.attempts = 1;
        dispatcher.accepted(retry, None, START);
    }
    for key in 10..13 {
        dispatcher.accepted(pending(key, 1, START), None, START);
    }
    dispatcher.spilled(DestinationKey(1), START);
    let action = dispatcher.next_action(START);
    assert!(matches!(action, Some(Action::Refill { .. })), "{action:?}");
}
