//! The results as Markdown: ratios first, since only they can be compared between machines.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use super::Scale;
use super::machine::Machine;
use super::scenario::{Delivered, Responsive};
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
    /// By number of hanging destinations.
    pub(super) latency: Vec<(u64, Responsive)>,
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
            latency: Vec::new(),
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
        if !self.latency.is_empty() {
            self.latencies(f)?;
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
            "\n### Latency at {} events/s to 10 healthy destinations, ms\n",
            self.scale.rate
        )?;
        writeln!(f, "| what | hanging beside | p50 | p90 | p99 | p99.9 | max |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|")?;
        for (hanging, one) in &self.latency {
            for (what, percentiles) in [
                ("publish", one.latencies.publish),
                ("end to end", one.latencies.end_to_end),
            ] {
                let Percentiles {
                    p50,
                    p90,
                    p99,
                    p999,
                    max,
                    ..
                } = percentiles;
                writeln!(
                    f,
                    "| {what} | {hanging} | {p50:.2} | {p90:.2} | {p99:.2} | {p999:.2} | {max:.2} |"
                )?;
            }
        }
        let Some((_, alone)) = self.latency.iter().find(|(hanging, _)| *hanging == 0) else {
            return Ok(());
        };
        writeln!(
            f,
            "\n| healthy p99 end to end beside | ÷ alone (goal < 1.1) | server peak RSS MB |"
        )?;
        writeln!(f, "|---|---:|---:|")?;
        for (hanging, one) in &self.latency {
            let ratio = one.latencies.end_to_end.p99 / alone.latencies.end_to_end.p99;
            writeln!(f, "| {hanging} hanging | {ratio:.2} | {:.0} |", one.rss_mb)?;
        }
        Ok(())
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
    fn only_what_is_between_the_marks_changes() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(
            replaced(&page, "new\n"),
            Some(format!("a\n{BEGIN}\nnew\n{END}\nb\n"))
        );
        assert_eq!(replaced("no marks", "new"), None);
    }
}
