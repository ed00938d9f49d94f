//! What the sink does with a request.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::StatusCode;
use postrider_core::hash;

use super::SinkArgs;

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// This status.
    Answer(StatusCode),
    /// No answer, ever.
    Hang,
    /// No answer and no connection.
    Reset,
}

/// How the sink misbehaves.
#[derive(Debug)]
pub(super) struct Behaviour {
    statuses: Vec<StatusCode>,
    reset_below: f64,
    hang_below: f64,
    fail_below: f64,
    delay: Duration,
}

impl Behaviour {
    pub(super) fn new(args: &SinkArgs) -> anyhow::Result<Self> {
        let statuses = args
            .status
            .iter()
            .map(|&status| {
                StatusCode::from_u16(status).with_context(|| format!("answer {status}, which is no status"))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!statuses.is_empty(), "answer without a status");
        let reset_below = args.reset_percent / 100.0;
        let hang_below = reset_below + args.hang_percent / 100.0;
        let fail_below = hang_below + args.fail_percent / 100.0;
        ensure!(
            fail_below <= 1.0,
            "share requests out: the percentages are more than 100 together"
        );
        Ok(Self {
            statuses,
            reset_below,
            hang_below,
            fail_below,
            delay: args.delay,
        })
    }

    /// For the `number`-th request of all, of an event that came `earlier` times before.
    pub(super) fn act(&self, number: u64, earlier: usize) -> Act {
        if self.fail_below > 0.0 {
            let chance = hash::fraction(number, 0);
            if chance < self.reset_below {
                return Act::Reset;
            }
            if chance < self.hang_below {
                return Act::Hang;
            }
            if chance < self.fail_below {
                return Act::Answer(StatusCode::INTERNAL_SERVER_ERROR);
            }
        }
        Act::Answer(self.statuses[earlier.min(self.statuses.len() - 1)])
    }

    /// The time before an answer.
    pub(super) async fn wait(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaviour(reset: f64, hang: f64, fail: f64, statuses: &[u16]) -> Behaviour {
        let args = SinkArgs {
            port: 0,
            listen: [127, 0, 0, 1].into(),
            status: statuses.to_vec(),
            fail_percent: fail,
            hang_percent: hang,
            reset_percent: reset,
            capacity: None,
            delay: Duration::ZERO,
            retry_after: None,
            verify: None,
            quiet: true,
        };
        Behaviour::new(&args).unwrap()
    }

    #[test]
    fn statuses_follow_the_event_and_the_last_repeats() {
        let behaviour = behaviour(0.0, 0.0, 0.0, &[500, 503, 200]);
        let statuses: Vec<_> = [0, 1, 2, 3].map(|earlier| behaviour.act(7, earlier)).to_vec();
        let answer = |status| Act::Answer(StatusCode::from_u16(status).unwrap());
        assert_eq!(statuses, [answer(500), answer(503), answer(200), answer(200)]);
    }

    #[test]
    fn shares_are_as_asked_and_the_same_in_every_run() {
        let behaviour = behaviour(10.0, 20.0, 30.0, &[200]);
        let acts: Vec<_> = (0..10_000).map(|number| behaviour.act(number, 0)).collect();
        let share = |act| acts.iter().filter(|&&found| found == act).count();
        for (act, expected) in [
            (Act::Reset, 1_000),
            (Act::Hang, 2_000),
            (Act::Answer(StatusCode::INTERNAL_SERVER_ERROR), 3_000),
            (Act::Answer(StatusCode::OK), 4_000),
        ] {
            assert!(share(act).abs_diff(expected) < 200, "{act:?}: {}", share(act));
        }
        assert!((0..10_000).map(|number| behaviour.act(number, 0)).eq(acts));
    }
}
