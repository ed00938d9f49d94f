//! A line of progress on standard error, drawn over itself, and only where a person looks at it.

use std::io::{self, IsTerminal, Write};

/// Characters of the bar.
const WIDTH: usize = 30;

/// The line.
#[derive(Debug)]
pub struct Progress {
    is_drawn: bool,
    is_terminal: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            is_drawn: false,
            is_terminal: io::stderr().is_terminal(),
        }
    }
}

impl Progress {
    /// Draws the line anew. There is nobody to tell when that fails.
    pub fn draw(&mut self, done: u64, total: u64, text: &str) {
        if self.is_terminal {
            self.is_drawn = true;
            let mut errors = io::stderr().lock();
            // Back to the first column, and clear to the end of the line (ECMA-48: EL).
            drop(write!(errors, "\r\x1b[K{} {text}", bar(done, total)));
            drop(errors.flush());
        }
    }

    /// Leaves the line as it is, and what comes next begins below it.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            drop(writeln!(io::stderr().lock()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// `[###----] 43 %`
fn bar(done: u64, total: u64) -> String {
    let share = |of: u64| (done.min(total) * of).checked_div(total).unwrap_or(of);
    let filled = usize::try_from(share(WIDTH as u64)).unwrap_or(WIDTH);
    format!(
        "[{}{}] {:3} %",
        "#".repeat(filled),
        "-".repeat(WIDTH - filled),
        share(100)
    )
}

/// `2 h 5 min`, `1 min 30 s`, `7 s`.
#[must_use]
pub fn span(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 500), format!("[{}]   0 %", "-".repeat(30)));
        assert_eq!(
            bar(250, 500),
            format!("[{}{}]  50 %", "#".repeat(15), "-".repeat(15))
        );
        assert_eq!(bar(499, 500), format!("[{}-]  99 %", "#".repeat(29)));
        assert_eq!(bar(0, 0), format!("[{}] 100 %", "#".repeat(30)));
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(7), "7 s");
        assert_eq!(span(90), "1 min 30 s");
        assert_eq!(span(7_500), "2 h 5 min");
    }
}
