//! The sink as a process, called by the courier: each proves the other.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use postrider::clock::{Clock, SystemClock};
use postrider::courier::{Courier, Report};
use postrider_core::outcome::{ErrorKind, Outcome};
use postrider_core::secret::Secret;
use postrider_core::signing::Keyring;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::rig::{PATIENCE, SECRET, assert_failed, assert_status, courier, hurried, parcel, payload, target};

struct Sink {
    address: SocketAddr,
    lines: mpsc::UnboundedReceiver<String>,
    process: Child,
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sink {
    async fn start(options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["sink", "--port", "0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut sink = Self {
            address: ([127, 0, 0, 1], 0).into(),
            lines,
            process,
        };
        let first = sink.line().await;
        sink.address = first.rsplit("http://").next().unwrap().parse().unwrap();
        sink
    }

    async fn line(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.lines.recv())
            .await
            .unwrap()
            .unwrap()
    }

    async fn send(&self, event_id: &str) -> Report {
        let target = target(&format!("http://{}/hook", self.address));
        let mut event = payload(r#"{"total":1999}"#);
        event.event_id = event_id.to_owned();
        let mut parcel = parcel(hurried(target), event);
        parcel.now = SystemClock.now();
        courier().send(parcel).await
    }

    async fn call(&self, request_line: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{request_line} HTTP/1.1\r\nHost: sink\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    async fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&self.call("GET /stats").await).unwrap()
    }
}

#[tokio::test]
async fn statuses_in_turn_counts_and_ids() {
    let sink = Sink::start(&["--quiet", "--status", "500,503,200", "--retry-after", "7"]).await;
    for (id, status) in [("a", 500), ("b", 500), ("a", 503), ("a", 200), ("a", 200)] {
        let report = sink.send(id).await;
        assert_status(&report, status);
        let Outcome::Answered(answer) = report.outcome else {
            panic!("{report:?}")
        };
        let expected = (status >= 400).then_some(Duration::from_secs(7));
        assert_eq!(answer.retry_after, expected, "{status}");
    }
    let stats = sink.stats().await;
    for (name, value) in [
        ("requests", 5),
        ("events", 2),
        ("delivered_events", 1),
        ("repeats", 3),
        ("repeats_after_success", 1),
        ("max_in_flight", 1),
    ] {
        assert_eq!(stats[name], value, "{name} in {stats}");
    }
    assert_eq!(
        stats["by_status"],
        serde_json::json!({"200": 2, "500": 2, "503": 1})
    );
    assert_eq!(sink.call("GET /ids").await, "a\t/hook\t4\t2\n");
    assert!(sink.call("GET /ids?all=1").await.contains("b\t/hook\t1\t0\n"));
    sink.call("POST /reset").await;
    assert_eq!(sink.stats().await["requests"], 0);
}

#[tokio::test]
async fn signatures_are_verified() {
    let sink = Sink::start(&["--quiet", "--verify", SECRET]).await;
    assert_status(&sink.send("a").await, 200);
    let mut forged = target(&format!("http://{}/hook", sink.address));
    forged.keyring = Keyring::new(&Secret::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), None).unwrap();
    let mut parcel = parcel(forged, payload("{}"));
    parcel.now = SystemClock.now();
    assert_status(&courier().send(parcel).await, 401);
    let stats = sink.stats().await;
    assert_eq!((&stats["verified"], &stats["unverified"]), (&1.into(), &1.into()));
}

#[tokio::test]
async fn it_hangs_and_resets_and_fails_when_asked() {
    let hanging = Sink::start(&["--quiet", "--hang-percent", "100"]).await;
    assert_failed(&hanging.send("a").await, ErrorKind::Timeout);
    let resetting = Sink::start(&["--quiet", "--reset-percent", "100"]).await;
    assert_failed(&resetting.send("a").await, ErrorKind::ConnectionReset);
    let failing = Sink::start(&["--quiet", "--fail-percent", "100"]).await;
    assert_status(&failing.send("a").await, 500);
    let stats = resetting.stats().await;
    assert_eq!((&stats["resets"], &stats["events"]), (&1.into(), &1.into()));
}

#[tokio::test]
async fn an_answer_takes_the_delay_at_least() {
    let sink = Sink::start(&["--quiet", "--delay", "300ms"]).await;
    let begun = Instant::now();
    sink.call("POST /hook").await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert_eq!(sink.stats().await["requests"], 1);
}

#[tokio::test]
async fn requests_are_printed() {
    let mut sink = Sink::start(&["--verify", SECRET]).await;
    assert_status(&sink.send("order-1").await, 200);
    let mut printed = String::new();
    while !printed.contains("1999") {
        let line = sink.line().await;
        printed.push_str(&line);
        printed.push('\n');
    }
    for part in [
        "#1 POST /hook -> 200, signature verified\n",
        "  webhook-id: order-1\n",
        "  webhook-attempt: 3\n",
        "  webhook-signature: v1,",
        "  {\"total\":1999}\n",
    ] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
}
