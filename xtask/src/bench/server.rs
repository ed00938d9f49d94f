//! The server under test as a process on a fresh folder.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::Method;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::proc_stat;
use crate::load::Client;

pub(super) const KEY: &str = "key-of-the-bench";
/// The folder of its data.
const DATA: &str = "data";
const START: Duration = Duration::from_secs(30);

/// The folder of release binaries.
pub(super) fn binary(name: &str) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::process::at_root("target"), PathBuf::from);
    target.join("release").join(name)
}

/// A port that nobody listens on at the moment.
pub(super) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to find a port")?;
    Ok(listener.local_addr()?)
}

/// A running server. Killed when dropped; its folder stays, since a disk that is told of freed blocks is busy with them while the
/// next server is measured.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    folder: PathBuf,
    settings: Vec<Setting>,
    child: Child,
}

/// A variable of the environment and its value.
pub(super) type Setting = (&'static str, &'static str);

impl Server {
    /// Starts on a fresh folder below `parent` (which is on a disk, unlike many a `/tmp`) and waits until it is ready.
    pub(super) async fn start(parent: &Path, settings: &[Setting]) -> Result<Self> {
        Self::start_in(fresh_folder(parent)?, settings).await
    }

    /// The same with a copy of another server's data, which must not run.
    pub(super) async fn start_on_copy(parent: &Path, data: &Path, settings: &[Setting]) -> Result<Self> {
        let folder = fresh_folder(parent)?;
        let copy = folder.join(DATA);
        std::fs::create_dir(&copy)?;
        for entry in std::fs::read_dir(data)? {
            let entry = entry?;
            std::fs::copy(entry.path(), copy.join(entry.file_name()))
                .with_context(|| format!("failed to copy {}", entry.path().display()))?;
        }
        Self::start_in(folder, settings).await
    }

    async fn start_in(folder: PathBuf, settings: &[Setting]) -> Result<Self> {
        let address = free_address()?;
        let settings = settings.to_vec();
        let child = spawn(address, &folder, &settings)?;
        let mut server = Self {
            address,
            folder,
            settings,
            child,
        };
        server.ready().await?;
        Ok(server)
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.context("failed to kill the server")
    }

    /// Starts the killed server again, without waiting until it is ready.
    pub(super) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(self.address, &self.folder, &self.settings)?;
        Ok(())
    }

    /// Where its data is.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    /// CPU seconds since its start.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        proc_stat::cpu_seconds(self.pid()?)
    }

    /// Megabytes at the highest since its start.
    pub(super) fn peak_rss_mb(&self) -> Result<f64> {
        proc_stat::peak_rss_mb(self.pid()?)
    }

    /// Tenants `{prefix}0`, `{prefix}1`, ..., each with one destination at `url`.
    pub(super) async fn subscribe(&self, prefix: &str, tenants: u64, url: Option<&str>) -> Result<()> {
        let mut client = Client::connect(self.address, Some(KEY)).await?;
        for number in 0..tenants {
            let path = format!("/api/v1/tenants/{prefix}{number}");
            client.succeed(Method::PUT, &path, String::new()).await?;
            if let Some(url) = url {
                let body = format!(r#"{{"type":"webhook","topics":["*"],"config":{{"url":"{url}"}}}}"#);
                client
                    .succeed(Method::POST, &format!("{path}/destinations"), body)
                    .await?;
            }
        }
        Ok(())
    }

    fn pid(&self) -> Result<u32> {
        self.child.id().context("the server has ended")
    }

    async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            if let Ok(mut client) = Client::connect(self.address, None).await
                && client
                    .succeed(Method::GET, "/readyz", String::new())
                    .await
                    .is_ok()
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}");
            }
            if Instant::now() > deadline {
                bail!("the server is not ready after {START:?}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn fresh_folder(parent: &Path) -> Result<PathBuf> {
    let folder = TempDir::with_prefix_in("data-", parent).context("failed to make a folder")?;
    Ok(folder.keep())
}

fn spawn(address: SocketAddr, folder: &Path, settings: &[Setting]) -> Result<Child> {
    Command::new(binary("postrider"))
        // `dev` differs from `serve` only in defaults: here, that destinations may be on loopback.
        .args(["dev", "--api-key", KEY, "--listen", &address.to_string()])
        .args(["--log-level", "error", "--data-dir"])
        .arg(folder.join(DATA))
        .current_dir(folder)
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start the server")
}
