//! Which addresses are dialled, and which never.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use postrider::courier::config::CourierConfig;
use postrider::courier::http::HttpCourier;
use postrider::courier::resolve::Resolve;
use postrider_core::guard::Guard;
use postrider_core::outcome::ErrorKind;
use tokio::net::{TcpSocket, TcpStream};

use super::rig::{Receiver, assert_failed, assert_status, config, guard, send, target, target_under};

const OK: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// A resolver whose answers are given: one list after the other, the last one again and again.
pub(super) struct Scripted {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(super) asked: AtomicUsize,
}

impl Scripted {
    pub(super) fn new<const N: usize>(names: [(&str, Vec<&str>); N]) -> Arc<Self> {
        let scripted = Self {
            answers: Mutex::default(),
            asked: AtomicUsize::new(0),
        };
        for (name, addresses) in names {
            let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
            scripted
                .answers
                .lock()
                .entry(name.to_owned())
                .or_default()
                .push(addresses);
        }
        Arc::new(scripted)
    }
}

#[async_trait]
impl Resolve for Scripted {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock();
        let left = answers
            .get_mut(host)
            .ok_or_else(|| io::Error::other("no such name"))?;
        Ok(if left.len() > 1 {
            left.remove(0)
        } else {
            left[0].clone()
        })
    }
}

/// A guard under which 127.0.0.2 stands for the public internet, and every other loopback address is refused.
fn strict() -> Guard {
    Guard::new("127.0.0.2", true).unwrap()
}

fn uncached() -> CourierConfig {
    CourierConfig {
        dns_cache: Duration::ZERO,
        ..config()
    }
}

/// The same port on a permitted and on a refused address.
async fn good_and_bad() -> (Receiver, Receiver) {
    let good = answering_at("127.0.0.2:0").await;
    let bad = answering_at(&format!("127.0.0.1:{}", good.address.port())).await;
    (good, bad)
}

async fn answering_at(address: &str) -> Receiver {
    Receiver::listen(address.parse().unwrap(), |mut peer| async move {
        while peer.request().await.is_some() {
            let _ = peer.write(OK).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_name_that_changes_its_mind_does_not_reach_loopback() {
    let (good, bad) = good_and_bad().await;
    let names = [
        ("hook.example", vec!["127.0.0.2"]),
        ("hook.example", vec!["127.0.0.1"]),
    ];
    let courier = HttpCourier::with_resolver(uncached(), strict(), Scripted::new(names)).unwrap();
    let url = format!("http://hook.example:{}/", good.address.port());
    assert_status(&send(&courier, target(&url)).await, 200);
    let report = send(&courier, target(&url)).await;
    assert_failed(&report, ErrorKind::BlockedAddress);
    assert!(report.detail.unwrap().contains("127.0.0.1"));
    assert_eq!((good.log.connections(), bad.log.connections()), (1, 0));
}

#[tokio::test]
async fn of_a_good_and_a_bad_address_the_good_one_is_used() {
    let (good, bad) = good_and_bad().await;
    let names = [("hook.example", vec!["127.0.0.1", "::1", "10.0.0.1", "127.0.0.2"])];
    let courier = HttpCourier::with_resolver(uncached(), strict(), Scripted::new(names)).unwrap();
    let report = send(
        &courier,
        target(&format!("http://hook.example:{}/", good.address.port())),
    )
    .await;
    assert_status(&report, 200);
    assert!(report.timings.dns.is_some() && report.timings.connect.is_some());
    assert_eq!((good.log.connections(), bad.log.connections()), (1, 0));
}

#[tokio::test]
async fn a_literal_address_is_checked_when_it_is_dialled() {
    let (_, bad) = good_and_bad().await;
    let courier = HttpCourier::new(config(), strict()).unwrap();
    // Compiled when the rules were laxer than the courier's.
    let report = send(
        &courier,
        target(&format!("http://127.0.0.1:{}/", bad.address.port())),
    )
    .await;
    assert_failed(&report, ErrorKind::BlockedAddress);
    let report = send(
        &courier,
        target(&format!("http://127.0.0.2:{}/", bad.address.port())),
    )
    .await;
    assert_status(&report, 200);
    assert_eq!(bad.log.connections(), 0);
}

#[tokio::test]
async fn a_destination_saved_under_laxer_rules_is_blocked() {
    let courier = HttpCourier::new(config(), strict()).unwrap();
    let report = send(&courier, target_under(&strict(), "http://127.0.0.1/")).await;
    assert_failed(&report, ErrorKind::BlockedAddress);
}

#[tokio::test]
async fn a_name_without_an_answer_is_a_dns_failure() {
    let names = [("empty.example", vec![])];
    let courier = HttpCourier::with_resolver(config(), guard(), Scripted::new(names)).unwrap();
    for url in ["http://unknown.example/", "http://empty.example/"] {
        assert_failed(&send(&courier, target(url)).await, ErrorKind::Dns);
    }
}

struct Silent;

#[async_trait]
impl Resolve for Silent {
    async fn resolve(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_silent_name_server_is_a_dns_failure_within_the_connect_timeout() {
    let config = CourierConfig {
        connect_timeout: Duration::from_millis(100),
        ..config()
    };
    let courier = HttpCourier::with_resolver(config, guard(), Arc::new(Silent)).unwrap();
    assert_failed(
        &send(&courier, target("http://silent.example/")).await,
        ErrorKind::Dns,
    );
}

#[tokio::test]
async fn deliveries_to_the_same_name_share_a_lookup() {
    let receiver = answering_at("127.0.0.1:0").await;
    let resolver = Scripted::new([("hook.example", vec!["127.0.0.1"])]);
    let courier = HttpCourier::with_resolver(config(), guard(), Arc::clone(&resolver) as _).unwrap();
    let url = format!("http://hook.example:{}/", receiver.address.port());
    let reports = futures_util::future::join_all((0..8).map(|_| send(&courier, target(&url)))).await;
    assert!(reports.iter().all(|report| report.outcome.is_success()));
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
}

/// A listener whose queue is full: it answers no further connection attempt.
async fn black_hole(address: SocketAddr) -> (tokio::net::TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    for _ in 0..2 {
        queued.push(TcpStream::connect(address).await.unwrap());
    }
    (listener, queued)
}

#[tokio::test]
async fn a_black_hole_costs_the_connect_timeout() {
    let (listener, _queued) = black_hole("127.0.0.1:0".parse().unwrap()).await;
    let config = CourierConfig {
        connect_timeout: Duration::from_millis(200),
        ..config()
    };
    let courier = HttpCourier::new(config, guard()).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let other = answering_at("127.0.0.1:0").await;
    let (report, beside) = tokio::join!(send(&courier, target(&url)), send(&courier, target(&other.url())));
    assert_failed(&report, ErrorKind::ConnectTimeout);
    assert_status(&beside, 200);
    assert!(
        report.timings.total < Duration::from_secs(10),
        "long before the request's timeout"
    );
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_is_a_black_hole_or_closed() {
    let good = answering_at("127.0.0.2:0").await;
    let port = good.address.port();
    let (_listener, _queued) = black_hole(SocketAddr::new("127.0.0.3".parse().unwrap(), port)).await;
    // 127.0.0.4 refuses, 127.0.0.3 is silent.
    let names = [("hook.example", vec!["127.0.0.4", "127.0.0.3", "127.0.0.2"])];
    let config = CourierConfig {
        connect_timeout: Duration::from_millis(900),
        ..config()
    };
    let courier = HttpCourier::with_resolver(config, guard(), Scripted::new(names)).unwrap();
    assert_status(
        &send(&courier, target(&format!("http://hook.example:{port}/"))).await,
        200,
    );
}
