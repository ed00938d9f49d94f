//! The binary with a folder of its own and an empty environment.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// A debug binary on a busy machine does anything within this.
const BOUND: Duration = Duration::from_secs(60);

/// What a command that ended has said.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// A folder to run commands in.
#[derive(Debug)]
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        command
    }

    /// Runs a command that ends by itself.
    pub(super) fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, &[], "")
    }

    /// The same with environment and standard input.
    pub(super) fn run_with(&self, args: &[&str], environment: &[(&str, &str)], input: &str) -> Ended {
        let mut command = self.command(args);
        command.envs(environment.iter().copied());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may have closed it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs a command whose output nobody reads.
    pub(super) fn run_unread(&self, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::new(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts a server and waits until `/healthz` answers 200.
    pub(super) async fn serve(&self, args: &[&str]) -> Serving {
        let address = free_address();
        let log = self.path().join(format!("log-{}.txt", address.port()));
        let output = File::create(&log).unwrap();
        let mut command = self.command(args);
        command.args(["--listen", &address.to_string()]);
        let child = command
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut serving = Serving { address, child, log };
        serving.healthy().await;
        serving
    }
}

/// A server that runs; killed when dropped.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) address: SocketAddr,
    child: Child,
    log: PathBuf,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    /// Everything that it has said so far.
    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(super) async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        eventually("the server has ended", async || child.try_wait().unwrap()).await
    }

    async fn healthy(&mut self) {
        let (address, child, log) = (self.address, &mut self.child, &self.log);
        eventually("/healthz answers 200", async || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!(
                    "the server ended with {status}:\n{}",
                    std::fs::read_to_string(log).unwrap()
                );
            }
            get(address, "/healthz").filter(|answer| answer.starts_with("HTTP/1.1 200 "))
        })
        .await;
    }
}

/// One request without a key; `None` while nobody answers.
pub(super) fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// An address that nobody listens on at the moment.
pub(super) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Asks until there is a value; panics with what was wanted after a minute.
pub(super) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {BOUND:?} in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
