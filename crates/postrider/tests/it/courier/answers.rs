//! Answers that break senders: the verdict comes from the status line alone.

use postrider_core::outcome::{ErrorKind, Outcome};
use std::time::Duration;

use super::rig::{Receiver, assert_failed, assert_status, config, courier, guard, hurried, send, target};
use postrider::courier::config::CourierConfig;
use postrider::courier::http::HttpCourier;

#[tokio::test]
async fn every_2xx_is_a_success() {
    let courier = courier();
    for status in [200, 201, 202, 203, 205, 206, 207, 226, 299] {
        let receiver =
            Receiver::answering(format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok")).await;
        let report = send(&courier, target(&receiver.url())).await;
        assert_status(&report, status);
        assert!(report.outcome.is_success(), "{status}");
        assert_eq!(receiver.log.count(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_answer_without_a_body_is_a_success() {
    let courier = courier();
    for head in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
    ] {
        let receiver = Receiver::start(move |mut peer| async move {
            peer.request().await;
            peer.write(head).await.unwrap();
        })
        .await;
        let report = send(&courier, target(&receiver.url())).await;
        assert!(report.outcome.is_success(), "{head}: {report:?}");
        assert_eq!(report.response_body.len(), 0, "{head}");
        assert_eq!(receiver.log.count(), 1, "{head}");
    }
}

#[tokio::test]
async fn redirects_are_never_followed() {
    let elsewhere = Receiver::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let courier = courier();
    for status in [301, 302, 303, 307, 308] {
        let location = elsewhere.url();
        let with = format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let receiver = Receiver::answering(with).await;
        let report = send(&courier, target(&receiver.url())).await;
        let Outcome::Answered(answer) = &report.outcome else {
            panic!("{report:?}")
        };
        assert_eq!(
            (answer.status, answer.location.as_deref()),
            (status, Some(location.as_str()))
        );

        let without = format!("HTTP/1.1 {status} Moved\r\nContent-Length: 0\r\n\r\n");
        let receiver = Receiver::answering(without).await;
        let report = send(&courier, target(&receiver.url())).await;
        let Outcome::Answered(answer) = &report.outcome else {
            panic!("{report:?}")
        };
        assert_eq!((answer.status, &answer.location), (status, &None));
    }
    assert_eq!(
        elsewhere.log.connections(),
        0,
        "the redirect's target sees no connection"
    );
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_limit_and_its_connection_closed() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await
            .unwrap();
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
        while peer.write(&chunk).await.is_ok() {}
    })
    .await;
    let courier = courier();
    let report = send(&courier, target(&receiver.url())).await;
    assert_status(&report, 200);
    assert_eq!(report.response_body.len(), 16 * 1024);
    assert!(report.response_truncated);
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn a_body_of_two_gigabytes_is_not_read() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n")
            .await
            .unwrap();
        let chunk = vec![b'x'; 64 * 1024];
        while peer.write(&chunk).await.is_ok() {}
    })
    .await;
    let report = send(&courier(), target(&receiver.url())).await;
    assert_status(&report, 200);
    assert_eq!(report.response_body.len(), 16 * 1024);
    assert!(report.response_truncated);
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn only_a_body_beyond_the_limit_is_truncated() {
    let limit = 1000;
    let courier = HttpCourier::new(
        CourierConfig {
            max_captured_body_bytes: limit,
            ..config()
        },
        guard(),
    )
    .unwrap();
    for (size, truncated) in [
        (0, false),
        (999, false),
        (1000, false),
        (1001, true),
        (50_000, true),
    ] {
        let body = "b".repeat(size);
        let plain = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{body}");
        let chunked = if size == 0 {
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned()
        } else {
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n")
        };
        for answer in [plain, chunked] {
            let receiver = Receiver::answering(answer).await;
            let report = send(&courier, target(&receiver.url())).await;
            assert_status(&report, 200);
            assert_eq!(report.response_body.len(), size.min(limit), "{size}");
            assert_eq!(report.response_truncated, truncated, "{size}");
        }
    }
}

#[tokio::test]
async fn a_small_rest_beyond_the_limit_does_not_cost_the_connection() {
    let courier = HttpCourier::new(
        CourierConfig {
            max_captured_body_bytes: 10,
            ..config()
        },
        guard(),
    )
    .unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n{}",
        "b".repeat(30_000)
    );
    let receiver = Receiver::answering(answer).await;
    for _ in 0..3 {
        let report = send(&courier, target(&receiver.url())).await;
        assert_eq!(&report.response_body[..], b"bbbbbbbbbb");
        assert!(report.response_truncated);
    }
    assert_eq!(receiver.log.connections(), 1);
}

#[tokio::test]
async fn any_bytes_are_kept_as_they_are() {
    let courier = HttpCourier::new(
        CourierConfig {
            max_captured_body_bytes: 6,
            ..config()
        },
        guard(),
    )
    .unwrap();
    // The third ends with a four-byte character of which the limit leaves two bytes.
    for (body, kept) in [
        (&b"\xff\xfe\x80"[..], &b"\xff\xfe\x80"[..]),
        (b"a\0b", b"a\0b"),
        (b"abcd\xf0\x9f\x93\xae", b"abcd\xf0\x9f"),
    ] {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(body);
        let receiver = Receiver::answering(answer).await;
        let report = send(&courier, target(&receiver.url())).await;
        assert_status(&report, 200);
        assert_eq!(&report.response_body[..], kept);
    }
}

#[tokio::test]
async fn header_values_may_be_latin_1() {
    let receiver =
        Receiver::answering(&b"HTTP/1.1 200 OK\r\nX-Msg: caf\xe9\r\nContent-Length: 0\r\n\r\n"[..]).await;
    let report = send(&courier(), target(&receiver.url())).await;
    assert_status(&report, 200);
    let (_, value) = report
        .response_headers
        .iter()
        .find(|(name, _)| name == "x-msg")
        .unwrap();
    assert_eq!(&value[..], b"caf\xe9");
}

#[tokio::test]
async fn kept_headers_are_bounded() {
    let mut answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-First: 1\r\n".to_owned();
    for n in 0..150 {
        answer.push_str(&format!("X-Filler-{n}: {}\r\n", "v".repeat(200)));
    }
    answer.push_str("\r\n");
    let receiver = Receiver::answering(answer).await;
    let report = send(&courier(), target(&receiver.url())).await;
    assert_status(&report, 200);
    let bytes: usize = report
        .response_headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    assert!(bytes <= 8 * 1024, "{bytes}");
    assert!(report.response_headers.iter().any(|(name, _)| name == "x-first"));
}

#[tokio::test]
async fn an_endless_head_is_a_protocol_error() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\nX-Big: ").await.unwrap();
        while peer.write([b'v'; 4096]).await.is_ok() {}
    })
    .await;
    assert_failed(
        &send(&courier(), target(&receiver.url())).await,
        ErrorKind::Protocol,
    );
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn a_body_that_drips_is_a_success_and_frees_its_slot_at_the_deadline() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        peer.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
            .await
            .unwrap();
        peer.closed().await;
    })
    .await;
    let courier = courier();
    let report = send(&courier, hurried(target(&receiver.url()))).await;
    assert_status(&report, 200);
    assert_eq!(&report.response_body[..], b"x");
    assert!(report.detail.unwrap().contains("did not end"));
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn a_body_is_not_decoded() {
    let receiver = Receiver::answering(
        &b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 7\r\n\r\n\x1f\x8bbroken"[..7 + 62],
    )
    .await;
    let report = send(&courier(), target(&receiver.url())).await;
    assert_status(&report, 200);
    assert_eq!(receiver.log.count(), 1);
    assert_eq!(&report.response_body[..2], b"\x1f\x8b");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_success() {
    let courier = courier();
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf",
    ] {
        let receiver = Receiver::start(move |mut peer| async move {
            peer.request().await;
            peer.write(answer).await.unwrap();
        })
        .await;
        let report = send(&courier, target(&receiver.url())).await;
        assert_status(&report, 200);
        assert!(report.detail.unwrap().contains("broke off"), "{answer}");
        assert_eq!(receiver.log.count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn informational_answers_are_passed_over() {
    let mut answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n".to_owned();
    for _ in 0..50 {
        answer.push_str("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    }
    answer.push_str("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let receiver = Receiver::answering(answer).await;
    assert_status(&send(&courier(), target(&receiver.url())).await, 200);
}

#[tokio::test]
async fn endless_informational_answers_end_at_the_deadline() {
    let receiver = Receiver::start(|mut peer| async move {
        peer.request().await;
        while peer.write("HTTP/1.1 103 Early Hints\r\n\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let report = send(&courier(), hurried(target(&receiver.url()))).await;
    assert_failed(&report, ErrorKind::Timeout);
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn switching_protocols_is_no_answer() {
    let receiver =
        Receiver::writing_once("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n").await;
    assert_failed(
        &send(&courier(), target(&receiver.url())).await,
        ErrorKind::Protocol,
    );
}

#[tokio::test]
async fn what_is_not_http_is_a_protocol_error() {
    let courier = courier();
    for answer in [
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "HTTP/1.1 99 Low\r\n\r\n",
        "HTTP/1.1 1000 High\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nBad Header\r\n\r\n",
    ] {
        let receiver = Receiver::writing_once(answer).await;
        assert_failed(
            &send(&courier, target(&receiver.url())).await,
            ErrorKind::Protocol,
        );
        assert_eq!(receiver.log.count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn no_answer_is_a_timeout_that_closes_the_connection() {
    let receiver = Receiver::writing_once("").await;
    let report = send(&courier(), hurried(target(&receiver.url()))).await;
    assert_failed(&report, ErrorKind::Timeout);
    assert!(report.detail.unwrap().contains("waiting for an answer"));
    receiver.log.closed(1).await;
}

#[tokio::test]
async fn retry_after_is_measured_against_the_answers_own_date() {
    // The receiver's clock is an hour ahead of 2026-01-01T00:00:00Z.
    let receiver = Receiver::answering(
        "HTTP/1.1 429 Slow Down\r\nDate: Thu, 01 Jan 2026 01:00:00 GMT\r\n\
         Retry-After: Thu, 01 Jan 2026 01:00:45 GMT\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let report = send(&courier(), target(&receiver.url())).await;
    let Outcome::Answered(answer) = report.outcome else {
        panic!("{report:?}")
    };
    assert_eq!(
        (answer.status, answer.retry_after),
        (429, Some(Duration::from_secs(45)))
    );
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_told() {
    let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: 0\r\n\r\n");
    let table = [
        (r#"RateLimit: "default";r=0;t=30"#, Some(Duration::from_secs(30))),
        (
            "RateLimit-Remaining: 0\r\nRateLimit-Reset: 7",
            Some(Duration::from_secs(7)),
        ),
        ("x-ratelimit-remaining: 0\r\nX-RateLimit-Reset: 1767225600", None),
        (r#"RateLimit: "default";r=1;t=30"#, None),
    ];
    for (fields, right) in table {
        let receiver = Receiver::answering(head(fields)).await;
        let report = send(&courier(), target(&receiver.url())).await;
        let Outcome::Answered(answer) = report.outcome else {
            panic!("{report:?}")
        };
        assert_eq!((answer.status, answer.used_up), (200, right), "{fields}");
    }
}
