//! What is deployed beside the binary: alert rules and dashboard name metrics that exist, and the rules do what they say.
//!
//! `cargo xtask test` (or `cargo xtask setup`) fetches `promtool` into `target/promtool`; without it these tests fail.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use postrider::alerts::notice::Notices;
use postrider::api::{ApiConfig, App, router};
use postrider::clock::SystemClock;
use postrider::courier::{Courier, Parcel, Report};
use postrider::directory::{Directory, Rules};
use postrider::engine::{Engine, EngineConfig, Parts};
use postrider::telemetry::health::Health;
use postrider::telemetry::metrics::Metrics;
use postrider_core::id::DestinationKey;
use postrider_core::outcome::Category;
use postrider_store::seal::SealKey;
use postrider_store::sqlite::{SqliteConfig, SqliteStore};
use serde_json::Value;
use tower::ServiceExt as _;

fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(at_root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Nothing is sent here.
#[derive(Debug)]
struct Nowhere;

#[async_trait]
impl Courier for Nowhere {
    async fn send(&self, parcel: Parcel) -> Report {
        panic!("nothing was published: {parcel:?}");
    }
}

/// What a server with a running engine answers at `/metrics`.
async fn scrape() -> String {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteConfig::new(folder.path(), SealKey::new(&[7; 32]))).unwrap();
    let directory = Directory::load(store.clone(), Rules::default()).await.unwrap();
    let metrics = Arc::new(Metrics::default());
    // What has a series only after something happened.
    metrics.worker_restarted("engine");
    metrics.attempt_finished(DestinationKey(1), "acme/des_1", Category::Success);
    metrics.dead_letters_by_destination([("acme/des_1".to_owned(), 1)].into_iter());
    let health = Health::default();
    let clock = Arc::new(SystemClock);
    let parts = Parts {
        store: store.clone(),
        directory: Arc::clone(&directory),
        courier: Arc::new(Nowhere),
        clock: clock.clone(),
        metrics: Arc::clone(&metrics),
        health: health.clone(),
        notices: Notices::default(),
    };
    let engine = Engine::start(parts, EngineConfig::default());
    let app = App {
        replays: Arc::default(),
        store,
        directory,
        engine: engine.control(),
        clock,
        health,
        metrics,
        config: ApiConfig::default(),
    };
    let request = Request::builder().uri("/metrics").body(Body::empty()).unwrap();
    let response = router(app).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The names of all series that the text declares, those of histograms with their suffixes.
fn declared(scrape: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in scrape.lines() {
        let Some(declaration) = line.strip_prefix("# TYPE ") else {
            continue;
        };
        let (name, kind) = declaration.split_once(' ').unwrap();
        match kind {
            "histogram" => {
                let series = ["_bucket", "_sum", "_count"];
                names.extend(series.map(|suffix| format!("{name}{suffix}")));
            }
            _ => drop(names.insert(name.to_owned())),
        }
    }
    names
}

/// Everything in a text that looks like one of our metrics.
fn named(text: &str) -> BTreeSet<String> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .filter(|word| word.starts_with("postrider_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

async fn all_exist(what: &str, named: &BTreeSet<String>) {
    assert!(named.len() >= 10, "{what} names {named:?}");
    let declared = declared(&scrape().await);
    let missing: Vec<_> = named.difference(&declared).collect();
    assert!(
        missing.is_empty(),
        "{what} names metrics that the server does not have: {missing:?}; it has {declared:?}"
    );
}

/// Every query of the dashboard.
fn queries(dashboard: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push(target["expr"].as_str().unwrap());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        found.extend(variable["query"]["query"].as_str());
    }
    found
}

#[tokio::test]
async fn the_alert_rules_name_metrics_that_exist() {
    let rules = text("deploy/prometheus/alerts.yaml");
    all_exist("alerts.yaml", &named(&rules)).await;
    let tests = text("deploy/prometheus/alerts_test.yaml");
    all_exist("alerts_test.yaml", &named(&tests)).await;
}

#[tokio::test]
async fn the_dashboard_names_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/postrider.json")).unwrap();
    let queries = queries(&dashboard);
    for query in &queries {
        assert!(!named(query).is_empty(), "a query without a metric: {query}");
    }
    all_exist("postrider.json", &named(&queries.join("\n"))).await;
}

/// A metric that nobody looks at is a metric that nobody misses: every one is on the dashboard.
#[tokio::test]
async fn the_dashboard_shows_every_metric() {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/postrider.json")).unwrap();
    let shown = named(&queries(&dashboard).join("\n"));
    let stem = |name: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        let cut = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
        cut.unwrap_or(name).to_owned()
    };
    let shown: BTreeSet<_> = shown.iter().map(|name| stem(name)).collect();
    let all: BTreeSet<_> = declared(&scrape().await).iter().map(|name| stem(name)).collect();
    let missing: Vec<_> = all.difference(&shown).collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

#[test]
fn panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/postrider.json")).unwrap();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["id"]);
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && cells.insert((x, y)), "{} overlaps", panel["title"]);
            }
        }
    }
}

/// Runs promtool in the folder of the rules.
fn promtool(arguments: &[&str]) {
    let program = at_root("target/promtool/promtool");
    assert!(
        program.exists(),
        "{} is missing; `cargo xtask setup` makes it",
        program.display()
    );
    let output = Command::new(program)
        .args(arguments)
        .current_dir(at_root("deploy/prometheus"))
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "promtool {arguments:?}:\n{out}\n{err}");
}

#[test]
fn the_alert_rules_are_valid() {
    promtool(&["check", "rules", "alerts.yaml"]);
}

#[test]
fn the_alert_rules_fire_as_their_tests_say() {
    promtool(&["test", "rules", "alerts_test.yaml"]);
}

/// Every alert of the rules has a section of the page that says what to do, and so has every kind of our own.
#[test]
fn every_alert_is_explained() {
    let page = text("docs/operating.md");
    let anchors: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")))
        .map(|title| {
            let kept = title
                .chars()
                .filter(|c| c.is_ascii_alphanumeric() || " _-".contains(*c));
            kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
        })
        .collect();
    let rules = text("deploy/prometheus/alerts.yaml");
    let runbooks = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook: docs/operating.md#"));
    let kinds = postrider_core::alert::AlertKind::ALL
        .iter()
        .map(|kind| kind.as_str());
    for anchor in runbooks.chain(kinds) {
        assert!(anchors.contains(anchor), "{anchor} is no section: {anchors:?}");
    }
}
