//! Runs as text for a terminal: a table of totals and a line of bars each.

use std::fmt::Write;
use std::time::Duration;

use super::tally::Tally;

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const COLUMNS: usize = 72;

/// The totals of each run, and the requests a second that the receiver saw. `outage` is the second at which it recovers.
#[must_use]
pub fn report(runs: &[(String, Tally)], outage: u64) -> String {
    let width = runs
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(7);
    let mut out = format!(
        "{:<width$} {:>10} {:>12} {:>11} {:>12} {:>10} {:>10} {:>12}\n",
        "policy", "attempts", "peak req/s", "turned away", "drained in", "p50", "p99", "dead letters"
    );
    for (name, tally) in runs {
        let _ = writeln!(
            out,
            "{name:<width$} {:>10} {:>12} {:>11} {:>12} {:>10} {:>10} {:>12}",
            tally.attempts,
            tally.peak_from(outage),
            tally.turned_away,
            tally.drained_after.map_or_else(|| "-".to_owned(), span),
            span(tally.success_percentile(50)),
            span(tally.success_percentile(99)),
            tally.dead_letters(),
        );
    }
    out.push_str("\npeak req/s: the most in one second once the receiver works again. drained in: from then to the last success.\n");
    out.push_str("p50, p99: from publish to success.\n");
    let until = runs
        .iter()
        .map(|(_, tally)| tally.last_second())
        .max()
        .unwrap_or(0)
        + 1;
    let until = until.min(outage.saturating_mul(2) + 600);
    let most = runs
        .iter()
        .flat_map(|(_, t)| t.requests.range(..until))
        .map(|(_, n)| *n)
        .max()
        .unwrap_or(0);
    let _ = writeln!(
        out,
        "\nrequests/s from 0 to {}, of {most} at the most:",
        span(Duration::from_secs(until))
    );
    for (name, tally) in runs {
        let _ = writeln!(
            out,
            "{name:<width$} {}",
            bars(&Tally::peaks(&tally.requests, until, COLUMNS), most)
        );
    }
    let column = usize::try_from(outage * COLUMNS as u64 / until).unwrap_or(COLUMNS);
    if outage > 0 && column < COLUMNS {
        let _ = writeln!(out, "{:<width$} {:column$}^ the receiver works again", "", "");
    }
    for (name, tally) in runs {
        for (reason, count) in &tally.dead {
            let _ = writeln!(out, "{name}: {count} dead letters: {reason}");
        }
    }
    out
}

/// A line of bars. What is not zero is never invisible.
fn bars(values: &[u32], most: u32) -> String {
    let steps = u64::from(most.max(1));
    let height = |value: u32| {
        usize::try_from((u64::from(value) * 8).div_ceil(steps))
            .unwrap_or(8)
            .min(8)
    };
    values.iter().map(|value| BARS[height(*value)]).collect()
}

/// A duration in its two largest units: `250ms`, `1.5s`, `12m30s`, `3h05m`.
fn span(duration: Duration) -> String {
    let ms = duration.as_millis();
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{ms}ms"),
        1..=59 => format!("{}.{}s", seconds, ms % 1_000 / 100),
        60..=3_599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let table = [
            (0, "0ms"),
            (250, "250ms"),
            (1_590, "1.5s"),
            (750_000, "12m30s"),
            (11_100_000, "3h05m"),
        ];
        for (ms, text) in table {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn bars_show_also_the_least() {
        assert_eq!(bars(&[0, 1, 500, 1_000], 1_000), " ▁▄█");
        assert_eq!(bars(&[0, 0], 0), "  ");
    }
}
