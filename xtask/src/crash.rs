//! `cargo xtask crash`: the crash test of the end-to-end layer, alone and for as many rounds as wanted.
//!
//! The oracle itself is `crates/postrider/tests/it/e2e/crash.rs`, since it needs the same server harness as its
//! neighbours; rounds and seed reach it through the environment.

use anyhow::Result;
use clap::Args;

use crate::process::{self, cargo};

/// Rounds in continuous integration.
pub(crate) const CI_ROUNDS: u32 = 20;
/// Names the number of rounds to the test.
pub(crate) const ROUNDS: &str = "XTASK_CRASH_ROUNDS";
const SEED: &str = "XTASK_CRASH_SEED";
const REPLAY: &str = "XTASK_REPLAY_COUNT";

/// Options of `crash`.
#[derive(Debug, Args)]
pub(crate) struct CrashArgs {
    /// How often the server is killed.
    #[arg(long, default_value_t = CI_ROUNDS)]
    rounds: u32,
    /// Where the moments of the kills come from; a failure prints it.
    #[arg(long)]
    seed: Option<u64>,
    /// Kills a server in the middle of a replay of so many dead letters instead.
    #[arg(long, conflicts_with_all = ["rounds", "seed"])]
    replay: Option<u32>,
    /// Tests the release binary.
    #[arg(long)]
    release: bool,
}

/// Runs the crash test and shows its progress.
pub(crate) fn run(args: &CrashArgs) -> Result<()> {
    let mut command = cargo(["test", "--locked", "--package", "postrider", "--test", "it"]);
    if args.release {
        command.arg("--release");
    }
    let tests = match args.replay {
        Some(count) => {
            command.env(REPLAY, count.to_string());
            "e2e::dead_letters::a_replay_that_is_killed"
        }
        None => "e2e::crash::",
    };
    command.args([tests, "--", "--nocapture", "--test-threads", "1"]);
    command.env(ROUNDS, args.rounds.to_string());
    if let Some(seed) = args.seed {
        command.env(SEED, seed.to_string());
    }
    process::run(&mut command)
}
