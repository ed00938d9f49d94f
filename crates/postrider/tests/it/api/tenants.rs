//! Tenants: put, read, list, delete.

use std::time::Duration;

use serde_json::json;

use super::server::Server;

#[tokio::test]
async fn put_creates_then_updates() {
    let server = Server::start().await;
    let created = server
        .put("/tenants/acme", r#"{"metadata":{"plan":"pro"}}"#)
        .await
        .expect(201);
    let at = "2026-01-01T00:00:00.000Z";
    let mut expected = json!({
        "id": "acme", "destinations_count": 0, "topics": [], "metadata": { "plan": "pro" },
        "created_at": at, "updated_at": at,
    });
    assert_eq!(created, expected);
    server.advance(Duration::from_secs(1));
    let updated = server.put("/tenants/acme", "").await.expect(200);
    expected["metadata"] = json!(null);
    expected["updated_at"] = json!("2026-01-01T00:00:01.000Z");
    assert_eq!(updated, expected, "metadata that are left out are cleared");
    assert_eq!(server.get("/tenants/acme").await.expect(200), expected);
}

#[tokio::test]
async fn count_and_topics_come_from_destinations() {
    let server = Server::start().await;
    server.tenant().await;
    server
        .destination("a", json!({ "topics": ["user.created", "order.paid"] }))
        .await;
    server.destination("b", json!({ "topics": ["order.paid"] })).await;
    let tenant = server.get("/tenants/acme").await.expect(200);
    assert_eq!(
        (&tenant["destinations_count"], &tenant["topics"]),
        (&json!(2), &json!(["order.paid", "user.created"]))
    );
    server.destination("c", json!({ "topics": "*" })).await;
    assert_eq!(
        server.get("/tenants/acme").await.expect(200)["topics"],
        json!(["*"])
    );
}

#[tokio::test]
async fn delete_takes_the_destinations_along_and_the_id_may_come_again() {
    let server = Server::start().await;
    server.tenant().await;
    server.destination("a", json!({})).await;
    assert_eq!(
        server.delete("/tenants/acme").await.expect(200),
        json!({ "success": true })
    );
    server.delete("/tenants/acme").await.expect(404);
    assert!(server.directory.is_empty());
    let published = server.publish(json!({})).await;
    assert_eq!(
        published["destination_ids"],
        json!([]),
        "an unknown tenant is no error"
    );
    let again = server.put("/tenants/acme", "").await.expect(201);
    assert_eq!(again["destinations_count"], 0);
}

#[tokio::test]
async fn wrong_ids_and_metadata_are_named() {
    let server = Server::start().await;
    let long = "x".repeat(256);
    for id in ["%00", "%20a", "a%0Ab", &long] {
        let refused = server.put(&format!("/tenants/{id}"), "").await.expect(422);
        assert_eq!(
            refused["data"],
            json!([
                "tenant_id must be 1 to 255 bytes without control characters, and without spaces at its ends"
            ]),
            "{id}"
        );
    }
    let refused = server
        .put("/tenants/t", r#"{"metadata":{"a":1,"b":null,"c":"ok"}}"#)
        .await
        .expect(422);
    assert_eq!(
        refused["data"],
        json!(["metadata.a must be a string", "metadata.b must be a string"])
    );
    let refused = server.put("/tenants/t", r#"{"metadata":[]}"#).await.expect(422);
    assert_eq!(refused["data"], json!(["metadata must be an object"]));
    server.get("/tenants/t").await.expect(404);
}

#[tokio::test]
async fn ids_with_slashes_and_letters_of_any_script_work() {
    let server = Server::start().await;
    let created = server.put("/tenants/b%C3%BC%2Fcher", "").await.expect(201);
    assert_eq!(created["id"], "bü/cher");
    assert_eq!(
        server.get("/tenants/b%C3%BC%2Fcher").await.expect(200)["id"],
        "bü/cher"
    );
}

#[tokio::test]
async fn list_pages_exactly_in_both_directions() {
    let server = Server::start().await;
    for n in 0..5 {
        server.put(&format!("/tenants/t{n}"), "").await.expect(201);
    }
    let ids = |page: &serde_json::Value| -> Vec<String> {
        page["models"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = server.get("/tenants?limit=2").await.expect(200);
    assert_eq!(
        (ids(&first), &first["count"]),
        (vec!["t4".into(), "t3".into()], &json!(5))
    );
    assert_eq!(first["pagination"]["order_by"], "created_at");
    assert_eq!(first["pagination"]["prev"], json!(null));
    let next = first["pagination"]["next"].as_str().unwrap();
    let second = server
        .get(&format!("/tenants?limit=2&next={next}"))
        .await
        .expect(200);
    assert_eq!(ids(&second), ["t2", "t1"]);
    let prev = second["pagination"]["prev"].as_str().unwrap();
    let back = server
        .get(&format!("/tenants?limit=2&prev={prev}"))
        .await
        .expect(200);
    assert_eq!(ids(&back), ["t4", "t3"]);
    let oldest = server.get("/tenants?dir=asc&limit=1").await.expect(200);
    assert_eq!(ids(&oldest), ["t0"]);
    let some = server
        .get("/tenants?id[]=t1&id[]=t3&id[]=nobody")
        .await
        .expect(200);
    assert_eq!(
        (ids(&some), &some["count"]),
        (vec!["t3".into(), "t1".into()], &json!(2))
    );
}

#[tokio::test]
async fn list_refuses_wrong_limits_and_cursors() {
    let server = Server::start().await;
    for query in [
        "limit=0",
        "limit=101",
        "limit=-1",
        "limit=x",
        "next=abc",
        "next=a&prev=b",
    ] {
        server.get(&format!("/tenants?{query}")).await.expect(400);
    }
    let refused = server.get("/tenants?dir=up").await.expect(422);
    assert_eq!(refused["data"], json!({ "query.dir": "must be 'asc' or 'desc'" }));
}
