//! The command line: what each command is called, and how a failure is told.
//!
//! One file a command. A command returns an error whose texts fit after "failed to"; it is printed here, once, as one
//! line, with an exit code: 0 done, 1 failed, 2 wrong usage or configuration.

pub mod client;
pub mod completions;
pub mod confirm;
pub mod dead_letters;
pub mod dev;
pub mod doctor;
pub mod events;
pub mod listener;
pub mod options;
pub mod output;
pub mod page;
pub mod policy;
pub mod policy_arg;
pub mod progress;
pub mod publish;
pub mod replays;
pub mod serve;
pub mod show_config;
pub mod signal;
pub mod simulate;
pub mod sink;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use crate::config::error::ConfigError;

/// Exit code of a failure.
const FAILED: u8 = 1;
/// Exit code of wrong usage or configuration; clap uses it, too.
const MISUSED: u8 = 2;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; standard error says why, in one line
  2    wrong usage or configuration
  130  ended at once by a second Ctrl-C
  143  ended at once by a second SIGTERM

Configuration: flags, then POSTRIDER_* in the environment, then the file of --config, then
defaults. `postrider config` shows the result and where each value comes from.";

/// Sends webhooks: an event published once is delivered to every destination that wants it, and none is lost.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, propagate_version = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve with everything defaulted, for trying out and developing
    Dev(serve::DevArgs),
    /// Serve in production
    Serve(serve::ServeArgs),
    /// Receive webhooks, print them, and misbehave on request
    Sink(sink::SinkArgs),
    /// Publish an event to a running server
    Publish(publish::PublishArgs),
    /// Look at events and how far their deliveries are
    Events(events::EventsArgs),
    /// Understand, replay, delete, export and import what could not be delivered
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Look at replays, and pause, resume or cancel them
    Replays(replays::ReplaysArgs),
    /// Look at what a retry policy does, attempt by attempt
    Policy(policy::PolicyArgs),
    /// See what a retry policy does to a receiver that comes back
    Simulate(simulate::SimulateArgs),
    /// Check that this machine and configuration can serve
    Doctor(doctor::DoctorArgs),
    /// Print the configuration in effect, and where each value comes from
    Config(show_config::ShowArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}

/// Runs the command that the arguments name.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Dev(args) => serve::run_dev(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Sink(args) => block_on(sink::run(args)),
        Command::Publish(args) => publish::run(&args),
        Command::Events(args) => events::run(&args),
        Command::DeadLetters(args) => dead_letters::run(&args),
        Command::Replays(args) => replays::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Config(args) => show_config::run(&args),
        Command::Completions(args) => completions::run::<Cli>(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Runs a command that waits for sockets.
fn block_on(command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(command)
}

/// Prints a failure as one line (a configuration with several problems has one line for each).
fn fail(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    if let Some(output::Reported(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    output::complain(&format!("postrider: failed to {error:#}"));
    let misused = error.is::<ConfigError>() || error.is::<options::Misused>();
    ExitCode::from(if misused { MISUSED } else { FAILED })
}

/// Whoever read our output has seen enough (`postrider events list | head`).
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
