//! What single tenants may have: sections `[tenant]` for all and `[tenants."ID"]` for one.
//!
//! Ids of tenants are no keys of the configuration: anything can be one. So what is below `tenants` is read here; in the
//! environment it is one value, written as JSON. Which tenants there are, only the store knows, so an id that is none
//! is no mistake.

use std::num::NonZeroU32;

use postrider_core::dispatcher::Share;
use serde_json::{Map, Value};

use super::error::Problem;
use super::resolve::{Resolved, TenantLeaf};
use super::sources::{Entry, Origin, TENANTS};
use super::value::Raw;
use crate::directory::Shares;

/// Most requests per second.
const MAX_RATE: u32 = 100_000;
/// Largest weight.
const MAX_WEIGHT: u32 = 1_000;
/// Tenants with a section of their own.
const MAX_TENANTS: usize = 100_000;

/// The shares of all tenants.
pub(super) fn shares(resolved: &Resolved, problems: &mut Vec<Problem>) -> Shares {
    let usual = Share {
        weight: resolved.count("tenant.weight"),
        rate_limit: NonZeroU32::new(resolved.count("tenant.rate_limit_per_second")),
    };
    let mut shares = Shares {
        usual,
        ..Shares::default()
    };
    for leaf in resolved.tenants() {
        let share = shares.special.entry(leaf.tenant.clone()).or_insert(usual);
        set(share, leaf, problems);
    }
    let many = shares.special.len();
    if many > MAX_TENANTS {
        let text = format!("names {many} tenants; at most {MAX_TENANTS} may have settings of their own");
        problems.push(Problem::about(TENANTS, text));
    }
    shares
}

/// The values in one entry; what is no table where one must be is a problem.
pub(super) fn leaves(entry: Entry, problems: &mut Vec<Problem>) -> Vec<TenantLeaf> {
    let origin = entry.origin;
    let tables = tables(entry.raw, &origin).unwrap_or_else(|text| {
        problems.push(Problem::at(TENANTS, &origin, text));
        Map::new()
    });
    let mut leaves = Vec::new();
    for (tenant, settings) in tables {
        let Value::Object(settings) = settings else {
            let text = "must be a table with weight or rate_limit_per_second";
            problems.push(Problem::at(&format!("{TENANTS}.{tenant}"), &origin, text));
            continue;
        };
        leaves.extend(settings.into_iter().map(|(name, value)| TenantLeaf {
            tenant: tenant.clone(),
            name,
            value,
            origin: origin.clone(),
        }));
    }
    leaves
}

fn tables(raw: Raw, origin: &Origin) -> Result<Map<String, Value>, String> {
    if let (Raw::Text(text), Origin::Environment(_)) = (&raw, origin) {
        let form = r#"must be a JSON object such as {"acme": {"weight": 2}}"#;
        return match serde_json::from_str(text) {
            Ok(Value::Object(tables)) => Ok(tables),
            Ok(_) => Err(form.to_owned()),
            Err(error) => Err(format!("{form}; it is no JSON: {error}")),
        };
    }
    match raw.into_json(false) {
        Value::Object(tables) => Ok(tables),
        _ => Err("must be a table for each tenant, such as [tenants.\"acme\"]".to_owned()),
    }
}

fn set(share: &mut Share, leaf: &TenantLeaf, problems: &mut Vec<Problem>) {
    let value = &leaf.value;
    let mut wrong = |text: String| problems.push(Problem::at(&leaf.path(), &leaf.origin, text));
    let mut count = |least: u32, most: u32| {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let valid = number.filter(|number| (least..=most).contains(number));
        if valid.is_none() {
            wrong(format!("is {value}; must be from {least} to {most}"));
        }
        valid
    };
    match leaf.name.as_str() {
        "weight" => share.weight = count(1, MAX_WEIGHT).unwrap_or(share.weight),
        "rate_limit_per_second" => {
            share.rate_limit = count(0, MAX_RATE).map_or(share.rate_limit, NonZeroU32::new);
        }
        _ => wrong("is not a known key; the known ones are weight and rate_limit_per_second".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::{Environment, text_entries};
    use super::super::{Sources, load, resolve};
    use super::*;

    fn read(file: &str, environment: &[(&str, &str)]) -> (Shares, Vec<String>) {
        let mut problems = Vec::new();
        let pairs = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut entries = text_entries(&"p.toml".into(), file).unwrap();
        entries.extend(Environment::from_pairs(pairs).entries());
        let resolved = resolve::resolve(false, entries, &mut problems);
        let shares = shares(&resolved, &mut problems);
        (shares, problems.iter().map(ToString::to_string).collect())
    }

    fn share(weight: u32, per_second: u32) -> Share {
        Share {
            weight,
            rate_limit: NonZeroU32::new(per_second),
        }
    }

    #[test]
    fn each_tenant_has_its_own_over_the_usual() {
        let file = "[tenant]\nrate_limit_per_second = 50\n[tenants.\"acme.eu\"]\nweight = 4\n\
                    [tenants.big]\nrate_limit_per_second = 500\n[tenants.free]\nrate_limit_per_second = 0\n";
        let (shares, problems) = read(file, &[]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(shares.of("anybody"), share(1, 50));
        assert_eq!(shares.of("acme.eu"), share(4, 50));
        assert_eq!(shares.of("big"), share(1, 500));
        assert_eq!(shares.of("free"), share(1, 0), "any number");
    }

    #[test]
    fn the_environment_has_them_as_json() {
        let pairs = [
            ("POSTRIDER_TENANT__WEIGHT", "2"),
            ("POSTRIDER_TENANTS", r#"{"acme": {"weight": 7}}"#),
        ];
        let (shares, problems) = read("[tenants.acme]\nweight = 5\n", &pairs);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(
            (shares.of("acme"), shares.of("other")),
            (share(7, 0), share(2, 0))
        );
    }

    #[test]
    fn every_mistake_is_named_with_its_line() {
        let file = "[tenants.a]\nweight = 0\n[tenants.b]\nrate_limit_per_second = \"10\"\nwieght = 2\n[tenants]\nc = 5\n";
        let (_, mut problems) = read(file, &[]);
        problems.sort();
        assert_eq!(
            problems,
            [
                "tenants.a.weight (p.toml:2) is 0; must be from 1 to 1000",
                "tenants.b.rate_limit_per_second (p.toml:4) is \"10\"; must be from 0 to 100000",
                "tenants.b.wieght (p.toml:5) is not a known key; the known ones are weight and rate_limit_per_second",
                "tenants.c (p.toml:7) must be a table with weight or rate_limit_per_second",
            ]
        );
        let (_, problems) = read("tenants = 5\n", &[]);
        assert_eq!(
            problems,
            ["tenants (p.toml:1) must be a table for each tenant, such as [tenants.\"acme\"]"]
        );
    }

    #[test]
    fn in_the_environment_broken_json_is_told_with_its_place() {
        let start = "tenants (environment POSTRIDER_TENANTS) must be a JSON object such as {\"acme\": {\"weight\": 2}}";
        for (json, end) in [
            (
                r#"{"a":"#,
                "; it is no JSON: EOF while parsing a value at line 1 column 5",
            ),
            ("[]", ""),
        ] {
            let (_, problems) = read("", &[("POSTRIDER_TENANTS", json)]);
            assert_eq!(problems, [format!("{start}{end}")]);
        }
        let (shares, problems) = read("[tenants.acme]\nweight = 5\n", &[("POSTRIDER_TENANTS", "")]);
        assert_eq!(
            (shares.of("acme"), problems.len()),
            (share(5, 0), 0),
            "empty is not set"
        );
    }

    #[test]
    fn they_reach_the_directory() {
        let environment = Environment::from_pairs([(
            "POSTRIDER_TENANTS".to_owned(),
            r#"{"acme": {"rate_limit_per_second": 10}}"#.to_owned(),
        )]);
        let sources = Sources {
            environment,
            ..Sources::default()
        };
        let rules = load(&sources).unwrap().settings.rules;
        assert_eq!(rules.shares.of("acme"), share(1, 10));
    }
}
