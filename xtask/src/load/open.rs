//! Open loop: requests are due at a fixed rate whether or not the earlier ones were answered, and latency counts from
//! when a request was due. So a server that stalls is charged for everything that should have happened meanwhile
//! (without this a stall counts once: "coordinated omission").
//!
//! The receiver is here too, so that both ends of a delivery are read from one clock.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::client::{Client, event};
use super::samples::Recorder;
use super::{Latencies, ServerArgs};

/// Everything has arrived this long after the last publish, or it is lost.
const PATIENCE: Duration = Duration::from_secs(60);
/// Results are ignored for this part of the run: connections are made, windows open.
const WARM_UP: f64 = 0.2;

/// Options of `load latency`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Where the destinations of tenants `t0`, `t1`, ... lead: this process listens there.
    #[arg(long)]
    listen: SocketAddr,
    /// Publishes a second.
    #[arg(long)]
    rate: u64,
    /// How long.
    #[arg(long)]
    seconds: u64,
    /// Tenants in turn.
    #[arg(long, default_value_t = 10)]
    tenants: u64,
    /// Tenants `b0`, `b1`, ... beside them: each gets one more event a second, which is not measured.
    #[arg(long, default_value_t = 0)]
    beside: u64,
    /// Kept connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
}

/// A publish that is due.
struct Due {
    at: Instant,
    body: String,
    is_measured: bool,
}

/// Runs the load and waits for every measured delivery.
pub(crate) async fn latency(args: &LatencyArgs) -> Result<Latencies> {
    let listener = TcpListener::bind(args.listen).await.context("failed to listen")?;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let receiver = tokio::spawn(receive(listener, arrived));
    let start = Instant::now() + Duration::from_millis(100);
    let total = args.rate * args.seconds;
    let due_at = |number: u64, rate: u64| start + Duration::from_nanos(number * 1_000_000_000 / rate);

    let (sender, queue) = mpsc::unbounded_channel();
    let pacer = std::thread::spawn({
        let schedule = schedule(args, &due_at);
        move || pace(schedule, &sender)
    });
    let publish = publish_all(args, queue).await?;
    if pacer.join().is_err() {
        bail!("the pacer failed");
    }

    let mut seen = vec![false; usize::try_from(total)?];
    let mut left = seen.len();
    let mut end_to_end = Recorder::new()?;
    let warm = warm_up(total);
    while left > 0 {
        let (number, at): (u64, Instant) = timeout(PATIENCE, arrivals.recv())
            .await
            .with_context(|| format!("{left} deliveries did not arrive"))?
            .context("the receiver ended")?;
        let first = seen
            .get_mut(usize::try_from(number)?)
            .is_some_and(|seen| !std::mem::replace(seen, true));
        if first {
            left -= 1;
            if number >= warm {
                end_to_end.record(at.saturating_duration_since(due_at(number, args.rate)))?;
            }
        }
    }
    receiver.abort();
    Ok(Latencies {
        publish: publish.samples(),
        end_to_end: end_to_end.samples(),
    })
}

/// Every publish of the run in the order of its moment.
fn schedule(args: &LatencyArgs, due_at: &impl Fn(u64, u64) -> Instant) -> Vec<Due> {
    let total = args.rate * args.seconds;
    let warm = warm_up(total);
    let measured = (0..total).map(|number| Due {
        at: due_at(number, args.rate),
        body: event(
            &format!("t{}", number % args.tenants),
            Some(&format!("l-{number}")),
            number,
        ),
        is_measured: number >= warm,
    });
    let beside = (0..args.beside * args.seconds).map(|number| Due {
        at: due_at(number, args.beside) + phase(number, args.beside),
        body: event(&format!("b{}", number % args.beside), None, number),
        is_measured: false,
    });
    let mut all: Vec<_> = measured.chain(beside).collect();
    all.sort_by_key(|due| due.at);
    all
}

/// How long after the begin of its period a neighbour's publish is due: any time within it, evenly spread, the same in each run
/// (Fibonacci hashing). Were they due at the begin, that would be the very moment of every other measured one, and what is
/// measured were that collision.
fn phase(number: u64, rate: u64) -> Duration {
    let part = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    Duration::from_nanos((1_000_000_000 / rate * part) >> 32)
}

/// Hands each publish over at its moment.
#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's timer is too coarse: it rounds up to a millisecond"
)]
fn pace(schedule: Vec<Due>, sender: &mpsc::UnboundedSender<Due>) {
    for due in schedule {
        std::thread::sleep(due.at.saturating_duration_since(Instant::now()));
        if sender.send(due).is_err() {
            return;
        }
    }
}

/// Publishes what is due over all connections; answers the latencies of the measured ones.
async fn publish_all(args: &LatencyArgs, queue: mpsc::UnboundedReceiver<Due>) -> Result<Recorder> {
    let queue = Arc::new(Mutex::new(queue));
    let mut workers = JoinSet::new();
    for _ in 0..args.connections {
        let (queue, server) = (queue.clone(), args.server.clone());
        workers.spawn(async move {
            let mut client = Client::connect(server.server, Some(&server.key)).await?;
            let mut latencies = Recorder::new()?;
            loop {
                let next = queue.lock().await.recv().await;
                let Some(due) = next else {
                    return anyhow::Ok(latencies);
                };
                client.publish(&[due.body]).await?;
                if due.is_measured {
                    latencies.record(due.at.elapsed())?;
                }
            }
        });
    }
    let mut all = Recorder::new()?;
    while let Some(worker) = workers.join_next().await {
        all.add(&worker??)?;
    }
    Ok(all)
}

/// Answers 200 to everything and says which number arrived when.
async fn receive(listener: TcpListener, arrived: mpsc::UnboundedSender<(u64, Instant)>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // Fails only on a connection that is closed already.
        let _ = stream.set_nodelay(true);
        let arrived = arrived.clone();
        let service = service_fn(move |request| take(request, arrived.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        while connections.try_join_next().is_some() {}
    }
}

async fn take(
    request: Request<Incoming>,
    arrived: mpsc::UnboundedSender<(u64, Instant)>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let number = request
        .headers()
        .get("webhook-id")
        .and_then(|id| id.to_str().ok()?.strip_prefix("l-")?.parse().ok());
    // Read to its end, so that the connection can be kept.
    let is_whole = request.into_body().collect().await.is_ok();
    if let (Some(number), true) = (number, is_whole) {
        // Nobody listens once everything has arrived.
        let _ = arrived.send((number, Instant::now()));
    }
    Ok(Response::new(Full::default()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a small count"
)]
fn warm_up(total: u64) -> u64 {
    (total as f64 * WARM_UP) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_due_at_any_time_of_their_period() {
        let period = Duration::from_millis(10);
        let mut tenths = [0; 10];
        for number in 0..1_000 {
            let phase = phase(number, 100);
            assert!(phase < period, "{number}: {phase:?}");
            tenths[usize::try_from(phase.as_millis()).unwrap()] += 1;
        }
        assert!(
            tenths.iter().all(|count| (90..=110).contains(count)),
            "{tenths:?}"
        );
        assert!(phase(u64::MAX, 1) < Duration::from_secs(1));
    }
}
