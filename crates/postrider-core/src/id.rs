//! Keys and public ids.
//!
//! Inside, every event, delivery and attempt has a *key*: a 63-bit integer, 43 bits of Unix milliseconds over 20
//! bits of sequence, so that rows are appended in time order. Outside it has an *id*: a `UUIDv7` (RFC 9562 §5.7)
//! with a prefix. The id is computed from the key and back, so none is stored or indexed: the milliseconds and
//! the sequence sit where the RFC wants time and counter, and the remaining 54 bits are a keyed tag, by which an
//! id that this installation did not issue is recognised. Ids that users choose (tenants, destinations, events
//! published with one) are text and never pass through here.

use std::fmt;

use ring::hmac;

use crate::time::Timestamp;

const SEQUENCE_BITS: u32 = 20;
const TAG_BITS: u32 = 54;
/// The last milliseconds that 43 bits hold.
const MAX_KEYED_MILLIS: i64 = (1 << (63 - SEQUENCE_BITS)) - 1;

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}

keys! {
    /// Key of a tenant: a small integer that stands for its text id.
    TenantKey,
    /// Key of a destination: a small integer that stands for its text id, never used twice.
    DestinationKey,
    /// Key of an event: time-ordered. Its deliveries have the keys that follow it.
    EventKey,
    /// Key of a delivery: time-ordered; also the seed of its jitter.
    DeliveryKey,
    /// Key of an attempt: time-ordered by when it was settled.
    AttemptKey,
    /// Key of an alert: time-ordered by when it was first kept.
    AlertKey,
    /// Key of what was in force when a delivery became a dead letter: its destination's configuration and policy.
    ContextKey,
    /// Key of a replay: time-ordered.
    ReplayKey,
}

impl EventKey {
    /// When the event was accepted.
    #[must_use]
    pub fn accepted_at(self) -> Timestamp {
        Timestamp::from_millis(self.0 >> SEQUENCE_BITS)
    }
}

impl DeliveryKey {
    /// When the delivery was created, which is when its event was accepted.
    #[must_use]
    pub fn created_at(self) -> Timestamp {
        Timestamp::from_millis(self.0 >> SEQUENCE_BITS)
    }
}

impl AttemptKey {
    /// When the attempt was settled.
    #[must_use]
    pub fn settled_at(self) -> Timestamp {
        Timestamp::from_millis(self.0 >> SEQUENCE_BITS)
    }
}

impl ReplayKey {
    /// When the replay was created.
    #[must_use]
    pub fn created_at(self) -> Timestamp {
        Timestamp::from_millis(self.0 >> SEQUENCE_BITS)
    }
}

/// When the key was given, for keys that are only integers.
#[must_use]
pub fn key_time(key: i64) -> Timestamp {
    Timestamp::from_millis(key >> SEQUENCE_BITS)
}

/// The first key of a millisecond. Keys grow by one from here; a burst of more than a million in one
/// millisecond simply runs into the next. `None` from 2248-09-26T15:10:22.208Z on, which no key can hold.
#[must_use]
pub const fn first_key_within(now: Timestamp) -> Option<i64> {
    if now.as_millis() > MAX_KEYED_MILLIS {
        None
    } else {
        Some(now.as_millis() << SEQUENCE_BITS)
    }
}

/// The bound below which the keys of all earlier milliseconds lie: [`first_key_within`], and `i64::MAX` for instants
/// that no key can hold. Never falls as `instant` grows.
#[must_use]
pub const fn first_key_at(instant: Timestamp) -> i64 {
    match first_key_within(instant) {
        Some(key) => key,
        None => i64::MAX,
    }
}

/// What an id names, which is also its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// `evt_`
    Event,
    /// `dlv_`
    Delivery,
    /// `att_`
    Attempt,
    /// `alr_`
    Alert,
    /// `rpl_`
    Replay,
}

impl IdKind {
    /// The prefix, with its underscore.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Event => "evt_",
            Self::Delivery => "dlv_",
            Self::Attempt => "att_",
            Self::Alert => "alr_",
            Self::Replay => "rpl_",
        }
    }
}

/// Turns keys into ids and back, for one installation.
#[derive(Clone)]
pub struct IdCodec {
    tag_key: hmac::Key,
}

impl fmt::Debug for IdCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdCodec(***)")
    }
}

impl IdCodec {
    /// `seed` is drawn once an installation and kept in its store.
    #[must_use]
    pub fn new(seed: &[u8; 16]) -> Self {
        Self {
            tag_key: hmac::Key::new(hmac::HMAC_SHA256, seed),
        }
    }

    /// The id of a key, such as `evt_019b76da-a800-7000-8000-…` without hyphens: 4 + 32 characters.
    #[must_use]
    pub fn encode(&self, kind: IdKind, key: i64) -> String {
        let key_bits = key.unsigned_abs();
        let millis = u128::from(key_bits >> SEQUENCE_BITS);
        let sequence = u128::from(key_bits & ((1 << SEQUENCE_BITS) - 1));
        let uuid = (millis << 80)
            | (0x7 << 76)
            | ((sequence >> 8) << 64)
            | (0b10 << 62)
            | ((sequence & 0xff) << TAG_BITS)
            | u128::from(self.tag(kind, key));
        format!("{}{uuid:032x}", kind.prefix())
    }

    /// The key of an id, if this installation issued it for this kind of thing.
    #[must_use]
    pub fn decode(&self, kind: IdKind, id: &str) -> Option<i64> {
        let hex = id.strip_prefix(kind.prefix())?;
        if hex.len() != 32
            || !hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        {
            return None;
        }
        let uuid = u128::from_str_radix(hex, 16).ok()?;
        let millis = i64::try_from(uuid >> 80).ok()?;
        let sequence = i64::try_from((((uuid >> 64) & 0xfff) << 8) | ((uuid >> TAG_BITS) & 0xff)).ok()?;
        let key = millis.checked_mul(1 << SEQUENCE_BITS)?.checked_add(sequence)?;
        // Encoding again checks the version, the variant and the tag at once.
        (self.encode(kind, key) == id).then_some(key)
    }

    fn tag(&self, kind: IdKind, key: i64) -> u64 {
        let mut context = hmac::Context::with_key(&self.tag_key);
        context.update(kind.prefix().as_bytes());
        context.update(&key.to_be_bytes());
        let digest = context.sign();
        let mut first = [0_u8; 8];
        first.copy_from_slice(&digest.as_ref()[..8]);
        u64::from_be_bytes(first) >> (64 - TAG_BITS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn codec() -> IdCodec {
        IdCodec::new(&[7; 16])
    }

    #[test]
    fn id_is_a_uuid_version_7_with_the_time_in_front() {
        let key = first_key_at(Timestamp::from_millis(0x019b_76da_a807)) + 0xabcde;
        let id = codec().encode(IdKind::Event, key);
        assert_eq!(&id[..4], "evt_");
        assert_eq!(&id[4..16], "019b76daa807", "48 bits of Unix milliseconds");
        assert_eq!(
            &id[16..20],
            "7abc",
            "version 7, then the upper 12 bits of the sequence"
        );
        assert!(matches!(&id[20..21], "8" | "9" | "a" | "b"), "variant 10: {id}");
    }

    #[test]
    fn decoding_reverses_encoding() {
        for key in [
            0,
            1,
            first_key_at(Timestamp::from_millis(1_767_225_600_000)) + 1_048_575,
            i64::MAX,
        ] {
            let id = codec().encode(IdKind::Delivery, key);
            assert_eq!(codec().decode(IdKind::Delivery, &id), Some(key));
        }
    }

    #[test]
    fn foreign_and_malformed_ids_are_recognised() {
        let id = codec().encode(IdKind::Event, 1 << 40);
        assert_eq!(
            codec().decode(IdKind::Delivery, &id.replace("evt_", "dlv_")),
            None,
            "kind is in the tag"
        );
        assert_eq!(
            IdCodec::new(&[8; 16]).decode(IdKind::Event, &id),
            None,
            "another installation"
        );
        for text in [
            "",
            "evt_",
            "evt_xyz",
            &id.to_uppercase(),
            &format!("{id}0"),
            "evt_é",
            &id[..35],
        ] {
            assert_eq!(codec().decode(IdKind::Event, text), None, "{text}");
        }
    }

    #[test]
    fn ids_sort_as_their_keys() {
        let ids: Vec<_> = (0..2_000_i64)
            .map(|n| codec().encode(IdKind::Attempt, n * 777_777))
            .collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn instants_beyond_every_key_do_not_wrap() {
        for (instant, key) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00.001Z", 1 << 20),
            ("2248-09-26T15:10:22.207Z", ((1 << 43) - 1) << 20),
            ("2248-09-26T15:10:22.208Z", i64::MAX),
            ("2300-01-01", i64::MAX),
            ("2600-01-01", i64::MAX),
            ("9999-12-31T23:59:59.999Z", i64::MAX),
        ] {
            assert_eq!(first_key_at(Timestamp::parse(instant).unwrap()), key, "{instant}");
        }
    }

    proptest! {
        #[test]
        fn keys_grow_with_their_instants(
            one in 0..=Timestamp::MAX.as_millis(),
            other in prop_oneof![0..=Timestamp::MAX.as_millis(), (MAX_KEYED_MILLIS - 2)..=(MAX_KEYED_MILLIS + 2)],
        ) {
            let (earlier, later) = (one.min(other), one.max(other));
            let key = |millis| first_key_at(Timestamp::from_millis(millis));
            prop_assert!(0 <= key(earlier) && key(earlier) <= key(later));
            if earlier < later && later <= MAX_KEYED_MILLIS {
                prop_assert!(key(earlier) < key(later));
                prop_assert_eq!(key_time(key(later)).as_millis(), later);
                prop_assert_eq!(key_time(key(later) - 1).as_millis(), later - 1);
            }
        }
    }
}
