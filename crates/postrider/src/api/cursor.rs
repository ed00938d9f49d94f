//! Cursors as clients see them: opaque, exact, and refused when they were not issued here.
//!
//! A cursor is a list's key in the same keyed encoding as ids, so a changed character or one of another list or
//! installation does not decode.

use postrider_core::id::{IdCodec, IdKind};

/// A list with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// By tenant key.
    Tenants,
    /// By event key.
    Events,
    /// By attempt key.
    Attempts,
    /// By delivery key.
    Deliveries,
    /// By position: the key, and whether it fires.
    Alerts,
    /// By serial of death.
    DeadLetters,
    /// By replay key.
    Replays,
}

impl List {
    const fn parts(self) -> (IdKind, &'static str) {
        match self {
            Self::Tenants => (IdKind::Event, "tnt"),
            Self::Events => (IdKind::Event, "evt"),
            Self::Attempts => (IdKind::Attempt, "att"),
            Self::Deliveries => (IdKind::Delivery, "dlv"),
            Self::Alerts => (IdKind::Alert, "alr"),
            Self::DeadLetters => (IdKind::Delivery, "ded"),
            Self::Replays => (IdKind::Replay, "rpl"),
        }
    }

    /// The cursor of a key.
    pub(super) fn encode(self, ids: &IdCodec, key: i64) -> String {
        let (kind, name) = self.parts();
        ids.encode(kind, key).replacen(kind.prefix(), name, 1)
    }

    /// The key of a cursor, if it was issued for this list.
    pub(super) fn decode(self, ids: &IdCodec, cursor: &str) -> Option<i64> {
        let (kind, name) = self.parts();
        let hex = cursor.strip_prefix(name)?;
        ids.decode(kind, &format!("{}{hex}", kind.prefix()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cursors_of_the_list_decode() {
        let ids = IdCodec::new(&[1; 16]);
        let cursor = List::Events.encode(&ids, 77);
        assert_eq!(List::Events.decode(&ids, &cursor), Some(77));
        assert_eq!(List::Attempts.decode(&ids, &cursor), None);
        assert_eq!(List::Events.decode(&IdCodec::new(&[2; 16]), &cursor), None);
        for tampered in [
            "",
            "evt",
            &cursor[..20],
            &format!("{cursor}0"),
            &cursor.replacen('0', "1", 1),
        ] {
            assert_eq!(List::Events.decode(&ids, tampered), None, "{tampered}");
        }
    }
}
