//! `postrider dead-letters`: what could not be delivered; understanding it, sending it again, and clearing it away.

mod export;
pub(super) mod filter;
mod import;
mod purge;
mod replay;
mod view;

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  postrider dead-letters summary
  postrider dead-letters list --tenant acme --code 401
  postrider dead-letters show dlv_019b76daa8007000800000000000002a
  postrider dead-letters replay --destination des_1 --code 401 --dry-run
  postrider dead-letters replay --destination des_1 --code 401
  postrider dead-letters replay --tenant acme --destination des_1 --everything-since 2026-01-31T12:00:00Z
  postrider dead-letters export --tenant acme acme.jsonl.zst
  postrider dead-letters purge --tenant acme --died-before 2026-01-01";

/// What to do with them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DeadLettersArgs {
    #[command(subcommand)]
    command: DeadLettersCommand,
}

#[derive(Debug, Subcommand)]
enum DeadLettersCommand {
    /// The newest of them
    List(view::ListArgs),
    /// How many there are by destination and outcome, the largest group first
    Summary(view::SummaryArgs),
    /// One with its event, its attempts, and the configuration of its time
    Show(view::ShowArgs),
    /// Send them again, and watch that
    Replay(replay::ReplayArgs),
    /// Delete them for ever
    Purge(purge::PurgeArgs),
    /// Write them to a file, one JSON object a line
    Export(export::ExportArgs),
    /// Bring back what was exported or archived
    Import(import::ImportArgs),
}

/// Does it.
pub fn run(args: &DeadLettersArgs) -> anyhow::Result<()> {
    match &args.command {
        DeadLettersCommand::List(args) => view::list(args),
        DeadLettersCommand::Summary(args) => view::summary(args),
        DeadLettersCommand::Show(args) => view::show(args),
        DeadLettersCommand::Replay(args) => replay::run(args),
        DeadLettersCommand::Purge(args) => purge::run(args),
        DeadLettersCommand::Export(args) => export::run(args),
        DeadLettersCommand::Import(args) => import::run(args),
    }
}
