//! What the loop does about a destination whose attempts fail: tell, keep, and in the end disable it.

use std::sync::Arc;

use postrider_core::breaker::Change;
use postrider_core::delivery::DeadReason;
use postrider_core::dispatcher::Learned;
use postrider_core::id::DestinationKey;
use postrider_core::time::Timestamp;
use postrider_store::record::{NewAttempt, Next, Settlement};

use super::control::{Command, Reason};
use super::run::Run;
use crate::alerts::notice::What;
use crate::telemetry::protection::Closed;

/// Bytes of an answer that a reason quotes.
const MAX_QUOTED: usize = 200;

impl Run {
    /// Acts on what the end of an attempt changed.
    pub(super) fn heed(
        &mut self,
        destination: DestinationKey,
        learned: &Learned,
        attempt: Option<&NewAttempt>,
        now: Timestamp,
    ) {
        match &learned.change {
            Change::None => {}
            Change::Opened { reason, until } => {
                let view = self.dispatcher.view(destination, now);
                if view
                    .opening
                    .is_some_and(|opening| opening.failing_since != opening.opened_at)
                {
                    tracing::info!(destination = %self.name(destination), reason, %until, "circuit breaker stays open: a probe failed");
                } else {
                    tracing::warn!(destination = %self.name(destination), reason, %until, "circuit breaker opened");
                }
                let opened = What::BreakerOpened(reason.clone());
                self.parts.notices.send(destination, opened);
                self.count_opened(destination, now);
            }
            Change::Closed => {
                tracing::info!(destination = %self.name(destination), "circuit breaker closed");
                self.parts.notices.send(destination, What::BreakerClosed);
                self.parts.metrics.protection.closed(Closed::ByProbe);
            }
        }
        let notice = learned.notice;
        if let Some(percent) = notice.alert {
            let view = self.dispatcher.view(destination, now);
            tracing::warn!(
                destination = %self.name(destination),
                failures = view.failures,
                percent,
                last = attempt.map(sample),
                "failures in a row reached a share of the alarming number"
            );
            let failing = What::Failing(view.failures, attempt.map(sample));
            self.parts.notices.send(destination, failing);
        }
        if notice.give_up {
            self.give_up(destination, attempt, now);
        }
        let is_news = learned.change != Change::None || notice.alert.is_some();
        self.keep(destination, is_news, now);
    }

    /// Tells of a delivery that used up its attempts.
    pub(super) fn mourn(&self, settlement: &Settlement) {
        if let Next::Dead(DeadReason::ExhaustedRetries | DeadReason::Expired, _) = settlement.next {
            let last = settlement.attempt.as_ref().map(sample);
            let destination = settlement.delivery.destination;
            self.parts.notices.send(destination, What::Exhausted(last));
        }
    }

    /// Answers a question. Whoever asked may be gone.
    pub(super) fn obey(&mut self, command: Command) {
        let now = self.parts.clock.now();
        match command {
            Command::Views(destinations, answer) => {
                let views = destinations.iter().map(|key| self.dispatcher.view(*key, now));
                let _ = answer.send(views.collect());
            }
            Command::Worst(limit, answer) => {
                let _ = answer.send(self.dispatcher.worst(limit, now));
            }
            Command::Ranks(answer) => {
                let _ = answer.send(self.dispatcher.ranks(now));
            }
            Command::Census(destinations, answer) => {
                let views = destinations.iter().map(|key| self.dispatcher.view(*key, now));
                let _ = answer.send((self.dispatcher.census(now), views.collect()));
            }
            Command::Changed(destination, reason) => {
                if self.dispatcher.has_lane(destination) {
                    self.agree(destination);
                    self.keep(destination, false, now);
                }
                if reason == Reason::Request {
                    self.dispatcher.hurry(destination, now);
                }
            }
            Command::PoliciesChanged => {
                for destination in self.dispatcher.destinations() {
                    self.agree(destination);
                    self.keep(destination, false, now);
                }
            }
            Command::LimitReplays(limits) => {
                for (destination, per_second) in limits {
                    self.dispatcher.limit_replays(destination, per_second, now);
                }
            }
            Command::Reset(destination, answer) => {
                if self.dispatcher.reset(destination, now) == Change::Closed {
                    tracing::info!(destination = %self.name(destination), "circuit breaker closed by request");
                    self.parts.notices.send(destination, What::BreakerClosed);
                    self.parts.metrics.protection.closed(Closed::OnRequest);
                }
                self.keep(destination, false, now);
                let _ = answer.send(self.dispatcher.view(destination, now));
            }
        }
    }

    /// A probe that failed opens it again, which is the same opening.
    fn count_opened(&self, destination: DestinationKey, now: Timestamp) {
        let opening = self.dispatcher.view(destination, now).opening;
        if let Some(opening) = opening.filter(|opening| opening.opened_at == opening.failing_since) {
            self.parts.metrics.protection.opened(opening.reason.kind);
        }
    }

    /// Writes the state down, when it is news or there is nothing left to be kept.
    fn keep(&mut self, destination: DestinationKey, is_news: bool, now: Timestamp) {
        let protection = self.dispatcher.protection(destination);
        let kept = self.kept.get(&destination);
        let is_news = match &protection {
            Some(protection) => is_news || protection.outdates(kept, now),
            None => kept.is_some(),
        };
        if !is_news {
            return;
        }
        match &protection {
            Some(protection) => drop(self.kept.insert(destination, protection.clone())),
            None => drop(self.kept.remove(&destination)),
        }
        self.keeping.put(destination, protection);
    }

    /// Before an ordered end: the failures in a row, which are not written one by one.
    pub(super) fn keep_all(&mut self) {
        let now = self.parts.clock.now();
        for destination in self.dispatcher.destinations() {
            let is_news = self.dispatcher.protection(destination).as_ref() != self.kept.get(&destination);
            self.keep(destination, is_news, now);
        }
    }

    fn give_up(&self, destination: DestinationKey, attempt: Option<&NewAttempt>, now: Timestamp) {
        let view = self.dispatcher.view(destination, now);
        let since = view.failing_since.unwrap_or(now);
        let last = attempt.map_or_else(String::new, |attempt| format!("; the last: {}", sample(attempt)));
        let reason = format!(
            "nothing but failures since {since}, {} in a row{last}",
            view.failures
        );
        tracing::warn!(destination = %self.name(destination), reason, "disabling a destination");
        let directory = Arc::clone(&self.parts.directory);
        tokio::spawn(async move { directory.disable(destination, reason, now).await });
    }
}

/// What an attempt saw, short enough for a reason.
fn sample(attempt: &NewAttempt) -> String {
    let what = match (attempt.status, attempt.error) {
        (Some(status), _) => status.to_string(),
        (None, Some(kind)) => kind.as_str().to_owned(),
        (None, None) => "nothing".to_owned(),
    };
    let detail = attempt.detail.as_ref();
    let detail = detail.map_or_else(String::new, |detail| format!(" ({})", quoted(detail.as_bytes())));
    format!("{what}{detail}{}", excerpt(&attempt.response_body))
}

/// The beginning of a body in quotes, after a space; nothing of an empty one.
pub(super) fn excerpt(body: &[u8]) -> String {
    match quoted(body) {
        body if body.is_empty() => body,
        body => format!(" \"{body}\""),
    }
}

/// The beginning of a text, without control characters.
fn quoted(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_QUOTED)])
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect()
}
