//! The list of alerts, and the tenant that they are sent by.

use postrider::alerts::{Webhook, operator};
use postrider_core::alert::{AlertKind, Severity};
use postrider_core::id::{AlertKey, DestinationKey};
use postrider_core::secret::Secret;
use postrider_core::time::Timestamp;
use postrider_store::alerts::{Alert, AlertSubject, Alerts as _};
use serde_json::{Value, json};

use super::server::{START, Server};

const NOW: Timestamp = Timestamp::from_millis(START);

fn alert(kind: AlertKind, subject: Option<(&str, &str)>, cleared: bool) -> Alert {
    Alert {
        key: AlertKey(0),
        kind,
        subject: subject.map(|(tenant_id, destination_id)| AlertSubject {
            destination: DestinationKey(1),
            tenant_id: tenant_id.to_owned(),
            destination_id: destination_id.to_owned(),
        }),
        severity: Severity::Critical,
        since: NOW,
        updated_at: NOW,
        cleared_at: cleared.then_some(NOW),
        value: 400,
        threshold: 100,
        text: "so it is".to_owned(),
        todo: "do this".to_owned(),
        version: 1,
        published: 1,
    }
}

/// Three: the oldest cleared, one of a destination, one about all.
async fn server() -> Server {
    let server = Server::start().await;
    let alerts = vec![
        alert(AlertKind::BreakerOpen, Some(("acme", "des_1")), true),
        alert(AlertKind::BreakerOpen, Some(("acme", "des_2")), false),
        alert(AlertKind::DeadLetterDepth, None, false),
    ];
    server.store.keep_alerts(alerts, NOW).await.unwrap();
    server
}

/// Kind and destination of each row.
fn rows(list: &Value) -> Vec<String> {
    let models = list["models"].as_array().unwrap();
    let text = |model: &Value| format!("{} {}", model["kind"].as_str().unwrap(), model["destination_id"]);
    models.iter().map(text).collect()
}

#[tokio::test]
async fn an_alert_shows_everything() {
    let server = server().await;
    let list = server
        .get("/alerts?kind=breaker_open&state=firing")
        .await
        .expect(200);
    let mut model = list["models"][0].clone();
    let id = model["id"].take();
    assert!(id.as_str().unwrap().starts_with("alr_"), "{id}");
    let right = json!({
        "id": null, "kind": "breaker_open", "state": "firing", "severity": "critical",
        "tenant_id": "acme", "destination_id": "des_2",
        "since": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z", "cleared_at": null,
        "value": 400, "threshold": 100, "unit": "destinations", "text": "so it is", "todo": "do this",
    });
    assert_eq!(model, right);
}

#[tokio::test]
async fn alerts_are_filtered_and_paged() {
    let server = server().await;
    let (all, two, one) = (
        "dead_letter_depth null",
        r#"breaker_open "des_2""#,
        r#"breaker_open "des_1""#,
    );
    let table: [(&str, &[&str]); 7] = [
        ("", &[all, two, one]),
        ("?state=cleared", &[one]),
        ("?state=cleared&state=firing", &[all, two, one]),
        ("?kind[]=dead_letter_depth&kind[]=oldest_due_age", &[all]),
        ("?tenant_id=acme", &[two, one]),
        ("?destination_id=des_1&destination_id=des_3", &[one]),
        ("?dir=asc", &[one, two, all]),
    ];
    for (query, right) in table {
        let list = server.get(&format!("/alerts{query}")).await.expect(200);
        assert_eq!(rows(&list), right, "{query}");
    }
    let first = server.get("/alerts?limit=2").await.expect(200);
    let next = first["pagination"]["next"].as_str().unwrap();
    let second = server
        .get(&format!("/alerts?limit=2&next={next}"))
        .await
        .expect(200);
    assert_eq!(
        (rows(&second), &second["pagination"]["next"]),
        (vec![one.to_owned()], &Value::Null)
    );
    let prev = second["pagination"]["prev"].as_str().unwrap();
    let back = server
        .get(&format!("/alerts?limit=2&prev={prev}"))
        .await
        .expect(200);
    assert_eq!(rows(&back), [all, two]);
    let wrong = server.get("/alerts?kind=fire&state=on&limit=0").await.expect(422);
    let named: Vec<_> = wrong["data"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(named, ["query.kind", "query.limit", "query.state"]);
    let foreign = server.get("/alerts?next=evt0123").await.expect(400);
    assert_eq!(foreign["message"], "invalid next cursor");
}

#[tokio::test]
async fn the_operators_tenant_is_there_and_nobodys_to_change() {
    let server = Server::start().await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let webhook = Webhook {
        url: "https://ops.example.com/in".to_owned(),
        secret: Secret::new(secret),
    };
    operator::ensure(&server.directory, Some(&webhook), NOW)
        .await
        .unwrap();
    let path = "/tenants/postrider.operator/destinations/alerts";
    let answer = server.get(path).await;
    assert_eq!(answer.expect(200)["config"]["url"], "https://ops.example.com/in");
    assert!(!answer.text().contains(secret), "{}", answer.text());
    let list = server.get("/tenants/postrider.operator/destinations").await;
    assert!(!list.text().contains(secret), "{}", list.text());

    let event = json!({ "tenant_id": "postrider.operator", "topic": "alert.raised", "data": {} });
    let destination =
        json!({ "type": "webhook", "topics": "*", "config": { "url": "https://example.com/" } });
    let refused = [
        server.put("/tenants/postrider.operator", "").await,
        server.delete("/tenants/postrider.operator").await,
        server
            .post("/tenants/postrider.operator/destinations", destination)
            .await,
        server.patch(path, json!({ "topics": ["x"] })).await,
        server.delete(path).await,
        server.post("/publish", event).await,
    ];
    for answer in refused {
        let data = &answer.expect(422)["data"][0];
        let right = "tenant_id postrider.operator is reserved for Postrider's own alerts; choose another, or change \
                     [alerts] in the configuration";
        assert_eq!(data, right);
    }
    server.put(&format!("{path}/disable"), "").await.expect(200);
    let enabled = server.put(&format!("{path}/enable"), "").await.expect(200);
    assert_eq!(enabled["disabled_at"], Value::Null);
}
