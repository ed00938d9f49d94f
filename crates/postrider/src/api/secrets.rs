//! The one place of the API that draws random bytes: new signing secrets and ids of destinations.

use postrider_core::secret::Secret;
use postrider_core::signing::symmetric_secret;
use postrider_core::time::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

use super::error::ApiError;

/// A new `whsec_` secret of 32 random bytes.
pub(super) fn new_secret() -> Result<Secret, ApiError> {
    let mut random = [0; 32];
    fill(&mut random)?;
    Ok(symmetric_secret(&random))
}

/// A new id of a destination: `des_` and a `UUIDv7` (RFC 9562 §5.7) without hyphens.
pub(super) fn new_destination_id(now: Timestamp) -> Result<String, ApiError> {
    let mut random = [0; 16];
    fill(&mut random)?;
    let random = u128::from_be_bytes(random) >> 48;
    let millis = u128::from(now.as_millis().unsigned_abs());
    let (upper, lower) = (random >> 62 & 0xfff, random & ((1 << 62) - 1));
    let uuid = (millis << 80) | (0x7 << 76) | (upper << 64) | (0b10 << 62) | lower;
    Ok(format!("des_{uuid:032x}"))
}

fn fill(bytes: &mut [u8]) -> Result<(), ApiError> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| ApiError::internal("the system has no random bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_ids_are_version_7_and_differ() {
        let id = new_destination_id(Timestamp::from_millis(0x019b_76da_a807)).unwrap();
        assert_eq!((&id[..16], id.len()), ("des_019b76daa807", 36));
        assert_eq!(&id[16..17], "7");
        assert!(matches!(&id[20..21], "8" | "9" | "a" | "b"), "{id}");
        assert_ne!(
            id,
            new_destination_id(Timestamp::from_millis(0x019b_76da_a807)).unwrap()
        );
    }
}
