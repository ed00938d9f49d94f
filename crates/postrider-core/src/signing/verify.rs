//! The receiver's side of a signature: for the test receiver, and to prove that what is sent verifies.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::signature::{ED25519, KeyPair, UnparsedPublicKey};
use subtle::ConstantTimeEq as _;

use super::Content;
use super::key::{self, InvalidSecret, PUBLIC_KEY_PREFIX, SECRET_KEY_PREFIX};
use crate::secret::Secret;
use crate::time::Timestamp;

/// How far `webhook-timestamp` may be from the receiver's clock, either way, as in the published libraries.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// More signatures than this in one header are not looked at.
const MAX_SIGNATURES: usize = 32;

/// The three headers, as received.
#[derive(Debug, Clone, Copy)]
pub struct SignedHeaders<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`: whole seconds since the epoch, in digits.
    pub timestamp: &'a str,
    /// `webhook-signature`: one or more signatures separated by spaces.
    pub signature: &'a str,
}

/// Why a request cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// `webhook-timestamp` is no number of seconds.
    #[error("webhook-timestamp is not a number of seconds")]
    Timestamp,
    /// Older than [`TOLERANCE`].
    #[error("webhook-timestamp is more than 5 minutes old")]
    TooOld,
    /// Newer than [`TOLERANCE`].
    #[error("webhook-timestamp is more than 5 minutes in the future")]
    TooNew,
    /// None of the signatures fits secret, id, timestamp and body.
    #[error("no signature fits")]
    Signature,
}

/// Checks signatures with one secret.
#[derive(Clone)]
pub struct Verifier(Kind);

#[derive(Clone)]
enum Kind {
    Symmetric(hmac::Key),
    Ed25519(Vec<u8>),
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier(***)")
    }
}

impl Verifier {
    /// From any secret that signs, or from a `whpk_` public key.
    ///
    /// # Errors
    /// As for [`super::Keyring::new`].
    pub fn new(secret: &Secret) -> Result<Self, InvalidSecret> {
        let text = secret.expose();
        let kind = if let Some(encoded) = text.strip_prefix(PUBLIC_KEY_PREFIX) {
            match STANDARD.decode(encoded) {
                Ok(public) if public.len() == 32 => Kind::Ed25519(public),
                _ => return Err(InvalidSecret("must be whpk_ and the base64 of 32 bytes".into())),
            }
        } else if let Some(encoded) = text.strip_prefix(SECRET_KEY_PREFIX) {
            Kind::Ed25519(key::key_pair(encoded)?.public_key().as_ref().to_vec())
        } else {
            Kind::Symmetric(key::symmetric_key(text)?)
        };
        Ok(Self(kind))
    }

    /// Checks one request as it was received, at `now`. Every signature in the header is tried, and signatures are
    /// compared in constant time.
    ///
    /// # Errors
    /// Says why it cannot be trusted.
    pub fn verify(&self, headers: SignedHeaders<'_>, body: &[u8], now: Timestamp) -> Result<(), Unverified> {
        check_age(headers.timestamp, now)?;
        let content = Content {
            id: headers.id,
            timestamp: headers.timestamp,
            body,
        };
        let fits = match &self.0 {
            Kind::Symmetric(key) => {
                let expected = content.hmac(key);
                signatures(headers.signature, "v1")
                    .any(|candidate| bool::from(candidate.as_slice().ct_eq(expected.as_ref())))
            }
            Kind::Ed25519(public) => {
                let message = content.joined();
                let public = UnparsedPublicKey::new(&ED25519, public);
                signatures(headers.signature, "v1a")
                    .any(|candidate| public.verify(&message, &candidate).is_ok())
            }
        };
        if fits { Ok(()) } else { Err(Unverified::Signature) }
    }
}

fn check_age(timestamp: &str, now: Timestamp) -> Result<(), Unverified> {
    if timestamp.is_empty() || !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Unverified::Timestamp);
    }
    let seconds: i64 = timestamp.parse().map_err(|_| Unverified::Timestamp)?;
    let tolerance = i64::try_from(TOLERANCE.as_secs()).unwrap_or(i64::MAX);
    let age = now.as_seconds().saturating_sub(seconds);
    if age > tolerance {
        Err(Unverified::TooOld)
    } else if age < -tolerance {
        Err(Unverified::TooNew)
    } else {
        Ok(())
    }
}

/// The decoded signatures of one version.
fn signatures<'a>(header: &'a str, version: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
    header
        .split(' ')
        .take(MAX_SIGNATURES)
        .filter_map(|signature| signature.split_once(','))
        .filter(move |(found, _)| *found == version)
        .filter_map(|(_, encoded)| STANDARD.decode(encoded).ok())
}

#[cfg(test)]
mod tests {
    use super::super::{Keyring, ed25519_secret, public_key, symmetric_secret};
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_614_265_330_000);
    const BODY: &[u8] = b"{\"a\":1,\"a\":2}";

    fn verify(verifier: &Secret, signature: &str, timestamp: &str, now: Timestamp) -> Result<(), Unverified> {
        let headers = SignedHeaders {
            id: "evt_1",
            timestamp,
            signature,
        };
        Verifier::new(verifier).unwrap().verify(headers, BODY, now)
    }

    #[test]
    fn accepts_what_a_keyring_signs() {
        for secret in [
            symmetric_secret(&[3; 24]),
            Secret::new("outpost-secret-text"),
            ed25519_secret(&[9; 32]),
        ] {
            let signature = Keyring::new(&secret, None).unwrap().sign("evt_1", NOW, BODY);
            assert_eq!(verify(&secret, &signature, "1614265330", NOW), Ok(()));
        }
    }

    #[test]
    fn accepts_with_the_public_key_alone() {
        let secret = ed25519_secret(&[9; 32]);
        let signature = Keyring::new(&secret, None).unwrap().sign("evt_1", NOW, BODY);
        let public = Secret::new(public_key(&secret).unwrap().unwrap());
        assert_eq!(verify(&public, &signature, "1614265330", NOW), Ok(()));
    }

    #[test]
    fn during_a_rotation_either_secret_verifies() {
        let (old, new) = (symmetric_secret(&[1; 32]), symmetric_secret(&[2; 32]));
        let ring = Keyring::new(&new, Some((&old, NOW.plus(TOLERANCE)))).unwrap();
        let signature = ring.sign("evt_1", NOW, BODY);
        assert_eq!(verify(&old, &signature, "1614265330", NOW), Ok(()));
        assert_eq!(verify(&new, &signature, "1614265330", NOW), Ok(()));
    }

    #[test]
    fn refuses_everything_that_was_not_signed() {
        let secret = symmetric_secret(&[3; 24]);
        let good = Keyring::new(&secret, None).unwrap().sign("evt_1", NOW, BODY);
        let (_, bare) = good.split_once(',').unwrap();
        for signature in [
            "",
            "v1,",
            "v1",
            bare,
            &format!("v1a,{bare}"),
            &format!("v2,{bare}"),
            &good[..20],
        ] {
            assert_eq!(
                verify(&secret, signature, "1614265330", NOW),
                Err(Unverified::Signature),
                "{signature}"
            );
        }
        assert_eq!(
            verify(&secret, &good, "1614265331", NOW),
            Err(Unverified::Signature)
        );
        let headers = SignedHeaders {
            id: "evt_2",
            timestamp: "1614265330",
            signature: &good,
        };
        let verifier = Verifier::new(&secret).unwrap();
        assert_eq!(verifier.verify(headers, BODY, NOW), Err(Unverified::Signature));
        let headers = SignedHeaders {
            id: "evt_1",
            ..headers
        };
        assert_eq!(
            verifier.verify(headers, b"{\"a\":2}", NOW),
            Err(Unverified::Signature)
        );
        assert_eq!(verifier.verify(headers, BODY, NOW), Ok(()));
    }

    #[test]
    fn finds_the_right_one_among_others() {
        let secret = symmetric_secret(&[3; 24]);
        let good = Keyring::new(&secret, None).unwrap().sign("evt_1", NOW, BODY);
        let header = format!("v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v2,x !! {good}");
        assert_eq!(verify(&secret, &header, "1614265330", NOW), Ok(()));
    }

    #[test]
    fn tolerates_five_minutes_either_way() {
        let secret = symmetric_secret(&[3; 24]);
        let signature = Keyring::new(&secret, None).unwrap().sign("evt_1", NOW, BODY);
        let at = |seconds: i64| {
            verify(
                &secret,
                &signature,
                "1614265330",
                Timestamp::from_millis(seconds * 1000),
            )
        };
        assert_eq!(at(1_614_265_630), Ok(()));
        assert_eq!(at(1_614_265_631), Err(Unverified::TooOld));
        assert_eq!(at(1_614_265_030), Ok(()));
        assert_eq!(at(1_614_265_029), Err(Unverified::TooNew));
        for timestamp in [
            "",
            "-1",
            "+1614265330",
            "1614265330.0",
            "now",
            "99999999999999999999",
        ] {
            assert_eq!(
                verify(&secret, &signature, timestamp, NOW),
                Err(Unverified::Timestamp),
                "{timestamp}"
            );
        }
    }
}
