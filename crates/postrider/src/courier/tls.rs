//! Whom we trust, and how a failed handshake is explained to somebody who can mend it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, PeerIncompatible,
    RootCertStore, SignatureScheme,
};

use super::config::CourierConfig;

/// A certificate file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("read certificates from {path}")]
pub struct CaFileError {
    path: String,
    source: rustls::pki_types::pem::Error,
}

/// TLS 1.2 and 1.3 with the system's roots and the configured ones, offering HTTP/2 and HTTP/1.1.
pub(super) fn client_config(config: &CourierConfig) -> Result<ClientConfig, CaFileError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "some of the system's root certificates cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    roots.add_parsable_certificates(config.extra_roots.iter().cloned());
    if let Some(path) = &config.ca_file {
        roots.add_parsable_certificates(read_certificates(path)?);
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(ExplainingVerifier::new(roots, Arc::clone(&provider)));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the ring provider supports TLS 1.2 and 1.3");
    let mut client = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(client)
}

/// How many certificates the file has that somebody is to be trusted by.
///
/// # Errors
/// When it cannot be read, or has none.
pub fn count_certificates(path: &Path) -> Result<usize, CaFileError> {
    read_certificates(path).map(|certificates| certificates.len())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CaFileError> {
    let refused = |source| CaFileError {
        path: path.display().to_string(),
        source,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(refused)?
        .collect::<Result<_, _>>()
        .map_err(refused)?;
    if certificates.is_empty() {
        return Err(refused(rustls::pki_types::pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

/// What a failed handshake means to the destination's owner.
pub(super) fn explain(error: &rustls::Error) -> String {
    use rustls::Error as E;
    match error {
        E::InvalidCertificate(certificate) => explain_certificate(certificate),
        E::AlertReceived(AlertDescription::ProtocolVersion)
        | E::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => "the receiver's TLS version is too old: TLS 1.2 or 1.3 is needed".to_owned(),
        E::AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity)
        | E::PeerIncompatible(
            PeerIncompatible::NoCipherSuitesInCommon
            | PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NoSignatureSchemesInCommon,
        ) => "the receiver shares no TLS cipher suite with Postrider".to_owned(),
        E::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the receiver does not know this host name (TLS alert unrecognized_name)".to_owned()
        }
        E::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::AccessDenied,
        ) => "the receiver asks for a client certificate, which Postrider does not send".to_owned(),
        E::AlertReceived(alert) => format!("the receiver broke the TLS handshake off with alert {alert:?}"),
        E::InvalidMessage(_) => "the receiver does not speak TLS on this port".to_owned(),
        other => format!("TLS failed: {other}"),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired => "the certificate has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("the certificate expired on {}", day(*not_after))
        }
        CertificateError::NotValidYet => "the certificate is not valid yet".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("the certificate is not valid before {}", day(*not_before))
        }
        CertificateError::NotValidForName => "the certificate is for another host name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
            format!("the certificate is not for {} but for {names}", expected.to_str())
        }
        CertificateError::UnknownIssuer => {
            "the certificate's issuer is not trusted: the receiver must send its intermediate certificates too, or \
             the issuer must be added to the trusted ones"
                .to_owned()
        }
        CertificateError::Revoked => "the certificate was revoked".to_owned(),
        CertificateError::BadEncoding => "the certificate cannot be read".to_owned(),
        CertificateError::Other(OtherError(cause)) => cause.to_string(),
        other => format!("the certificate is not valid: {other}"),
    }
}

/// An instant of a certificate as its UTC day.
fn day(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let instant = postrider_core::time::Timestamp::from_millis(seconds.saturating_mul(1000));
    instant.to_string().chars().take(10).collect()
}

/// Verifies as webpki does, and says more where its answer is one word for several mistakes.
#[derive(Debug)]
struct ExplainingVerifier {
    /// `None` when this machine trusts nobody.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ExplainingVerifier {
    fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Self {
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .ok();
        Self { webpki, provider }
    }
}

impl ServerCertVerifier for ExplainingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(webpki) = &self.webpki else {
            return Err(Distrust::NoRoots.into());
        };
        let verdict = webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
                if is_self_signed(end_entity) =>
            {
                Err(Distrust::SelfSigned.into())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(certificate).is_ok_and(|parsed| parsed.issuer() == parsed.subject())
}

#[derive(Debug, Clone, Copy)]
enum Distrust {
    SelfSigned,
    NoRoots,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SelfSigned => "the certificate is self-signed, so nobody vouches for it",
            Self::NoRoots => {
                "this machine has no root certificates: install ca-certificates or set a file of trusted ones"
            }
        })
    }
}

impl std::error::Error for Distrust {}

impl From<Distrust> for rustls::Error {
    fn from(distrust: Distrust) -> Self {
        Self::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(distrust))))
    }
}
