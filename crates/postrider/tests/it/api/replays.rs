//! Replays as jobs: what may be asked for, and what is answered. What they do is shown by the simulation.

use std::time::Duration;

use postrider_core::delivery::DeliveryStatus;
use serde_json::{Value, json};

use super::dead_letters::troubled;
use super::server::Server;

async fn create(server: &Server, body: Value) -> Value {
    server.post("/replays", body).await.expect(201)
}

#[tokio::test]
async fn a_dry_run_counts_and_changes_nothing() {
    let server = troubled().await;
    let answer = server
        .post("/replays", json!({ "all": true, "dry_run": true }))
        .await
        .expect(200);
    let right = json!({
        "dry_run": true, "count": 7, "unreachable": 0,
        "destinations": [
            { "tenant_id": "acme", "destination_id": "des_a", "count": 5, "disabled": false },
            { "tenant_id": "acme", "destination_id": "des_b", "count": 2, "disabled": false },
        ],
    });
    assert_eq!(answer, right);
    let answer = server
        .post("/replays", json!({ "code": 401, "dry_run": true }))
        .await
        .expect(200);
    assert_eq!(answer["count"], 5);
    let since = json!({ "tenant_id": "acme", "destination_id": "des_a", "since": "2026-01-01T00:00:05Z", "dry_run": true });
    let answer = server.post("/replays", since).await.expect(200);
    assert_eq!(answer["count"], 3, "des_a-2 to des_a-4");
    let none = server.get("/replays").await.expect(200);
    assert_eq!(none["models"], json!([]));
}

#[tokio::test]
async fn a_replay_is_a_job_that_can_be_seen() {
    let server = troubled().await;
    let made = create(
        &server,
        json!({ "destination_id": "des_a", "rate_per_second": 5, "config": "original" }),
    )
    .await;
    assert!(made["id"].as_str().unwrap().starts_with("rpl_"), "{made}");
    assert_eq!(
        (&made["state"], &made["total"], &made["done"]),
        (&json!("running"), &json!(5), &json!(0))
    );
    assert_eq!(made["eta_seconds"], 1, "5 at 5 a second");
    assert_eq!(made["filter"], json!({ "destination_id": ["des_a"] }));
    assert_eq!(
        (&made["rate_per_second"], &made["config"]),
        (&json!(5), &json!("original"))
    );
    let path = format!("/replays/{}", made["id"].as_str().unwrap());
    let shown = server.get(&path).await.expect(200);
    assert_eq!(shown["eta_seconds"], 1, "5 at 5 a second");
    assert_eq!(shown["destinations"][0]["destination_id"], "des_a");
    let unsaid = json!({ "all": true, "rate_per_second": null, "config": null });
    let other = create(&server, unsaid).await;
    assert_eq!(
        (&other["rate_per_second"], &other["config"]),
        (&json!(50), &json!("current"))
    );
    assert_eq!(other["filter"], json!({ "all": true }));
    let list = server.get("/replays?limit=1").await.expect(200);
    assert_eq!(list["models"][0]["id"], other["id"], "newest first");
    let next = list["pagination"]["next"].as_str().unwrap();
    let list = server
        .get(&format!("/replays?limit=1&next={next}"))
        .await
        .expect(200);
    assert_eq!(list["models"][0]["id"], made["id"]);
    assert_eq!(list["models"][0]["eta_seconds"], 1);
    let paused = server.get("/replays?state=paused").await.expect(200);
    assert_eq!(paused["models"], json!([]));
}

#[tokio::test]
async fn a_replay_is_paused_resumed_and_canceled_but_not_after_its_end() {
    let server = troubled().await;
    let made = create(&server, json!({ "code": 401, "rate_per_second": 1 })).await;
    let path = |verb: &str| format!("/replays/{}/{verb}", made["id"].as_str().unwrap());
    for (verb, state, eta) in [
        ("pause", "paused", Value::Null),
        ("pause", "paused", Value::Null),
        ("resume", "running", json!(5)),
        ("cancel", "canceled", Value::Null),
    ] {
        server.advance(Duration::from_secs(3_600));
        let changed = server.post(&path(verb), "").await.expect(200);
        assert_eq!(
            (&changed["state"], &changed["eta_seconds"]),
            (&json!(state), &eta)
        );
        assert!(changed.as_object().unwrap().contains_key("eta_seconds"));
    }
    let refused = server.post(&path("resume"), "").await.expect(409);
    assert_eq!(
        (&refused["message"], &refused["data"]["state"]),
        (&json!("the replay has ended"), &json!("canceled"))
    );
    for verb in ["pause", "resume", "cancel"] {
        let missing = server
            .post(&format!("/replays/rpl_00/{verb}"), "")
            .await
            .expect(404);
        assert_eq!(missing["message"], "replay not found");
    }
    server.get("/replays/rpl_00").await.expect(404);
    let dead = server.get("/deliveries?status=dead").await.expect(200);
    assert_eq!(
        dead["models"].as_array().unwrap().len(),
        7,
        "{}",
        DeliveryStatus::Dead
    );
}

#[tokio::test]
async fn one_dead_letter_is_a_replay_of_one() {
    let server = troubled().await;
    let id = server.get("/dead-letters").await.expect(200)["models"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let made = server
        .post(&format!("/dead-letters/{id}/replay"), "")
        .await
        .expect(201);
    assert_eq!(
        (&made["total"], &made["filter"]),
        (&json!(1), &json!({ "id": [id] }))
    );
    let bad = json!({ "config": "old", "rate_per_second": 0, "code": 401 });
    let refused = server
        .post(&format!("/dead-letters/{id}/replay"), bad)
        .await
        .expect(422);
    let faults = json!([
        "rate_per_second must be a whole number from 1 to 1000",
        "config must be one of: current, original",
        "code is unknown",
    ]);
    assert_eq!(refused["data"], faults);
    server.post("/dead-letters/dlv_00/replay", "").await.expect(404);
}

#[tokio::test]
async fn a_replay_that_can_do_nothing_says_why() {
    let server = troubled().await;
    let list = server.get("/dead-letters?destination_id=des_b").await.expect(200);
    let id = list["models"][0]["id"].as_str().unwrap().to_owned();
    server
        .delete("/tenants/acme/destinations/des_b")
        .await
        .expect(200);
    let refused = server
        .post(&format!("/dead-letters/{id}/replay"), "")
        .await
        .expect(409);
    assert_eq!(
        refused["message"],
        "the dead letter's destination is deleted: it can be exported or purged, not sent again"
    );
    let none = server.get("/replays").await.expect(200);
    assert_eq!(none["models"], json!([]), "no job that does nothing");
    let made = create(&server, json!({ "all": true })).await;
    assert_eq!((&made["total"], &made["unreachable"]), (&json!(5), &json!(2)));
    server.delete(&format!("/dead-letters/{id}")).await.expect(200);
    let gone = server.post(&format!("/dead-letters/{id}/replay"), "").await;
    assert_eq!(gone.expect(404)["message"], "dead letter not found");
}

#[tokio::test]
async fn every_wrong_field_is_named() {
    let server = troubled().await;
    let table = [
        (json!({}), json!(["all must be true when there is no filter"])),
        (
            json!({ "all": true, "tenant_id": "acme" }),
            json!(["all must not be true when there is a filter"]),
        ),
        (
            json!({ "code": 401, "rate_per_second": 1_001, "config": "x", "rate": 5, "dry_run": 1, "since": "yesterday" }),
            json!([
                "dry_run must be true or false",
                "since must be an RFC 3339 date-time",
                "rate_per_second must be a whole number from 1 to 1000",
                "config must be one of: current, original",
                "rate is unknown",
            ]),
        ),
        (
            json!({ "since": "2026-01-01T00:00:00Z", "code": 401, "config": "original", "all": true }),
            json!([
                "destination_id must name exactly one destination when there is since",
                "tenant_id must name the destination's tenant when there is since",
                "since must not be combined with a filter other than tenant_id and destination_id",
                "all must not be true when there is since",
                "config must be current when there is since: what was delivered has kept no configuration",
            ]),
        ),
    ];
    for (body, faults) in table {
        let refused = server.post("/replays", &body).await.expect(422);
        assert_eq!(refused["data"], faults, "{body}");
    }
    for since in [
        "2300-01-01T00:00:00Z",
        "2600-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ] {
        let future =
            json!({ "since": since, "tenant_id": "acme", "destination_id": "des_a", "dry_run": true });
        let refused = server.post("/replays", future).await.expect(422);
        assert_eq!(
            refused["data"],
            json!(["since must not be in the future"]),
            "{since}"
        );
    }
    let missing = json!({ "since": "2026-01-01T00:00:00Z", "tenant_id": "acme", "destination_id": "gone" });
    server.post("/replays", missing).await.expect(404);
    let refused = server.get("/replays?state=gone&limit=0").await.expect(422);
    assert_eq!(
        refused["data"]["query.state"],
        "must be one of: running, paused, canceled, done"
    );
}
