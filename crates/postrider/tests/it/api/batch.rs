//! Publishing many at once: each item has its own answer.

use serde_json::{Value, json};

use super::server::{Server, loopback};

async fn server() -> Server {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("d", json!({})).await;
    server
}

fn event(more: &Value) -> Value {
    let mut event = json!({ "tenant_id": "acme", "topic": "t", "data": {} });
    event
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    event
}

#[tokio::test]
async fn each_event_has_its_own_answer() {
    let events = json!([
        event(&json!({ "id": "a" })),
        event(&json!({ "id": "old" })),
        event(&json!({ "data": [], "tenant_id": "" })),
        7,
        event(&json!({ "id": "a" })),
        event(&json!({ "id": "b", "tenant_id": "other" })),
    ]);
    for body in [events.clone(), json!({ "events": events })] {
        let server = server().await;
        server.publish(json!({ "id": "old" })).await;
        let answer = server.post("/publish/batch", body).await.expect(202);
        let stored = |id: &str, duplicate: bool, to: Value| json!({ "status": 202, "id": id, "duplicate": duplicate, "destination_ids": to });
        let expected = json!({
            "accepted": 4,
            "failed": 2,
            "results": [
                stored("a", false, json!(["d"])),
                stored("old", true, json!(["d"])),
                {
                    "status": 422, "message": "validation error",
                    "data": ["tenant_id is required", "data must be a valid JSON object"],
                },
                { "status": 422, "message": "invalid JSON", "data": ["expected an object"] },
                stored("a", true, json!(["d"])),
                stored("b", false, json!([])),
            ],
        });
        assert_eq!(answer, expected);
    }
}

#[tokio::test]
async fn data_keep_their_bytes() {
    let server = server().await;
    let data = r#"{"z": 1.0, "a":9007199254740993,"a":1e2}"#;
    let body = format!(r#"[{{"tenant_id":"acme","data":{data}}}]"#);
    server.post("/publish/batch", body).await.expect(202);
    assert_eq!(
        server.due().await[0].payload.as_ref().unwrap().data,
        data.as_bytes()
    );
}

#[tokio::test]
async fn one_to_a_thousand_events() {
    let server = server().await;
    let batch = |n: usize| json!((0..n).map(|_| event(&json!({}))).collect::<Vec<_>>());
    for count in [0, 1_001] {
        let refused = server.post("/publish/batch", batch(count)).await.expect(422);
        assert_eq!(refused["data"], json!(["events must have 1 to 1000 items"]));
    }
    let accepted = server.post("/publish/batch", batch(1_000)).await.expect(202);
    assert_eq!(
        (&accepted["accepted"], &accepted["failed"]),
        (&json!(1_000), &json!(0))
    );
    assert_eq!(server.due().await.len(), 1_000);
    for body in ["", "null", "5", "{}", r#"{"events":{}}"#, "[1,"] {
        assert_eq!(
            server.post("/publish/batch", body).await.expect(422)["message"],
            "invalid JSON",
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_batch_without_a_good_event_is_an_error() {
    let server = server().await;
    let refused = server.post("/publish/batch", "[{},[]]").await.expect(422);
    assert_eq!(refused["message"], "no event was accepted");
    assert_eq!(refused["data"]["results"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn one_event_too_large_does_not_stop_the_others() {
    let server = Server::with(loopback(), |config| config.max_body_bytes = 200).await;
    let large = event(&json!({ "data": { "x": "x".repeat(200) } }));
    let body = json!([event(&json!({})), large, event(&json!({}))]);
    let answer = server.post("/publish/batch", body).await.expect(202);
    assert_eq!(
        answer["results"][1],
        json!({
            "status": 413, "message": "event too large",
            "data": ["an event must have at most 200 bytes (server.max_body_bytes)"],
        })
    );
    assert_eq!(answer["accepted"], 2);
}
