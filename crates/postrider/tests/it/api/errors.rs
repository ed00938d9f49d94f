//! Every error has the JSON body of the contract, whatever went wrong.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;

use super::server::{KEY, Server};

#[tokio::test]
async fn unknown_routes_and_wrong_methods_are_json_too() {
    let server = Server::start().await;
    for path in ["/", "/nothing", "/api/v1", "/api/v1/nothing"] {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let expected = json!({ "status": 404, "message": "not found" });
        assert_eq!(server.send(request).await.expect(404), expected, "{path}");
    }
    let answer = server.call(Method::POST, "/tenants/acme", "").await;
    assert_eq!(
        answer.expect(405),
        json!({ "status": 405, "message": "method not allowed" })
    );
    assert!(answer.headers.contains_key("allow"));
}

#[tokio::test]
async fn bodies_that_are_no_json_objects_say_where() {
    let server = Server::start().await;
    let table: [(&[u8], &str); 7] = [
        (b"", "the body is empty"),
        (b" \n", "the body is empty"),
        (b"[]", "expected an object"),
        (b"\"text\"", "expected an object"),
        (b"{\"a\":}", "expected value at line 1 column 6"),
        (
            b"{\"id\":\"a\",\"id\":\"b\"}",
            "duplicate field `id` at line 1 column 14",
        ),
        (b"{\"a\":\"\xff\"}", "invalid UTF-8 at byte 6"),
    ];
    for (body, detail) in table {
        let refused = server.call(Method::POST, "/publish", body).await.expect(422);
        let expected = json!({ "status": 422, "message": "invalid JSON", "data": [detail] });
        assert_eq!(refused, expected, "{}", String::from_utf8_lossy(body));
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_413() {
    let server = Server::with(super::server::loopback(), |config| config.max_body_bytes = 100).await;
    let body = json!({ "tenant_id": "t", "data": { "a": "x".repeat(100) } }).to_string();
    let refused = server.post("/publish", &body).await.expect(413);
    assert_eq!(
        refused,
        json!({
            "status": 413, "message": "request body too large",
            "data": ["the body must have at most 100 bytes (server.max_body_bytes)"],
        })
    );
    let small = json!({ "tenant_id": "t", "data": { "a": "x" } });
    server.post("/publish", small).await.expect(202);
}

#[tokio::test]
async fn an_announced_length_over_the_limit_is_refused_before_the_body_comes() {
    let server = Server::start().await;
    let never = Body::from_stream(futures_util::stream::pending::<Result<&str, std::io::Error>>());
    let request = Request::post("/api/v1/publish")
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-length", "9999999999")
        .body(never)
        .unwrap();
    let refused = server.send(request).await.expect(413);
    assert_eq!(refused["message"], "request body too large");
}

#[tokio::test]
async fn any_content_type_is_read_as_json() {
    let server = Server::start().await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let request = Request::post("/api/v1/publish")
            .header("authorization", format!("Bearer {KEY}"))
            .header("content-type", kind)
            .body(Body::from(r#"{"tenant_id":"t","data":{}}"#))
            .unwrap();
        server.send(request).await.expect(202);
    }
}

#[tokio::test]
async fn a_path_that_is_not_utf_8_is_refused() {
    let server = Server::start().await;
    let refused = server.get("/tenants/%FF").await.expect(400);
    assert_eq!(refused["message"], "the path is not valid UTF-8");
}

#[tokio::test]
async fn too_many_query_parameters_are_refused() {
    let server = Server::start().await;
    server
        .get(&format!("/events?{}", "id=a&".repeat(1_001)))
        .await
        .expect(400);
}

/// Every row of the table of routes in `docs/api.md` is a route.
#[tokio::test]
async fn documented_routes_exist() {
    let server = Server::start().await;
    let page = include_str!("../../../../../docs/api.md");
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let mut count = 0;
    for row in rows {
        let Some((method, path)) = row.split_once(' ') else {
            continue;
        };
        let Ok(method) = method.parse::<Method>() else {
            continue;
        };
        if !path.starts_with('/') {
            continue;
        }
        count += 1;
        let answer = server.call(method, &path.replace(['{', '}'], ""), "").await;
        let is_missing = answer.status.as_u16() == 405 || answer.text().contains("\"message\":\"not found\"");
        assert!(!is_missing, "{row}: {}", answer.text());
    }
    assert_eq!(count, 53);
}
