//! Asking before something is destroyed.

use std::io::{self, BufRead, IsTerminal, Write};

use super::options::Misused;

/// Goes on if `yes` was given, or somebody at a terminal says so; refuses where there is nobody to ask.
///
/// # Errors
/// [`Misused`] without a terminal, and [`Declined`] when the answer is anything but yes.
pub fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Misused("go on without being asked: this is not a terminal, so give --yes").into());
    }
    let mut errors = io::stderr().lock();
    write!(errors, "{question} [y/N] ")?;
    errors.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if means_yes(&answer) {
        Ok(())
    } else {
        Err(Declined.into())
    }
}

/// Somebody said no.
#[derive(Debug, thiserror::Error)]
#[error("go on: nothing was changed")]
pub struct Declined;

fn means_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_means_yes() {
        for answer in ["y\n", "YES\n", " y "] {
            assert!(means_yes(answer), "{answer}");
        }
        for answer in ["", "\n", "n\n", "yess\n", "j\n"] {
            assert!(!means_yes(answer), "{answer}");
        }
    }
}
