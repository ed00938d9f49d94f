//! Metrics of what protects receivers, in the words of the health answers.
//!
//! Counters are raised where things happen; gauges are what the engine answered before the scrape. Those by destination are
//! of the destinations that have a label of their own (see [`super::destination_label`]) and of no others, so a destination that
//! loses its label ends its series. While the engine is being started again the gauges are left out, since nothing is known.

use std::sync::Arc;

use parking_lot::Mutex;
use postrider_core::breaker::{BreakerState, OpenKind};
use postrider_core::delivery::WaitCause;
use postrider_core::dispatcher::{Census, LaneView};
use postrider_core::pulse::Vitals;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

type ByLabel = [(&'static str, &'static str); 1];
/// A value of a lane; `None` when there is nothing to say.
type Read = fn(&LaneView) -> Option<f64>;

/// What closed a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// A probe succeeded.
    ByProbe,
    /// Somebody reset it, or enabled the destination.
    OnRequest,
}

impl Closed {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ByProbe => "probe",
            Self::OnRequest => "request",
        }
    }
}

/// What the engine answered: of all lanes, and of those with a label.
#[derive(Debug, Clone, Default)]
struct Answered {
    census: Census,
    lanes: Vec<(String, LaneView)>,
}

/// Counters and gauges.
#[derive(Debug, Default)]
pub struct ProtectionMetrics {
    opened: Family<ByLabel, Counter>,
    closed: Family<ByLabel, Counter>,
    delayed: Family<ByLabel, Counter>,
    answered: Arc<Mutex<Option<Answered>>>,
}

impl ProtectionMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        // Series that exist from the start let a rate over them see the first increase.
        for kind in OpenKind::ALL {
            drop(self.opened.get_or_create(&[("trigger", kind.as_str())]));
        }
        for closed in [Closed::ByProbe, Closed::OnRequest] {
            drop(self.closed.get_or_create(&[("reason", closed.as_str())]));
        }
        for cause in WaitCause::ALL {
            drop(self.delayed.get_or_create(&[("cause", cause.as_str())]));
        }
        registry.register(
            "postrider_breaker_opened",
            "Circuit breakers that opened, by trigger; a probe that failed is no new opening",
            self.opened.clone(),
        );
        registry.register(
            "postrider_breaker_closed",
            "Circuit breakers that closed, by a probe or on request",
            self.closed.clone(),
        );
        registry.register(
            "postrider_deliveries_delayed",
            "Attempts that began later than planned, by what kept them",
            self.delayed.clone(),
        );
        registry.register_collector(Box::new(Gauges(Arc::clone(&self.answered))));
    }

    /// A breaker opened.
    pub fn opened(&self, trigger: OpenKind) {
        self.opened.get_or_create(&[("trigger", trigger.as_str())]).inc();
    }

    /// A breaker closed.
    pub fn closed(&self, closed: Closed) {
        self.closed.get_or_create(&[("reason", closed.as_str())]).inc();
    }

    /// An attempt begins late.
    pub fn delayed(&self, cause: WaitCause) {
        self.delayed.get_or_create(&[("cause", cause.as_str())]).inc();
    }

    /// What the next scrapes show; `None` when the engine did not answer.
    pub fn show(&self, answered: Option<(Census, Vec<(String, LaneView)>)>) {
        *self.answered.lock() = answered.map(|(census, lanes)| Answered { census, lanes });
    }
}

#[derive(Debug)]
struct Gauges(Arc<Mutex<Option<Answered>>>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let answered = self.0.lock();
        let Some(Answered { census, lanes }) = answered.as_ref() else {
            return Ok(());
        };
        let mut breakers = encoder.encode_descriptor(
            "postrider_destinations",
            "Destinations with a lane in memory, by the state of their circuit breaker",
            None,
            MetricType::Gauge,
        )?;
        for (state, count) in BreakerState::ALL.iter().zip(census.breakers) {
            let labels = [("breaker_state", state.as_str())];
            let mut one = breakers.encode_family(&labels)?;
            one.encode_gauge(&i64::try_from(count).unwrap_or(i64::MAX))?;
        }
        encoder
            .encode_descriptor(
                "postrider_destinations_held",
                "Destinations whose receiver asked for a pause",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&i64::try_from(census.held).unwrap_or(i64::MAX))?;
        by_destination(&mut encoder, lanes)
    }
}

fn by_destination(
    encoder: &mut DescriptorEncoder<'_>,
    lanes: &[(String, LaneView)],
) -> Result<(), std::fmt::Error> {
    let gauges: [(&str, &str, Read); 7] = [
        (
            "postrider_destination_breaker_state",
            "0 closed, 1 open, 2 half open",
            |view| Some(f64::from(view.breaker.code())),
        ),
        (
            "postrider_destination_held",
            "1 while its receiver asked for a pause",
            |view| Some(f64::from(u8::from(view.hold_until.is_some()))),
        ),
        (
            "postrider_destination_window",
            "Requests to the destination that may be under way at once",
            |view| Some(f64::from(view.window)),
        ),
        (
            "postrider_destination_in_flight",
            "Requests to the destination that are under way",
            |view| Some(f64::from(view.in_flight)),
        ),
        (
            "postrider_destination_queued",
            "Deliveries to the destination that wait in memory",
            |view| u32::try_from(view.queued).ok().map(f64::from),
        ),
        (
            "postrider_destination_consecutive_failures",
            "Failures since the last success",
            |view| Some(f64::from(view.failures)),
        ),
        (
            "postrider_destination_failure_rate",
            "Share of the recent attempts that failed, of 1",
            |view| {
                let Vitals {
                    attempts, failures, ..
                } = view.vitals;
                (attempts > 0).then(|| f64::from(failures) / f64::from(attempts))
            },
        ),
    ];
    for (name, help, read) in gauges {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (label, view) in lanes {
            if let Some(value) = read(view) {
                let labels = [("destination", label.as_str())];
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
    }
    latencies(encoder, lanes)
}

fn latencies(
    encoder: &mut DescriptorEncoder<'_>,
    lanes: &[(String, LaneView)],
) -> Result<(), std::fmt::Error> {
    let mut metric = encoder.encode_descriptor(
        "postrider_destination_latency_seconds",
        "Latency of the recent attempts: so much of them, of 1, took at most so long",
        None,
        MetricType::Gauge,
    )?;
    for (label, view) in lanes {
        let Vitals { p50, p95, p99, .. } = view.vitals;
        for (quantile, latency) in [("0.5", p50), ("0.95", p95), ("0.99", p99)] {
            if let Some(latency) = latency {
                let labels = [("destination", label.as_str()), ("quantile", quantile)];
                metric
                    .encode_family(&labels)?
                    .encode_gauge(&latency.as_secs_f64())?;
            }
        }
    }
    Ok(())
}
