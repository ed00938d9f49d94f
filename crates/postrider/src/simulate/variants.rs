//! The same scenario with a protection taken away, to show what it is good for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use postrider_core::breaker::BreakerConfig;
use postrider_core::policy::Jitter;
use postrider_core::window::WindowConfig;

use super::world::Scenario;

/// As many requests at once as there are deliveries.
const UNBOUNDED: u32 = 1_000_000;

/// What protects a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Retries are spread.
    Jitter,
    /// A failing destination is left alone.
    Breaker,
    /// Few requests are out at a time.
    Window,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Jitter, Self::Breaker, Self::Window];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Jitter => "jitter",
            Self::Breaker => "breaker",
            Self::Window => "window",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|protection| protection.as_str() == word)
            .ok_or_else(|| format!("{word:?} is no protection: use jitter, breaker or window"))
    }
}

/// The scenario without some protections.
#[must_use]
pub fn without(mut scenario: Scenario, protections: &[Protection]) -> Scenario {
    for protection in protections {
        match protection {
            Protection::Jitter => {
                scenario.policy = Arc::new(scenario.policy.as_ref().clone().with_jitter(Jitter::None));
            }
            Protection::Breaker => scenario.dispatcher.breaker = BreakerConfig::off(),
            Protection::Window => {
                scenario.dispatcher.window = WindowConfig {
                    floor: UNBOUNDED,
                    ceiling: UNBOUNDED,
                    initial: UNBOUNDED,
                };
                scenario.dispatcher.max_in_flight = UNBOUNDED as usize;
                scenario.dispatcher.max_lane = UNBOUNDED as usize;
                scenario.dispatcher.max_queued = UNBOUNDED as usize;
            }
        }
    }
    scenario
}
