//! The results as Markdown: ratios first, since only they can be compared between machines.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use super::Scale;
use super::machine::Machine;
use super::neighbours::{Beside, HEALTHY, Neighbours};
use super::retention::{self, Aged, Forgetting};
use super::scenario::Delivered;
use super::storm::{CAPACITY, Recovered, Sender, WORK};
use crate::load::Percentiles;

const BEGIN: &str = "<!-- bench: begin -->";
const END: &str = "<!-- bench: end -->";

/// Everything that a run measured.
#[derive(Debug)]
pub(super) struct Report {
    machine: Machine,
    scale: Scale,
    /// Requests a second of the bare client, measured between the scenarios.
    pub(super) limits: Vec<f64>,
    pub(super) accepts: Option<f64>,
    /// By number of destinations.
    pub(super) single: Vec<(u64, Delivered)>,
    pub(super) batch: Vec<(u64, Delivered)>,
    pub(super) drain: Vec<(u64, Delivered)>,
    pub(super) neighbours: Vec<Neighbours>,
    pub(super) storms: Vec<Recovered>,
    pub(super) forgetting: Option<Forgetting>,
}

impl Report {
    pub(super) fn new(machine: Machine, scale: Scale) -> Self {
        Self {
            machine,
            scale,
            limits: Vec::new(),
            accepts: None,
            single: Vec::new(),
            batch: Vec::new(),
            drain: Vec::new(),
            neighbours: Vec::new(),
            storms: Vec::new(),
            forgetting: None,
        }
    }

    /// The highest of the bare client's results: whatever disturbed the others must not flatter our ratios.
    fn limit(&self) -> f64 {
        self.limits.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            date,
            hardware,
            compiler,
            commit,
        } = &self.machine;
        writeln!(f, "Measured {date} at commit `{commit}`: {hardware}; {compiler}.")?;
        if !self.limits.is_empty() {
            self.ratios(f)?;
            self.throughput(f)?;
        }
        if !self.neighbours.is_empty() {
            self.latencies(f)?;
        }
        if !self.storms.is_empty() {
            self.recovered(f)?;
        }
        if let Some(forgetting) = &self.forgetting {
            forgotten(f, forgetting)?;
        }
        Ok(())
    }
}

impl Report {
    fn ratios(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n### Ratio to the bare client of the same run\n")?;
        writeln!(
            f,
            "| | goal | {} |",
            join(&self.drain, |(count, _)| destinations(*count))
        )?;
        writeln!(f, "|---|---:|{}", "---:|".repeat(self.drain.len()))?;
        let rows = [
            ("draining a backlog", "0.45", &self.drain),
            ("single publish", "0.20", &self.single),
            ("batch publish", "0.35", &self.batch),
        ];
        for (name, goal, results) in rows {
            let ratios = join(results, |(_, one)| {
                format!("{:.2}", one.per_second / self.limit())
            });
            writeln!(f, "| {name}, end to end | {goal} | {ratios} |")?;
        }
        Ok(())
    }

    fn throughput(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n### Throughput and cost\n")?;
        let limits = join(&self.limits, |limit| format!("{limit:.0}"));
        writeln!(
            f,
            "Bare client against the sink, requests/s, between the scenarios: {}.",
            limits.replace(" | ", ", ")
        )?;
        if let Some(accepts) = self.accepts {
            writeln!(f, "Accepts without a destination: {accepts:.0} events/s.")?;
        }
        writeln!(
            f,
            "\n| scenario | destinations | deliveries/s | server CPU s / 1,000 | server peak RSS MB |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|")?;
        for (name, results) in [
            ("single publish", &self.single),
            ("batch publish (100)", &self.batch),
            ("drain", &self.drain),
        ] {
            for (count, one) in results {
                let Delivered {
                    per_second,
                    cpu_seconds_per_1000,
                    rss_mb,
                } = one;
                writeln!(
                    f,
                    "| {name} | {count} | {per_second:.0} | {cpu_seconds_per_1000:.3} | {rss_mb:.0} |"
                )?;
            }
        }
        Ok(())
    }

    fn latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n### Latency at {} events/s to healthy destinations, ms\n",
            self.scale.rate
        )?;
        writeln!(
            f,
            "{HEALTHY} destinations: {} runs of {} s each, in turn, taken together; other numbers one run. Each neighbour gets one \
             more event a second.\n",
            self.scale.latency_rounds, self.scale.latency_seconds
        )?;
        writeln!(
            f,
            "| what | destinations | beside | samples | p50 | p90 | p99 | p99.9 | max |"
        )?;
        writeln!(f, "|---|---:|---|---:|---:|---:|---:|---:|---:|")?;
        for one in &self.neighbours {
            for (what, samples) in [
                ("publish", &one.latencies.publish),
                ("end to end", &one.latencies.end_to_end),
            ] {
                let Percentiles {
                    p50,
                    p90,
                    p99,
                    p999,
                    max,
                } = samples.percentiles();
                writeln!(
                    f,
                    "| {what} | {} | {} | {} | {p50:.2} | {p90:.2} | {p99:.2} | {p999:.2} | {max:.2} |",
                    one.healthy,
                    beside(one.beside),
                    samples.count(),
                )?;
            }
        }
        writeln!(
            f,
            "\n| healthy p99 end to end beside | ÷ beside the same events without destinations, median of the rounds (goal < 1.1) | \
             the same of all samples together | ÷ beside nobody, median of the rounds | the same of all samples together | \
             p99 of each round | server peak RSS MB |"
        )?;
        writeln!(f, "|---|{}", "---:|".repeat(6))?;
        let compared = |wanted: fn(Beside) -> bool| {
            let mut all = self.neighbours.iter();
            all.find(|one| one.healthy == HEALTHY && wanted(one.beside))
        };
        let bases = [
            compared(|beside| matches!(beside, Beside::Unsubscribed(_))),
            compared(|beside| beside == Beside::Nobody),
        ];
        for one in self.neighbours.iter().filter(|one| one.healthy == HEALTHY) {
            write!(f, "| {} ", beside(one.beside))?;
            for base in bases.into_iter().flatten() {
                let together = p99(one) / p99(base);
                write!(f, "| {:.2} | {together:.2} ", median_ratio(&one.p99s, &base.p99s))?;
            }
            let runs = join(&one.p99s, |p99| format!("{p99:.2}")).replace(" | ", ", ");
            writeln!(f, "| {runs} | {:.0} |", one.rss_mb)?;
        }
        Ok(())
    }

    fn recovered(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n### A receiver comes back: {CAPACITY} requests at once, {} ms each, more are answered 503\n",
            WORK.as_millis()
        )?;
        writeln!(
            f,
            "| sender | backlog | delivered | s | ÷ its capacity | refused with 503 | over capacity, longest ms | \
             over capacity, together ms | dead letters | server peak RSS MB |"
        )?;
        writeln!(f, "|---|{}", "---:|".repeat(9))?;
        for one in &self.storms {
            let sender = match one.sender {
                Sender::Protecting => "Postrider",
                Sender::Careless => "without breaker and window",
            };
            writeln!(
                f,
                "| {sender} | {} | {} | {:.1} | {:.2} | {} | {} | {} | {} | {:.0} |",
                one.backlog,
                one.delivered,
                one.seconds,
                one.of_capacity(),
                one.refused,
                one.longest_over.as_millis(),
                one.total_over.as_millis(),
                one.dead,
                one.rss_mb
            )?;
        }
        Ok(())
    }
}

fn forgotten(f: &mut fmt::Formatter<'_>, forgetting: &Forgetting) -> fmt::Result {
    writeln!(
        f,
        "\n### Publish at full load (64 connections) while retention forgets {} delivered events, ms\n",
        retention::OLD
    )?;
    writeln!(
        f,
        "| retention | events removed | publishes/s of each run | p50 | p90 | p99 | p99.9 | max |"
    )?;
    writeln!(f, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
    let Forgetting { keeps, forgets } = forgetting;
    for (name, aged) in [("keeps everything", keeps), ("forgets", forgets)] {
        let Percentiles {
            p50,
            p90,
            p99,
            p999,
            max,
        } = aged.latencies.percentiles();
        let rates = join(&aged.rates, |rate| format!("{rate:.0}")).replace(" | ", ", ");
        let removed = aged.removed;
        writeln!(
            f,
            "| {name} | {removed} | {rates} | {p50:.1} | {p90:.1} | {p99:.1} | {p999:.1} | {max:.1} |"
        )?;
    }
    let p99 = |aged: &Aged| aged.latencies.percentiles().p99;
    writeln!(
        f,
        "\np99 with retention ÷ without: {:.2} (goal: below 1.10).",
        p99(forgets) / p99(keeps)
    )
}

fn p99(one: &Neighbours) -> f64 {
    one.latencies.end_to_end.percentiles().p99
}

/// The median of what each round's value is of the same round's base; of an even number the mean of the two in the middle.
fn median_ratio(values: &[f64], bases: &[f64]) -> f64 {
    let mut ratios: Vec<_> = values
        .iter()
        .zip(bases)
        .map(|(value, base)| value / base)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len() / 2;
    match ratios.get(..=middle) {
        Some([.., low, high]) if ratios.len().is_multiple_of(2) => f64::midpoint(*low, *high),
        Some([.., high]) => *high,
        _ => f64::NAN,
    }
}

fn beside(beside: Beside) -> String {
    match beside {
        Beside::Nobody => "nobody".to_owned(),
        Beside::Unsubscribed(count) => format!("{count} tenants without a destination"),
        Beside::Answering(count) => format!("{count} that answer"),
        Beside::Hanging(count) => format!("{count} that hang"),
    }
}

fn destinations(count: u64) -> String {
    if count == 1 {
        "1 destination".to_owned()
    } else {
        format!("{count} destinations")
    }
}

fn join<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(" | ")
}

/// Puts the text between the marks of the page.
pub(super) fn rewrite(path: &Path, text: &str) -> Result<()> {
    let page = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let page = replaced(&page, text).with_context(|| format!("{} has lost its marks", path.display()))?;
    std::fs::write(path, page).with_context(|| format!("failed to write {}", path.display()))
}

fn replaced(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_rounds_ratios() {
        let bases = [2.0, 4.0, 5.0, 10.0];
        assert!((median_ratio(&[2.0, 8.0, 15.0], &bases) - 2.0).abs() < 1e-9);
        assert!((median_ratio(&[20.0, 4.0, 10.0, 30.0], &bases) - 2.5).abs() < 1e-9);
        assert!((median_ratio(&[3.0], &[2.0]) - 1.5).abs() < 1e-9);
        assert!(median_ratio(&[], &[]).is_nan());
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(
            replaced(&page, "new\n"),
            Some(format!("a\n{BEGIN}\nnew\n{END}\nb\n"))
        );
        assert_eq!(replaced("no marks", "new"), None);
    }
}
