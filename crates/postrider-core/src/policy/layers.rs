//! Layers: how a preset, the global policy and a destination's own policy become one, and which of them each value
//! comes from.
//!
//! Later layers win, value by value. A layer that names a preset starts afresh from it: nothing below shows through.
//! A backoff of another shape (a schedule over an exponential one) replaces the shape as a whole, and rules replace
//! rules, since half of either means nothing.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::RetryPolicy;
use super::preset::Preset;
use super::raw::{RawBackoff, RawPolicy};
use super::read::Unread;
use super::validate;

/// Where a value of an effective policy comes from. As text: `preset:standard`, `global`, `named:slow`, `inline`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A preset.
    Preset(Preset),
    /// The configuration.
    Global,
    /// A named policy.
    Named(String),
    /// The destination itself.
    Inline,
}

/// One policy among those that are laid over each other.
#[derive(Debug, Clone)]
pub struct Layer<'a> {
    /// What it is.
    pub origin: Origin,
    /// What it says.
    pub policy: &'a RawPolicy,
}

/// What is wrong with one field, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Path of the field: `backoff.base`, `rules[0].match`.
    pub field: String,
    /// A fragment that fits after the field.
    pub message: String,
}

/// A policy with the origin of each value. As JSON: `{"policy": {...}, "origins": {"backoff.base": "inline", ...}}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effective {
    /// The policy.
    pub policy: RetryPolicy,
    /// Field path to origin.
    pub origins: BTreeMap<&'static str, Origin>,
}

/// What a destination says about its policy: the name of a named policy or preset, or a policy of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyChoice {
    /// `"slow"`
    Named(String),
    /// `{"max_attempts": 3}`
    Inline(Box<RawPolicy>),
}

/// The policies that destinations can refer to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policies {
    /// The configuration's.
    pub global: RawPolicy,
    /// By name.
    pub named: BTreeMap<String, RawPolicy>,
}

impl Policies {
    /// The policy of a destination that chose `choice`; the global one without a choice.
    ///
    /// # Errors
    /// Everything that is wrong with it, or that its name is unknown.
    pub fn effective(&self, choice: Option<&PolicyChoice>) -> Result<Effective, Vec<Problem>> {
        let global = Layer {
            origin: Origin::Global,
            policy: &self.global,
        };
        match choice {
            None => resolve(&[global]),
            Some(PolicyChoice::Inline(policy)) => resolve(&[
                global,
                Layer {
                    origin: Origin::Inline,
                    policy,
                },
            ]),
            Some(PolicyChoice::Named(name)) => {
                if let Ok(preset) = name.parse::<Preset>() {
                    let policy = &preset.raw();
                    return resolve(&[Layer {
                        origin: Origin::Preset(preset),
                        policy,
                    }]);
                }
                let Some(policy) = self.named.get(name) else {
                    let known = Preset::ALL.iter().map(|preset| preset.as_str());
                    let known: Vec<_> = self.named.keys().map(String::as_str).chain(known).collect();
                    let message = format!("names no retry policy; use one of: {}", known.join(", "));
                    return Err(vec![Problem {
                        field: "retry_policy".into(),
                        message,
                    }]);
                };
                resolve(&[
                    global,
                    Layer {
                        origin: Origin::Named(name.clone()),
                        policy,
                    },
                ])
            }
        }
    }

    /// Everything that is wrong with a policy that cannot be read whole: beside what cannot be read, the values of the
    /// rest over the global policy.
    #[must_use]
    pub fn problems(&self, unread: Unread) -> Vec<Problem> {
        let Unread { problems, rest } = unread;
        let layers = [
            Layer {
                origin: Origin::Global,
                policy: &self.global,
            },
            Layer {
                origin: Origin::Inline,
                policy: &rest,
            },
        ];
        resolve_beside(&layers, problems).err().unwrap_or_default()
    }
}

/// Checks the name of a policy that is about to be stored.
///
/// # Errors
/// When it is empty, longer than 64 bytes, has other characters than `a-z 0-9 _ -`, or is a preset's.
pub fn check_name(name: &str) -> Result<(), Problem> {
    let refused = |message: &str| {
        Err(Problem {
            field: "name".into(),
            message: message.into(),
        })
    };
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
        return refused("must be 1 to 64 characters of a-z, 0-9, _ and -");
    }
    if name.parse::<Preset>().is_ok() {
        return refused("is the name of a preset; choose another");
    }
    Ok(())
}

/// Lays policies over each other, first to last, on top of preset `standard` or of the last preset that one names.
///
/// # Errors
/// Everything that is wrong with the result, each with its field.
pub fn resolve(layers: &[Layer<'_>]) -> Result<Effective, Vec<Problem>> {
    resolve_beside(layers, Vec::new())
}

/// As [`resolve`], beside problems that were found before. Once there is one, what follows from the layers below is none.
fn resolve_beside(layers: &[Layer<'_>], mut problems: Vec<Problem>) -> Result<Effective, Vec<Problem>> {
    let named = layers.iter().rposition(|layer| layer.policy.preset.is_some());
    let preset = match named.and_then(|index| layers[index].policy.preset.as_deref()) {
        None => Preset::Standard,
        Some(name) => name.parse().unwrap_or_else(|unknown| {
            problems.push(Problem::new("preset", format!("{unknown}")));
            Preset::Standard
        }),
    };
    let mut merged = Merged {
        policy: RawPolicy::default(),
        origins: BTreeMap::new(),
    };
    let base = (&preset.raw(), &Origin::Preset(preset));
    let layers = layers.iter().map(|layer| (layer.policy, &layer.origin));
    let layers = std::iter::once(base).chain(layers.skip(named.unwrap_or(0)));
    let mut top = None;
    for (policy, origin) in layers {
        problems.extend(merged.overlay(policy, origin).err());
        top = Some(origin);
    }
    let own = |field: &str| merged.origins.get(field) == top;
    match validate::compile(&merged.policy, own) {
        Ok(policy) if problems.is_empty() => {
            return Ok(Effective {
                policy,
                origins: merged.origins,
            });
        }
        Ok(_) => {}
        Err(found) if problems.is_empty() => problems = found,
        Err(found) => {
            let is_new = |problem: &Problem| !problems.iter().any(|known| problem.is_about(&known.field));
            let found = found
                .into_iter()
                .filter(|problem| own(problem.setting()) && is_new(problem));
            let found: Vec<_> = found.collect();
            problems.extend(found);
        }
    }
    Err(problems)
}

/// The layers so far.
struct Merged {
    policy: RawPolicy,
    origins: BTreeMap<&'static str, Origin>,
}

/// Copies the values that `$from` sets into `$into`, and notes for each that it comes from `$origin`.
macro_rules! overlay {
    ($into:expr, $from:expr, $origins:expr, $origin:expr, { $($field:ident => $path:literal),+ $(,)? }) => {$(
        if $from.$field.is_some() {
            $into.$field.clone_from(&$from.$field);
            $origins.insert($path, $origin.clone());
        }
    )+};
}

impl Merged {
    /// All of the layer but, when that is wrong, its backoff.
    fn overlay(&mut self, layer: &RawPolicy, origin: &Origin) -> Result<(), Problem> {
        let Self { policy, origins } = self;
        overlay!(policy, layer, origins, origin, {
            jitter => "jitter",
            max_attempts => "max_attempts",
            max_age => "max_age",
            retry_after_max => "retry_after_max",
            rate_limited_multiplier => "rate_limited_multiplier",
            on_gone => "on_gone",
            while_open => "while_open",
            dead_letter_after => "dead_letter_after",
            rate_limit_fields => "rate_limit_fields",
            on_disabled => "on_disabled",
            rules => "rules",
        });
        if let Some(from) = &layer.immediate {
            let into = policy.immediate.get_or_insert_default();
            overlay!(into, from, origins, origin, {
                retries => "immediate.retries",
                min_delay => "immediate.min_delay",
                max_delay => "immediate.max_delay",
            });
        }
        if let Some(from) = &layer.long_term {
            let into = policy.long_term.get_or_insert_default();
            overlay!(into, from, origins, origin, {
                enabled => "long_term.enabled",
                after => "long_term.after",
                interval => "long_term.interval",
            });
        }
        match &layer.backoff {
            Some(from) => self.overlay_backoff(from, origin),
            None => Ok(()),
        }
    }

    fn overlay_backoff(&mut self, layer: &RawBackoff, origin: &Origin) -> Result<(), Problem> {
        let wanted = ShapeKind::of(layer)?;
        let below = self
            .policy
            .backoff
            .as_ref()
            .map(ShapeKind::of)
            .and_then(Result::ok)
            .flatten();
        if let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != below) {
            self.policy.backoff = None;
            self.origins.retain(|field, _| !field.starts_with("backoff."));
            if wanted == ShapeKind::Exponential && below.is_some() {
                let standard = Preset::Standard.raw();
                let filled = RawPolicy {
                    backoff: standard.backoff,
                    ..RawPolicy::default()
                };
                self.overlay(&filled, &Origin::Preset(Preset::Standard))?;
            }
        }
        if wanted.or(below) == Some(ShapeKind::Schedule) && layer.max_delay.is_some() {
            let message = "has no meaning for a schedule, whose last delay repeats; remove it";
            return Err(Problem::new("backoff.max_delay", message));
        }
        let into = self.policy.backoff.get_or_insert_default();
        let origins = &mut self.origins;
        overlay!(into, layer, origins, origin, {
            base => "backoff.base",
            multiplier => "backoff.multiplier",
            max_delay => "backoff.max_delay",
            schedule => "backoff.schedule",
            curve => "backoff.curve",
            min_delay => "backoff.min_delay",
            retries => "backoff.retries",
        });
        Ok(())
    }
}

/// Which shape the keys of a backoff belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShapeKind {
    Exponential,
    Schedule,
    Curve,
}

impl ShapeKind {
    /// `None` when only `max_delay` is there, which two shapes have.
    pub(super) fn of(backoff: &RawBackoff) -> Result<Option<Self>, Problem> {
        let curve = backoff.curve.is_some() || backoff.min_delay.is_some() || backoff.retries.is_some();
        let exponential = backoff.base.is_some() || backoff.multiplier.is_some();
        match (exponential, backoff.schedule.is_some(), curve) {
            (false, false, false) => Ok(None),
            (true, false, false) => Ok(Some(Self::Exponential)),
            (false, true, false) => Ok(Some(Self::Schedule)),
            (false, false, true) => Ok(Some(Self::Curve)),
            _ => Err(Problem::new(
                "backoff",
                "mixes shapes; use base, multiplier and max_delay, or schedule, or curve, min_delay, max_delay \
                 and retries",
            )),
        }
    }
}

impl Problem {
    pub(super) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }

    /// Whether it is about this field or about something in it.
    fn is_about(&self, field: &str) -> bool {
        let inside = self.field.strip_prefix(field);
        inside.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    /// The field without the place in a list: `rules` for `rules[0].match`.
    fn setting(&self) -> &str {
        self.field.split('[').next().unwrap_or_default()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.message)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(preset) => write!(f, "preset:{preset}"),
            Self::Global => f.write_str("global"),
            Self::Named(name) => write!(f, "named:{name}"),
            Self::Inline => f.write_str("inline"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for PolicyChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => name.serialize(serializer),
            Self::Inline(policy) => policy.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PolicyChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> de::Visitor<'de> for Choice {
            type Value = PolicyChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a retry policy, or an object with its fields")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicyChoice, E> {
                Ok(PolicyChoice::Named(name.into()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<PolicyChoice, A::Error> {
                let policy = RawPolicy::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(PolicyChoice::Inline(Box::new(policy)))
            }
        }
        deserializer.deserialize_any(Choice)
    }
}
