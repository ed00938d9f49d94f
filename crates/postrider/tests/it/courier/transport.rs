//! Connections that end at every possible moment. All of it is retryable; each has its kind.

use std::sync::Arc;
use std::time::Duration;

use postrider::courier::Courier;
use postrider_core::outcome::ErrorKind;
use tokio::net::{TcpListener, TcpSocket};

use super::rig::{Receiver, assert_failed, assert_status, courier, parcel, payload, send, send_data, target};

#[tokio::test]
async fn a_closed_port_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert_failed(
        &send(&courier(), target(&format!("http://{address}/"))).await,
        ErrorKind::ConnectRefused,
    );
}

#[tokio::test]
async fn reset_right_after_connect() {
    let receiver = Receiver::start(|peer| async move { peer.reset() }).await;
    assert_failed(
        &send(&courier(), target(&receiver.url())).await,
        ErrorKind::ConnectionReset,
    );
}

#[tokio::test]
async fn reset_after_the_request_head() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.head().await;
        peer.reset();
    })
    .await;
    let report = send_data(&courier(), target(&receiver.url()), vec![b'x'; 8_000_000]).await;
    assert_failed(&report, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn reset_after_the_full_request() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.reset();
    })
    .await;
    let report = send(&courier(), target(&receiver.url())).await;
    assert_failed(&report, ErrorKind::ConnectionReset);
    assert!(report.detail.unwrap().contains("before an answer"));
    assert_eq!(
        receiver.log.count(),
        1,
        "a new connection's death is not repeated"
    );
}

#[tokio::test]
async fn reset_in_the_middle_of_the_answers_head() {
    let (seen, wait) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let (script_seen, script_wait) = (Arc::clone(&seen), Arc::clone(&wait));
    let receiver = Receiver::start(move |mut peer| {
        let (seen, wait) = (Arc::clone(&script_seen), Arc::clone(&script_wait));
        async move {
            peer.request().await;
            peer.write("HTTP/1.1 200 OK\r\nContent-").await.unwrap();
            seen.notify_one();
            wait.notified().await;
            peer.reset();
        }
    })
    .await;
    let courier = courier();
    let sending = send(&courier, target(&receiver.url()));
    let resetting = async {
        seen.notified().await;
        wait.notify_one();
    };
    let (report, ()) = tokio::join!(sending, resetting);
    assert_failed(&report, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn closed_before_and_in_the_middle_of_the_answer() {
    let courier = courier();
    for (answer, detail) in [
        ("", "before an answer"),
        ("HTTP/1.1 200 OK\r\nContent-", "in the middle"),
    ] {
        let receiver = Receiver::start(move |mut peer| async move {
            peer.request().await;
            peer.write(answer).await.unwrap();
        })
        .await;
        let report = send(&courier, target(&receiver.url())).await;
        assert_failed(&report, ErrorKind::ConnectionClosed);
        assert!(
            report.detail.as_ref().unwrap().contains(detail),
            "{:?}",
            report.detail
        );
        assert_eq!(receiver.log.count(), 1);
    }
}

#[tokio::test]
async fn reset_in_the_middle_of_the_body_keeps_the_verdict() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
            .await
            .unwrap();
        peer.reset();
    })
    .await;
    let report = send(&courier(), target(&receiver.url())).await;
    // The reset may overtake the head in the kernel; then there was no status to judge by.
    if report.outcome.code().is_some() {
        assert_status(&report, 200);
        assert!(report.detail.unwrap().contains("broke off"));
    } else {
        assert_failed(&report, ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn an_early_answer_counts_although_the_body_was_not_read() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.head().await;
        peer.write("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        peer.closed().await;
    })
    .await;
    let report = send_data(&courier(), target(&receiver.url()), vec![b'x'; 8_000_000]).await;
    assert_status(&report, 413);
}

#[tokio::test]
async fn giving_a_request_up_closes_its_connection() {
    let (arrived, waiting) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let script_arrived = Arc::clone(&arrived);
    let receiver = Receiver::start(move |mut peer| {
        let arrived = Arc::clone(&script_arrived);
        async move {
            peer.request().await;
            arrived.notify_one();
            peer.closed().await;
        }
    })
    .await;
    drop(waiting);
    let courier = courier();
    {
        let sending = courier.send(parcel(target(&receiver.url()), payload("{}")));
        tokio::select! {
            report = sending => panic!("{report:?}"),
            () = arrived.notified() => {}
        }
    }
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn a_full_queue_of_local_ports_or_sockets_is_not_the_receivers_fault() {
    // A courier that may open one connection, and that one is busy.
    let receiver = Receiver::writing_once("").await;
    let config = postrider::courier::config::CourierConfig {
        max_connections: Some(1),
        connect_timeout: Duration::from_millis(100),
        ..super::rig::config()
    };
    let courier = postrider::courier::http::HttpCourier::new(config, super::rig::guard()).unwrap();
    let hanging = courier.send(parcel(
        super::rig::hurried(target(&receiver.url())),
        payload("{}"),
    ));
    let other = TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let second = send(
        &courier,
        target(&format!("http://{}/", other.local_addr().unwrap())),
    );
    let (first, second) = tokio::join!(hanging, second);
    assert_failed(&first, ErrorKind::Timeout);
    assert_failed(&second, ErrorKind::LocalResources);
    assert!(!ErrorKind::LocalResources.blames_receiver());
}
