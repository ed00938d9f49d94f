//! Real requests of the server, verified over their raw bytes by the published Standard Webhooks libraries.
//!
//! `cargo xtask test` (or `cargo xtask setup`) fetches the libraries into `target/sdk`; without them these tests fail.

use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::client::event;
use super::receiver::{Received, Receiver};
use super::server::Server;

const BOUND: Duration = Duration::from_secs(120);

/// How many payloads each library verifies; the two get different ones.
const PAYLOADS: usize = 5_000;

/// Payloads that somebody's JSON library would change: whitespace, big integers, repeated keys, escapes.
const ODD: [&str; 8] = [
    r#"{"a":1,"a":2}"#,
    r#"{"n":9007199254740993,"x":1.0,"y":1e2,"z":-0}"#,
    r#"{"s":"\u0000"}"#,
    r#"{"s":"<\/script>\u2028"}"#,
    "{ \"b\" : 1 ,\t\"a\" : [ ]\n}",
    r#"{"text":"naïve Ω 日本 🐎"}"#,
    "{}",
    "{\r\n  \"last\": true\r\n}",
];

/// Odd bytes with a number, so that no two bodies are the same.
fn payload(number: usize) -> String {
    let space = [" ", "\n", "\t", "\r\n", ""][number % 5].repeat(number % 7);
    let odd = ODD[number % ODD.len()];
    format!("{{{space}\"number\" :{space}{number},\"odd\":{odd}{space}}}")
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/sdk")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/verify")
        .join(name)
}

/// Lets the server send the payloads with these numbers; answers the secret and the requests as they came.
async fn delivered(numbers: Range<usize>) -> (String, Vec<Received>) {
    let server = Server::start().await;
    let receiver = Receiver::always(200).await;
    let destination = server.api.subscribe("acme", "shop", "*", &receiver.url()).await;
    let secret = destination["credentials"]["secret"]
        .as_str()
        .expect("the admin sees the secret")
        .to_owned();
    for chunk in numbers.collect::<Vec<_>>().chunks(500) {
        let events: Vec<_> = chunk
            .iter()
            .map(|&n| event("acme", &format!("e{n}"), "order.paid", &payload(n)))
            .collect();
        let batch = format!("[{}]", events.join(","));
        let answer = server
            .api
            .call(Method::POST, "/api/v1/publish/batch", &batch)
            .await;
        assert!((200..300).contains(&answer.status), "{answer:?}");
    }
    let requests = receiver.until_count(PAYLOADS, BOUND).await;
    for request in &requests {
        let number: usize = request.header("webhook-id")[1..].parse().unwrap();
        assert_eq!(request.body, payload(number), "the bytes are the bytes");
    }
    (secret, requests)
}

/// Gives the requests to a verifier; it must accept each one.
fn verify(command: &mut Command, secret: &str, requests: &[Received]) {
    let requests: Vec<_> = requests
        .iter()
        .map(|request| {
            let headers: Value = ["webhook-id", "webhook-timestamp", "webhook-signature"]
                .into_iter()
                .map(|name| (name.to_owned(), Value::from(request.header(name))))
                .collect::<serde_json::Map<_, _>>()
                .into();
            json!({ "headers": headers, "body_base64": STANDARD.encode(&request.body) })
        })
        .collect();
    let input = json!({ "secret": secret, "requests": requests }).to_string();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{error}: the library is not there; run `cargo xtask setup`");
        });
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "the verifier refused (or is missing: run `cargo xtask setup`)"
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        requests.len().to_string()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_library_accepts_every_request() {
    let (secret, requests) = delivered(0..PAYLOADS).await;
    verify(
        Command::new("node").arg(script("verify.mjs")).arg(home()),
        &secret,
        &requests,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_library_accepts_every_request() {
    let (secret, requests) = delivered(PAYLOADS..2 * PAYLOADS).await;
    verify(
        Command::new(home().join("venv/bin/python")).arg(script("verify.py")),
        &secret,
        &requests,
    );
}
