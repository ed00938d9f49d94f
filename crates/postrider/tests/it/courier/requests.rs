//! What goes out.

use std::sync::Arc;

use postrider::courier::config::{CourierConfig, HeaderMode};
use postrider::courier::http::HttpCourier;
use postrider::courier::{Courier, Report};
use postrider_core::header::CustomHeaders;
use postrider_core::outcome::ErrorKind;
use postrider_core::secret::Secret;
use postrider_core::signing::{SignedHeaders, Verifier};

use super::rig::{
    NOW, Received, Receiver, SECRET, assert_failed, assert_status, config, courier, guard, parcel, payload,
    send, send_data, target,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn the_whole_request_on_the_wire() {
    let receiver = Receiver::answering(OK).await;
    assert_status(&send(&courier(), target(&receiver.url())).await, 200);
    let request = receiver.log.request(0);
    assert!(
        request.head.starts_with("POST /hook?a=1 HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    assert_eq!(request.body, br#"{"n":1}"#);
    let expected = [
        ("host", receiver.address.to_string()),
        (
            "user-agent",
            concat!("Postrider/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        ("content-type", "application/json".to_owned()),
        ("accept-encoding", "identity".to_owned()),
        ("content-length", "7".to_owned()),
        ("webhook-id", "evt_1".to_owned()),
        ("webhook-timestamp", "1767225600".to_owned()),
        ("webhook-topic", "order.paid".to_owned()),
        ("webhook-attempt", "3".to_owned()),
    ];
    for (name, value) in &expected {
        assert_eq!(request.header(name), Some(value.as_str()), "{name}");
    }
    for name in ["transfer-encoding", "expect", "connection"] {
        assert_eq!(request.header(name), None, "{name}");
    }
    assert_eq!(
        request.head.lines().count(),
        1 + expected.len() + 1 + 1,
        "and the signature: {}",
        request.head
    );
}

#[tokio::test]
async fn the_signature_verifies_over_the_raw_bytes() {
    let courier = courier();
    let receiver = Receiver::answering(OK).await;
    let verifier = Verifier::new(&Secret::new(SECRET)).unwrap();
    for data in [
        r#"{"a":1,"a":2}"#,
        r#"{"n":9007199254740993,"x":1.0,"y":1e2,"z":-0}"#,
        r#"{"s":"\u0000"}"#,
        r#"{"s":"<\/script>\u2028"}"#,
        " {\t\"ключ\" :  \"日本語 📮\"\r\n} ",
    ] {
        assert_status(&send_data(&courier, target(&receiver.url()), data).await, 200);
        let request = receiver.log.requests.lock().pop().unwrap();
        assert_eq!(request.body, data.as_bytes());
        assert_eq!(
            request.header("content-length"),
            Some(data.len().to_string().as_str())
        );
        assert_eq!(request.header("transfer-encoding"), None);
        verify(&verifier, &request);
    }
}

fn verify(verifier: &Verifier, request: &Received) {
    let headers = SignedHeaders {
        id: request.header("webhook-id").unwrap(),
        timestamp: request.header("webhook-timestamp").unwrap(),
        signature: request.header("webhook-signature").unwrap(),
    };
    verifier.verify(headers, &request.body, NOW).unwrap();
}

#[tokio::test]
async fn a_body_of_a_megabyte_arrives_whole() {
    let receiver = Receiver::answering(OK).await;
    let data = "0123456789abcdef".repeat(65_536);
    assert_status(
        &send_data(&courier(), target(&receiver.url()), data.clone()).await,
        200,
    );
    assert_eq!(receiver.log.request(0).body, data.as_bytes());
}

async fn send_with_metadata(courier: &HttpCourier, url: &str, metadata: &[(&str, &str)]) -> Report {
    let mut payload = payload("{}");
    payload.metadata = metadata
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    courier.send(parcel(target(url), payload)).await
}

#[tokio::test]
async fn metadata_becomes_headers_but_never_ours() {
    let receiver = Receiver::answering(OK).await;
    let metadata = [
        ("x-region", "eu"),
        ("webhook-id", "forged"),
        ("host", "forged"),
        ("content-length", "9"),
    ];
    let report = send_with_metadata(&courier(), &receiver.url(), &metadata).await;
    assert_status(&report, 200);
    let request = receiver.log.request(0);
    assert_eq!(request.header("x-region"), Some("eu"));
    assert_eq!(request.header("webhook-id"), Some("evt_1"));
    assert_eq!(
        request.header("host"),
        Some(receiver.address.to_string().as_str())
    );
    assert_eq!(request.header("content-length"), Some("2"));
    assert_eq!(request.head.matches("webhook-id").count(), 1);
}

#[tokio::test]
async fn metadata_is_made_to_fit_or_left_out_and_named() {
    let receiver = Receiver::answering(OK).await;
    let metadata = [
        ("x-a", "b\r\nx-injected: 1"),
        ("bad name", "v"),
        ("transfer-encoding", "chunked"),
    ];
    let report = send_with_metadata(&courier(), &receiver.url(), &metadata).await;
    assert_status(&report, 200);
    let request = receiver.log.request(0);
    assert_eq!(request.header("x-a"), Some("b%0D%0Ax-injected: 1"));
    assert_eq!(request.header("x-injected"), None);
    assert_eq!(request.header("transfer-encoding"), None);
    assert!(report.detail.unwrap().ends_with("left out: transfer-encoding"));
}

#[tokio::test]
async fn what_no_header_can_carry_is_an_invalid_request() {
    let courier = courier();
    let receiver = Receiver::answering(OK).await;
    let mut with_id = payload("{}");
    with_id.event_id = "evt\n1".to_owned();
    let mut with_topic = payload("{}");
    with_topic.topic = "a\0b".to_owned();
    for event in [with_id, with_topic] {
        let report = courier.send(parcel(target(&receiver.url()), event)).await;
        assert_failed(&report, ErrorKind::InvalidRequest);
    }
    assert_eq!(receiver.log.connections(), 0);
}

#[tokio::test]
async fn the_report_shows_the_headers_without_secrets() {
    let receiver = Receiver::answering(OK).await;
    let metadata = [
        ("x-region", "eu"),
        ("authorization", "Bearer canary"),
        ("x-session-token", "canary"),
    ];
    let report = send_with_metadata(&courier(), &receiver.url(), &metadata).await;
    let shown = |name: &str| {
        let (_, value) = report.request_headers.iter().find(|(found, _)| found == name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    assert_eq!(
        receiver.log.request(0).header("authorization"),
        Some("Bearer canary"),
        "sent as it is"
    );
    assert_eq!(shown("authorization").as_deref(), Some("***"));
    assert_eq!(shown("x-session-token").as_deref(), Some("***"));
    assert_eq!(shown("x-region").as_deref(), Some("eu"));
    assert_eq!(shown("webhook-id").as_deref(), Some("evt_1"));
    assert_eq!(
        shown("webhook-signature").as_deref(),
        receiver.log.request(0).header("webhook-signature")
    );
    let sent = receiver.log.request(0).head.lines().count() - 2;
    assert_eq!(
        report.request_headers.len(),
        sent,
        "each header that was sent, once"
    );
}

#[tokio::test]
async fn the_owners_headers_go_out_and_are_shown_masked() {
    let receiver = Receiver::answering(OK).await;
    let mut target = target(&receiver.url());
    target.headers = CustomHeaders::parse(r#"{"Authorization":"Bearer canary","X-Env":"canary"}"#).unwrap();
    let mut event = payload("{}");
    event
        .metadata
        .insert("x-env".to_owned(), "of the event".to_owned());
    let report = courier().send(parcel(target, event)).await;
    assert_status(&report, 200);
    let request = receiver.log.request(0);
    assert_eq!(request.header("authorization"), Some("Bearer canary"));
    assert_eq!(request.header("x-env"), Some("canary"), "the owner's word counts");
    assert!(
        report.detail.unwrap().contains("x-env"),
        "what was left out is named"
    );
    for name in ["authorization", "x-env"] {
        let (_, shown) = report
            .request_headers
            .iter()
            .find(|(found, _)| found == name)
            .unwrap();
        assert_eq!(&shown[..], b"***", "{name}");
    }
}

#[tokio::test]
async fn outpost_mode_has_outposts_names_and_signature() {
    let courier = HttpCourier::new(
        CourierConfig {
            header_mode: HeaderMode::Outpost,
            ..config()
        },
        guard(),
    )
    .unwrap();
    let receiver = Receiver::answering(OK).await;
    let mut target = target(&receiver.url());
    target
        .delivery_metadata
        .insert("source".to_owned(), "billing".to_owned());
    let mut event = payload("{}");
    event.metadata.insert("region".to_owned(), "eu".to_owned());
    assert_status(&courier.send(parcel(target, event)).await, 200);
    let request = receiver.log.request(0);
    // HMAC-SHA256 of `{}` under the secret's text, by `openssl dgst -sha256 -hmac`.
    let expected = [
        ("x-outpost-event-id", "evt_1"),
        ("x-outpost-timestamp", "1767225600"),
        ("x-outpost-topic", "order.paid"),
        ("x-outpost-source", "billing"),
        ("x-outpost-region", "eu"),
        (
            "x-outpost-signature",
            "v0=6cbbcdf2c8016ca85b50543b19e8e121ef16137967bdfa3ce660972922bafaeb",
        ),
    ];
    for (name, value) in expected {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    assert_eq!(request.header("webhook-id"), None);
}

#[tokio::test]
async fn international_names_go_out_in_ascii() {
    let receiver = Receiver::answering(OK).await;
    let resolver = super::addresses::Scripted::new([("xn--bcher-kva.example", vec!["127.0.0.1"])]);
    let courier = HttpCourier::with_resolver(config(), guard(), Arc::clone(&resolver) as _).unwrap();
    let url = format!("http://bücher.example:{}/", receiver.address.port());
    assert_status(&send(&courier, target(&url)).await, 200);
    let host = format!("xn--bcher-kva.example:{}", receiver.address.port());
    assert_eq!(receiver.log.request(0).header("host"), Some(host.as_str()));
}
