//! Signing by Standard Webhooks 1.0.0, and checking such signatures.
//!
//! What is signed is `{webhook-id}.{webhook-timestamp}.{body}`, byte for byte as it is sent: nothing here parses a
//! body. `v1` is HMAC-SHA256 with a `whsec_` secret, `v1a` is Ed25519 (RFC 8032) with a `whsk_` secret; which one
//! is used follows from the secret alone. While a secret is being rotated both sign, separated by a space, the
//! current one first. `docs/decisions/0020-secrets.md` says which texts are accepted as a secret, and why.
//!
//! This module draws no secret and reads no clock: random bytes and `now` are parameters. No error text ever
//! contains a part of a secret.

mod key;
mod verify;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::secret::Secret;
use crate::time::Timestamp;

use key::SigningKey;
pub use key::{InvalidSecret, ed25519_secret, public_key, symmetric_secret};
pub use verify::{SignedHeaders, TOLERANCE, Unverified, Verifier};

/// The secrets of one destination, decoded once. The default has none and signs nothing.
#[derive(Clone, Default)]
pub struct Keyring {
    current: Option<SigningKey>,
    previous: Option<(SigningKey, Timestamp)>,
}

impl Keyring {
    /// From the current secret and, during a rotation, the previous one with the instant from which it no longer
    /// signs (`previous_secret_invalid_at`).
    ///
    /// # Errors
    /// When a secret is not one of the accepted forms, or of a length out of bounds; the text says which and how to
    /// mend it, without showing it.
    pub fn new(current: &Secret, previous: Option<(&Secret, Timestamp)>) -> Result<Self, InvalidSecret> {
        let previous = match previous {
            Some((secret, _)) if secret == current => None,
            Some((secret, invalid_at)) => Some((SigningKey::parse(secret)?, invalid_at)),
            None => None,
        };
        Ok(Self {
            current: Some(SigningKey::parse(current)?),
            previous,
        })
    }

    /// Value of `webhook-signature` over exactly these bytes: every secret valid at `now` signs, the current one
    /// first. `now` is also the timestamp that is signed: send `now.as_seconds()` as `webhook-timestamp`.
    #[must_use]
    pub fn sign(&self, event_id: &str, now: Timestamp, body: &[u8]) -> String {
        let timestamp = now.as_seconds().to_string();
        let content = Content {
            id: event_id,
            timestamp: &timestamp,
            body,
        };
        let mut header = String::with_capacity(48);
        for key in self.valid_at(now) {
            if !header.is_empty() {
                header.push(' ');
            }
            match key {
                SigningKey::Symmetric(keys) => {
                    header.push_str("v1,");
                    STANDARD.encode_string(content.hmac(&keys.standard), &mut header);
                }
                SigningKey::Ed25519(pair) => {
                    header.push_str("v1a,");
                    STANDARD.encode_string(pair.sign(&content.joined()), &mut header);
                }
            }
        }
        header
    }

    /// Value of `x-outpost-signature` in Outpost's own scheme: `v0=` and, for every secret valid at `now`, the
    /// lower-case hexadecimal HMAC-SHA256 of the body alone, keyed with the text of the secret as it stands,
    /// separated by commas. `None` when no secret is symmetric: that scheme has no other signatures.
    #[must_use]
    pub fn sign_outpost(&self, now: Timestamp, body: &[u8]) -> Option<String> {
        let mut header = String::with_capacity(3 + 64);
        for key in self.valid_at(now) {
            match key {
                SigningKey::Symmetric(keys) => {
                    header.push_str(if header.is_empty() { "v0=" } else { "," });
                    push_hex(&mut header, ring::hmac::sign(&keys.text, body).as_ref());
                }
                SigningKey::Ed25519(_) => {}
            }
        }
        (!header.is_empty()).then_some(header)
    }

    fn valid_at(&self, now: Timestamp) -> impl Iterator<Item = &SigningKey> {
        let previous = self.previous.as_ref().filter(|(_, invalid_at)| now < *invalid_at);
        self.current.iter().chain(previous.map(|(key, _)| key))
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring(***)")
    }
}

/// What a signature covers.
#[derive(Clone, Copy)]
struct Content<'a> {
    id: &'a str,
    timestamp: &'a str,
    body: &'a [u8],
}

impl Content<'_> {
    fn hmac(self, key: &ring::hmac::Key) -> ring::hmac::Tag {
        let mut context = ring::hmac::Context::with_key(key);
        for part in self.parts() {
            context.update(part);
        }
        context.sign()
    }

    /// Ed25519 reads its message twice, so it cannot be streamed.
    fn joined(self) -> Vec<u8> {
        self.parts().concat()
    }

    fn parts(&self) -> [&[u8]; 5] {
        [
            self.id.as_bytes(),
            b".",
            self.timestamp.as_bytes(),
            b".",
            self.body,
        ]
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the Standard Webhooks libraries share as a test.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SENT: Timestamp = Timestamp::from_millis(1_614_265_330_999);
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const V1: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn keyring(secret: &str) -> Keyring {
        Keyring::new(&Secret::new(secret), None).unwrap()
    }

    #[test]
    fn signs_the_example_of_the_standard() {
        assert_eq!(keyring(SECRET).sign(ID, SENT, BODY), V1);
    }

    #[test]
    fn signs_the_ed25519_example_of_the_go_library() {
        let secret = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
        assert_eq!(
            keyring(secret).sign(ID, SENT, BODY),
            "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
        );
    }

    #[test]
    fn during_a_rotation_both_secrets_sign_until_the_previous_one_ends() {
        let new = Secret::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        let ends = Timestamp::from_millis(1_614_265_331_000);
        let ring = Keyring::new(&new, Some((&Secret::new(SECRET), ends))).unwrap();
        let alone = Keyring::new(&new, None).unwrap().sign(ID, SENT, BODY);
        assert_eq!(ring.sign(ID, SENT, BODY), format!("{alone} {V1}"));
        let after = ring.sign(ID, ends, BODY);
        assert!(!after.contains(' '), "{after}");
    }

    #[test]
    fn a_rotation_to_the_same_secret_signs_once() {
        let secret = Secret::new(SECRET);
        let ring = Keyring::new(&secret, Some((&secret, Timestamp::MAX))).unwrap();
        assert_eq!(ring.sign(ID, SENT, BODY), V1);
    }

    #[test]
    fn outposts_scheme_signs_the_body_with_the_text_of_the_secret() {
        // RFC 4231 §4.3 (test case 2) needs a four-byte key; its HMAC is checked through the same two calls.
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"Jefe");
        let mut hex = String::new();
        push_hex(
            &mut hex,
            ring::hmac::sign(&key, b"what do ya want for nothing?").as_ref(),
        );
        assert_eq!(
            hex,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );

        // openssl dgst -sha256 -hmac "outpost-secret-text" over the same body.
        let header = keyring("outpost-secret-text").sign_outpost(SENT, BODY);
        assert_eq!(header.as_deref(), Some(OUTPOST));
    }

    const OUTPOST: &str = "v0=03208b79d5070963200256241b10e7b388a9391e01336a0124d96f8d9bdcfdfb";

    #[test]
    fn outposts_scheme_joins_by_comma_and_knows_no_ed25519() {
        let text = Secret::new("outpost-secret-text");
        let ring = Keyring::new(&Secret::new(SECRET), Some((&text, Timestamp::MAX))).unwrap();
        let header = ring.sign_outpost(SENT, BODY).unwrap();
        let (first, second) = header.split_once(',').unwrap();
        assert!(first.starts_with("v0=") && first.len() == 3 + 64, "{first}");
        assert_eq!(second, &OUTPOST[3..]);
        let asymmetric = keyring(ed25519_secret(&[7; 32]).expose());
        assert_eq!(asymmetric.sign_outpost(SENT, BODY), None);
    }

    #[test]
    fn an_empty_keyring_signs_nothing() {
        assert_eq!(Keyring::default().sign(ID, SENT, BODY), "");
        assert_eq!(Keyring::default().sign_outpost(SENT, BODY), None);
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", keyring(SECRET)), "Keyring(***)");
    }
}
