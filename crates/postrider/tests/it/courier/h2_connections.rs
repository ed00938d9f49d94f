//! HTTP/2: chosen by ALPN, shared by all requests to a host, and honest about what was processed.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use postrider_core::outcome::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::rig::{Received, Receiver, assert_failed, assert_status, send, target};
use super::tls_handshakes::{Authority, trusting};

const HEADERS: u8 = 1;

fn url(receiver: &Receiver) -> String {
    format!("https://hook.example:{}/hook", receiver.address.port())
}

/// Serves HTTP/2 over TLS by a script for each connection.
async fn start<F, Fut>(authority: &Authority, script: F) -> Receiver
where
    F: Fn(usize, TlsStream<TcpStream>, Arc<super::rig::Log>) -> Fut + Send + Sync + Clone + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut server = authority.server("hook.example", |_| {});
    server.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(server));
    Receiver::start(move |peer| {
        let (acceptor, script) = (acceptor.clone(), script.clone());
        async move {
            let stream = acceptor.accept(peer.stream).await.unwrap();
            script(peer.index, stream, peer.log).await;
        }
    })
    .await
}

/// Answers every stream of a connection with 200, and logs what came.
async fn answer_all(stream: TlsStream<TcpStream>, log: Arc<super::rig::Log>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let log = Arc::clone(&log);
        tokio::spawn(async move {
            let (head, mut body) = request.into_parts();
            let mut received = Received {
                head: format!("{head:?}"),
                body: Vec::new(),
            };
            while let Some(Ok(data)) = body.data().await {
                received.body.extend_from_slice(&data);
                let _ = body.flow_control().release_capacity(data.len());
            }
            log.requests.lock().push(received);
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            let _ = stream.send_data(Bytes::from_static(b"ok"), true);
        });
    }
}

#[tokio::test]
async fn requests_share_one_connection() {
    let authority = Authority::root();
    let receiver = start(&authority, |_, stream, log| answer_all(stream, log)).await;
    let courier = trusting(&authority);
    assert_status(&send(&courier, target(&url(&receiver))).await, 200);
    let reports =
        futures_util::future::join_all((0..20).map(|_| send(&courier, target(&url(&receiver))))).await;
    for report in &reports {
        assert_status(report, 200);
        assert_eq!(&report.response_body[..], b"ok");
    }
    assert_eq!((receiver.log.connections(), receiver.log.count()), (1, 21));
    let request = receiver.log.request(0);
    assert_eq!(request.body, br#"{"n":1}"#);
    for part in [
        "POST",
        "https://hook.example",
        "/hook",
        "\"content-length\": \"7\"",
        "webhook-signature",
    ] {
        assert!(request.head.contains(part), "{part} in {}", request.head);
    }
    assert!(!request.head.contains("\"host\""));
}

/// A GOAWAY frame (RFC 9113 §6.8) with code NO_ERROR.
fn goaway(last_stream: u8) -> [u8; 17] {
    let mut frame = [0_u8; 17];
    frame[2] = 8;
    frame[3] = 7;
    frame[12] = last_stream;
    frame
}

/// Waits for a request's HEADERS, sends GOAWAY, and closes.
async fn go_away(mut stream: TlsStream<TcpStream>, log: Arc<super::rig::Log>, last_stream: u8) {
    let empty_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(&empty_settings).await.unwrap();
    let mut preface = [0_u8; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut frame = [0_u8; 9];
        stream.read_exact(&mut frame).await.unwrap();
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let mut content = vec![0_u8; length as usize];
        stream.read_exact(&mut content).await.unwrap();
        if frame[3] == HEADERS {
            break;
        }
    }
    log.requests.lock().push(Received {
        head: "HEADERS".to_owned(),
        body: Vec::new(),
    });
    stream.write_all(&goaway(last_stream)).await.unwrap();
    let _ = stream.shutdown().await;
}

#[tokio::test]
async fn goaway_that_includes_our_stream_is_not_sent_again() {
    let authority = Authority::root();
    let receiver = start(&authority, |_, stream, log| go_away(stream, log, 1)).await;
    let report = send(&trusting(&authority), target(&url(&receiver))).await;
    assert_failed(&report, ErrorKind::ConnectionClosed);
    assert_eq!((receiver.log.connections(), receiver.log.count()), (1, 1));
}

#[tokio::test]
async fn goaway_below_our_stream_is_sent_again_on_a_new_connection() {
    let authority = Authority::root();
    let receiver = start(&authority, |index, stream, log| async move {
        if index == 0 {
            go_away(stream, log, 0).await;
        } else {
            answer_all(stream, log).await;
        }
    })
    .await;
    let report = send(&trusting(&authority), target(&url(&receiver))).await;
    assert_status(&report, 200);
    assert_eq!((receiver.log.connections(), receiver.log.count()), (2, 2));
}

#[tokio::test]
async fn a_shared_connection_that_dies_unanswered_is_replaced() {
    let authority = Authority::root();
    let receiver = start(&authority, |index, stream, log| async move {
        if index > 0 {
            return answer_all(stream, log).await;
        }
        // Answers one request, then closes as soon as the next one's first bytes come.
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (_request, mut respond) = connection.accept().await.unwrap().unwrap();
        respond.send_response(Response::new(()), true).unwrap();
        let _ = connection.accept().await;
    })
    .await;
    let courier = trusting(&authority);
    assert_status(&send(&courier, target(&url(&receiver))).await, 200);
    assert_status(&send(&courier, target(&url(&receiver))).await, 200);
    assert_eq!(receiver.log.connections(), 2);
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_and_a_reset_one_is_not() {
    for (reason, status) in [
        (h2::Reason::REFUSED_STREAM, Some(200)),
        (h2::Reason::INTERNAL_ERROR, None),
    ] {
        let authority = Authority::root();
        let receiver = start(&authority, move |index, stream, log| async move {
            if index > 0 {
                return answer_all(stream, log).await;
            }
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_request, mut respond))) = connection.accept().await {
                respond.send_reset(reason);
            }
        })
        .await;
        let report = send(&trusting(&authority), target(&url(&receiver))).await;
        match status {
            Some(status) => assert_status(&report, status),
            None => assert_failed(&report, ErrorKind::ConnectionReset),
        }
    }
}
