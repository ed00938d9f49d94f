//! Tables computed by hand: the delays before jitter of every preset, shape and curve, and what previews add up to.

use serde_json::json;

use super::jitter::millis_of;
use super::*;

fn written(policy: serde_json::Value) -> RetryPolicy {
    let raw: RawPolicy = serde_json::from_value(policy).expect("well formed");
    resolve(&[Layer {
        origin: Origin::Inline,
        policy: &raw,
    }])
    .expect("valid")
    .policy
}

fn delays_ms(policy: &RetryPolicy, retries: u32) -> Vec<u64> {
    (0..retries).map(|n| millis_of(policy.backoff.delay(n))).collect()
}

fn seconds(delays: &[u64]) -> Vec<u64> {
    delays.iter().map(|seconds| seconds * 1_000).collect()
}

#[test]
fn standard_doubles_from_a_second_to_an_hour() {
    let by_hand = [
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 3_600, 3_600, 3_600,
    ];
    assert_eq!(delays_ms(&Preset::Standard.policy(), 15), seconds(&by_hand));
}

#[test]
fn latency_sensitive_grows_by_half() {
    // 250 ms * 1.5^n, rounded to the millisecond; 1.5^23 is 3^23 / 2^23 = 94,143,178,827 / 8,388,608,
    // or 2,805,685.4 ms; 1.5^24 is past the hour.
    let first = [
        250, 375, 563, 844, 1_266, 1_898, 2_848, 4_271, 6_407, 9_611, 14_416, 21_624, 32_437,
    ];
    let policy = Preset::LatencySensitive.policy();
    assert_eq!(delays_ms(&policy, 13), first);
    assert_eq!(
        delays_ms(&policy, 29)[23..],
        [2_805_685, 3_600_000, 3_600_000, 3_600_000, 3_600_000, 3_600_000]
    );
}

#[test]
fn batch_doubles_from_five_seconds() {
    let by_hand = [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600];
    assert_eq!(delays_ms(&Preset::Batch.policy(), 12), seconds(&by_hand));
}

#[test]
fn three_tier_follows_its_schedule_and_repeats_the_hour() {
    let by_hand = [60, 300, 900, 1_800, 3_600, 3_600];
    assert_eq!(delays_ms(&Preset::ThreeTier.policy(), 6), seconds(&by_hand));
}

#[test]
fn outpost_doubles_from_thirty_seconds_ten_times() {
    let by_hand = [30, 60, 120, 240, 480, 960, 1_920, 3_840, 7_680, 15_360];
    let policy = Preset::Outpost.policy();
    assert_eq!(delays_ms(&policy, 10), seconds(&by_hand));
    let preview = policy.preview(&Outcome::status(500));
    assert_eq!(preview.attempts.len(), 11);
    assert_eq!(preview.ends, Some(DeadReason::ExhaustedRetries));
    let total = 30_690_000;
    assert_eq!(
        preview.window,
        Range {
            earliest_ms: total,
            expected_ms: total,
            latest_ms: total
        }
    );
}

#[test]
fn curves_start_and_end_where_they_should() {
    let curve = |curve: &str, least: &str, most: &str, retries: u32| {
        let policy = written(json!({
            "backoff": {"curve": curve, "min_delay": least, "max_delay": most, "retries": retries},
        }));
        delays_ms(&policy, retries + 1)
    };
    let linear = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100];
    assert_eq!(curve("linear", "10s", "100s", 10), seconds(&linear));
    // Steps of 2, 4, 6, ... 18 s: 10 + n * (n + 1).
    let arithmetic = [10, 12, 16, 22, 30, 40, 52, 66, 82, 100, 100];
    assert_eq!(curve("arithmetic", "10s", "100s", 10), seconds(&arithmetic));
    let geometric = [1, 10, 100, 1_000, 1_000];
    assert_eq!(curve("geometric", "1s", "1000s", 4), seconds(&geometric));
    // 10 s * 10^(n/9).
    let tenfold = [
        10_000, 12_915, 16_681, 21_544, 27_826, 35_938, 46_416, 59_948, 77_426, 100_000,
    ];
    assert_eq!(curve("geometric", "10s", "100s", 10)[..10], tenfold);
    // Steps of 1, 2, 4, ... 256 s.
    let exponential = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512];
    assert_eq!(curve("exponential", "1s", "512s", 10), seconds(&exponential));
    // 10 s + 90 s * (2^n - 1) / 511.
    let tenfold = [
        10_000, 10_176, 10_528, 11_233, 12_642, 15_460, 21_096, 32_368, 54_912, 100_000,
    ];
    assert_eq!(curve("exponential", "10s", "100s", 10)[..10], tenfold);
    for name in ["linear", "arithmetic", "geometric", "exponential"] {
        assert_eq!(
            curve(name, "20s", "20s", 3),
            seconds(&[20, 20, 20, 20]),
            "{name}: the default of SNS"
        );
        assert_eq!(curve(name, "5s", "9s", 1), seconds(&[5, 5]), "{name}");
        assert_eq!(curve(name, "5s", "9s", 2), seconds(&[5, 9, 9]), "{name}");
    }
}

#[test]
fn a_multiplier_of_one_is_a_constant() {
    let policy = written(json!({"backoff": {"base": "7s", "multiplier": 1.0}, "max_attempts": 1000}));
    assert_eq!(delays_ms(&policy, 1_000), vec![7_000; 1_000]);
}

#[test]
fn outposts_settings_mean_what_they_mean_there() {
    let policy = RetryPolicy::from_outpost(None, None, &[]).expect("the defaults");
    assert_eq!(policy, Preset::Outpost.policy());

    let slower = RetryPolicy::from_outpost(Some(60), Some(3), &[]).expect("valid");
    assert_eq!(slower.max_attempts(), 4);
    assert_eq!(delays_ms(&slower, 3), seconds(&[60, 120, 240]));

    let schedule = RetryPolicy::from_outpost(Some(60), Some(99), &[5, 300, 1_800]).expect("valid");
    assert_eq!(schedule.max_attempts(), 4, "the schedule's length is the limit");
    assert_eq!(delays_ms(&schedule, 3), seconds(&[5, 300, 1_800]));

    let never = RetryPolicy::from_outpost(None, Some(0), &[]).expect("valid");
    assert_eq!(never.preview(&Outcome::status(500)).attempts.len(), 1);

    // 3,600 s * (2^10 - 1) is 42 days and 15 hours: the window grows with it, so all ten retries are made.
    let long = RetryPolicy::from_outpost(Some(3_600), None, &[]).expect("valid");
    let preview = long.preview(&Outcome::status(500));
    assert_eq!(
        (preview.attempts.len(), preview.window.latest_ms),
        (11, 3_682_800_000)
    );

    let zero = RetryPolicy::from_outpost(Some(0), None, &[]).expect_err("no delay");
    assert_eq!(zero[0].field, "backoff.base");
    let endless = RetryPolicy::from_outpost(Some(u64::MAX), Some(u32::MAX), &[u64::MAX; 101]);
    assert!(endless.is_err());
}

#[test]
fn the_preview_of_standard() {
    // Delays: 1 + 2 + ... + 2,048 = 4,095 s, then seven of an hour. Full jitter: from nothing to all of it.
    let preview = Preset::Standard.policy().preview(&Outcome::status(500));
    assert_eq!(preview.attempts.len(), 20);
    assert_eq!(preview.ends, Some(DeadReason::ExhaustedRetries));
    let window = Range {
        earliest_ms: 0,
        expected_ms: 14_647_500,
        latest_ms: 29_295_000,
    };
    assert_eq!(preview.window, window);
    let seventh = preview.attempts[6];
    assert_eq!(
        seventh.delay,
        Range {
            earliest_ms: 0,
            expected_ms: 16_000,
            latest_ms: 32_000
        }
    );
    assert_eq!(
        seventh.offset,
        Range {
            earliest_ms: 0,
            expected_ms: 31_500,
            latest_ms: 63_000
        }
    );
    assert!(
        preview
            .attempts
            .iter()
            .all(|attempt| attempt.certain && attempt.likely)
    );
}

#[test]
fn what_presets_add_up_to() {
    // Expected attempts in the first minute and the first hour; expected and latest offset of the last one.
    let table = [
        (Preset::Standard, 7, 13, 14_647_500, 29_295_000),
        (Preset::LatencySensitive, 14, 24, 13_208_284, 26_416_554),
        (Preset::Batch, 5, 11, 18_757_500, 37_515_000),
        (Preset::ThreeTier, 2, 5, 258_795_000, 259_200_000),
        (Preset::Outpost, 2, 7, 30_690_000, 30_690_000),
    ];
    for (preset, minute, hour, expected, latest) in table {
        let preview = preset.policy().preview(&Outcome::status(500));
        let within = |millis: u64| {
            let early = preview
                .attempts
                .iter()
                .filter(|attempt| attempt.offset.expected_ms <= millis);
            early.count()
        };
        assert_eq!((within(60_000), within(3_600_000)), (minute, hour), "{preset}");
        assert_eq!(
            (preview.window.expected_ms, preview.window.latest_ms),
            (expected, latest),
            "{preset}"
        );
    }
}

#[test]
fn the_preview_of_three_tier() {
    // Equal jitter. Earliest: 3,330 s, then half an hour each, (259,200 - 3,330) / 1,800 = 142 more after six.
    // Expected: 4,995 s, then 2,700 s each: 94 more. Latest: 6,660 s, then an hour each: 70 more.
    let preview = Preset::ThreeTier.policy().preview(&Outcome::status(500));
    assert_eq!(preview.ends, Some(DeadReason::Expired));
    assert_eq!(preview.attempts.len(), 148);
    assert_eq!(
        preview.attempts.iter().filter(|attempt| attempt.likely).count(),
        100
    );
    assert_eq!(
        preview.attempts.iter().filter(|attempt| attempt.certain).count(),
        76
    );
    let tiers = preview.attempts.iter().map(|attempt| attempt.tier);
    assert_eq!(tiers.take_while(|tier| *tier == Tier::Backoff).count(), 7);
    // The 100th comes at 7,695 s + 93 * 2,700 s; none is planned beyond 72 h.
    assert_eq!(
        (preview.window.expected_ms, preview.window.latest_ms),
        (258_795_000, 259_200_000)
    );
}

#[test]
fn the_preview_lists_immediate_retries_where_they_come() {
    let policy = written(json!({"max_attempts": 2, "jitter": "none"}));
    let preview = policy.preview(&Outcome::status(503));
    let tiers: Vec<_> = preview.attempts.iter().map(|attempt| attempt.tier).collect();
    use Tier::{Backoff, Immediate};
    assert_eq!(
        tiers,
        [Backoff, Immediate, Immediate, Backoff, Immediate, Immediate]
    );
    // 100 to 500 ms four times, and 1 s.
    let window = Range {
        earliest_ms: 1_400,
        expected_ms: 2_200,
        latest_ms: 3_000,
    };
    assert_eq!(preview.window, window);
}

#[test]
fn the_preview_of_decorrelated_jitter() {
    let policy = written(json!({
        "jitter": "decorrelated",
        "backoff": {"base": "1s", "max_delay": "20s"},
        "max_attempts": 5,
    }));
    let preview = policy.preview(&Outcome::status(500));
    let latest: Vec<_> = preview
        .attempts
        .iter()
        .map(|attempt| attempt.delay.latest_ms)
        .collect();
    assert_eq!(latest, [0, 3_000, 9_000, 20_000, 20_000]);
    let earliest: Vec<_> = preview
        .attempts
        .iter()
        .map(|attempt| attempt.delay.earliest_ms)
        .collect();
    assert_eq!(earliest, [0, 1_000, 1_000, 1_000, 1_000]);
    let expected: Vec<_> = preview
        .attempts
        .iter()
        .map(|attempt| attempt.delay.expected_ms)
        .collect();
    assert_eq!(expected, [0, 2_000, 3_500, 5_750, 9_125], "(1 s + 3 * last) / 2");
}

#[test]
fn the_preview_of_what_is_final() {
    let policy = RetryPolicy::default();
    let table = [(204, None), (404, Some(DeadReason::PermanentFailure))];
    for (status, ends) in table {
        let preview = policy.preview(&Outcome::status(status));
        assert_eq!((preview.attempts.len(), preview.ends), (1, ends), "{status}");
    }
}

#[test]
fn outcomes_by_word() {
    assert_eq!(assume("503"), Ok(Outcome::status(503)));
    assert_eq!(
        assume("connect_refused"),
        Ok(Outcome::Failed(ErrorKind::ConnectRefused))
    );
    for word in ["", "99", "100", "1000", "+50", "slow"] {
        assert_eq!(assume(word).expect_err(word).field, "outcome");
    }
}

#[test]
fn offsets_become_instants() {
    let offset = Range {
        earliest_ms: 0,
        expected_ms: 500,
        latest_ms: 1_000,
    };
    let instants = offset.instants(Timestamp::from_millis(1_767_225_600_000));
    let text = serde_json::to_string(&instants).expect("serialises");
    assert_eq!(
        text,
        r#"{"earliest":"2026-01-01T00:00:00.000Z","expected":"2026-01-01T00:00:00.500Z","latest":"2026-01-01T00:00:01.000Z"}"#
    );
}
