//! `postrider serve` and `postrider dev`: puts the parts together, and takes them apart again in order.
//!
//! Start: configuration, store, listener (so that a port in use is told before anything is sent), directory, courier,
//! engine, API. End, on the first SIGINT or SIGTERM: no new connections, requests and attempts that are under way get the
//! grace time, results are committed, the store is closed, all of it before one deadline. The second signal exits at once.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use postrider_store::Store;
use postrider_store::seal::{SealKey, SealKeyError};
use postrider_store::sqlite::{OpenError, SqliteStore, inspect};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use super::dev;
use super::listener::{Connections, Listener, listen};
use super::options::ConfigArgs;
use super::signal::Signals;
use crate::alerts::notice::Notices;
use crate::alerts::{self, operator};
use crate::api::{self, ApiConfig, App};
use crate::clock::{Clock, SystemClock};
use crate::config::error::ConfigError;
use crate::config::settings::Settings;
use crate::courier::config::raise_descriptor_limit;
use crate::courier::http::HttpCourier;
use crate::courier::tls::CaFileError;
use crate::directory::Directory;
use crate::engine::control::Control;
use crate::engine::{Closing, Engine, EngineConfig, EngineHandle, Parts};
use crate::letters::replayer::Replayer;
use crate::letters::retention::{self, Retention, RetentionConfig};
use crate::telemetry::health::Health;
use crate::telemetry::log;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::supervisor::Supervisor;

/// Key file in the data directory, unless `secret_key` is configured.
const SEAL_KEY_FILE: &str = "seal.key";
/// Name of the listener in `/healthz`.
const HTTP_WORKER: &str = "http-server";
/// Name of the part that carries replays out in `/healthz`.
const REPLAY_WORKER: &str = "replays";
/// What is left after the grace time for committing the last results and closing the store. With the grace time, all that a
/// shutdown may take.
const CLOSE_TIME: Duration = Duration::from_secs(10);

/// What to do about a directory that cannot be written.
pub(super) const WRITABLE: &str = "make it writable, or name another by --data-dir";

const SERVE_EXAMPLES: &str = "\
Examples:
  postrider serve --data-dir /var/lib/postrider --api-key \"$(openssl rand -hex 24)\"
  POSTRIDER_API_KEYS=... postrider serve --listen 0.0.0.0:3333
  postrider serve --config /etc/postrider.toml

Every option has a key in the file and a name in the environment: see `postrider config`.";

const DEV_EXAMPLES: &str = "\
Keeps its data in ./.postrider, makes an API key and keeps it there, allows destinations on this
machine, and prints a tour to paste. Not for production: use `postrider serve`.

Examples:
  postrider dev
  postrider dev --listen 127.0.0.1:8080 --api-key a-key-of-my-own";

/// Options of `postrider serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Options of `postrider dev`.
#[derive(Debug, Args)]
#[command(after_help = DEV_EXAMPLES)]
pub struct DevArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Serves until a signal.
///
/// # Errors
/// When it cannot start; nothing was changed then.
pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let settings = args.config.load(false)?.settings;
    settings.require_api_key().map_err(ConfigError::from)?;
    start(settings, None)
}

/// Serves with the defaults of development.
///
/// # Errors
/// When it cannot start.
pub fn run_dev(args: &DevArgs) -> anyhow::Result<()> {
    let mut settings = args.config.load(true)?.settings;
    if settings.api_keys.is_empty() {
        settings.api_keys.push(dev::api_key(&settings.data_dir)?);
    }
    let tour = dev::tour(settings.listen, &settings.api_keys[0], &settings.data_dir);
    start(settings, Some(tour))
}

fn start(settings: Settings, greeting: Option<String>) -> anyhow::Result<()> {
    log::install(&settings.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let ended = runtime.block_on(serve(settings, greeting));
    // Whatever is still running has had its grace time.
    runtime.shutdown_background();
    ended
}

async fn serve(settings: Settings, greeting: Option<String>) -> anyhow::Result<()> {
    let mut signals = Signals::install().context("watch for signals")?;
    let grace = settings.server.grace;
    let running = Running::start(settings).await?;
    if let Some(greeting) = greeting {
        super::output::say(&greeting)?;
    }
    let first = signals.next().await;
    tracing::info!(signal = ?first, grace_seconds = grace.as_secs(), "shutting down; a second signal exits at once");
    tokio::select! {
        () = running.shut_down(grace) => Ok(()),
        second = signals.next() => {
            tracing::warn!(signal = ?second, "exiting at once");
            exit(second.exit_code());
        }
    }
}

/// No more requests at a time than there may be connections: others would only wait for one.
fn within_connections(mut engine: EngineConfig, connections: usize) -> EngineConfig {
    let wanted = engine.dispatcher.max_in_flight;
    if wanted > connections {
        tracing::warn!(
            wanted,
            connections,
            "engine.max_in_flight is lowered to the connections that may be open; raise the limit of open files"
        );
        engine.dispatcher.max_in_flight = connections;
    }
    engine
}

/// The parts of a server that runs.
struct Running {
    store: Arc<dyn Store>,
    engine: EngineHandle,
    connections: Connections,
    accepting: JoinHandle<()>,
    /// What works in the background, and ends when it is told to stop.
    workers: [JoinHandle<()>; 3],
    watching: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Running {
    async fn start(settings: Settings) -> anyhow::Result<Self> {
        check_archive(&settings.retention)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(Metrics::new(settings.metrics));
        let health = Health::default();
        let store: Arc<dyn Store> = open_store(&settings)?;
        let socket = bind(settings.listen)?;
        let rules = settings.rules.clone();
        raise_descriptor_limit();
        let courier = HttpCourier::new(settings.courier, rules.guard.clone()).map_err(ca_file_refused)?;
        let engine_config = within_connections(settings.engine, courier.max_connections());
        let directory = Directory::load(Arc::clone(&store), rules).await?;
        let webhook = settings.alerts.webhook.as_ref();
        operator::ensure(&directory, webhook, clock.now())
            .await
            .context("take alerts.webhook_url of the configuration")?;
        let parts = Parts {
            store: Arc::clone(&store),
            directory: Arc::clone(&directory),
            courier: Arc::new(courier),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            health: health.clone(),
            notices: Notices::default(),
        };
        let (stop, stopped) = watch::channel(false);
        let supervisor = Supervisor {
            health: health.clone(),
            metrics: Arc::clone(&metrics),
            stop: stopped.clone(),
        };
        let config = ApiConfig {
            api_keys: settings.api_keys,
            ..settings.api
        };
        let engine = Engine::start(parts.clone(), engine_config);
        let replays = Arc::new(Notify::new());
        let workers = work(
            &supervisor,
            &parts,
            engine.control(),
            &replays,
            settings.retention,
        );
        let beside = alerts::Parts::beside(parts, engine.control());
        let watching = alerts::start(beside, settings.alerts, &supervisor);
        let router = api::router(App {
            store: Arc::clone(&store),
            directory,
            engine: engine.control(),
            replays,
            clock,
            health,
            metrics,
            config,
        });
        let listener = Listener::new(socket, router, settings.server, stopped);
        let connections = listener.connections();
        let accepting = supervisor.supervise(HTTP_WORKER, move || listener.clone().accept());
        announce(settings.listen, &settings.data_dir);
        Ok(Self {
            store,
            engine,
            connections,
            accepting,
            workers,
            watching,
            stop,
        })
    }

    /// Ends after `grace` and [`CLOSE_TIME`] at the latest, whatever hangs.
    async fn shut_down(self, grace: Duration) {
        let closing = Closing::after(grace);
        let end = closing.work_until + CLOSE_TIME;
        self.stop.send_replace(true);
        // Once accepting has ended, the listener is closed and new connections are refused.
        let requests = async {
            for worker in self.workers {
                drop(worker.await);
            }
            drop(self.accepting.await);
            drop(self.watching.await);
            self.connections.drained().await;
        };
        let (drained, finished) = tokio::join!(
            timeout_at(end, self.engine.shutdown(closing)),
            timeout_at(closing.work_until, requests)
        );
        if finished.is_err() {
            tracing::warn!("API requests that were still under way are cut off");
        }
        if timeout_at(end, self.store.close()).await.is_err() {
            tracing::error!("the store did not close in time; it recovers at the next start");
        }
        let given_up = drained.unwrap_or_default().given_up;
        tracing::info!(given_up, "shut down");
    }
}

fn announce(listen: SocketAddr, data_dir: &Path) {
    let data_dir = data_dir.display();
    tracing::info!(%listen, %data_dir, version = env!("CARGO_PKG_VERSION"), "postrider serves");
}

/// Starts what works in the background.
fn work(
    supervisor: &Supervisor,
    parts: &Parts,
    engine: Control,
    changed: &Arc<Notify>,
    kept: RetentionConfig,
) -> [JoinHandle<()>; 3] {
    let replayer = Replayer {
        store: Arc::clone(&parts.store),
        engine,
        clock: Arc::clone(&parts.clock),
        changed: Arc::clone(changed),
        stop: supervisor.stop.clone(),
    };
    let retention = Retention {
        store: Arc::clone(&parts.store),
        clock: Arc::clone(&parts.clock),
        health: parts.health.clone(),
        metrics: Arc::clone(&parts.metrics),
        config: kept,
        stop: supervisor.stop.clone(),
    };
    [
        supervisor.attend(&parts.store),
        supervisor.supervise(REPLAY_WORKER, move || replayer.clone().run()),
        supervisor.supervise(retention::WORKER, move || retention.clone().run()),
    ]
}

/// What is old would stay, and nobody would know before the first of it is: so a wrong archive is told at the start.
fn check_archive(kept: &RetentionConfig) -> anyhow::Result<()> {
    let Some(archive) = &kept.archive else {
        return Ok(());
    };
    let advice = "make it writable, or name another by retention.archive";
    archive.check_writable().map_err(|error| {
        anyhow!(
            "use retention.archive: {:#}; {advice}",
            anyhow::Error::from(error)
        )
    })
}

/// Which key names the file that cannot be used, and what to do.
pub(super) fn ca_file_refused(error: CaFileError) -> anyhow::Error {
    with_advice(
        anyhow::Error::from(error).context("use courier.ca_file"),
        "name a readable PEM file with certificates, or leave it out",
    )
}

fn open_store(settings: &Settings) -> anyhow::Result<Arc<SqliteStore>> {
    let seal_key = seal_key(settings)?;
    SqliteStore::open(settings.sqlite(seal_key)).map_err(advised)
}

/// The configured one, or that of the data directory, which is made where there is no database yet.
pub(super) fn seal_key(settings: &Settings) -> anyhow::Result<SealKey> {
    let dir = &settings.data_dir;
    match &settings.seal_key {
        Some(key) => Ok(key.clone()),
        None => {
            make_private_dir(dir)?;
            key_file(dir)
        }
    }
}

/// The key in the data directory; a new one only where no database is, since that could not be read by it.
fn key_file(dir: &Path) -> anyhow::Result<SealKey> {
    let path = dir.join(SEAL_KEY_FILE);
    if !path.exists() && inspect(dir).map_err(advised)?.is_some() {
        return Err(anyhow!(
            "read the seal key {}: it is missing, and the secrets of the database beside it were sealed with it; \
             restore it from a backup, or set secret_key to the key that was used",
            path.display()
        ));
    }
    SealKey::load_or_create(&path).map_err(|error| match error {
        SealKeyError::Malformed => anyhow!(
            "read the seal key {}: it is not 32 bytes in base64; restore it from a backup, without it no secret can be read",
            path.display()
        ),
        other => with_advice(other, WRITABLE),
    })
}

pub(super) fn advised(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::NotWritable { .. } => with_advice(error, WRITABLE),
        OpenError::InUse { .. } => with_advice(error, "stop it, or name another directory by --data-dir"),
        OpenError::NotADatabase { .. } => with_advice(error, "name another directory by --data-dir"),
        OpenError::WrongSealKey { .. } => with_advice(
            error,
            "restore the key file of the data directory, or set secret_key to the key that was used",
        ),
        OpenError::LogWithoutDatabase { .. } => with_advice(
            error,
            "put the database back, or move the log away to begin with an empty one",
        ),
        OpenError::Full { .. } => with_advice(error, "free some space"),
        OpenError::Newer { .. } | OpenError::Failed { .. } => error.into(),
    }
}

fn with_advice(error: impl Into<anyhow::Error>, advice: &str) -> anyhow::Error {
    anyhow!("{:#}; {advice}", error.into())
}

/// Makes the data directory, for its owner only.
pub(super) fn make_private_dir(dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| anyhow!("make the data directory {}: {error}; {WRITABLE}", dir.display()))
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            anyhow!("listen on {address}: it is in use; stop the other program or choose another address by --listen")
        }
        _ => anyhow!("listen on {address}: {error}; choose another address by --listen"),
    })
}
