//! One run: deliveries to one destination, a receiver that is out for a while, and a clock that jumps.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::delivery::{DeadReason, PendingDelivery, Plan, Progress};
use postrider_core::dispatcher::{Action, Dispatcher, DispatcherConfig, Finished, Payload, Terms, Unread};
use postrider_core::hash;
use postrider_core::id::{DeliveryKey, DestinationKey, EventKey, TenantKey, first_key_at};
use postrider_core::outcome::{ErrorKind, Outcome};
use postrider_core::policy::{Case, RetryPolicy, Verdict};
use postrider_core::time::Timestamp;

use super::tally::Tally;

/// The run begins here, so that two runs of one seed have the same jitter.
pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// Runs of at most this many deliveries keep every start.
const FEW: u32 = 100;

/// What is played.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Deliveries, at least 1.
    pub deliveries: u32,
    /// They are published evenly over this; zero means all at once.
    pub publish_over: Duration,
    /// The receiver.
    pub receiver: Receiver,
    /// The policy.
    pub policy: Arc<RetryPolicy>,
    /// Window, breaker and bounds.
    pub dispatcher: DispatcherConfig,
    /// Varies the jitter.
    pub seed: u64,
}

/// A receiver that fails at first, and then works within its capacity.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// It fails from the start of the run until this.
    pub outage: Duration,
    /// How it fails.
    pub failure: Outcome,
    /// How long a failing request takes.
    pub failure_latency: Duration,
    /// Requests that it works on at a time; more are turned away with 503. `None`: any number.
    pub capacity: Option<u32>,
    /// How long a request takes that it works on.
    pub latency: Duration,
}

impl Default for Receiver {
    /// Out for half an hour with 503 at once; then 50 ms a request, any number at a time.
    fn default() -> Self {
        Self {
            outage: Duration::from_secs(1_800),
            failure: Outcome::status(503),
            failure_latency: Duration::from_millis(10),
            capacity: None,
            latency: Duration::from_millis(50),
        }
    }
}

impl Receiver {
    /// A failure by its word: a status code from 300, `refused`, `timeout` or `dns`.
    ///
    /// # Errors
    /// Says what would be accepted.
    pub fn failure(word: &str) -> Result<(Outcome, Duration), String> {
        let quick = Duration::from_millis(10);
        match word {
            "refused" => Ok((Outcome::Failed(ErrorKind::ConnectRefused), quick)),
            "dns" => Ok((Outcome::Failed(ErrorKind::Dns), quick)),
            "timeout" => Ok((Outcome::Failed(ErrorKind::Timeout), Duration::from_secs(15))),
            code => match code.parse::<u16>() {
                Ok(status @ 300..=599) => Ok((Outcome::status(status), quick)),
                Ok(_) | Err(_) => Err(format!(
                    "{code:?} is no failure: use a status code from 300 to 599, refused, timeout or dns"
                )),
            },
        }
    }
}

/// Deliveries have no payload here.
#[derive(Debug, Clone, Copy)]
struct Weightless;

impl Payload for Weightless {
    fn bytes(&self) -> usize {
        0
    }
}

enum Event {
    Publish(u32),
    Answer {
        delivery: Box<PendingDelivery>,
        outcome: Outcome,
        latency: Duration,
        worked: bool,
    },
}

struct World<'s> {
    scenario: &'s Scenario,
    now: Timestamp,
    dispatcher: Dispatcher<Weightless>,
    events: BTreeMap<(Timestamp, u64), Event>,
    sequence: u64,
    /// Pending deliveries as a store would have them, in order of their due time.
    rows: BTreeMap<(Timestamp, DeliveryKey), PendingDelivery>,
    /// Requests that the receiver works on.
    working: u32,
    recovers_at: Timestamp,
    tally: Tally,
}

/// Plays a scenario to its end: every delivery has succeeded or is dead.
#[must_use]
pub fn play(scenario: &Scenario) -> Tally {
    let mut world = World {
        scenario,
        now: START,
        dispatcher: Dispatcher::new(scenario.dispatcher.clone()),
        events: BTreeMap::new(),
        sequence: 0,
        rows: BTreeMap::new(),
        working: 0,
        recovers_at: START.plus(scenario.receiver.outage),
        tally: Tally::default(),
    };
    let terms = Terms {
        patience: scenario.policy.patience(),
        ..Terms::default()
    };
    world.dispatcher.agree(DestinationKey(1), terms, START);
    world.schedule_publishes();
    while world.step() {}
    world.tally.time_to_success.sort_unstable();
    world.tally
}

impl World<'_> {
    fn schedule_publishes(&mut self) {
        let count = self.scenario.deliveries.max(1);
        for n in 0..count {
            let at = START.plus(self.scenario.publish_over * n / count);
            self.push(at, Event::Publish(n));
        }
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    /// Jumps to the next instant at which something happens; false when nothing will.
    fn step(&mut self) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let timer = self.dispatcher.poll_timeout().map(|(at, _)| at);
        let Some(next) = event.into_iter().chain(timer).min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self
            .events
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            match entry.remove() {
                Event::Publish(n) => self.publish(n),
                Event::Answer {
                    delivery,
                    outcome,
                    latency,
                    worked,
                } => {
                    self.working -= u32::from(worked);
                    self.answered(*delivery, &outcome, latency);
                }
            }
        }
        self.act();
        true
    }

    fn publish(&mut self, n: u32) {
        let offset = hash::mix(self.scenario.seed, 0) % 1_000_000;
        let key = first_key_at(self.now) + i64::from(n) * 2 + i64::try_from(offset).unwrap_or(0);
        let delivery = PendingDelivery {
            key: DeliveryKey(key),
            event: EventKey(key),
            tenant: TenantKey(1),
            destination: DestinationKey(1),
            plan: Plan::first(self.now),
            progress: Progress::new(self.now),
            retryable: true,
            replayed: false,
            last_attempt: None,
            context: None,
        };
        self.rows.insert((self.now, delivery.key), delivery);
        self.dispatcher.accepted(delivery, None, self.now);
    }

    fn act(&mut self) {
        while let Some(action) = self.dispatcher.next_action(self.now) {
            match action {
                Action::Start(delivery, ..) => self.request(delivery),
                Action::End(delivery, reason) => self.end(delivery, reason),
                Action::Refill {
                    destination,
                    skip,
                    replays: _,
                    limit,
                } => self.read(destination, &skip, limit),
            }
        }
    }

    fn read(&mut self, destination: DestinationKey, skip: &HashSet<DeliveryKey>, limit: usize) {
        let mut rows = self.rows.values().filter(|row| !skip.contains(&row.key)).copied();
        let page: Vec<_> = rows.by_ref().take(limit).map(|row| (row, None)).collect();
        let unread = Unread {
            more: rows.next().is_some(),
            ..Unread::NOTHING
        };
        self.dispatcher.refilled(destination, page, unread, self.now);
    }

    fn request(&mut self, delivery: PendingDelivery) {
        let receiver = &self.scenario.receiver;
        let second = self.now.since(START).as_secs();
        *self.tally.requests.entry(second).or_default() += 1;
        self.tally.attempts += 1;
        if self.scenario.deliveries <= FEW {
            self.tally.starts.push((self.now, delivery.progress.attempts + 1));
        }
        let full = receiver.capacity.is_some_and(|capacity| self.working >= capacity);
        let (outcome, latency, worked) = if self.now < self.recovers_at {
            (receiver.failure.clone(), receiver.failure_latency, false)
        } else if full {
            self.tally.turned_away += 1;
            (Outcome::status(503), receiver.failure_latency, false)
        } else {
            (Outcome::status(200), receiver.latency, true)
        };
        self.working += u32::from(worked);
        self.push(
            self.now.plus(latency),
            Event::Answer {
                delivery: Box::new(delivery),
                outcome,
                latency,
                worked,
            },
        );
    }

    fn answered(&mut self, delivery: PendingDelivery, outcome: &Outcome, latency: Duration) {
        let policy = &self.scenario.policy;
        let progress = delivery.progress.attempted(&delivery.plan);
        let case = Case {
            delivery: delivery.key,
            progress,
            retryable: delivery.retryable,
        };
        let verdict = policy.judge(&case, outcome, self.now);
        self.rows.remove(&(delivery.plan.due_at, delivery.key));
        let again = match verdict {
            Verdict::Succeeded => {
                self.succeeded(&delivery);
                None
            }
            Verdict::Dead(reason, _) => {
                *self.tally.dead.entry(reason).or_default() += 1;
                None
            }
            Verdict::Retry(plan) => {
                let next = PendingDelivery {
                    plan,
                    progress,
                    ..delivery
                };
                self.rows.insert((plan.due_at, next.key), next);
                Some((next, None))
            }
        };
        let finished = Finished {
            delivery,
            outcome: Some(outcome.clone()),
            permanent: matches!(verdict, Verdict::Dead(..)),
            elsewhere: false,
            latency,
            hold_until: policy.hold(outcome).map(|hold| self.now.plus(hold)),
            again,
            unsettled: true,
        };
        self.dispatcher.finished(finished, self.now);
        self.dispatcher
            .settled([(delivery.destination, delivery.key)], self.now);
    }

    fn end(&mut self, delivery: PendingDelivery, reason: DeadReason) {
        self.rows.remove(&(delivery.plan.due_at, delivery.key));
        *self.tally.dead.entry(reason).or_default() += 1;
        self.dispatcher
            .settled([(delivery.destination, delivery.key)], self.now);
    }

    fn succeeded(&mut self, delivery: &PendingDelivery) {
        let second = self.now.since(START).as_secs();
        *self.tally.successes.entry(second).or_default() += 1;
        self.tally.succeeded += 1;
        self.tally
            .time_to_success
            .push(self.now.since(delivery.progress.window_start));
        if self.now > self.recovers_at {
            self.tally.drained_after = Some(self.now.since(self.recovers_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::policy::{Policies, PolicyChoice};

    use super::*;

    fn scenario(deliveries: u32, outage: Duration) -> Scenario {
        Scenario {
            deliveries,
            publish_over: Duration::ZERO,
            receiver: Receiver {
                outage,
                ..Receiver::default()
            },
            policy: Arc::default(),
            dispatcher: DispatcherConfig::default(),
            seed: 1,
        }
    }

    #[test]
    fn a_working_receiver_gets_each_delivery_once() {
        let tally = play(&scenario(5_000, Duration::ZERO));
        assert_eq!(
            (tally.succeeded, tally.attempts, tally.dead_letters()),
            (5_000, 5_000, 0)
        );
        assert_eq!(tally.requests.values().sum::<u32>(), 5_000);
    }

    #[test]
    fn every_delivery_comes_to_its_end_after_an_outage() {
        let tally = play(&scenario(2_000, Duration::from_secs(1_800)));
        assert_eq!(tally.succeeded + tally.dead_letters(), 2_000);
        assert_eq!(
            tally.succeeded, 2_000,
            "half an hour is within the standard policy"
        );
        assert!(tally.drained_after.is_some());
    }

    #[test]
    fn a_policy_that_does_not_wait_for_the_breaker_ends_what_is_due_meanwhile() {
        let written = r#"{"while_open": "dead_letter"}"#;
        let choice = PolicyChoice::read(written).unwrap();
        let effective = Policies::default().effective(Some(&choice)).unwrap();
        let tally = play(&Scenario {
            policy: Arc::new(effective.policy),
            ..scenario(2_000, Duration::from_secs(1_800))
        });
        let open = tally.dead[&DeadReason::CircuitOpen];
        assert_eq!(tally.succeeded + tally.dead_letters(), 2_000);
        assert!(
            open >= 1_990,
            "all but those that opened it and the probe: {open}"
        );
        assert!(tally.succeeded >= 1, "the probe arrives in the end");
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = || play(&scenario(500, Duration::from_secs(60)));
        assert_eq!(run(), run());
    }

    #[test]
    fn a_failure_is_named_by_status_or_kind() {
        assert_eq!(Receiver::failure("500").map(|(o, _)| o), Ok(Outcome::status(500)));
        assert_eq!(
            Receiver::failure("timeout").map(|(_, l)| l),
            Ok(Duration::from_secs(15))
        );
        for word in ["", "200", "70000", "slow"] {
            assert!(Receiver::failure(word).is_err(), "{word}");
        }
    }
}
