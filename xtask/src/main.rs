//! The one developer entry point: `cargo xtask <command>`.
//!
//! Everything that a developer or the continuous integration runs is here, so that both run the same. It knows the
//! program only from outside: its binary, its HTTP interface and its text.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

mod bench;
mod check;
mod crash;
mod layers;
mod load;
mod process;
mod promtool;
mod sdk;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of Postrider.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Formatting, lints, licences and sources of dependencies, tidiness.
    Check,
    /// House rules that no other tool holds: sizes, module docs, numbering, links, dependency direction.
    Tidy,
    /// Every test layer, with the number of tests in each.
    Test(test::TestArgs),
    /// Kills the server again and again under load and checks that nothing acknowledged is lost.
    Crash(crash::CrashArgs),
    /// Measures throughput, latency and cost on this machine; rewrites `docs/benchmarks.md`.
    Bench(bench::BenchArgs),
    /// The load generator of `bench`.
    #[command(hide = true)]
    Load(load::LoadArgs),
    /// Fetches the published libraries that the SDK tests verify with, and promtool; `test` does it by itself.
    Setup,
    /// What continuous integration runs: `check`, then `test` with a longer crash test.
    Ci,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Check => check::run(),
        Command::Tidy => tidy::run(),
        Command::Test(args) => test::run(&args),
        Command::Crash(args) => crash::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Setup => sdk::set_up().and_then(|()| promtool::set_up()),
        Command::Ci => check::run().and_then(|()| {
            test::run(&test::TestArgs {
                crash_rounds: crash::CI_ROUNDS,
            })
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
