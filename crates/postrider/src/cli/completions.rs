//! `postrider completions`: a script that completes commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Which shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  postrider completions bash > /etc/bash_completion.d/postrider")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the script for the command line `C`.
pub fn run<C: CommandFactory>(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "postrider", &mut script);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(())
}
