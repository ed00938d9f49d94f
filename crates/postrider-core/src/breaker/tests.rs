//! Timelines of every transition, and properties over seeds.

use super::*;
use crate::hash;
use crate::outcome::{Answer, ErrorKind};

#[path = "failures_tests.rs"]
mod failures;

const FAST: Duration = Duration::from_millis(20);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + seconds * 1000)
}

/// A breaker with its configuration and a clock that the test moves.
struct Rig {
    breaker: Breaker,
    config: BreakerConfig,
    now: Timestamp,
}

impl Rig {
    fn new(config: BreakerConfig) -> Self {
        Self {
            breaker: Breaker::new(7),
            config,
            now: at(0),
        }
    }

    fn wait(&mut self, time: Duration) -> &mut Self {
        self.now = self.now.plus(time);
        self
    }

    fn seconds(&mut self, seconds: u64) -> &mut Self {
        self.wait(Duration::from_secs(seconds))
    }

    fn gate(&self) -> Gate {
        self.breaker.gate(self.now)
    }

    fn send(&mut self, outcome: &Outcome, permanent: bool, latency: Duration) -> Change {
        self.breaker.started(self.now);
        self.breaker
            .finished(outcome, permanent, latency, self.now, &self.config)
    }

    fn status(&mut self, status: u16) -> Change {
        let permanent = (300..500).contains(&status) && status != 429 && status != 408;
        self.send(&Outcome::status(status), permanent, FAST)
    }

    fn statuses(&mut self, statuses: &[u16]) -> Vec<Change> {
        statuses.iter().map(|&status| self.status(status)).collect()
    }

    fn open(&mut self) -> (String, Timestamp) {
        let changes = self.statuses(&[500; 5]);
        opened(changes.last().unwrap())
    }

    fn wait_until_probe(&mut self) -> &mut Self {
        let Gate::Open(until) = self.gate() else {
            panic!("not open: {:?}", self.gate())
        };
        self.now = until;
        assert_eq!(self.gate(), Gate::Probe);
        self
    }
}

fn opened(change: &Change) -> (String, Timestamp) {
    match change {
        Change::Opened { reason, until } => (reason.clone(), *until),
        Change::None | Change::Closed => panic!("did not open: {change:?}"),
    }
}

#[test]
fn case_141_a_404_resets_no_failures() {
    let mut rig = Rig::new(BreakerConfig::default());
    let changes = rig.statuses(&[500, 500, 404, 500, 500, 404]);
    assert!(
        changes.iter().all(|change| *change == Change::None),
        "{changes:?}"
    );
    let (reason, _) = opened(&rig.status(500));
    assert_eq!(reason, "5 of the last 5 attempts failed, the last: 500");
}

#[test]
fn more_than_half_of_a_minute_opens_it() {
    let mut rig = Rig::new(BreakerConfig {
        last: None,
        ..BreakerConfig::default()
    });
    // Nine failures say nothing yet; with ten attempts exactly half is not more than half.
    rig.statuses(&[500, 500, 500, 500, 500, 200, 200, 200, 200]);
    assert_eq!(rig.gate(), Gate::Closed);
    assert_eq!(rig.status(200), Change::None, "5 of 10");
    let (reason, _) = opened(&rig.status(502));
    assert_eq!(reason, "6 of 11 attempts within 60 s failed, the last: 502");
}

#[test]
fn a_minute_later_failures_are_forgotten() {
    let mut rig = Rig::new(BreakerConfig {
        last: None,
        ..BreakerConfig::default()
    });
    rig.statuses(&[500; 9]);
    rig.seconds(60);
    assert_eq!(rig.statuses(&[500; 9]).last(), Some(&Change::None));
    assert!(matches!(rig.status(500), Change::Opened { .. }));
}

#[test]
fn slow_answers_open_it_whatever_they_say() {
    let mut rig = Rig::new(BreakerConfig::default());
    let slow = Duration::from_millis(10_001);
    for _ in 0..18 {
        assert_eq!(rig.status(200), Change::None);
    }
    assert_eq!(
        rig.send(&Outcome::status(200), false, slow),
        Change::None,
        "19 attempts are too few"
    );
    // Of 20, the 95th percentile is the 19th from below: slow once two are.
    let (reason, _) = opened(&rig.send(&Outcome::status(200), false, slow));
    assert_eq!(reason, "2 of 20 attempts took more than 10000 ms");
}

#[test]
fn one_slow_answer_of_twenty_does_not_open_it() {
    let mut rig = Rig::new(BreakerConfig::default());
    rig.statuses(&[200; 30]);
    assert_eq!(
        rig.send(&Outcome::status(200), false, Duration::from_secs(14)),
        Change::None
    );
    assert_eq!(rig.statuses(&[200; 30]).last(), Some(&Change::None));
}

#[test]
fn ten_permanent_failures_in_a_row_open_it_as_misconfigured() {
    let mut rig = Rig::new(BreakerConfig::default());
    assert_eq!(rig.statuses(&[401; 9]).last(), Some(&Change::None));
    assert_eq!(rig.status(200), Change::None);
    assert_eq!(
        rig.statuses(&[401; 9]).last(),
        Some(&Change::None),
        "a success begins the count again"
    );
    let (reason, _) = opened(&rig.status(403));
    assert_eq!(reason, "10 permanent failures in a row, the last: 403");
    assert_eq!(
        rig.breaker.trouble().map(|trouble| trouble.reason.kind),
        Some(OpenKind::Misconfigured)
    );
}

#[test]
fn rate_limiting_is_no_failure() {
    let mut rig = Rig::new(BreakerConfig::default());
    assert!(
        rig.statuses(&[429; 200])
            .iter()
            .all(|change| *change == Change::None)
    );
}

#[test]
fn what_is_not_the_receivers_fault_counts_for_nothing() {
    let mut rig = Rig::new(BreakerConfig::default());
    for kind in ErrorKind::ALL.iter().filter(|kind| !kind.blames_receiver()) {
        for _ in 0..50 {
            assert_eq!(
                rig.send(&Outcome::Failed(*kind), true, Duration::from_secs(60)),
                Change::None
            );
        }
    }
    assert_eq!(rig.gate(), Gate::Closed);
}

#[test]
fn each_trigger_can_be_off() {
    let mut rig = Rig::new(BreakerConfig::off());
    for _ in 0..100 {
        for outcome in [
            Outcome::status(500),
            Outcome::status(401),
            Outcome::Failed(ErrorKind::Timeout),
        ] {
            assert_eq!(
                rig.send(&outcome, outcome.code() == Some(401), Duration::from_secs(15)),
                Change::None
            );
        }
    }
}

#[test]
fn exactly_one_probe_goes_and_its_success_closes() {
    let mut rig = Rig::new(BreakerConfig::default());
    let (_, until) = rig.open();
    assert_eq!(rig.breaker.poll_timeout(), Some((until, "a probe may go")));
    rig.now = until.minus(Duration::from_millis(1));
    assert_eq!(rig.gate(), Gate::Open(until));
    rig.now = until;
    assert_eq!(rig.gate(), Gate::Probe);
    assert_eq!(rig.breaker.state(rig.now), BreakerState::HalfOpen);
    rig.breaker.started(rig.now);
    assert_eq!(rig.gate(), Gate::Probing);
    let ok = Outcome::status(204);
    assert_eq!(
        rig.breaker.finished(&ok, false, FAST, rig.now, &rig.config),
        Change::Closed
    );
    assert_eq!(rig.gate(), Gate::Closed);
    assert_eq!((rig.breaker.poll_timeout(), rig.breaker.trouble()), (None, None));
    // It begins with a clean slate.
    assert_eq!(rig.statuses(&[500; 4]).last(), Some(&Change::None));
}

#[test]
fn each_failed_probe_doubles_the_time_up_to_ten_minutes() {
    let mut rig = Rig::new(BreakerConfig::default());
    let first = rig.now;
    let (_, mut until) = rig.open();
    for (probe, least, most) in [
        (1, 30, 36),
        (2, 60, 72),
        (3, 120, 144),
        (4, 240, 288),
        (5, 480, 576),
        (6, 500, 600),
        (7, 500, 600),
    ] {
        let open = until.since(rig.now);
        assert!(
            open >= Duration::from_secs(least) && open <= Duration::from_secs(most),
            "{probe}: {open:?}"
        );
        rig.wait_until_probe();
        let (reason, next) = opened(&rig.status(503));
        assert_eq!(
            reason,
            format!("5 of the last 5 attempts failed, the last: 500; probe {probe} failed: 503")
        );
        until = next;
    }
    let trouble = rig.breaker.trouble().unwrap();
    assert_eq!((trouble.failing_since, trouble.failed_probes), (first, 7));
}

#[test]
fn only_a_success_closes() {
    for status in [301, 404, 408, 410, 429, 500] {
        let mut rig = Rig::new(BreakerConfig::default());
        rig.open();
        rig.wait_until_probe();
        assert!(matches!(rig.status(status), Change::Opened { .. }), "{status}");
    }
}

#[test]
fn what_was_out_when_it_opened_changes_nothing() {
    let mut rig = Rig::new(BreakerConfig::default());
    let (_, until) = rig.open();
    for outcome in [
        Outcome::status(200),
        Outcome::status(500),
        Outcome::Failed(ErrorKind::Timeout),
    ] {
        let change = rig.breaker.finished(&outcome, false, FAST, rig.now, &rig.config);
        assert_eq!((change, rig.gate()), (Change::None, Gate::Open(until)));
    }
}

#[test]
fn a_probe_given_up_by_us_is_soon_followed_by_another() {
    let mut rig = Rig::new(BreakerConfig::default());
    rig.open();
    rig.wait_until_probe();
    rig.breaker.started(rig.now);
    rig.breaker.aborted(rig.now);
    assert_eq!(rig.gate(), Gate::Open(rig.now.plus(Duration::from_secs(1))));
    rig.wait_until_probe();
    let ours = Outcome::Failed(ErrorKind::LocalResources);
    assert_eq!(rig.send(&ours, false, FAST), Change::None);
    rig.wait_until_probe();
    assert_eq!(rig.status(200), Change::Closed);
}

#[test]
fn a_probe_that_never_answers_does_not_block_for_ever() {
    let mut rig = Rig::new(BreakerConfig::default());
    rig.open();
    rig.wait_until_probe();
    rig.breaker.started(rig.now);
    let deadline = rig.now.plus(Duration::from_secs(120));
    assert_eq!(
        rig.breaker.poll_timeout(),
        Some((deadline, "the probe is overdue"))
    );
    rig.seconds(119);
    assert_eq!(
        (rig.gate(), rig.breaker.is_probe_overdue(rig.now)),
        (Gate::Probing, false)
    );
    rig.seconds(1);
    assert_eq!(
        (rig.gate(), rig.breaker.is_probe_overdue(rig.now)),
        (Gate::Probe, true)
    );
    rig.breaker.started(rig.now);
    assert_eq!(rig.gate(), Gate::Probing, "exactly one again");
    assert_eq!(rig.status(200), Change::Closed);
}

#[test]
fn a_probe_that_was_not_needed_is_followed_by_another_at_once() {
    let mut rig = Rig::new(BreakerConfig::default());
    rig.open();
    rig.wait_until_probe();
    rig.breaker.started(rig.now);
    rig.breaker.returned(rig.now);
    assert_eq!(rig.gate(), Gate::Probe);
    rig.breaker.returned(rig.now);
    assert_eq!(rig.gate(), Gate::Probe, "nothing was out");
    assert_eq!(rig.status(200), Change::Closed);
    rig.breaker.returned(rig.now);
    assert_eq!(rig.gate(), Gate::Closed);
}

#[test]
fn a_probe_on_request_goes_at_once_and_its_failure_lengthens_nothing() {
    let mut rig = Rig::new(BreakerConfig::default());
    rig.breaker.hurry(rig.now);
    assert_eq!(rig.gate(), Gate::Closed);
    rig.open();
    rig.breaker.hurry(rig.now);
    assert_eq!(
        rig.gate(),
        Gate::Open(rig.now.plus(Duration::from_secs(1))),
        "not within a second"
    );
    for _ in 0..10 {
        rig.seconds(5);
        rig.breaker.hurry(rig.now);
        assert_eq!(rig.gate(), Gate::Probe);
        let (_, until) = opened(&rig.status(500));
        let open = until.since(rig.now);
        assert!(open <= Duration::from_secs(36), "{open:?}");
    }
    rig.wait_until_probe();
    let (reason, until) = opened(&rig.status(502));
    assert_eq!(
        reason,
        "5 of the last 5 attempts failed, the last: 500; probe 1 failed: 502"
    );
    assert!(
        until.since(rig.now) >= Duration::from_secs(60),
        "the next by itself doubles it"
    );
    rig.seconds(1);
    rig.breaker.hurry(rig.now);
    assert_eq!(rig.status(200), Change::Closed);
}

#[test]
fn a_reset_closes_from_every_state() {
    let mut rig = Rig::new(BreakerConfig::default());
    assert_eq!(rig.breaker.reset(rig.now), Change::None);
    rig.open();
    assert_eq!(rig.breaker.reset(rig.now), Change::Closed);
    assert_eq!(rig.gate(), Gate::Closed);
    rig.open();
    rig.wait_until_probe();
    rig.breaker.started(rig.now);
    assert_eq!(rig.breaker.reset(rig.now), Change::Closed);
    assert_eq!(rig.gate(), Gate::Closed);
}

#[test]
fn a_clock_that_goes_back_a_little_only_lengthens_the_wait() {
    let mut rig = Rig::new(BreakerConfig::default());
    let (_, until) = rig.open();
    rig.now = rig.now.minus(Duration::from_secs(60));
    assert_eq!(rig.gate(), Gate::Open(until));
}

#[test]
fn a_clock_that_is_set_back_by_a_day_does_not_stop_it_for_a_day() {
    let mut rig = Rig::new(BreakerConfig::default());
    rig.open();
    rig.now = rig.now.minus(Duration::from_secs(86_400));
    assert_eq!(rig.gate(), Gate::Probe);
    rig.breaker.started(rig.now);
    assert_eq!(rig.gate(), Gate::Probing, "exactly one");
    assert!(matches!(rig.status(500), Change::Opened { .. }));
    rig.wait_until_probe();
    rig.breaker.started(rig.now);
    assert_eq!(rig.gate(), Gate::Probing, "the new clock holds again");
    rig.now = rig.now.minus(Duration::from_secs(86_400));
    assert_eq!(
        rig.gate(),
        Gate::Probe,
        "the deadline is of the old clock, and the probe counts as lost"
    );
    rig.breaker.started(rig.now);
    assert_eq!(rig.gate(), Gate::Probing, "exactly one again");
}

#[test]
fn evidence_survives_a_clock_that_goes_back() {
    let mut rig = Rig::new(BreakerConfig {
        last: None,
        ..BreakerConfig::default()
    });
    rig.seconds(30);
    rig.statuses(&[500; 5]);
    rig.now = at(10);
    rig.statuses(&[500; 4]);
    assert!(
        matches!(rig.status(500), Change::Opened { .. }),
        "all within one minute"
    );
    let mut rig = Rig::new(BreakerConfig {
        last: None,
        ..BreakerConfig::default()
    });
    rig.statuses(&[500; 9]);
    rig.now = at(-86_400);
    assert_eq!(rig.status(500), Change::None, "of another day");
}

#[test]
fn it_survives_a_restart() {
    let mut rig = Rig::new(BreakerConfig::default());
    assert_eq!(rig.breaker.snapshot(), None);
    rig.open();
    rig.wait_until_probe();
    let (_, until) = opened(&rig.status(500));
    let stored = serde_json::to_string(&rig.breaker.snapshot().unwrap()).unwrap();
    let snapshot: BreakerSnapshot = serde_json::from_str(&stored).unwrap();
    let restored = Breaker::restore(7, snapshot);
    assert_eq!(restored.trouble(), rig.breaker.trouble());
    assert_eq!(restored.gate(rig.now), Gate::Open(until));
}

#[test]
fn after_a_restart_a_probe_that_was_out_is_forgotten_and_one_goes() {
    let mut rig = Rig::new(BreakerConfig::default());
    rig.open();
    rig.wait_until_probe();
    rig.breaker.started(rig.now);
    rig.breaker = Breaker::restore(7, rig.breaker.snapshot().unwrap());
    assert_eq!(rig.gate(), Gate::Probe);
    rig.breaker.started(rig.now);
    assert_eq!(rig.gate(), Gate::Probing);
}

#[test]
fn jitter_spreads_the_probes_of_many() {
    let mut seconds = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut rig = Rig {
            breaker: Breaker::new(seed),
            ..Rig::new(BreakerConfig::default())
        };
        let (_, until) = rig.open();
        seconds.insert(until.as_seconds());
    }
    assert!(seconds.len() >= 6, "{seconds:?}");
}

#[test]
fn it_is_small_while_nothing_is_sent() {
    assert!(size_of::<Breaker>() <= 80, "{}", size_of::<Breaker>());
}

/// Random traffic for many seeds: an open breaker lets nothing through, a half-open one exactly one, and it is never
/// open beyond its longest time.
#[test]
fn invariants_hold_for_every_seed() {
    for seed in 0..200 {
        let config = BreakerConfig::default();
        let mut breaker = Breaker::new(seed);
        let mut now = at(0);
        let mut probes_out = 0;
        for step in 0..2_000 {
            let dice = hash::mix(seed, step);
            let pause = i64::try_from(dice % 8_000).unwrap();
            now = if dice.is_multiple_of(97) {
                now.minus(Duration::from_millis(pause.unsigned_abs()))
            } else {
                now.plus(Duration::from_millis(pause.unsigned_abs()))
            };
            match breaker.gate(now) {
                Gate::Closed => assert_eq!(breaker.trouble(), None),
                Gate::Open(until) => {
                    assert!(until.since(now) <= config.max_open.saturating_add(Duration::from_secs(60)));
                    continue;
                }
                Gate::Probe => {
                    assert!(
                        probes_out == 0 || breaker.is_probe_overdue(now),
                        "seed {seed}, step {step}"
                    );
                    probes_out = 1;
                }
                Gate::Probing => {
                    assert_eq!(probes_out, 1, "seed {seed}, step {step}");
                    // It answers, sooner or later.
                    if !dice.is_multiple_of(5) {
                        continue;
                    }
                }
            }
            let asked = breaker.gate(now);
            if asked != Gate::Probing {
                breaker.started(now);
            }
            if asked == Gate::Probe && dice.is_multiple_of(3) {
                continue;
            }
            let outcome = match (dice >> 32) % 6 {
                0 | 1 => Outcome::status(200),
                2 => Outcome::status(503),
                3 => Outcome::status(404),
                4 => Outcome::Failed(ErrorKind::Timeout),
                _ => Outcome::Answered(Answer {
                    status: 429,
                    retry_after: None,
                    used_up: None,
                    location: None,
                }),
            };
            let change = breaker.finished(&outcome, outcome.code() == Some(404), FAST, now, &config);
            probes_out = 0;
            assert_eq!(
                change == Change::Closed,
                asked != Gate::Closed && outcome.is_success()
            );
        }
    }
}
