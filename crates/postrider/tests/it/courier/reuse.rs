//! Connections are used again, within bounds, and a dead one costs nobody an attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::courier::config::CourierConfig;
use postrider::courier::http::HttpCourier;
use postrider_core::outcome::ErrorKind;

use super::rig::{PATIENCE, Receiver, assert_failed, assert_status, config, courier, guard, send, target};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn one_connection_carries_request_after_request() {
    let courier = courier();
    let receiver = Receiver::answering(OK).await;
    for n in 0..50 {
        let report = send(&courier, target(&receiver.url())).await;
        assert_status(&report, 200);
        assert_eq!(report.timings.connect.is_none(), n > 0, "only the first connects");
        assert!(report.timings.first_byte.unwrap() <= report.timings.total);
    }
    assert_eq!((receiver.log.connections(), receiver.log.count()), (1, 50));
    assert_eq!(courier.open_connections(), 1);
}

#[tokio::test]
async fn a_connection_that_the_receiver_closes_is_not_used_again() {
    let courier = courier();
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        let _ = peer
            .write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await;
        peer.closed().await;
    })
    .await;
    for n in 1..=3 {
        assert_status(&send(&courier, target(&receiver.url())).await, 200);
        receiver.log.closed(n).await;
    }
    assert_eq!((receiver.log.connections(), receiver.log.count()), (3, 3));
}

/// Each connection answers its first request, and dies, without an answer, in the middle of its second.
async fn dying_on_reuse(reset: bool) -> Receiver {
    Receiver::start(move |mut peer| async move {
        peer.request().await;
        peer.write(OK).await.unwrap();
        peer.request().await;
        if reset {
            peer.reset();
        }
    })
    .await
}

#[tokio::test]
async fn a_reused_connection_that_dies_is_replaced_exactly_once() {
    for reset in [false, true] {
        let courier = courier();
        let receiver = dying_on_reuse(reset).await;
        for _ in 0..3 {
            assert_status(&send(&courier, target(&receiver.url())).await, 200);
        }
        // First: connection 0. Second: dies on 0, repeated on 1. Third: dies on 1, repeated on 2.
        assert_eq!(
            (receiver.log.connections(), receiver.log.count()),
            (3, 5),
            "reset: {reset}"
        );
    }
}

#[tokio::test]
async fn the_repeat_is_not_repeated() {
    let courier = courier();
    let receiver = Receiver::start(|mut peer| async move {
        let answers = usize::from(peer.index == 0);
        for _ in 0..answers {
            peer.request().await;
            peer.write(OK).await.unwrap();
        }
        peer.request().await;
    })
    .await;
    assert_status(&send(&courier, target(&receiver.url())).await, 200);
    assert_failed(
        &send(&courier, target(&receiver.url())).await,
        ErrorKind::ConnectionClosed,
    );
    assert_eq!((receiver.log.connections(), receiver.log.count()), (2, 3));
}

#[tokio::test]
async fn a_reused_connection_that_dies_within_an_answer_is_not_repeated() {
    let courier = courier();
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.write(OK).await.unwrap();
        peer.request().await;
        peer.write("HTTP/1.1 2").await.unwrap();
    })
    .await;
    assert_status(&send(&courier, target(&receiver.url())).await, 200);
    assert_failed(
        &send(&courier, target(&receiver.url())).await,
        ErrorKind::ConnectionClosed,
    );
    assert_eq!(receiver.log.count(), 2);
}

#[tokio::test]
async fn a_reused_connection_that_hangs_is_not_repeated() {
    let courier = courier();
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.write(OK).await.unwrap();
        peer.request().await;
        peer.closed().await;
    })
    .await;
    assert_status(&send(&courier, target(&receiver.url())).await, 200);
    let report = send(&courier, super::rig::hurried(target(&receiver.url()))).await;
    assert_failed(&report, ErrorKind::Timeout);
    assert_eq!((receiver.log.connections(), receiver.log.count()), (1, 2));
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one() {
    let courier = courier();
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        let _ = peer
            .write(format!("{OK}HTTP/1.1 500 Smuggled\r\nContent-Length: 0\r\n\r\n"))
            .await;
        peer.closed().await;
    })
    .await;
    assert_status(&send(&courier, target(&receiver.url())).await, 200);
    receiver.log.closed(1).await;
    assert_status(&send(&courier, target(&receiver.url())).await, 200);
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while() {
    let config = CourierConfig {
        idle_timeout: Duration::from_millis(40),
        ..config()
    };
    let courier = HttpCourier::new(config, guard()).unwrap();
    let receiver = Receiver::answering(OK).await;
    assert_status(&send(&courier, target(&receiver.url())).await, 200);
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn open_connections_stay_bounded_over_many_hosts() {
    let bound = 4;
    let config = CourierConfig {
        max_connections: Some(bound),
        ..config()
    };
    let courier = Arc::new(HttpCourier::new(config, guard()).unwrap());
    let open = Arc::new(AtomicUsize::new(0));
    let peak = Arc::new(AtomicUsize::new(0));
    let mut receivers = Vec::new();
    for _ in 0..20 {
        let (open, peak) = (Arc::clone(&open), Arc::clone(&peak));
        let receiver = Receiver::start(move |mut peer| {
            let (open, peak) = (Arc::clone(&open), Arc::clone(&peak));
            async move {
                // Counted from the first request: the courier has closed the connection before it
                // opens another, but this side may hear of it later.
                while peer.request().await.is_some() {
                    peak.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    open.fetch_sub(1, Ordering::SeqCst);
                    let _ = peer.write(OK).await;
                }
            }
        })
        .await;
        receivers.push(receiver);
    }
    let mut sending = tokio::task::JoinSet::new();
    for round in 0..3 {
        for receiver in &receivers {
            let (courier, url) = (Arc::clone(&courier), receiver.url());
            sending.spawn(async move {
                let report = send(&courier, target(&url)).await;
                assert!(courier.open_connections() <= bound);
                (round, report)
            });
        }
    }
    let all = tokio::time::timeout(PATIENCE, sending.join_all()).await.unwrap();
    for (round, report) in all {
        assert!(report.outcome.is_success(), "round {round}: {report:?}");
    }
    assert!(peak.load(Ordering::SeqCst) <= bound);
    assert!(courier.open_connections() <= bound);
}
