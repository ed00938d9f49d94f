//! Runs as an SVG picture: requests a second that the receiver sees, and deliveries that have succeeded.

use std::fmt::Write;

use super::tally::Tally;

const WIDTH: f64 = 960.0;
const PANEL: f64 = 260.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 84.0;
const LEGEND: f64 = 44.0;
const GAP: f64 = 70.0;
const BUCKETS: usize = 240;
/// Distinguishable also with the common colour blindnesses (Okabe, Ito: "Color Universal Design", 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Draws runs over one time axis. `outage` is the second at which the receiver recovers.
#[must_use]
pub fn svg(title: &str, runs: &[(String, Tally)], outage: u64) -> String {
    let until = horizon(runs, outage);
    let height = TOP + 2.0 * PANEL + GAP + 50.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"17\">{}</text>\n",
        escape(title)
    );
    legend(&mut out, runs);
    let requests: Vec<_> = runs
        .iter()
        .map(|(_, t)| Tally::peaks(&t.requests, until, BUCKETS))
        .collect();
    panel(
        &mut out,
        TOP,
        "requests/s at the receiver",
        &requests,
        until,
        outage,
    );
    let successes: Vec<_> = runs.iter().map(|(_, t)| cumulated(t, until)).collect();
    panel(
        &mut out,
        TOP + PANEL + GAP,
        "deliveries that have succeeded",
        &successes,
        until,
        outage,
    );
    out.push_str("</svg>\n");
    out
}

/// The second up to which it is worth looking: when the last run is done, or twice the outage and a bit.
fn horizon(runs: &[(String, Tally)], outage: u64) -> u64 {
    let last = runs
        .iter()
        .map(|(_, tally)| tally.last_second())
        .max()
        .unwrap_or(0)
        + 1;
    last.min(outage.saturating_mul(2) + 600).max(10)
}

fn cumulated(tally: &Tally, until: u64) -> Vec<u32> {
    let mut counts = vec![0_u32; BUCKETS];
    for (&second, &count) in tally.successes.range(..until) {
        let index = usize::try_from(second * BUCKETS as u64 / until)
            .unwrap_or(0)
            .min(BUCKETS - 1);
        counts[index] += count;
    }
    let mut sum = 0;
    for count in &mut counts {
        sum += *count;
        *count = sum;
    }
    counts
}

fn legend(out: &mut String, runs: &[(String, Tally)]) {
    let step = (WIDTH - LEFT - RIGHT) / (runs.len().max(1) as f64);
    for (n, (name, _)) in runs.iter().enumerate() {
        let x = LEFT + step * n as f64;
        let colour = COLOURS[n % COLOURS.len()];
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{LEGEND}\">{}</text>",
            LEGEND - 7.0,
            x + 20.0,
            escape(name)
        );
    }
}

fn panel(out: &mut String, top: f64, label: &str, series: &[Vec<u32>], until: u64, outage: u64) {
    let most = series.iter().flatten().copied().max().unwrap_or(0).max(1);
    let scale = f64::from(nice(most));
    let width = WIDTH - LEFT - RIGHT;
    let x = |second: f64| LEFT + width * second / (until as f64);
    let y = |value: f64| top + PANEL * (1.0 - value / scale);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#444\">{label}</text>",
        top - 8.0
    );
    let _ = writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{:.1}\" height=\"{PANEL}\" fill=\"#f3e9e2\"/>",
        x((outage.min(until)) as f64) - LEFT
    );
    for quarter in 0..=4_u32 {
        let value = scale * f64::from(quarter) / 4.0;
        let second = until as f64 * f64::from(quarter) / 4.0;
        let (right, line, at) = (WIDTH - RIGHT, y(value), x(second));
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            LEFT - 8.0,
            line + 4.0,
            top + PANEL + 18.0,
            span(second)
        );
    }
    for (n, values) in series.iter().enumerate() {
        let mut points = String::new();
        for (index, value) in values.iter().enumerate() {
            let second = until as f64 * (index as f64 + 0.5) / values.len() as f64;
            let _ = write!(points, "{:.1},{:.1} ", x(second), y(f64::from(*value)));
        }
        let colour = COLOURS[n % COLOURS.len()];
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
            points.trim_end()
        );
    }
}

/// The next of 1, 2, 4, 5, 10, 20, ... that is not below.
fn nice(value: u32) -> u32 {
    let mut magnitude = 1_u32;
    loop {
        for step in [1, 2, 4, 5] {
            let candidate = magnitude.saturating_mul(step);
            if candidate >= value {
                return candidate;
            }
        }
        magnitude = magnitude.saturating_mul(10);
    }
}

/// Seconds as people say them: `45s`, `30m`, `2.5h`.
fn span(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "m"),
        s => (s / 3_600.0, "h"),
    };
    if (value - value.round()).abs() < 0.05 {
        format!("{value:.0}{unit}")
    } else {
        format!("{value:.1}{unit}")
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_a_round_number() {
        for (value, end) in [
            (1, 1),
            (3, 4),
            (6, 10),
            (45, 50),
            (1_001, 2_000),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(nice(value), end, "{value}");
        }
    }

    #[test]
    fn spans_are_readable() {
        for (seconds, text) in [(0.0, "0s"), (90.0, "90s"), (1_800.0, "30m"), (9_000.0, "2.5h")] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn the_legend_stands_two_lines_above_the_first_label() {
        let picture = svg("t", &[("run".to_owned(), Tally::default())], 10);
        let baseline = |text: &str| -> f64 {
            let before = picture.split(&format!(">{text}<")).next().unwrap();
            let y = before.rsplit(" y=\"").next().unwrap();
            y.split('"').next().unwrap().parse().unwrap()
        };
        let between = baseline("requests/s at the receiver") - baseline("run");
        assert!(between >= 2.0 * 13.0, "{between}");
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let runs = [("<b> & co".to_owned(), Tally::default())];
        let picture = svg("a < b", &runs, 10);
        assert!(picture.contains("&lt;b&gt; &amp; co") && picture.contains("a &lt; b"));
        assert!(!picture.contains("NaN"));
    }
}
