//! The receiver of the throughput scenarios: `postrider sink` as a process.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::server::{binary, free_address};
use crate::load::Client;

const START: Duration = Duration::from_secs(10);
/// Nothing arrived for this long although more is expected: something is lost or stuck.
const STALL: Duration = Duration::from_secs(60);
/// Between two looks: seldom enough to cost nothing, often enough to be off by no more than a percent.
const LOOK: Duration = Duration::from_millis(50);

/// A running sink. Killed when dropped.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) address: SocketAddr,
    _child: Child,
}

impl Sink {
    /// Starts on any port.
    pub(super) async fn start(options: &[&str]) -> Result<Self> {
        Self::start_at(free_address()?, options).await
    }

    /// Starts on this port.
    pub(super) async fn start_at(address: SocketAddr, options: &[&str]) -> Result<Self> {
        let child = Command::new(binary("postrider"))
            .args(["sink", "--quiet", "--port", &address.port().to_string()])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start the sink")?;
        let sink = Self {
            address,
            _child: child,
        };
        let deadline = Instant::now() + START;
        while sink.stats().await.is_err() {
            if Instant::now() > deadline {
                bail!("the sink does not answer");
            }
            sleep(LOOK).await;
        }
        Ok(sink)
    }

    /// The URL of a destination that leads here.
    pub(super) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits until it has taken this many different events.
    pub(super) async fn until(&self, count: u64) -> Result<()> {
        let mut client = Client::connect(self.address, None).await?;
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let now = delivered(&mut client).await?;
            if now >= count {
                return Ok(());
            }
            if now != last {
                (last, moved) = (now, Instant::now());
            }
            if moved.elapsed() > STALL {
                bail!("only {now} of {count} events arrived, and none for {STALL:?}");
            }
            sleep(LOOK).await;
        }
    }

    /// Everything that it counts.
    pub(super) async fn stats(&self) -> Result<Value> {
        stats(&mut Client::connect(self.address, None).await?).await
    }
}

async fn delivered(client: &mut Client) -> Result<u64> {
    stats(client).await?["requests"]
        .as_u64()
        .context("the sink's counts have no `requests`")
}

async fn stats(client: &mut Client) -> Result<Value> {
    let (_, body) = client.call(Method::GET, "/stats", Bytes::new()).await?;
    serde_json::from_slice(&body).context("the sink's counts are not JSON")
}

/// Something that accepts connections and never says anything: what is sent to it stays in flight.
#[derive(Debug)]
pub(super) struct Silence {
    pub(super) address: SocketAddr,
    task: AbortHandle,
}

impl Silence {
    /// Listens on any port.
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("failed to listen")?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut kept = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                kept.spawn(async move {
                    let _stream = stream;
                    std::future::pending::<()>().await;
                });
            }
        });
        Ok(Self {
            address,
            task: task.abort_handle(),
        })
    }

    /// The URL of a destination that leads here.
    pub(super) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Closes everything; the port is free afterwards.
    pub(super) async fn end(self) {
        self.task.abort();
        while !self.task.is_finished() {
            sleep(LOOK).await;
        }
    }
}
