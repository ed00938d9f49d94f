//! The server as a process, on a port and a folder of its own, that outlive a kill.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::client::Api;
use super::wait::eventually;

/// A debug binary on a busy machine starts within this.
const START: Duration = Duration::from_secs(60);

/// The binary that this run has built.
pub(super) const BINARY: &str = env!("CARGO_BIN_EXE_postrider");

/// A port that nobody listens on at the moment, and that nobody gets by chance before it is used: below those that the
/// system gives to outgoing connections (Linux: from 32768), and not the one of another test process.
pub(super) fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let candidates = std::iter::repeat_with(|| {
        let number = std::process::id() * 64 + TAKEN.fetch_add(1, Ordering::Relaxed);
        u16::try_from(15_000 + number % 17_000).unwrap()
    });
    candidates
        .take(17_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of 17,000 ports is free")
}

/// A server and its data. Killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    /// Its interface.
    pub(super) api: Api,
    folder: TempDir,
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    /// Starts with an empty folder and waits until it is ready.
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, with these variables in its environment, also when it is started again.
    pub(super) async fn start_with(environment: &[(&str, &str)]) -> Self {
        let environment = environment.iter();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let api = Api {
            address,
            key: "key-of-the-tests".to_owned(),
        };
        let mut server = Self {
            api,
            folder: TempDir::new().unwrap(),
            environment: environment
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            child: None,
        };
        server.start_again().await;
        server
    }

    /// Starts on the same port with the same data; it must not be running.
    pub(super) async fn start_again(&mut self) {
        assert!(self.child.is_none(), "it is running");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let child = Command::new(BINARY)
            // Unlike `serve`, `dev` lets destinations be on loopback.
            .args(["dev", "--listen", &self.api.address.to_string()])
            .args(["--api-key", &self.api.key, "--log-level", "info", "--data-dir"])
            .arg(self.folder.path().join("data"))
            .current_dir(self.folder.path())
            .env_clear()
            .envs(self.environment.clone())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        self.ready().await;
    }

    async fn ready(&mut self) {
        let api = self.api.clone();
        eventually("the server is ready", START, async || {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
                panic!(
                    "the server ended with {status}:\n{}",
                    std::fs::read_to_string(self.log()).unwrap()
                );
            }
            let answer = api
                .connect()
                .await
                .ok()?
                .call(Method::GET, "/readyz", "")
                .await
                .ok()?;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    /// `kill -9`; what was in memory is gone.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks it to stop, without waiting.
    pub(super) fn terminate(&self) {
        let child = self.child.as_ref().expect("it is running");
        kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    }

    /// Waits until it has ended by itself.
    pub(super) async fn ended(&mut self, bound: Duration) -> ExitStatus {
        let mut child = self.child.take().expect("it is running");
        eventually("the server has ended", bound, async || child.try_wait().unwrap()).await
    }

    /// Everything that it has logged, over all its starts.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("log.txt")
    }
}
