//! Deleting dead letters, ending pending deliveries by hand, and bringing dead letters back from a file.

use axum::http::Method;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::dead_letters::{DENIED, die, troubled};
use super::server::Server;

async fn count(server: &Server, query: &str) -> u64 {
    let summary = server
        .get(&format!("/dead-letters/summary?{query}"))
        .await
        .expect(200);
    summary["count"].as_u64().unwrap()
}

#[tokio::test]
async fn a_purge_removes_what_the_filter_admits_and_says_so_before() {
    let server = troubled().await;
    let filter = json!({ "destination_id": "des_a", "code": 401, "dry_run": true });
    let counted = server.post("/dead-letters/purge", filter).await.expect(200);
    assert_eq!(
        (&counted["dry_run"], &counted["count"]),
        (&json!(true), &json!(5))
    );
    assert_eq!(count(&server, "").await, 7, "nothing was removed");
    let filter =
        json!({ "destination_id": ["des_a"], "code": ["401"], "died_at": { "lt": "2026-01-01T00:00:06Z" } });
    let purged = server.post("/dead-letters/purge", filter).await.expect(200);
    assert_eq!((&purged["purged"], &purged["remaining"]), (&json!(3), &json!(0)));
    assert_eq!(count(&server, "destination_id=des_a").await, 2);
    let purged = server
        .post("/dead-letters/purge", json!({ "all": true }))
        .await
        .expect(200);
    assert_eq!(purged["purged"], 4);
    assert_eq!(count(&server, "").await, 0);
    let events = server.get("/events").await.expect(200);
    assert_eq!(
        events["models"].as_array().unwrap().len(),
        7,
        "events stay until retention takes them"
    );
}

#[tokio::test]
async fn what_destroys_is_read_strictly() {
    let server = troubled().await;
    let table = [
        (json!({}), json!(["all must be true when there is no filter"])),
        (
            json!({ "dry_run": true }),
            json!(["all must be true when there is no filter"]),
        ),
        (
            json!({ "all": true, "code": 401 }),
            json!(["all must not be true when there is a filter"]),
        ),
        (
            json!({ "tenant_id": "", "destinaton_id": "des_a", "code": "4xx", "reason": ["bad"], "died_at": { "since": 1 } }),
            json!([
                "tenant_id must not be empty; leave it out to admit all",
                "died_at.since is unknown; use gte, gt, lte or lt",
                "reason must be one of: permanent_failure, exhausted_retries, expired, circuit_open, destination_disabled, blocked_address, invalid_payload, manual",
                "code must be a status code from 100 to 999",
                "destinaton_id is unknown",
            ]),
        ),
        (
            json!({ "tenant_id": 1.5, "all": "yes" }),
            json!([
                "all must be true or false",
                "tenant_id must be a text, a number or an array of them"
            ]),
        ),
    ];
    for (body, faults) in table {
        let refused = server.post("/dead-letters/purge", &body).await.expect(422);
        assert_eq!(refused["data"], faults, "{body}");
    }
    assert_eq!(count(&server, "").await, 7);
}

#[tokio::test]
async fn an_empty_value_does_not_widen_a_purge() {
    let server = troubled().await;
    let table = [
        (json!({ "died_at": { "lt": "" } }), "died_at.lt"),
        (json!({ "died_at": { "gte": "" } }), "died_at.gte"),
        (json!({ "died_at": {} }), "died_at"),
        (json!({ "text": "" }), "text"),
        (json!({ "code": [401, ""] }), "code"),
        (json!({ "id": [] }), "id"),
    ];
    for (mut body, field) in table {
        body["tenant_id"] = json!("acme");
        let refused = server.post("/dead-letters/purge", &body).await.expect(422);
        let fault = format!("{field} must not be empty; leave it out to admit all");
        assert_eq!(refused["data"][0], fault, "{body}");
        let refused = server.post("/replays", &body).await.expect(422);
        assert_eq!(refused["data"][0], fault, "{body}");
    }
    for field in ["since", "config"] {
        let body = json!({ "tenant_id": "acme", "destination_id": "des_a", field: "" });
        let refused = server.post("/replays", &body).await.expect(422);
        assert_eq!(refused["data"], json!([format!("{field} must not be empty")]));
    }
    assert_eq!(count(&server, "").await, 7);
}

#[tokio::test]
async fn null_does_not_widen_a_purge() {
    let server = troubled().await;
    let names = [
        "destination_id",
        "topic",
        "reason",
        "category",
        "code",
        "died_at",
        "text",
        "id",
        "dry_run",
    ];
    for name in names {
        let body = json!({ "tenant_id": "acme", name: null });
        let fault = format!("{name} must not be null; leave it out instead");
        for path in ["/dead-letters/purge", "/replays"] {
            let refused = server.post(path, &body).await.expect(422);
            assert_eq!(refused["data"], json!([fault]), "{path}");
        }
    }
    let body = json!({ "tenant_id": "acme", "died_at": { "lt": null } });
    let refused = server.post("/dead-letters/purge", body).await.expect(422);
    assert_eq!(
        refused["data"],
        json!(["died_at.lt must not be null; leave it out instead"])
    );
    assert_eq!(count(&server, "").await, 7);
}

#[tokio::test]
async fn a_purge_leaves_what_died_after_its_dry_run() {
    let server = troubled().await;
    let filter = json!({ "tenant_id": "acme", "dry_run": true });
    let counted = server.post("/dead-letters/purge", filter).await.expect(200);
    assert_eq!(counted["count"], 7);
    die(&server, "des_c", 3, DENIED).await;
    let bounded = |dry_run: bool| json!({ "tenant_id": "acme", "upto": counted["upto"], "dry_run": dry_run });
    let again = server
        .post("/dead-letters/purge", bounded(true))
        .await
        .expect(200);
    assert_eq!(again, counted, "those that died since are not counted");
    let purged = server
        .post("/dead-letters/purge", bounded(false))
        .await
        .expect(200);
    let right = json!({ "purged": 7, "remaining": 0, "upto": counted["upto"] });
    assert_eq!(purged, right);
    assert_eq!(count(&server, "destination_id=des_c").await, 3);
    for (upto, fault) in [
        (json!("x"), "upto must be the upto of an earlier answer"),
        (json!("-1"), "upto must be the upto of an earlier answer"),
        (json!(""), "upto must not be empty"),
        (json!(7), "upto must be a string"),
    ] {
        let body = json!({ "all": true, "upto": upto });
        let refused = server.post("/dead-letters/purge", &body).await.expect(422);
        assert_eq!(refused["data"], json!([fault]), "{body}");
    }
}

#[tokio::test]
async fn one_dead_letter_is_deleted_once() {
    let server = troubled().await;
    let id = server.get("/dead-letters").await.expect(200)["models"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let deleted = server.delete(&format!("/dead-letters/{id}")).await.expect(200);
    assert_eq!(deleted, json!({ "success": true }));
    server.delete(&format!("/dead-letters/{id}")).await.expect(404);
    server.get(&format!("/deliveries/{id}")).await.expect(404);
    assert_eq!(count(&server, "").await, 6);
}

#[tokio::test]
async fn a_pending_delivery_is_ended_by_hand() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("des_a", json!({})).await;
    for id in ["e1", "e2"] {
        server.publish(json!({ "id": id })).await;
    }
    let pending = server.get("/deliveries?dir=asc").await.expect(200);
    let id = |at: usize| pending["models"][at]["id"].as_str().unwrap().to_owned();
    let path = |at: usize, verb: &str| format!("/deliveries/{}/{verb}", id(at));
    server.post(&path(0, "dead-letter"), "").await.expect(200);
    let letter = server.get(&format!("/dead-letters/{}", id(0))).await.expect(200);
    assert_eq!(
        (&letter["reason"], &letter["category"]),
        (&json!("manual"), &json!("not_attempted"))
    );
    assert_eq!(letter["context"]["destination"]["id"], "des_a");
    server.post(&path(1, "cancel"), "").await.expect(200);
    let canceled = server.get(&format!("/deliveries/{}", id(1))).await.expect(200);
    assert_eq!(canceled["status"], "canceled");
    for (at, status) in [(0, "dead"), (1, "canceled")] {
        for verb in ["cancel", "dead-letter"] {
            let refused = server.post(&path(at, verb), "").await.expect(409);
            assert_eq!(refused["message"], "the delivery is not pending");
            assert_eq!(refused["data"]["status"], status);
        }
    }
    server.post("/deliveries/dlv_00/cancel", "").await.expect(404);
    server
        .post("/deliveries/dlv_00/dead-letter", "")
        .await
        .expect(404);
}

#[tokio::test]
async fn an_exported_archive_comes_back_with_the_same_bytes() {
    let server = troubled().await;
    let exported = server.get("/dead-letters/export").await.body;
    let purge = server.post("/dead-letters/purge", json!({ "all": true })).await;
    assert_eq!(purge.expect(200)["purged"], 7);
    let answer = server
        .call(Method::POST, "/dead-letters/import", exported.clone())
        .await
        .expect(200);
    assert_eq!(
        (&answer["imported"], &answer["duplicates"], &answer["refused"]),
        (&json!(7), &json!(0), &json!(0))
    );
    assert_eq!(answer["results"][6]["line"], 7);
    let again = server
        .call(Method::POST, "/dead-letters/import", exported.clone())
        .await
        .expect(200);
    assert_eq!((&again["imported"], &again["duplicates"]), (&json!(0), &json!(7)));
    let back = server.get("/dead-letters/export").await.body;
    let known = |lines: &[u8]| -> Vec<Value> {
        let lines = std::str::from_utf8(lines).unwrap().lines();
        let mut lines: Vec<Value> = lines
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                // An import is another death, and a delivery of its own; requests are not made from a masked configuration.
                for field in ["id", "died_at", "created_at", "context"] {
                    line[field].take();
                }
                line["event"]["accepted_at"].take();
                line
            })
            .collect();
        lines.sort_by_key(|line| line["event"]["id"].to_string());
        lines
    };
    assert_eq!(known(&back), known(&exported));
    let everything = String::from_utf8(back.to_vec()).unwrap();
    assert_eq!(everything.lines().count(), 7);
    assert!(
        everything.contains("\"data_base64\":\"eyJuIjozfQ==\""),
        "{everything}"
    );
}

#[tokio::test]
async fn an_import_takes_the_topics_that_publish_takes() {
    let server = troubled().await;
    let exported = server
        .get("/dead-letters/export?destination_id=des_a")
        .await
        .text();
    let lines: Vec<&str> = exported.lines().collect();
    server
        .post("/dead-letters/purge", json!({ "all": true }))
        .await
        .expect(200);
    let long = "t".repeat(256);
    let too_long = "t".repeat(257);
    for (at, (topic, refused)) in [
        ("", 0),
        (long.as_str(), 0),
        (too_long.as_str(), 1),
        ("two words", 1),
        ("order.*", 1),
    ]
    .into_iter()
    .enumerate()
    {
        let mut line: Value = serde_json::from_str(lines[at]).unwrap();
        line["event"]["id"] = json!(format!("unseen-{at}"));
        line["event"]["topic"] = json!(topic);
        let answer = server.post("/dead-letters/import", line).await.expect(200);
        assert_eq!(answer["refused"], refused, "{topic:?}: {answer}");
    }
}

#[tokio::test]
async fn an_import_refuses_times_of_the_future() {
    let server = troubled().await;
    let exported = server
        .get("/dead-letters/export?destination_id=des_a")
        .await
        .text();
    server
        .post("/dead-letters/purge", json!({ "all": true }))
        .await
        .expect(200);
    let line: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    let with = |pointer: &str, time: &str| {
        let mut line = line.clone();
        *line.pointer_mut(pointer).unwrap() = json!(time);
        line
    };
    // The clock stands at 00:00:07; 300 s ahead is allowed.
    let (latest, late) = ("2026-01-01T00:05:07.000Z", "2026-01-01T00:05:07.001Z");
    for (pointer, right) in [
        ("/event/time", "is refused: event.time must not be in the future"),
        (
            "/attempts/0/started_at",
            "is refused: attempts must not have a time in the future",
        ),
    ] {
        let answer = server.post("/dead-letters/import", with(pointer, late)).await;
        assert_eq!(answer.expect(200)["results"][0]["reason"], right);
        assert_eq!(count(&server, "").await, 0);
        let answer = server.post("/dead-letters/import", with(pointer, latest)).await;
        assert_eq!(answer.expect(200)["imported"], 1, "{pointer}");
        let purge = server.post("/dead-letters/purge", json!({ "all": true })).await;
        assert_eq!(purge.expect(200)["purged"], 1);
    }
}

#[tokio::test]
async fn an_import_refuses_what_publish_refuses() {
    let server = troubled().await;
    let exported = server
        .get("/dead-letters/export?destination_id=des_a")
        .await
        .text();
    let line: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat((1 << 20) - 7));
    for (pointer, value, right) in [
        (
            "/tenant_id",
            json!("postrider.operator"),
            "is refused: tenant_id postrider.operator is reserved for Postrider's own alerts",
        ),
        (
            "/event/metadata",
            json!({ "A": "1", "a": "2" }),
            "is refused: event.metadata.a is the same header as another key",
        ),
        (
            "/event/data_base64",
            json!(STANDARD.encode(large)),
            "is refused: event.data_base64 must hold at most 1048576 bytes (server.max_body_bytes)",
        ),
        (
            "/event/id",
            json!("two words"),
            "is refused: event.id must be 1 to 255 visible ASCII characters",
        ),
    ] {
        let mut line = line.clone();
        *line.pointer_mut(pointer).unwrap() = value;
        let answer = server.post("/dead-letters/import", line).await.expect(200);
        assert_eq!(answer["results"][0]["reason"], right, "{pointer}");
    }
}

#[tokio::test]
async fn an_import_refuses_another_event_of_the_same_id() {
    let server = troubled().await;
    let exported = server
        .get("/dead-letters/export?destination_id=des_a")
        .await
        .text();
    let first = exported.lines().next().unwrap();
    // {"n":0} and {"n":3}.
    let other = first.replace("eyJuIjowfQ==", "eyJuIjozfQ==");
    assert_ne!(other, first);
    let answer = server.post("/dead-letters/import", other).await.expect(200);
    let right = "has the id of an event of its tenant with other data, topic or metadata";
    assert_eq!(answer["results"][0]["reason"], right);
    let answer = server.post("/dead-letters/import", first).await.expect(200);
    assert_eq!(answer["duplicates"], 1);
}

#[tokio::test]
async fn a_bad_line_does_not_stop_the_others() {
    let server = troubled().await;
    let exported = server
        .get("/dead-letters/export?destination_id=des_a")
        .await
        .text();
    server
        .post("/dead-letters/purge", json!({ "all": true }))
        .await
        .expect(200);
    let lines: Vec<&str> = exported.lines().collect();
    let body = [
        lines[0].to_owned(),
        "{\"format\":\"other\"}".to_owned(),
        String::new(),
        lines[1].replace("\"tenant_id\":\"acme\"", "\"tenant_id\":\"gone\""),
        lines[2].replace("\"destination_id\":\"des_a\"", "\"destination_id\":\"gone\""),
        // ff fe 80: an event must be JSON.
        lines[3].replace("eyJuIjozfQ==", "//6A"),
        "nonsense".to_owned(),
        lines[4].to_owned(),
    ]
    .join("\n");
    let answer = server.post("/dead-letters/import", body).await.expect(200);
    assert_eq!((&answer["imported"], &answer["refused"]), (&json!(2), &json!(5)));
    let reasons: Vec<String> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|result| result["status"] == "refused")
        .map(|result| format!("{} {}", result["line"], result["reason"].as_str().unwrap()))
        .collect();
    let right = [
        "2 has format \"other\"; this version reads \"postrider.dead_letter.v1\"",
        "4 has a tenant_id that does not exist",
        "5 has a destination_id that its tenant does not have",
        "6 is refused: event.data_base64 must be a valid JSON object",
        "7 is not a dead letter: expected ident at line 1 column 2",
    ];
    assert_eq!(reasons, right);
    let refused = server.post("/dead-letters/import", "\n\n").await.expect(422);
    assert_eq!(refused["data"], json!(["the body must have 1 to 1000 lines"]));
    die(&server, "des_c", 1, DENIED).await;
}
