//! The tour of the front page, pasted into a shell as it stands there.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::server::{BINARY, free_port};
use super::wait::eventually;

const BOUND: Duration = Duration::from_secs(60);
const PAGE: &str = include_str!("../../../../../README.md");

/// The shell blocks of the tour, in order.
fn blocks() -> Vec<String> {
    let start = PAGE
        .find("\n## Five-minute tour")
        .expect("the tour has its heading")
        + 1;
    let length = PAGE[start..].find("\n## ").unwrap_or(PAGE.len() - start);
    let tour = &PAGE[start..start + length];
    tour.split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// A shell and all that it started; killed when dropped.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

fn bash(script: &str, folder: &Path, output: &str) -> Shell {
    let output = File::create(folder.join(output)).unwrap();
    let child = Command::new("bash")
        .args(["-eu", "-o", "pipefail", "-c", script])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .process_group(0)
        .spawn()
        .unwrap();
    Shell(child)
}

/// Whether a process listens at its port; false when it has ended instead.
async fn listens(shell: &mut Shell, port: u16) -> bool {
    eventually(&format!("port {port} answers"), BOUND, async || {
        if shell.0.try_wait().unwrap().is_some() {
            return Some(false);
        }
        TcpStream::connect(("127.0.0.1", port)).await.ok().map(|_| true)
    })
    .await
}

/// Starts the tour's server and sinks on ports that are free now, and answers its requests, adapted. Another test may take
/// a port first: then on others.
async fn start(folder: &Path) -> ([Shell; 4], String) {
    for _ in 0..5 {
        // The page's own ports may be in use here; the binary is built already.
        let ports = [3333, 4000, 4001, 4002].map(|port: u16| (port, free_port()));
        let adapted: Vec<_> = blocks().iter().map(|block| adapt(block, &ports)).collect();
        let [server, sink, broken, expired, tour @ ..] = adapted.as_slice() else {
            panic!("the tour has blocks for a server and three sinks, then the requests")
        };
        let server = server.replace(" dev ", &format!(" dev --listen 127.0.0.1:{} ", ports[0].1));
        let mut shells = [
            bash(&server, folder, "server.txt"),
            bash(sink, folder, "sink.txt"),
            bash(broken, folder, "broken.txt"),
            bash(expired, folder, "expired.txt"),
        ];
        let mut all = true;
        for (shell, (_, port)) in shells.iter_mut().zip(ports) {
            all = all && listens(shell, port).await;
        }
        if all {
            return (shells, tour.concat());
        }
    }
    let said = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    panic!(
        "the tour's processes ended before they listened, five times:\n{}\n{}\n{}\n{}",
        said("server.txt"),
        said("sink.txt"),
        said("broken.txt"),
        said("expired.txt")
    );
}

/// The binary of this run instead of `cargo run`, and other ports: all at once, or a new one could hold an old one's digits.
fn adapt(block: &str, ports: &[(u16, u16)]) -> String {
    let mut block = block.replace("cargo run --release --", BINARY);
    for (from, _) in ports {
        block = block.replace(&from.to_string(), &format!("<{from}>"));
    }
    for (from, to) in ports {
        block = block.replace(&format!("<{from}>"), &to.to_string());
    }
    block
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pasted_as_it_stands_it_works() {
    let folder = TempDir::new().unwrap();
    let (_running, tour) = start(folder.path()).await;
    let mut shell = bash(&tour, folder.path(), "tour.txt");
    let status = eventually("the tour ends", BOUND, async || shell.0.try_wait().unwrap()).await;
    let said = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(
        status.success(),
        "{status}\n{}\n{}",
        said("tour.txt"),
        said("server.txt")
    );

    eventually("the sink prints the request", BOUND, async || {
        let printed = said("sink.txt");
        [
            "webhook-id: order-1",
            "webhook-signature: v1,",
            r#"{"total":1999}"#,
        ]
        .iter()
        .all(|part| printed.contains(part))
        .then_some(())
    })
    .await;
    let shown = said("tour.txt");
    for part in [
        r#""id":"order-1""#,
        r#""id":"shop""#,
        "next_attempt_at",
        r#""code":"503""#,
        r#""code":401"#,
        "http_4xx",
        "1 succeeded",
    ] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
}
