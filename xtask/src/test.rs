//! `cargo xtask test`: every layer in one run, counted by layer.

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::crash;
use crate::layers::{Census, Layer, libtest_result, nextest_result};
use crate::process::{self, cargo, run_watched, works};
use crate::{promtool, sdk};

const PACKAGES: [&str; 4] = ["postrider-core", "postrider-store", "xtask", "postrider"];

/// Options of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Rounds of the crash test among them; `cargo xtask crash` runs more.
    #[arg(long, default_value_t = 3)]
    pub(crate) crash_rounds: u32,
}

/// Runs all tests; ends with the runner's own closing lines.
pub(crate) fn run(args: &TestArgs) -> Result<()> {
    sdk::set_up().context("failed to set up the SDK tests")?;
    promtool::set_up().context("failed to set up the tests of the alert rules")?;
    // Examples in documentation: the runner below does not know them.
    process::run(&mut cargo([
        "test",
        "--locked",
        "--workspace",
        "--doc",
        "--quiet",
    ]))?;
    let mut census = Census::default();
    let mut closing = Vec::new();
    let passed = if works("cargo", &["nextest", "--version"]) {
        nextest(args, &mut census, &mut closing)?
    } else {
        libtest(args, &mut census, &mut closing)?
    };
    println!("\n{census}\n");
    for line in &closing {
        println!("{line}");
    }
    if !passed {
        bail!("tests failed");
    }
    census.complete()
}

fn nextest(args: &TestArgs, census: &mut Census, closing: &mut Vec<String>) -> Result<bool> {
    let mut command = cargo([
        "nextest",
        "run",
        "--locked",
        "--workspace",
        "--no-fail-fast",
        "--color",
        "never",
        "--status-level",
        "pass",
        "--final-status-level",
        "fail",
    ]);
    command.env(crash::ROUNDS, args.crash_rounds.to_string());
    let status = run_watched(&mut command, |line| {
        if line.trim_start().starts_with("Summary [") {
            closing.clear();
            closing.push(line.to_owned());
        } else if !closing.is_empty() {
            // What follows the summary are the failures once more.
            closing.push(line.to_owned());
        } else if let Some((package, test, passed)) = nextest_result(line) {
            census.add(Layer::of(package, test), passed);
        }
    })?;
    Ok(status.success())
}

/// Without nextest: one package after the other, since only the package tells which `it` binary is which.
fn libtest(args: &TestArgs, census: &mut Census, closing: &mut Vec<String>) -> Result<bool> {
    let mut passed = true;
    for package in PACKAGES {
        // All targets, but not the examples in documentation, which have had their run.
        let mut command = cargo([
            "test",
            "--locked",
            "--no-fail-fast",
            "--all-targets",
            "--package",
            package,
        ]);
        command.env(crash::ROUNDS, args.crash_rounds.to_string());
        let status = run_watched(&mut command, |line| {
            if let Some((test, good)) = libtest_result(line) {
                census.add(Layer::of(package, test), good);
            } else if line.starts_with("test result: ") {
                closing.push(line.to_owned());
            }
        })?;
        passed &= status.success();
    }
    Ok(passed)
}
