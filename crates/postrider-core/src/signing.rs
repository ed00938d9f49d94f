//! Standard Webhooks signing.
use crate::secret::Secret;
use crate::time::Timestamp;

/// A secret that cannot sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSecret(pub String);

/// The secrets of one destination.
#[derive(Debug, Clone, Default)]
pub struct Keyring {}

impl Keyring {
    /// From the current secret and, during a rotation, the previous one with its end.
    ///
    /// # Errors
    /// When a secret is not `whsec_…` / `whsk_…`, not base64, or of a length out of bounds.
    pub fn new(_current: &Secret, _previous: Option<(&Secret, Timestamp)>) -> Result<Self, InvalidSecret> {
        todo!()
    }

    /// Value of `webhook-signature` over exactly these bytes: every secret valid at `now` signs.
    #[must_use]
    pub fn sign(&self, _event_id: &str, _now: Timestamp, _body: &[u8]) -> String {
        todo!()
    }
}

/// A new `whsec_` secret from 24 to 64 random bytes.
#[must_use]
pub fn symmetric_secret(_random: &[u8]) -> Secret {
    todo!()
}
