//! Bytes inside JSON: base64 where they are data, text where they almost always are text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Any bytes as standard base64 with padding.
pub(super) mod base64_text {
    use super::{Bytes, Deserialize, Deserializer, Engine, STANDARD, Serializer, de};

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &Bytes,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD
            .decode(text.as_bytes())
            .map(Bytes::from)
            .map_err(|_| de::Error::custom("expected standard base64 with padding"))
    }
}

/// A header's value: a JSON string, or `{"base64": "…"}` when it is not UTF-8. Both ways back to the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderValue(pub(super) Bytes);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    #[serde(with = "base64_text")]
    base64: Bytes,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Encoded(Encoded),
}

impl Serialize for HeaderValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Encoded {
                base64: self.0.clone(),
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Text(text) => text.into(),
            Written::Encoded(encoded) => encoded.base64,
        }))
    }
}
