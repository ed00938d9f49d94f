//! From the text of a secret to a key, and new secrets from random bytes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};
use zeroize::Zeroizing;

use crate::secret::Secret;

pub(super) const SYMMETRIC_PREFIX: &str = "whsec_";
pub(super) const SECRET_KEY_PREFIX: &str = "whsk_";
pub(super) const PUBLIC_KEY_PREFIX: &str = "whpk_";

/// Lengths of a symmetric key in bytes: 192 to 512 bits (Standard Webhooks, "Signature scheme").
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Lengths of a plain text that is a key as it stands, in bytes.
const TEXT_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
/// An Ed25519 seed (RFC 8032 §5.1.5); the other accepted form is seed and public key together.
const SEED_BYTES: usize = 32;

/// A secret that cannot sign. Never shows any of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSecret(pub String);

fn invalid(text: impl Into<String>) -> InvalidSecret {
    InvalidSecret(text.into())
}

/// One secret, decoded.
#[derive(Clone)]
pub(super) enum SigningKey {
    /// From `whsec_` or plain text.
    Symmetric(Arc<SymmetricKeys>),
    /// From `whsk_`.
    Ed25519(Arc<Ed25519KeyPair>),
}

/// One symmetric secret, in the two ways in which it signs.
pub(super) struct SymmetricKeys {
    /// For Standard Webhooks.
    pub(super) standard: hmac::Key,
    /// The text itself, for Outpost's scheme.
    pub(super) text: hmac::Key,
}

impl SigningKey {
    pub(super) fn parse(secret: &Secret) -> Result<Self, InvalidSecret> {
        let text = secret.expose();
        if text.starts_with(PUBLIC_KEY_PREFIX) {
            return Err(invalid(
                "a whpk_ key is public and cannot sign: give the whsk_ secret key",
            ));
        }
        if let Some(encoded) = text.strip_prefix(SECRET_KEY_PREFIX) {
            return key_pair(encoded).map(|pair| Self::Ed25519(Arc::new(pair)));
        }
        let standard = symmetric_key(text)?;
        let text = hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes());
        Ok(Self::Symmetric(Arc::new(SymmetricKeys { standard, text })))
    }
}

/// The HMAC key of a `whsec_` secret or of a plain text.
pub(super) fn symmetric_key(text: &str) -> Result<hmac::Key, InvalidSecret> {
    let (encoded, prefixed) = match text.strip_prefix(SYMMETRIC_PREFIX) {
        Some(encoded) => (encoded, true),
        None => (text, false),
    };
    // The libraries decode a text without the prefix too, so one that is base64 must mean its bytes here as well.
    let bytes = match STANDARD.decode(encoded).map(Zeroizing::new) {
        Ok(bytes) => bytes,
        Err(_) if prefixed => {
            return Err(invalid(
                "must be whsec_ and standard base64 with its padding, or a text without that prefix",
            ));
        }
        Err(_) => return text_key(text),
    };
    if KEY_BYTES.contains(&bytes.len()) {
        return Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes));
    }
    let what = if prefixed {
        "the base64 after whsec_"
    } else {
        "this text is base64 and"
    };
    Err(invalid(format!(
        "{what} holds {} bytes: a secret has 24 to 64",
        bytes.len()
    )))
}

fn text_key(text: &str) -> Result<hmac::Key, InvalidSecret> {
    if !TEXT_BYTES.contains(&text.len()) {
        return Err(invalid(
            "a secret that is plain text has 16 to 256 bytes; whsec_ and base64 is better",
        ));
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(invalid(
            "must have no control characters, and no space at its start or end",
        ));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()))
}

pub(super) fn key_pair(encoded: &str) -> Result<Ed25519KeyPair, InvalidSecret> {
    let bytes = STANDARD
        .decode(encoded)
        .map(Zeroizing::new)
        .map_err(|_| invalid("must be whsk_ and standard base64 with its padding"))?;
    let pair = match bytes.split_at_checked(SEED_BYTES) {
        Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed),
        Some((seed, public)) if public.len() == SEED_BYTES => {
            Ed25519KeyPair::from_seed_and_public_key(seed, public)
        }
        _ => {
            return Err(invalid(
                "whsk_ holds 32 bytes (an Ed25519 seed) or 64 (the seed and its public key)",
            ));
        }
    };
    pair.map_err(|_| invalid("the public key in the second half of whsk_ does not belong to its first half"))
}

/// A new `whsec_` secret from 24 to 64 random bytes. From fewer or more, it is one that [`super::Keyring::new`]
/// refuses.
#[must_use]
pub fn symmetric_secret(random: &[u8]) -> Secret {
    Secret::new(format!("{SYMMETRIC_PREFIX}{}", STANDARD.encode(random)))
}

/// A new `whsk_` secret from 32 random bytes: the seed alone, which the published libraries read.
#[must_use]
pub fn ed25519_secret(seed: &[u8; SEED_BYTES]) -> Secret {
    Secret::new(format!("{SECRET_KEY_PREFIX}{}", STANDARD.encode(seed)))
}

/// The `whpk_` public key of a `whsk_` secret; `None` for a symmetric one, which has none.
///
/// # Errors
/// When it starts with `whsk_` and is not an Ed25519 key.
pub fn public_key(secret: &Secret) -> Result<Option<String>, InvalidSecret> {
    let Some(encoded) = secret.expose().strip_prefix(SECRET_KEY_PREFIX) else {
        return Ok(None);
    };
    let pair = key_pair(encoded)?;
    Ok(Some(format!(
        "{PUBLIC_KEY_PREFIX}{}",
        STANDARD.encode(pair.public_key())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SigningKey, InvalidSecret> {
        SigningKey::parse(&Secret::new(text))
    }

    /// RFC 8032 §7.1, test 1: seed and public key.
    const SEED: [u8; 32] = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44,
        0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
    ];
    const PUBLIC: [u8; 32] = [
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e,
        0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
    ];

    #[test]
    fn public_keys_are_those_of_rfc_8032() {
        let public = public_key(&ed25519_secret(&SEED)).unwrap();
        assert_eq!(public, Some(format!("whpk_{}", STANDARD.encode(PUBLIC))));
        assert_eq!(public_key(&symmetric_secret(&[1; 32])), Ok(None));
    }

    #[test]
    fn signs_the_empty_message_of_rfc_8032() {
        let SigningKey::Ed25519(pair) =
            parse(ed25519_secret(&SEED).expose()).unwrap_or_else(|e| panic!("{e}"))
        else {
            panic!("a whsk_ secret is an Ed25519 key");
        };
        let mut hex = String::new();
        super::super::push_hex(&mut hex, pair.sign(b"").as_ref());
        assert_eq!(
            hex,
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        );
    }

    #[test]
    fn the_long_form_of_a_key_must_agree_with_itself() {
        let long = |public: &[u8]| format!("whsk_{}", STANDARD.encode([&SEED, public].concat()));
        assert!(parse(&long(&PUBLIC)).is_ok());
        assert!(parse(&long(&SEED)).is_err());
        assert!(parse(&long(&PUBLIC[1..])).is_err());
    }

    #[test]
    fn symmetric_secrets_have_24_to_64_bytes() {
        for (bytes, accepted) in [
            (0, false),
            (23, false),
            (24, true),
            (32, true),
            (64, true),
            (65, false),
        ] {
            let secret = symmetric_secret(&vec![0xa5; bytes]);
            assert_eq!(SigningKey::parse(&secret).is_ok(), accepted, "{bytes}");
        }
    }

    #[test]
    fn plain_text_that_is_no_base64_is_a_key_as_it_stands() {
        for text in [
            "outpost-secret-text",
            "sixteen_bytes_ok",
            "a passphrase of some length",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "short",
            "fifteen_bytes_x",
            " starts_with_space",
            "line\nbreak_in_here",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse(&"é_".repeat(86)).is_err(), "258 bytes");
    }

    #[test]
    fn plain_text_that_is_base64_means_its_bytes_as_in_the_libraries() {
        let prefixed = symmetric_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let bare = symmetric_key("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(
            hmac::sign(&prefixed, b"x").as_ref(),
            hmac::sign(&bare, b"x").as_ref()
        );
        assert!(parse("sixteencharacter").is_err(), "decodes to 12 bytes");
    }

    #[test]
    fn refusals_give_advice_and_nothing_of_the_secret() {
        for text in [
            "whsec_canary",
            "whsec_canary!canary!",
            "whsk_canary==",
            "whpk_canary",
            "canary!",
        ] {
            let message = parse(text).map(|_| ()).unwrap_err().to_string();
            assert!(!message.contains("canary"), "{message}");
            assert!(message.len() > 20, "{message}");
        }
    }
}
