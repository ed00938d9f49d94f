//! What a scrape shows.

use super::*;

fn ended(canceled: u64, disabled: u64) -> Ended {
    let mut ended = Ended::default();
    ended.canceled = canceled;
    ended.add_dead(DeadReason::DestinationDisabled, disabled);
    ended
}

fn stats() -> Stats {
    Stats {
        pending: 7,
        dead: 3,
        oldest_due_at: Some(Timestamp::from_millis(98_500)),
        queued: 2,
        commits: 4,
        committed_operations: 10,
        commit_time: Duration::from_millis(20),
        ended: ended(5, 2),
    }
}

fn scrape(metrics: &Metrics) -> String {
    metrics.encode(&stats(), Timestamp::from_millis(100_000))
}

#[track_caller]
fn shows(text: &str, line: &str) {
    assert!(
        text.lines().any(|shown| shown == line),
        "{line}\nis not in\n{text}"
    );
}

#[test]
fn a_scrape_has_names_labels_and_values() {
    let metrics = Metrics::default();
    metrics.attempt_finished(DestinationKey(1), "des_1", Category::Success);
    metrics.attempt_finished(DestinationKey(1), "des_1", Category::Success);
    metrics.attempt_finished(DestinationKey(1), "des_1", Category::Http5xx);
    metrics.retry_planned(Duration::from_millis(1_500));
    metrics.delivery_ended("succeeded", Duration::from_millis(30));
    metrics.delivery_ended("exhausted_retries", Duration::from_secs(86_400));
    metrics.published(Published::Accepted, 5);
    metrics.engine(EngineGauges {
        in_flight: 1,
        queued: 2,
        unsettled: 3,
        lanes: 4,
    });
    let text = scrape(&metrics);
    for line in [
        "# TYPE postrider_delivery_attempts_total counter",
        r#"postrider_delivery_attempts_total{destination="des_1",outcome="success"} 2"#,
        r#"postrider_delivery_attempts_total{destination="des_1",outcome="http_5xx"} 1"#,
        "# TYPE postrider_delivery_retry_delay_seconds histogram",
        r#"postrider_delivery_retry_delay_seconds_bucket{le="1"} 0"#,
        r#"postrider_delivery_retry_delay_seconds_bucket{le="2"} 1"#,
        r#"postrider_delivery_final_status_total{status="succeeded"} 1"#,
        r#"postrider_delivery_final_status_total{status="exhausted_retries"} 1"#,
        r#"postrider_delivery_final_status_total{status="permanent_failure"} 0"#,
        "postrider_delivery_time_to_success_seconds_count 1",
        r#"postrider_publishes_total{result="accepted"} 5"#,
        "postrider_oldest_due_age_seconds 1.5",
        "postrider_deliveries_pending 7",
        "postrider_deliveries_in_flight 1",
        "postrider_dead_letters 3",
        "postrider_engine_unsettled 3",
        "postrider_store_commit_seconds_sum 0.02",
        "postrider_store_commit_seconds_count 4",
        "postrider_store_batch_size_sum 10.0",
    ] {
        shows(&text, line);
    }
    assert!(!text.contains("0.99"), "no value is not 0: {text}");
}

#[test]
fn times_to_success_are_counted_as_in_the_histogram() {
    let metrics = Metrics::default();
    for millis in [5, 6, 90_000_000] {
        metrics.delivery_ended("succeeded", Duration::from_millis(millis));
    }
    metrics.delivery_ended("expired", Duration::from_millis(1));
    let mut right = [0; 18];
    (right[0], right[1], right[17]) = (1, 1, 1);
    assert_eq!(metrics.times_to_success(), right);
    for (seconds, millis) in SUCCESS_BUCKETS.iter().zip(SUCCESS_BOUNDS_MS) {
        assert_eq!(Duration::from_secs_f64(*seconds), Duration::from_millis(millis));
    }
}

#[test]
fn alerts_and_dead_letters_of_destinations_are_as_they_were_last_said() {
    let metrics = Metrics::new(MetricsConfig {
        destination_top: 1,
        ..MetricsConfig::default()
    });
    metrics.alerts_firing(AlertKind::BreakerOpen, 2);
    let dead = [("des_1".to_owned(), 7), ("des_2".to_owned(), 3)];
    metrics.dead_letters_by_destination(dead.into_iter());
    metrics.dead_letters_by_destination([("des_3".to_owned(), 4), ("des_1".to_owned(), 1)].into_iter());
    let text = scrape(&metrics);
    shows(&text, r#"postrider_alerts_firing{kind="breaker_open"} 2"#);
    shows(&text, r#"postrider_alerts_firing{kind="oldest_due_age"} 0"#);
    shows(
        &text,
        r#"postrider_destination_dead_letters{destination="des_3"} 4"#,
    );
    assert!(!text.contains("des_1") && !text.contains("des_2"), "{text}");
}

#[test]
fn what_the_store_ends_is_counted_once() {
    let metrics = Metrics::default();
    metrics.delivery_ended("canceled", Duration::ZERO);
    metrics.delivery_ended("destination_disabled", Duration::ZERO);
    let earlier = Stats {
        ended: ended(3, 1),
        ..stats()
    };
    let now = Timestamp::from_millis(100_000);
    drop(metrics.encode(&earlier, now));
    drop(metrics.encode(&stats(), now));
    let text = metrics.encode(&earlier, now);
    shows(
        &text,
        r#"postrider_delivery_final_status_total{status="canceled"} 6"#,
    );
    shows(
        &text,
        r#"postrider_delivery_final_status_total{status="destination_disabled"} 3"#,
    );
    shows(
        &scrape(&metrics),
        r#"postrider_delivery_final_status_total{status="canceled"} 6"#,
    );
}

#[test]
fn the_text_is_valid_exposition() {
    let metrics = Metrics::default();
    metrics.attempt_finished(DestinationKey(1), "odd\"id\\with\nall", Category::Dns);
    let text = scrape(&metrics);
    shows(
        &text,
        r#"postrider_delivery_attempts_total{destination="odd\"id\\with\nall",outcome="dns"} 1"#,
    );
    let mut typed = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            typed = rest.split(' ').next().unwrap_or_default();
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            assert!(name.starts_with(typed), "{name} follows the type of {typed}");
            let value = line.rsplit(' ').next().unwrap_or_default();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.ends_with('\n'));
}

#[test]
fn protection_is_told_in_the_words_of_the_health_answers() {
    use postrider_core::breaker::OpenKind;
    use postrider_core::delivery::WaitCause;
    use postrider_core::dispatcher::{Census, Dispatcher, DispatcherConfig, Payload};
    use postrider_core::pulse::Vitals;

    use crate::telemetry::protection::Closed;

    #[derive(Clone)]
    struct Nothing;
    impl Payload for Nothing {
        fn bytes(&self) -> usize {
            0
        }
    }
    let metrics = Metrics::default();
    metrics.attempt_finished(DestinationKey(7), "des_7", Category::Timeout);
    assert_eq!(metrics.labelled(), [("des_7".to_owned(), DestinationKey(7))]);
    metrics.protection.opened(OpenKind::Misconfigured);
    metrics.protection.closed(Closed::ByProbe);
    metrics.protection.delayed(WaitCause::Hold);
    let unknown = scrape(&metrics);
    assert!(
        !unknown.contains("postrider_destinations"),
        "nothing is known without the engine"
    );
    let mut view =
        Dispatcher::<Nothing>::new(DispatcherConfig::default()).view(DestinationKey(7), Timestamp::EPOCH);
    view.failures = 3;
    view.vitals = Vitals {
        attempts: 4,
        failures: 1,
        p50: Some(Duration::from_millis(20)),
        p95: Some(Duration::from_millis(250)),
        p99: None,
    };
    let census = Census {
        breakers: [5, 2, 1],
        held: 3,
    };
    metrics
        .protection
        .show(Some((census, vec![("des_7".to_owned(), view)])));
    let text = scrape(&metrics);
    for line in [
        r#"postrider_breaker_opened_total{trigger="misconfigured"} 1"#,
        r#"postrider_breaker_opened_total{trigger="failures"} 0"#,
        r#"postrider_breaker_closed_total{reason="probe"} 1"#,
        r#"postrider_breaker_closed_total{reason="request"} 0"#,
        r#"postrider_deliveries_delayed_total{cause="hold"} 1"#,
        r#"postrider_deliveries_delayed_total{cause="breaker"} 0"#,
        r#"postrider_destinations{breaker_state="closed"} 5"#,
        r#"postrider_destinations{breaker_state="open"} 2"#,
        r#"postrider_destinations{breaker_state="half_open"} 1"#,
        "postrider_destinations_held 3",
        r#"postrider_destination_breaker_state{destination="des_7"} 0.0"#,
        r#"postrider_destination_held{destination="des_7"} 0.0"#,
        r#"postrider_destination_window{destination="des_7"} 4.0"#,
        r#"postrider_destination_in_flight{destination="des_7"} 0.0"#,
        r#"postrider_destination_queued{destination="des_7"} 0.0"#,
        r#"postrider_destination_consecutive_failures{destination="des_7"} 3.0"#,
        r#"postrider_destination_failure_rate{destination="des_7"} 0.25"#,
        r#"postrider_destination_latency_seconds{destination="des_7",quantile="0.5"} 0.02"#,
        r#"postrider_destination_latency_seconds{destination="des_7",quantile="0.95"} 0.25"#,
    ] {
        shows(&text, line);
    }
}

#[test]
fn without_destination_label_there_is_none() {
    let metrics = Metrics::new(MetricsConfig {
        destination_label: false,
        ..MetricsConfig::default()
    });
    metrics.attempt_finished(DestinationKey(1), "des_1", Category::Timeout);
    metrics.attempt_finished(DestinationKey(1), "des_2", Category::Timeout);
    let text = scrape(&metrics);
    shows(&text, r#"postrider_delivery_attempts_total{outcome="timeout"} 2"#);
    assert!(!text.contains("des_1"));
}
