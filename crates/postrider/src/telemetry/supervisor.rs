//! Keeps a background part of the process running: one that ends or panics is started again, and `/healthz` says so
//! until it is.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider_store::Store;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::health::{Health, WorkerState};
use super::metrics::Metrics;

/// Name of the store in `/healthz`.
const STORE: &str = "store";
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A part that ran for so long starts again after the first pause, whatever was before.
const STEADY: Duration = Duration::from_secs(60);

/// Starts and restarts parts.
#[derive(Debug, Clone)]
pub struct Supervisor {
    /// Where the state of each part is shown.
    pub health: Health,
    /// Where restarts are counted.
    pub metrics: Arc<Metrics>,
    /// Becomes true when the process is to end; parts watch it, too.
    pub stop: watch::Receiver<bool>,
}

impl Supervisor {
    /// Runs the part that `start` makes until it ends after `stop`. It must not end before; if it does, it is started
    /// again after a pause that doubles from 1 s to 30 s.
    pub fn supervise<F, Fut>(&self, name: &'static str, mut start: F) -> JoinHandle<()>
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let health = self.health.clone();
        self.keep(name, move || {
            health.set(name, WorkerState::Healthy);
            let part = start();
            async move {
                part.await;
                "ended by itself".to_owned()
            }
        })
    }

    /// Has the part of the store that works by itself started again when it dies. The store is healthy as soon as that works.
    pub fn attend(&self, store: &Arc<dyn Store>) -> JoinHandle<()> {
        let (store, health, stop) = (Arc::clone(store), self.health.clone(), self.stop.clone());
        self.keep(STORE, move || {
            let (store, health, mut stop) = (Arc::clone(&store), health.clone(), stop.clone());
            let tended = async move {
                if store.revive().await {
                    health.set(STORE, WorkerState::Healthy);
                }
                store.death().await
            };
            async move {
                tokio::select! {
                    why = tended => why,
                    () = stopped(&mut stop) => String::new(),
                }
            }
        })
    }

    /// Runs the part that `start` makes, which says when it works, and answers why it ended.
    fn keep<F, Fut>(&self, name: &'static str, mut start: F) -> JoinHandle<()>
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = String> + Send + 'static,
    {
        let mut this = self.clone();
        tokio::spawn(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                let started = Instant::now();
                let ended = tokio::spawn(start()).await;
                if *this.stop.borrow() {
                    return;
                }
                if started.elapsed() >= STEADY {
                    pause = FIRST_PAUSE;
                }
                let reason = reason(ended);
                tracing::error!(
                    worker = name,
                    reason,
                    pause_seconds = pause.as_secs(),
                    "a part of the process died; it is started again"
                );
                this.health.set(name, WorkerState::Failed(reason));
                this.metrics.worker_restarted(name);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stopped(&mut this.stop) => return,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        })
    }
}

/// Returns once `stop` is true, or nobody can say so any more. Cancel-safe.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

fn reason(ended: Result<String, JoinError>) -> String {
    match ended {
        Ok(why) => why,
        Err(error) if error.is_panic() => format!("panicked: {}", panic_text(error.into_panic().as_ref())),
        Err(_) => "was cancelled".to_owned(),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("without a text")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panics_is_seen_and_started_again() {
        let (stop, stopped) = watch::channel(false);
        let health = Health::default();
        let supervisor = Supervisor {
            health: health.clone(),
            metrics: Arc::default(),
            stop: stopped.clone(),
        };
        let starts = Arc::new(AtomicU32::new(0));
        let task = supervisor.supervise("test", {
            let starts = Arc::clone(&starts);
            move || {
                let number = starts.fetch_add(1, Ordering::SeqCst);
                let mut stop = stopped.clone();
                async move {
                    assert_ne!(number, 0, "the first start fails");
                    super::stopped(&mut stop).await;
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        let state = health.workers().remove("test");
        assert!(
            matches!(state, Some(WorkerState::Failed(reason)) if reason.contains("the first start fails"))
        );
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(health.is_healthy());
        assert_eq!(starts.load(Ordering::SeqCst), 2);
        assert_eq!(stop.send(true), Ok(()));
        assert!(task.await.is_ok());
    }
}
