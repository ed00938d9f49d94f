//! Waiting for conditions, each with a bound.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is a value; panics with what was wanted once `bound` has passed.
pub(super) async fn eventually<T>(what: &str, bound: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + bound;
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {bound:?} in vain: {what}");
        sleep(PAUSE).await;
    }
}
