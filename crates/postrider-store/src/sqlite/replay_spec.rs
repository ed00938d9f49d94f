//! What a replay does, as JSON text in a column.

use postrider_core::id::DestinationKey;
use postrider_core::replay::ReplayConfig;
use postrider_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::failure::Fault;
use crate::letter::DeadLetterFilter;
use crate::replay::{ReplayScope, ReplaySpec};

#[derive(Serialize, Deserialize)]
struct Written {
    config: ReplayConfig,
    rate_per_second: u32,
    #[serde(flatten)]
    scope: Scope,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scope {
    DeadLetters(Box<DeadLetterFilter>),
    EverythingSince { destination: i64, since: Timestamp },
}

/// A specification as JSON.
pub(super) fn to_text(spec: &ReplaySpec) -> Result<String, Fault> {
    let scope = match &spec.scope {
        ReplayScope::DeadLetters(filter) => Scope::DeadLetters(Box::new(filter.clone())),
        ReplayScope::EverythingSince { destination, since } => Scope::EverythingSince {
            destination: destination.0,
            since: *since,
        },
    };
    let written = Written {
        config: spec.config,
        rate_per_second: spec.rate_per_second,
        scope,
    };
    serde_json::to_string(&written).map_err(|_| Fault::corrupt("a replay that is no JSON"))
}

/// The inverse of [`to_text`].
pub(super) fn from_text(text: &str) -> Result<ReplaySpec, Fault> {
    let written: Written = serde_json::from_str(text)
        .map_err(|_| Fault::corrupt("a column holds no specification of a replay"))?;
    let scope = match written.scope {
        Scope::DeadLetters(filter) => ReplayScope::DeadLetters(*filter),
        Scope::EverythingSince { destination, since } => ReplayScope::EverythingSince {
            destination: DestinationKey(destination),
            since,
        },
    };
    Ok(ReplaySpec {
        scope,
        config: written.config,
        rate_per_second: written.rate_per_second,
    })
}
