//! TLS: what is trusted, and how a failure reads to somebody who can mend it.

use std::sync::Arc;

use postrider::courier::Report;
use postrider::courier::config::CourierConfig;
use postrider::courier::http::HttpCourier;
use postrider_core::outcome::ErrorKind;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::addresses::Scripted;
use super::rig::{Peer, Receiver, assert_failed, assert_status, config, guard, send, target};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const NAME: &str = "hook.example";

/// A certificate authority of the test's own.
pub(super) struct Authority {
    pub(super) certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn root() -> Self {
        let (params, key) = Self::params();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    fn intermediate(&self) -> Self {
        let (mut params, key) = Self::params();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "Intermediate");
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    fn params() -> (CertificateParams, KeyPair) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Root");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params, KeyPair::generate().unwrap())
    }

    /// A server's configuration with a certificate from this authority.
    pub(super) fn server(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        server_config(vec![certificate], &key)
    }
}

fn server_config(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> ServerConfig {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// Answers requests over TLS.
async fn serving(server: ServerConfig) -> Receiver {
    let acceptor = TlsAcceptor::from(Arc::new(server));
    Receiver::start(move |peer| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(peer.stream).await else {
                return;
            };
            let mut peer = Peer::new(stream, peer.log, peer.index);
            while peer.request().await.is_some() {
                let _ = peer.write(OK).await;
            }
        }
    })
    .await
}

pub(super) fn trusting(authority: &Authority) -> HttpCourier {
    let config = CourierConfig {
        extra_roots: vec![authority.certificate.clone()],
        ..config()
    };
    let names = [(NAME, vec!["127.0.0.1"])];
    HttpCourier::with_resolver(config, guard(), Scripted::new(names)).unwrap()
}

async fn send_over_tls(courier: &HttpCourier, receiver: &Receiver) -> Report {
    send(
        courier,
        target(&format!("https://{NAME}:{}/", receiver.address.port())),
    )
    .await
}

#[tokio::test]
async fn a_trusted_certificate_works_and_the_connection_is_reused() {
    let authority = Authority::root();
    let receiver = serving(authority.server(NAME, |_| {})).await;
    let courier = trusting(&authority);
    let first = send_over_tls(&courier, &receiver).await;
    assert_status(&first, 200);
    assert!(first.timings.tls.is_some());
    assert_status(&send_over_tls(&courier, &receiver).await, 200);
    assert_eq!((receiver.log.connections(), receiver.log.count()), (1, 2));
}

#[tokio::test]
async fn an_international_name_is_in_ascii_for_dns_and_sni() {
    let authority = Authority::root();
    let receiver = serving(authority.server("xn--bcher-kva.example", |_| {})).await;
    let trusting = CourierConfig {
        extra_roots: vec![authority.certificate.clone()],
        ..config()
    };
    let names = [("xn--bcher-kva.example", vec!["127.0.0.1"])];
    let courier = HttpCourier::with_resolver(trusting, guard(), Scripted::new(names)).unwrap();
    let url = format!("https://bücher.example:{}/", receiver.address.port());
    assert_status(&send(&courier, target(&url)).await, 200);
}

#[tokio::test]
async fn trust_can_come_from_a_file() {
    let authority = Authority::root();
    let receiver = serving(authority.server(NAME, |_| {})).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    let pem = {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(&authority.certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    std::fs::write(&path, pem).unwrap();
    let with_file = CourierConfig {
        ca_file: Some(path.clone()),
        ..config()
    };
    let names = [(NAME, vec!["127.0.0.1"])];
    let courier = HttpCourier::with_resolver(with_file, guard(), Scripted::new(names)).unwrap();
    assert_status(&send_over_tls(&courier, &receiver).await, 200);

    std::fs::write(&path, "no certificate in here").unwrap();
    let refused = HttpCourier::new(
        CourierConfig {
            ca_file: Some(path),
            ..config()
        },
        guard(),
    );
    assert!(refused.map(|_| ()).unwrap_err().to_string().contains("ca.pem"));
}

/// The details of the six usual mistakes.
#[tokio::test]
async fn six_mistakes_read_differently() {
    let authority = Authority::root();
    let courier = trusting(&authority);
    let mut details = Vec::new();

    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec![NAME.to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let self_signed = serving(server_config(vec![own.der().clone()], &key)).await;
    let expired = serving(authority.server(NAME, |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 2, 3);
    }))
    .await;
    let wrong_name = serving(authority.server("other.example", |_| {})).await;
    let missing_intermediate = serving(authority.intermediate().server(NAME, |_| {})).await;
    // Alerts protocol_version (70) and handshake_failure (40) of RFC 8446 §6, from servers that stop there.
    let old_tls = alerting([0x15, 3, 1, 0, 2, 2, 70]).await;
    let no_cipher = alerting([0x15, 3, 3, 0, 2, 2, 40]).await;

    for (receiver, words) in [
        (&self_signed, "self-signed"),
        (&expired, "expired on 2021-02-03"),
        (&wrong_name, "not for hook.example but for"),
        (&missing_intermediate, "intermediate"),
        (&old_tls, "TLS version is too old"),
        (&no_cipher, "no TLS cipher suite"),
    ] {
        let report = send_over_tls(&courier, receiver).await;
        assert_failed(&report, ErrorKind::Tls);
        let detail = report.detail.unwrap();
        assert!(detail.contains(words), "{detail}");
        details.push(detail);
    }
    details.sort();
    details.dedup();
    assert_eq!(details.len(), 6);
}

async fn alerting(alert: [u8; 7]) -> Receiver {
    Receiver::start(move |mut peer| async move {
        // The first record's header announces the length of the ClientHello.
        use tokio::io::AsyncReadExt;
        let mut header = [0_u8; 5];
        peer.stream.read_exact(&mut header).await.unwrap();
        let mut hello = vec![0_u8; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        peer.stream.read_exact(&mut hello).await.unwrap();
        let _ = peer.write(alert).await;
        peer.closed().await;
    })
    .await
}

#[tokio::test]
async fn a_server_without_tls_is_a_tls_failure() {
    let receiver = Receiver::start(|mut peer| async move {
        let _ = peer.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        peer.closed().await;
    })
    .await;
    let report = send_over_tls(&trusting(&Authority::root()), &receiver).await;
    assert_failed(&report, ErrorKind::Tls);
    assert!(report.detail.unwrap().contains("does not speak TLS"));
}

#[tokio::test]
async fn a_handshake_that_is_cut_or_hangs() {
    let authority = Authority::root();
    let closing = Receiver::start(|_peer| async {}).await;
    assert_failed(
        &send_over_tls(&trusting(&authority), &closing).await,
        ErrorKind::Tls,
    );

    let hanging = Receiver::start(|mut peer| async move { peer.closed().await }).await;
    let config = CourierConfig {
        connect_timeout: std::time::Duration::from_millis(150),
        ..config()
    };
    let courier =
        HttpCourier::with_resolver(config, guard(), Scripted::new([(NAME, vec!["127.0.0.1"])])).unwrap();
    assert_failed(
        &send_over_tls(&courier, &hanging).await,
        ErrorKind::ConnectTimeout,
    );
}
