//! What the numbers were measured on.

use std::process::Command;

use anyhow::{Context, Result};

/// The machine, the toolchain and the commit.
#[derive(Debug)]
pub(super) struct Machine {
    /// `2026-11-30`
    pub(super) date: String,
    /// Processor, number of cores, kernel.
    pub(super) hardware: String,
    /// `rustc 1.95.0 (...)`
    pub(super) compiler: String,
    /// Short hash, with a mark when the tree has changes.
    pub(super) commit: String,
}

/// Asks the system.
pub(super) fn describe() -> Result<Machine> {
    let cores = std::thread::available_parallelism().context("failed to count the cores")?;
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(": ")
                .map(|(_, model)| model.to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    Ok(Machine {
        date: say("date", &["-u", "+%F"])?,
        hardware: format!("{model}, {cores} cores, {}", say("uname", &["-sr"])?),
        compiler: say("rustc", &["--version"])?,
        commit: say("git", &["describe", "--always", "--dirty", "--exclude", "*"])?,
    })
}

fn say(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(crate::process::root())
        .output()
        .with_context(|| format!("failed to run {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
