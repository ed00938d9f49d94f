//! Receivers of every kind beside each other, for many seeds: what protects them holds at every step.
//!
//! The network, the store and the clock are a list of things to come. What the dispatcher must obey is written down here a
//! second time, from what it announced, and compared with what it starts. Meanwhile the process is killed and starts again,
//! a destination is disabled and enabled, and a breaker is reset by hand.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::*;
use crate::outcome::{Answer, ErrorKind};

const SEEDS: u64 = 200;
const DESTINATIONS: i64 = 8;
const EVENTS: i64 = 40;
/// Every receiver is well from here on.
const RECOVERY: Duration = Duration::from_secs(240);
const RATE: u32 = 5;
/// With slots enough, a well receiver's delivery never waits longer than this for its first attempt.
const PATIENCE: Duration = Duration::from_secs(2);
const WELL: i64 = 0;
const LIMITED: i64 = 1;
/// Down like receiver 2, but nothing is to wait for its breaker,
const HASTY: i64 = 6;
/// or not for longer than this.
const IMPATIENT: i64 = 7;
/// One tenant has both of these, and a limit for them together.
const OF_TENANT: [i64; 2] = [4, 5];
const TENANT_RATE: u32 = 1;
/// Half of everything is part of replays, and these are paused meanwhile; milliseconds.
const REPLAYS_STOP: (u64, u64) = (5_000, 120_000);
const IMPATIENT_AFTER: Duration = Duration::from_secs(45);
/// How often the process is killed, with every other seed, at any time before this; milliseconds.
const KILLS: u64 = 3;
const KILLED_BEFORE: u64 = 200_000;
/// This destination of a tenant is disabled from then to then; milliseconds.
const DISABLED: i64 = 4;
const DISABLED_FROM: (u64, u64) = (20_000, 70_000);
/// The breaker of this one, which is down, is reset by hand; milliseconds.
const RESET: i64 = 2;
const RESET_AT: u64 = 150_000;

#[derive(Debug)]
enum Coming {
    Published(PendingDelivery),
    Answered(PendingDelivery, Outcome, Duration),
    Committed(PendingDelivery, Option<PendingDelivery>),
    Ended(PendingDelivery),
    Read(DestinationKey, Vec<PendingDelivery>, Unread),
    /// Replays of all destinations go at this rate from now on.
    Paced(Option<NonZeroU32>),
    /// `kill -9`, and a start at once.
    Killed,
    Disabled,
    Enabled,
    Reset,
}

/// What is known of one receiver, apart from the dispatcher.
#[derive(Debug, Default)]
struct Shadow {
    open_until: Option<Timestamp>,
    /// The first failure since the last success.
    failing_since: Option<Timestamp>,
    hold_until: Option<Timestamp>,
    in_flight: u32,
    /// Those since the process started.
    starts: Vec<Timestamp>,
    all_starts: usize,
    is_disabled: bool,
}

struct Network {
    seed: u64,
    draws: u64,
    now: Timestamp,
    config: DispatcherConfig,
    dispatcher: Dispatcher<Bytes>,
    coming: BTreeMap<(Timestamp, u64), Coming>,
    /// Pending rows.
    rows: BTreeMap<DeliveryKey, PendingDelivery>,
    /// Started, and not committed yet.
    owned: HashSet<DeliveryKey>,
    unsettled: usize,
    shadows: BTreeMap<DestinationKey, Shadow>,
    /// What a restart finds.
    kept: BTreeMap<DestinationKey, Protection>,
    replay_rate: Option<NonZeroU32>,
    /// Those whose results a kill took along: each may be sent once more although it succeeded. And how many were.
    repeatable: HashSet<DeliveryKey>,
    repeated: usize,
    succeeded: HashSet<DeliveryKey>,
    /// Dead letters.
    ended: Vec<PendingDelivery>,
}

impl Network {
    fn new(seed: u64) -> Self {
        let config = DispatcherConfig {
            max_in_flight: [6, 12, 48][usize::try_from(seed % 3).unwrap()],
            max_unsettled: 64,
            max_lane: 8,
            max_queued: 60,
            window: WindowConfig {
                ceiling: 6,
                ..WindowConfig::default()
            },
            breaker: BreakerConfig {
                max_open: Duration::from_secs(60),
                ..BreakerConfig::default()
            },
            ..DispatcherConfig::default()
        };
        let mut network = Self {
            seed,
            draws: 0,
            now: START,
            dispatcher: Dispatcher::new(config.clone()),
            config,
            coming: BTreeMap::new(),
            rows: BTreeMap::new(),
            owned: HashSet::new(),
            unsettled: 0,
            shadows: BTreeMap::new(),
            kept: BTreeMap::new(),
            replay_rate: Some(DEFAULT_REPLAY_RATE),
            repeatable: HashSet::new(),
            repeated: 0,
            succeeded: HashSet::new(),
            ended: Vec::new(),
        };
        network.agree();
        for n in 0..DESTINATIONS * EVENTS {
            let due = at(network.draw(60_000));
            let delivery = PendingDelivery {
                replayed: (n / DESTINATIONS) % 2 == 0,
                ..pending(n, n % DESTINATIONS, due)
            };
            network.later(due, Coming::Published(delivery));
        }
        network.later(at(REPLAYS_STOP.0), Coming::Paced(None));
        network.later(at(REPLAYS_STOP.1), Coming::Paced(NonZeroU32::new(20)));
        // Without a kill, nothing may be sent again.
        let kills = if seed.is_multiple_of(2) { 0 } else { KILLS };
        for _ in 0..kills {
            let when = at(network.draw(KILLED_BEFORE));
            network.later(when, Coming::Killed);
        }
        network.later(at(DISABLED_FROM.0), Coming::Disabled);
        network.later(at(DISABLED_FROM.1), Coming::Enabled);
        network.later(at(RESET_AT), Coming::Reset);
        network
    }

    /// What the owners want.
    fn agree(&mut self) {
        let terms = Terms::default();
        let limited = Terms {
            rate_limit: NonZeroU32::new(RATE),
            ..terms
        };
        let patient_for = |patience| Terms {
            patience: Some(patience),
            ..terms
        };
        let of_tenant = Terms {
            tenant: TenantKey(2),
            share: Share {
                weight: 3,
                rate_limit: NonZeroU32::new(TENANT_RATE),
            },
            ..terms
        };
        for (destination, terms) in [
            (LIMITED, limited),
            (HASTY, patient_for(Duration::ZERO)),
            (IMPATIENT, patient_for(IMPATIENT_AFTER)),
            (OF_TENANT[0], of_tenant),
            (OF_TENANT[1], of_tenant),
        ] {
            self.dispatcher
                .agree(DestinationKey(destination), terms, self.now);
        }
    }

    /// Everything but the rows and what was kept is gone, and what was on its way arrives nowhere.
    fn kill(&mut self) {
        let now = self.now;
        self.repeatable.extend(&self.owned);
        self.repeatable
            .extend(self.coming.values().filter_map(|what| match what {
                Coming::Committed(delivery, _) => Some(delivery.key),
                _ => None,
            }));
        self.coming.retain(|_, what| {
            !matches!(
                what,
                Coming::Answered(..) | Coming::Committed(..) | Coming::Ended(_) | Coming::Read(..)
            )
        });
        self.owned.clear();
        self.unsettled = 0;
        for shadow in self.shadows.values_mut() {
            shadow.in_flight = 0;
            shadow.starts.clear();
        }
        self.dispatcher = Dispatcher::new(self.config.clone());
        self.agree();
        for (destination, kept) in self.kept.clone() {
            self.dispatcher.restore(destination, kept, now);
        }
        for key in (0..DESTINATIONS).map(DestinationKey) {
            self.dispatcher.limit_replays(key, self.replay_rate, now);
            if self.rows.values().any(|row| row.destination == key) {
                self.dispatcher.spilled(key, now);
            }
            if self.shadows.get(&key).is_some_and(|shadow| shadow.is_disabled) {
                self.dispatcher.pause(key, now);
            }
        }
    }

    /// As the engine does.
    fn keep(&mut self, destination: DestinationKey, is_news: bool) {
        let protection = self.dispatcher.protection(destination);
        let kept = self.kept.get(&destination);
        match protection {
            Some(protection) if is_news || protection.outdates(kept, self.now) => {
                self.kept.insert(destination, protection);
            }
            Some(_) => {}
            None => drop(self.kept.remove(&destination)),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.draws += 1;
        hash::mix(self.seed, self.draws) % below
    }

    fn later(&mut self, when: Timestamp, what: Coming) {
        let order = self.draws;
        self.draws += 1;
        self.coming.insert((when, order), what);
    }

    /// What a receiver answers, and after how long.
    fn answer(&mut self, destination: DestinationKey) -> (Outcome, Duration) {
        let quick = Duration::from_millis(10 + self.draw(90));
        let is_well = self.now >= START.plus(RECOVERY);
        let outcome = match destination.0 {
            _ if is_well => Outcome::status(200),
            WELL | LIMITED => Outcome::status(200),
            2 | HASTY | IMPATIENT => Outcome::status(503),
            3 => return (Outcome::Failed(ErrorKind::Timeout), Duration::from_secs(15)),
            4 if self.draw(100) < 40 => Outcome::status(500),
            5 if self.draw(100) < 20 => Outcome::Answered(Answer {
                status: 429,
                retry_after: Some(Duration::from_secs(3)),
                used_up: None,
                location: None,
            }),
            _ => Outcome::status(200),
        };
        (outcome, quick)
    }

    fn run(&mut self) {
        for _ in 0..100_000 {
            while let Some(action) = self.dispatcher.next_action(self.now) {
                match action {
                    Action::Start(delivery, ..) => self.start(delivery),
                    Action::End(delivery, reason) => self.end(delivery, reason),
                    Action::Refill {
                        destination,
                        skip,
                        replays,
                        limit,
                    } => self.read(destination, &skip, replays, limit),
                }
            }
            let timer = self.dispatcher.poll_timeout().map(|(at, _)| at);
            let coming = self.coming.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = timer.into_iter().chain(coming).min() else {
                return;
            };
            self.now = next.max(self.now);
            while let Some(entry) = self
                .coming
                .first_entry()
                .filter(|entry| entry.key().0 <= self.now)
            {
                let what = entry.remove();
                self.happen(what);
            }
        }
        panic!("it does not come to an end");
    }

    fn start(&mut self, delivery: PendingDelivery) {
        let (now, seed) = (self.now, self.seed);
        assert!(delivery.plan.due_at <= now, "seed {seed}: before its time");
        assert!(self.owned.insert(delivery.key), "seed {seed}: started twice");
        let is_first = delivery.progress.attempts == 0;
        let is_paused = now >= at(REPLAYS_STOP.0) && now < at(REPLAYS_STOP.1);
        assert!(
            !(delivery.replayed && is_paused),
            "seed {seed}: a replay that is paused"
        );
        let is_live = !delivery.replayed;
        if delivery.destination.0 == WELL && is_first && is_live && self.config.max_in_flight == 48 {
            let waited = now.since(delivery.plan.due_at);
            assert!(waited <= PATIENCE, "seed {seed}: starved for {waited:?}");
        }
        let shadow = self.shadows.entry(delivery.destination).or_default();
        assert!(!shadow.is_disabled, "seed {seed}: disabled");
        if let Some(until) = shadow.open_until {
            assert!(now >= until, "seed {seed}: open means no traffic");
            assert_eq!(shadow.in_flight, 0, "seed {seed}: half open is one request");
        }
        let is_held = shadow.hold_until.is_some_and(|until| now < until);
        assert!(!is_held, "seed {seed}: started during a hold");
        shadow.in_flight += 1;
        shadow.starts.push(now);
        shadow.all_starts += 1;
        assert!(
            shadow.in_flight <= self.config.window.ceiling,
            "seed {seed}: window"
        );
        if delivery.destination.0 == LIMITED {
            let second = now.since(START).saturating_sub(Duration::from_millis(999));
            let recent = shadow.starts.iter().rev();
            let recent = recent.take_while(|start| start.since(START) >= second).count();
            assert!(recent <= RATE as usize + 1, "seed {seed}: {recent} in a second");
        }
        if OF_TENANT.contains(&delivery.destination.0) {
            let both = OF_TENANT
                .iter()
                .filter_map(|key| self.shadows.get(&DestinationKey(*key)));
            let starts = both.flat_map(|shadow| &shadow.starts);
            let second = Duration::from_secs(1);
            let recent = starts.filter(|start| now.since(**start) < second).count();
            assert!(
                recent <= TENANT_RATE as usize + 1,
                "seed {seed}: {recent} of a tenant in a second"
            );
        }
        let in_flight: u32 = self.shadows.values().map(|shadow| shadow.in_flight).sum();
        assert!(
            in_flight as usize <= self.config.max_in_flight,
            "seed {seed}: slots"
        );
        assert!(self.unsettled <= self.config.max_unsettled + in_flight as usize);
        let (outcome, latency) = self.answer(delivery.destination);
        self.later(now.plus(latency), Coming::Answered(delivery, outcome, latency));
    }

    /// Only while the breaker is open and patience has ended, only what is due, and never beyond the room for results.
    fn end(&mut self, delivery: PendingDelivery, reason: DeadReason) {
        let (now, seed) = (self.now, self.seed);
        assert_eq!(reason, DeadReason::CircuitOpen);
        assert!(delivery.plan.due_at <= now, "seed {seed}: before its time");
        assert!(
            self.owned.insert(delivery.key),
            "seed {seed}: ended while it is out"
        );
        let shadow = &self.shadows[&delivery.destination];
        assert!(
            shadow.open_until.is_some_and(|until| now < until),
            "seed {seed}: not open"
        );
        let failing_for = now.since(shadow.failing_since.unwrap());
        match delivery.destination.0 {
            HASTY => {}
            IMPATIENT => assert!(failing_for >= IMPATIENT_AFTER, "seed {seed}: {failing_for:?}"),
            patient => panic!("seed {seed}: {patient} waits for ever"),
        }
        assert!(
            self.unsettled * 2 < self.config.max_unsettled,
            "seed {seed}: room"
        );
        self.unsettled += 1;
        let delay = Duration::from_millis(1 + self.draw(20));
        self.later(now.plus(delay), Coming::Ended(delivery));
    }

    fn read(
        &mut self,
        destination: DestinationKey,
        skip: &HashSet<DeliveryKey>,
        replays: bool,
        limit: usize,
    ) {
        let is_other = |row: &&PendingDelivery| row.destination == destination && !skip.contains(&row.key);
        let mut others: Vec<_> = self.rows.values().filter(is_other).copied().collect();
        others.sort_by_key(|row| (row.plan.due_at, row.key));
        let (mut rows, mut unread) = (Vec::new(), Unread::default());
        for row in others {
            if rows.len() >= limit {
                // What lies beyond is not looked at: `more` alone leads to replays there.
                unread.more = true;
                break;
            }
            if row.replayed && !replays {
                unread.replays = true;
            } else {
                rows.push(row);
            }
        }
        let delay = Duration::from_millis(1 + self.draw(5));
        self.later(self.now.plus(delay), Coming::Read(destination, rows, unread));
    }

    fn happen(&mut self, what: Coming) {
        let now = self.now;
        match what {
            Coming::Published(delivery) => {
                self.rows.insert(delivery.key, delivery);
                self.dispatcher.accepted(delivery, None, now);
            }
            Coming::Read(destination, rows, unread) => {
                let rows = rows.into_iter().map(|row| (row, None));
                self.dispatcher.refilled(destination, rows, unread, now);
            }
            Coming::Paced(rate) => {
                self.replay_rate = rate;
                for key in 0..DESTINATIONS {
                    self.dispatcher.limit_replays(DestinationKey(key), rate, now);
                }
            }
            Coming::Killed => self.kill(),
            Coming::Disabled => {
                let key = DestinationKey(DISABLED);
                self.shadows.entry(key).or_default().is_disabled = true;
                self.dispatcher.pause(key, now);
            }
            Coming::Enabled => {
                let key = DestinationKey(DISABLED);
                self.shadows.entry(key).or_default().is_disabled = false;
                self.dispatcher.spilled(key, now);
            }
            Coming::Reset => {
                let key = DestinationKey(RESET);
                self.dispatcher.reset(key, now);
                let shadow = self.shadows.entry(key).or_default();
                (shadow.open_until, shadow.hold_until, shadow.failing_since) = (None, None, None);
                self.keep(key, true);
            }
            Coming::Answered(delivery, outcome, latency) => self.finish(delivery, outcome, latency),
            Coming::Ended(delivery) => {
                self.rows.remove(&delivery.key);
                self.owned.remove(&delivery.key);
                self.unsettled -= 1;
                self.ended.push(delivery);
                self.dispatcher
                    .settled([(delivery.destination, delivery.key)], now);
            }
            Coming::Committed(delivery, again) => {
                match again {
                    Some(again) => self.rows.insert(again.key, again),
                    None => self.rows.remove(&delivery.key),
                };
                self.unsettled -= 1;
                self.dispatcher
                    .settled([(delivery.destination, delivery.key)], now);
            }
        }
        let queued = self.dispatcher.load().queued;
        let most = self.config.max_queued + usize::try_from(DESTINATIONS).unwrap() * MIN_LANE;
        assert!(queued <= most, "seed {}: {queued} in memory", self.seed);
    }

    fn finish(&mut self, delivery: PendingDelivery, outcome: Outcome, latency: Duration) {
        let now = self.now;
        let again = if matches!(outcome, Outcome::Answered(Answer { status: 200, .. })) {
            if !self.succeeded.insert(delivery.key) {
                self.repeated += 1;
                let is_allowed = self.repeatable.remove(&delivery.key);
                assert!(is_allowed, "seed {}: sent again", self.seed);
            }
            None
        } else {
            let mut again = delivery;
            again.progress.attempts += 1;
            again.plan.due_at = now.plus(Duration::from_millis(500 + self.draw(5_000)));
            Some(again)
        };
        let hold_until = match &outcome {
            Outcome::Answered(Answer { retry_after, .. }) => retry_after.map(|wait| now.plus(wait)),
            Outcome::Failed(_) => None,
        };
        self.owned.remove(&delivery.key);
        self.unsettled += 1;
        let shadow = self.shadows.entry(delivery.destination).or_default();
        shadow.in_flight -= 1;
        match &outcome {
            outcome if outcome.is_success() => shadow.failing_since = None,
            outcome if outcome.code() == Some(429) => {}
            _ => _ = shadow.failing_since.get_or_insert(now),
        }
        shadow.hold_until = shadow.hold_until.max(hold_until);
        let learned = self.dispatcher.finished(
            Finished {
                latency,
                hold_until,
                again: again.map(|again| (again, None)),
                outcome: Some(outcome),
                ..answered(delivery, 0)
            },
            now,
        );
        match learned.change {
            Change::None => {}
            Change::Opened { until, .. } => shadow.open_until = Some(until),
            Change::Closed => shadow.open_until = None,
        }
        self.keep(delivery.destination, learned.change != Change::None);
        let delay = Duration::from_millis(1 + self.draw(20));
        self.later(now.plus(delay), Coming::Committed(delivery, again));
    }
}

#[test]
fn receivers_are_protected_and_nothing_is_lost_whatever_the_seed() {
    let (mut opened, mut held, mut repeated) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut network = Network::new(seed);
        network.run();
        let all = usize::try_from(DESTINATIONS * EVENTS).unwrap();
        let ended = network.ended.len();
        assert_eq!(
            network.succeeded.len() + ended,
            all,
            "seed {seed}: each arrives or ends"
        );
        let ended_at = |destination| {
            let ended = network.ended.iter();
            ended.filter(|one| one.destination.0 == destination).count()
        };
        let one_stays = usize::try_from(EVENTS).unwrap() - 1;
        assert!(
            (1..=one_stays).contains(&ended_at(HASTY)),
            "seed {seed}: one stays to probe"
        );
        assert!(
            (1..=one_stays).contains(&ended_at(IMPATIENT)),
            "seed {seed}: one stays to probe"
        );
        assert!(network.rows.is_empty(), "seed {seed}: and leaves the store");
        let load = network.dispatcher.load();
        assert_eq!(
            (load.in_flight, load.unsettled, load.queued),
            (0, 0, 0),
            "seed {seed}"
        );
        let down = &network.shadows[&DestinationKey(2)];
        repeated += network.repeated;
        opened += usize::from(down.all_starts > usize::try_from(EVENTS).unwrap());
        held += usize::from(network.shadows[&DestinationKey(5)].hold_until.is_some());
    }
    let seeds = usize::try_from(SEEDS).unwrap();
    assert_eq!(
        (opened, held),
        (seeds, seeds),
        "every seed has breakers and holds"
    );
    assert!(repeated > 0, "kills took results along");
}
