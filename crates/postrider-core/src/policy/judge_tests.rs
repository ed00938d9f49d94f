//! Verdicts one by one, with values computed by hand from the policy's description.

use super::jitter::millis;
use super::*;

const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const HOUR: Duration = Duration::from_secs(3_600);

fn status(status: u16) -> Outcome {
    Outcome::status(status)
}

fn asking(status: u16, retry_after: Duration) -> Outcome {
    Outcome::Answered(Answer {
        status,
        retry_after: Some(retry_after),
        used_up: None,
        location: None,
    })
}

/// A delivery after so many scheduled attempts and as many immediate retries.
fn case(scheduled: u32, immediate: u32) -> Case {
    let progress = Progress {
        attempts: scheduled + immediate,
        scheduled,
        immediate,
        ..Progress::new(START)
    };
    Case {
        delivery: DeliveryKey(1_853_100_000_000_000_000),
        progress,
        retryable: true,
    }
}

fn retry(verdict: Verdict) -> Plan {
    match verdict {
        Verdict::Retry(plan) => plan,
        other => panic!("expected a retry, got {other:?}"),
    }
}

fn plan(now: Timestamp, delay: Duration, tier: Tier, cause: DelayCause) -> Plan {
    Plan {
        due_at: now.plus(delay),
        delay,
        tier,
        cause,
    }
}

fn plain() -> RetryPolicy {
    RetryPolicy {
        jitter: Jitter::None,
        ..RetryPolicy::default()
    }
}

#[test]
fn what_is_final_at_once() {
    let policy = RetryPolicy::default();
    let table = [
        (status(200), Verdict::Succeeded),
        (status(299), Verdict::Succeeded),
        (
            status(301),
            Verdict::Dead(DeadReason::PermanentFailure, Category::Redirect),
        ),
        (
            status(400),
            Verdict::Dead(DeadReason::PermanentFailure, Category::Http4xx),
        ),
        (
            status(404),
            Verdict::Dead(DeadReason::PermanentFailure, Category::Http4xx),
        ),
        (
            status(410),
            Verdict::Dead(DeadReason::PermanentFailure, Category::Http4xx),
        ),
        (
            Outcome::Failed(ErrorKind::BlockedAddress),
            Verdict::Dead(DeadReason::BlockedAddress, Category::BlockedAddress),
        ),
        (
            Outcome::Failed(ErrorKind::InvalidRequest),
            Verdict::Dead(DeadReason::InvalidPayload, Category::InvalidRequest),
        ),
    ];
    for (outcome, verdict) in table {
        assert_eq!(policy.judge(&case(1, 0), &outcome, START), verdict, "{outcome:?}");
    }
}

#[test]
fn what_is_retried_by_schedule() {
    let failures = [
        status(408),
        status(425),
        status(500),
        status(501),
        status(599),
        Outcome::Failed(ErrorKind::Dns),
        Outcome::Failed(ErrorKind::Tls),
        Outcome::Failed(ErrorKind::Timeout),
        Outcome::Failed(ErrorKind::ConnectTimeout),
        Outcome::Failed(ErrorKind::Protocol),
    ];
    for outcome in failures {
        let expected = plan(START, Duration::from_secs(1), Tier::Backoff, DelayCause::Backoff);
        assert_eq!(
            plain().judge(&case(1, 0), &outcome, START),
            Verdict::Retry(expected),
            "{outcome:?}"
        );
    }
}

#[test]
fn what_a_second_try_cures_is_tried_twice_at_once() {
    let momentary = [
        status(502),
        status(503),
        status(504),
        Outcome::Failed(ErrorKind::ConnectRefused),
        Outcome::Failed(ErrorKind::ConnectFailed),
        Outcome::Failed(ErrorKind::ConnectionReset),
        Outcome::Failed(ErrorKind::ConnectionClosed),
    ];
    for outcome in momentary {
        for immediate in 0..2 {
            let plan = retry(plain().judge(&case(3, immediate), &outcome, START));
            assert_eq!(
                (plan.tier, plan.cause),
                (Tier::Immediate, DelayCause::Backoff),
                "{outcome:?}"
            );
            assert!((millis(100)..=millis(500)).contains(&plan.delay), "{plan:?}");
        }
        let plan = retry(plain().judge(&case(3, 2), &outcome, START));
        assert_eq!(
            (plan.tier, plan.delay),
            (Tier::Backoff, Duration::from_secs(4)),
            "{outcome:?}"
        );
    }
}

#[test]
fn retry_after_is_honoured_longer_and_shorter_than_the_backoff() {
    // After the tenth attempt the backoff alone would be 512 s.
    let table = [
        (429, Duration::from_secs(30), Duration::from_secs(30)),
        (503, Duration::from_secs(20), Duration::from_secs(20)),
        (500, Duration::from_secs(5), Duration::from_secs(5)),
        (429, millis(1_500), millis(1_500)),
        (429, Duration::ZERO, Duration::ZERO),
        (429, Duration::from_secs(1_800), Duration::from_secs(1_800)),
        (429, Duration::from_secs(86_400), HOUR),
        (429, Duration::MAX, HOUR),
    ];
    let mut tenth = case(10, 0);
    tenth.progress.last_delay = Duration::from_secs(256);
    for (code, asked, delay) in table {
        let plan = retry(plain().judge(&tenth, &asking(code, asked), START));
        assert_eq!(
            (plan.delay, plan.due_at, plan.tier, plan.cause),
            (delay, START.plus(delay), Tier::Backoff, DelayCause::RetryAfter),
            "{code} {asked:?}"
        );
    }
}

#[test]
fn now_is_believed_once_in_a_row() {
    let [at_once, half, second] = [0, 500, 1_000].map(millis);
    let six = Duration::from_secs(6);
    // Scheduled attempts, the delay before the last one, the status, what is asked for, what it gets.
    let table = [
        (1, at_once, 429, at_once, at_once, DelayCause::RetryAfter),
        (2, at_once, 429, at_once, six, DelayCause::RateLimited),
        (2, half, 429, half, six, DelayCause::RateLimited),
        (2, at_once, 503, at_once, six / 3, DelayCause::Backoff),
        (2, at_once, 429, second, second, DelayCause::RetryAfter),
        (2, six, 429, at_once, at_once, DelayCause::RetryAfter),
    ];
    for (scheduled, last_delay, code, asked, delay, cause) in table {
        let mut case = case(scheduled, 0);
        case.progress.last_delay = last_delay;
        let plan = retry(plain().judge(&case, &asking(code, asked), START));
        assert_eq!(
            (plan.delay, plan.cause),
            (delay, cause),
            "{scheduled} {last_delay:?} {code} {asked:?}"
        );
    }
}

#[test]
fn a_429_without_retry_after_waits_three_times_as_long() {
    let plan = retry(plain().judge(&case(4, 0), &status(429), START));
    assert_eq!(
        (plan.delay, plan.cause),
        (Duration::from_secs(24), DelayCause::RateLimited)
    );
    let late = retry(plain().judge(&case(15, 0), &status(429), START));
    assert_eq!(late.delay, 3 * HOUR, "the cap is multiplied, too");
}

#[test]
fn rate_limit_fields_hold_the_destination_where_the_policy_says_so() {
    let answer = |status, retry_after, used_up: u64| {
        Outcome::Answered(Answer {
            status,
            retry_after,
            used_up: Some(Duration::from_secs(used_up)),
            location: None,
        })
    };
    let policy = RetryPolicy::default();
    assert_eq!(policy.hold(&answer(200, None, 30)), None, "off by default");
    let policy = RetryPolicy {
        rate_limit_fields: RateLimitFields::Hold,
        ..policy
    };
    let seconds = |n| Some(Duration::from_secs(n));
    for status in [200, 404, 429, 500] {
        assert_eq!(policy.hold(&answer(status, None, 30)), seconds(30), "{status}");
    }
    assert_eq!(
        policy.hold(&answer(200, None, 9 * 3_600)),
        seconds(3_600),
        "capped"
    );
    assert_eq!(policy.hold(&answer(200, None, 0)), None);
    assert_eq!(
        policy.hold(&answer(429, seconds(5), 30)),
        seconds(5),
        "Retry-After wins"
    );
    assert_eq!(
        policy.hold(&answer(200, seconds(5), 30)),
        seconds(30),
        "which means nothing on 200"
    );
}

/// Cases 1 and 7.
#[test]
fn only_429_and_503_hold_the_destination() {
    let policy = RetryPolicy::default();
    let asked = Duration::from_secs(30);
    assert_eq!(policy.hold(&asking(429, asked)), Some(asked));
    assert_eq!(policy.hold(&asking(503, asked)), Some(asked));
    assert_eq!(
        policy.hold(&asking(503, 9 * HOUR)),
        Some(HOUR),
        "capped by retry_after_max"
    );
    assert_eq!(policy.hold(&asking(429, Duration::ZERO)), None);
    assert_eq!(policy.hold(&asking(500, asked)), None);
    assert_eq!(policy.hold(&asking(200, asked)), None);
    assert_eq!(policy.hold(&status(429)), None);
    assert_eq!(policy.hold(&Outcome::Failed(ErrorKind::Timeout)), None);
}

#[test]
fn gone_disables_unless_ignored() {
    let policy = RetryPolicy::default();
    assert!(policy.disables(&status(410)));
    assert!(!policy.disables(&status(404)));
    assert!(
        !RetryPolicy {
            on_gone: OnGone::Ignore,
            ..policy
        }
        .disables(&status(410))
    );
}

#[test]
fn attempts_are_exhausted_after_exactly_max_attempts() {
    let verdict = plain().judge(&case(19, 0), &status(500), START);
    assert_eq!(retry(verdict).delay, HOUR);
    let dead = Verdict::Dead(DeadReason::ExhaustedRetries, Category::Http5xx);
    assert_eq!(plain().judge(&case(20, 0), &status(500), START), dead);
    let last = retry(plain().judge(&case(20, 0), &status(503), START));
    assert_eq!(
        last.tier,
        Tier::Immediate,
        "the last scheduled attempt has its immediate retries, too"
    );
    assert_eq!(plain().judge(&case(20, 2), &status(503), START), dead);
}

#[test]
fn what_must_not_be_retried_has_one_attempt() {
    let once = Case {
        retryable: false,
        ..case(1, 0)
    };
    let dead = |category| Verdict::Dead(DeadReason::ExhaustedRetries, category);
    assert_eq!(plain().judge(&once, &status(503), START), dead(Category::Http5xx));
    assert_eq!(
        plain().judge(&once, &asking(429, HOUR), START),
        dead(Category::RateLimited)
    );
    assert_eq!(
        plain().judge(&once, &status(404), START),
        Verdict::Dead(DeadReason::PermanentFailure, Category::Http4xx)
    );
    assert_eq!(plain().judge(&once, &status(204), START), Verdict::Succeeded);
}

#[test]
fn nothing_is_planned_beyond_the_window() {
    // The window is 72 h; the delay after the twelfth attempt is 2,048 s, so 72 h - 2,048 s is the last instant.
    let last = START.plus(72 * HOUR - Duration::from_secs(2_048));
    let short = RetryPolicy {
        long_term: None,
        ..plain()
    };
    assert_eq!(
        retry(short.judge(&case(12, 0), &status(500), last)).due_at,
        START.plus(72 * HOUR)
    );
    let dead = Verdict::Dead(DeadReason::Expired, Category::Http5xx);
    assert_eq!(
        short.judge(&case(12, 0), &status(500), last.plus(millis(1))),
        dead
    );
    assert_eq!(
        short.judge(
            &case(1, 0),
            &asking(503, HOUR),
            START.plus(71 * HOUR).plus(millis(1))
        ),
        dead,
        "a receiver that asks for more time than there is"
    );
    let progress = case(1, 0).progress;
    assert!(!short.expired(&progress, START.plus(72 * HOUR)));
    assert!(short.expired(&progress, START.plus(72 * HOUR).plus(millis(1))));
}

#[test]
fn the_long_term_tier_begins_with_its_age() {
    let before = retry(plain().judge(&case(5, 0), &status(500), START.plus(4 * HOUR).minus(millis(1))));
    assert_eq!(
        (before.tier, before.delay),
        (Tier::Backoff, Duration::from_secs(16))
    );
    let after = retry(plain().judge(&case(5, 0), &status(500), START.plus(4 * HOUR)));
    assert_eq!((after.tier, after.delay), (Tier::LongTerm, HOUR));
}

#[test]
fn a_clock_that_went_backwards_only_restarts_the_age() {
    let plan = retry(plain().judge(&case(2, 0), &status(500), START.minus(HOUR)));
    assert_eq!((plan.tier, plan.delay), (Tier::Backoff, Duration::from_secs(2)));
}

#[test]
fn our_own_failures_are_repeated_without_charge() {
    let policy = RetryPolicy {
        max_attempts: 1,
        ..plain()
    };
    for (immediate, least, most) in [
        (0, 500, 1_000),
        (1, 1_000, 2_000),
        (5, 16_000, 32_000),
        (40, 30_000, 60_000),
    ] {
        for kind in [ErrorKind::LocalResources, ErrorKind::Internal] {
            let plan = retry(policy.judge(&case(1, immediate), &Outcome::Failed(kind), START));
            assert_eq!((plan.tier, plan.cause), (Tier::Immediate, DelayCause::Internal));
            assert!(
                (millis(least)..=millis(most)).contains(&plan.delay),
                "{immediate}: {plan:?}"
            );
        }
    }
    let late = policy.judge(
        &case(1, 0),
        &Outcome::Failed(ErrorKind::Internal),
        START.plus(72 * HOUR),
    );
    assert_eq!(late, Verdict::Dead(DeadReason::Expired, Category::Internal));
}

#[test]
fn an_attempt_of_ours_and_its_repeat_are_charged_once() {
    let policy = RetryPolicy {
        max_attempts: 1,
        ..plain()
    };
    let progress = Progress::new(START).attempted(&Plan::first(START));
    let first = Case {
        progress,
        ..case(0, 0)
    };
    let repeat = retry(policy.judge(&first, &Outcome::Failed(ErrorKind::LocalResources), START));
    let second = Case {
        progress: progress.attempted(&repeat),
        ..first
    };
    assert_eq!(second.progress.scheduled, 1);
    let dead = Verdict::Dead(DeadReason::ExhaustedRetries, Category::Http5xx);
    assert_eq!(policy.judge(&second, &status(500), repeat.due_at), dead);
}

#[test]
fn an_attempt_that_never_left_is_repeated_even_when_retries_are_not_wanted() {
    let once = Case {
        retryable: false,
        ..case(1, 0)
    };
    let plan = retry(plain().judge(&once, &Outcome::Failed(ErrorKind::LocalResources), START));
    assert_eq!(plan.cause, DelayCause::Internal);
    assert_eq!(
        plain().judge(&once, &Outcome::Failed(ErrorKind::Internal), START),
        Verdict::Dead(DeadReason::ExhaustedRetries, Category::Internal),
        "it may have been sent"
    );
}
