//! `postrider dead-letters`: what could not be delivered, and why.

mod export;
mod filter;
mod view;

use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Examples:
  postrider dead-letters summary
  postrider dead-letters list --tenant acme --code 401
  postrider dead-letters show dlv_019b76daa8007000800000000000002a
  postrider dead-letters export --tenant acme acme.jsonl.zst";

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
    /// Write them to a file, one JSON object a line
    Export(export::ExportArgs),
}

/// Does it.
pub fn run(args: &DeadLettersArgs) -> anyhow::Result<()> {
    match &args.command {
        DeadLettersCommand::List(args) => view::list(args),
        DeadLettersCommand::Summary(args) => view::summary(args),
        DeadLettersCommand::Show(args) => view::show(args),
        DeadLettersCommand::Export(args) => export::run(args),
    }
}
