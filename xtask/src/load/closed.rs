//! Closed loops: each connection sends the next request when the last one was answered. Measures throughput, and latency
//! at full load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use clap::Args;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Client, data, event};
use super::samples::Recorder;
use super::{ServerArgs, Throughput};

/// Latencies of the beginning are left out.
pub(super) const WARM_UP: Duration = Duration::from_secs(3);

/// Options of `load bare`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BareArgs {
    /// Address of the sink.
    #[arg(long)]
    sink: SocketAddr,
    /// Kept connections, each with one request at a time.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// How long.
    #[arg(long)]
    seconds: u64,
}

/// Options of `load publish`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PublishArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Kept connections, each with one request at a time.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Events a request.
    #[arg(long, default_value_t = 1)]
    batch: u64,
    /// Tenants `t0`, `t1`, ... in turn.
    #[arg(long, default_value_t = 1)]
    tenants: u64,
    /// How long at most.
    #[arg(long)]
    seconds: u64,
    /// How many events at most; the last batch may go beyond.
    #[arg(long, default_value_t = u64::MAX)]
    count: u64,
}

/// The same request as a delivery, by a client that does nothing else: what this machine can do at most.
pub(crate) async fn bare(args: &BareArgs) -> Result<Throughput> {
    let deadline = Instant::now() + Duration::from_secs(args.seconds);
    let body = Bytes::from(data(0));
    let sink = args.sink;
    repeat(args.connections, move |connection| {
        let body = body.clone();
        async move {
            let mut client = Client::connect(sink, None).await?;
            let mut ran = Ran::new()?;
            while Instant::now() < deadline {
                let id = format!("evt_{connection:016x}{:016x}", ran.done);
                let status = client.deliver(&id, body.clone()).await?;
                ensure!(status == 200, "the sink answered {status}");
                ran.done += 1;
            }
            Ok(ran)
        }
    })
    .await
}

/// Publishes until time or count is reached.
pub(crate) async fn publish(args: &PublishArgs) -> Result<Throughput> {
    let start = Instant::now();
    let (warm, deadline) = (start + WARM_UP, start + Duration::from_secs(args.seconds));
    let next = Arc::new(AtomicU64::new(0));
    let PublishArgs {
        server,
        batch,
        tenants,
        count,
        ..
    } = args.clone();
    repeat(args.connections, move |_| {
        let (server, next) = (server.clone(), next.clone());
        async move {
            let mut client = Client::connect(server.server, Some(&server.key)).await?;
            let mut ran = Ran::new()?;
            while Instant::now() < deadline {
                let first = next.fetch_add(batch, Ordering::Relaxed);
                if first >= count {
                    break;
                }
                let events: Vec<_> = (first..first + batch)
                    .map(|number| event(&format!("t{}", number % tenants), None, number))
                    .collect();
                let asked = Instant::now();
                client.publish(&events).await?;
                if asked >= warm {
                    ran.latencies.record(asked.elapsed())?;
                }
                ran.done += batch;
            }
            Ok(ran)
        }
    })
    .await
}

/// What one connection has done.
struct Ran {
    done: u64,
    latencies: Recorder,
}

impl Ran {
    fn new() -> Result<Self> {
        let latencies = Recorder::new()?;
        Ok(Self { done: 0, latencies })
    }
}

/// Runs `work` once a connection; adds up what each has done.
async fn repeat<F, W>(connections: usize, work: F) -> Result<Throughput>
where
    F: Fn(usize) -> W,
    W: Future<Output = Result<Ran>> + Send + 'static,
{
    let start = Instant::now();
    let mut workers: JoinSet<_> = (0..connections).map(work).collect();
    let mut all = Ran::new()?;
    while let Some(worker) = workers.join_next().await {
        let ran = worker??;
        all.done += ran.done;
        all.latencies.add(&ran.latencies)?;
    }
    Ok(Throughput {
        done: all.done,
        seconds: start.elapsed().as_secs_f64(),
        latencies: all.latencies.samples(),
    })
}
