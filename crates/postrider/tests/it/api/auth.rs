//! Keys: what is open, what is refused, and in which words.

use axum::body::Body;
use axum::http::{Method, Request, header};
use serde_json::json;

use super::server::{KEY, OTHER_KEY, Server};

async fn with_header(server: &Server, path: &str, authorization: Option<&str>) -> u16 {
    let mut request = Request::builder().method(Method::GET).uri(path);
    if let Some(value) = authorization {
        request = request.header(header::AUTHORIZATION, value);
    }
    server
        .send(request.body(Body::empty()).unwrap())
        .await
        .status
        .as_u16()
}

#[tokio::test]
async fn every_route_of_the_contract_asks_for_a_key() {
    let server = Server::start().await;
    let routes = [
        (Method::GET, "/tenants"),
        (Method::PUT, "/tenants/t"),
        (Method::GET, "/tenants/t"),
        (Method::DELETE, "/tenants/t"),
        (Method::GET, "/tenants/t/token"),
        (Method::GET, "/tenants/t/portal"),
        (Method::GET, "/tenants/t/destinations"),
        (Method::POST, "/tenants/t/destinations"),
        (Method::GET, "/tenants/t/destinations/d"),
        (Method::PATCH, "/tenants/t/destinations/d"),
        (Method::DELETE, "/tenants/t/destinations/d"),
        (Method::PUT, "/tenants/t/destinations/d/enable"),
        (Method::PUT, "/tenants/t/destinations/d/disable"),
        (Method::GET, "/tenants/t/destinations/d/attempts"),
        (Method::GET, "/tenants/t/destinations/d/attempts/a"),
        (Method::POST, "/publish"),
        (Method::POST, "/publish/batch"),
        (Method::POST, "/retry"),
        (Method::GET, "/retry-policies"),
        (Method::POST, "/retry-policies/preview"),
        (Method::GET, "/retry-policies/slow"),
        (Method::PUT, "/retry-policies/slow"),
        (Method::DELETE, "/retry-policies/slow"),
        (Method::GET, "/retry-policies/slow/changes"),
        (Method::GET, "/events"),
        (Method::GET, "/events/e"),
        (Method::GET, "/attempts"),
        (Method::GET, "/attempts/a"),
        (Method::GET, "/deliveries"),
        (Method::GET, "/deliveries/d"),
        (Method::GET, "/topics"),
        (Method::GET, "/destination-types"),
        (Method::GET, "/destination-types/webhook"),
        (Method::GET, "/metrics/events"),
        (Method::GET, "/metrics/attempts"),
    ];
    for (method, path) in routes {
        let request = Request::builder().method(&method).uri(format!("/api/v1{path}"));
        let answer = server.send(request.body(Body::empty()).unwrap()).await;
        let expected = json!({ "status": 401, "message": "unauthorized" });
        assert_eq!(answer.expect(401), expected, "{method} {path}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
}

#[tokio::test]
async fn each_key_works_and_nothing_else_does() {
    let server = Server::start().await;
    for (header, status) in [
        (Some(format!("Bearer {KEY}")), 200),
        (Some(format!("Bearer {OTHER_KEY}")), 200),
        (Some(format!("Bearer {KEY}x")), 401),
        (Some(format!("Basic {KEY}")), 401),
        (Some(KEY.to_owned()), 401),
        (Some("Bearer ".to_owned()), 401),
        (None, 401),
    ] {
        let answered = with_header(&server, "/api/v1/tenants", header.as_deref()).await;
        assert_eq!(answered, status, "{header:?}");
    }
}

#[tokio::test]
async fn an_empty_key_never_means_open() {
    for keys in [vec![], vec![postrider_core::secret::Secret::new("")]] {
        let server = Server::with(super::server::loopback(), |config| config.api_keys = keys).await;
        assert_eq!(with_header(&server, "/api/v1/tenants", None).await, 401);
        assert_eq!(
            with_header(&server, "/api/v1/tenants", Some("Bearer ")).await,
            401
        );
    }
}

#[tokio::test]
async fn metrics_can_be_protected() {
    let open = Server::start().await;
    assert_eq!(with_header(&open, "/metrics", None).await, 200);
    let rules = super::server::loopback();
    let closed = Server::with(rules, |config| config.protect_metrics = true).await;
    assert_eq!(with_header(&closed, "/metrics", None).await, 401);
    assert_eq!(
        with_header(&closed, "/metrics", Some(&format!("Bearer {KEY}"))).await,
        200
    );
}
