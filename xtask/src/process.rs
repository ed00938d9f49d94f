//! Runs other programs: shows the command line first, and turns a failure into an error that names it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the workspace, wherever the command was started.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace")
}

/// A path below the root.
pub(crate) fn at_root(path: impl AsRef<Path>) -> PathBuf {
    root().join(path)
}

/// `cargo` of the toolchain that runs us, started at the root.
pub(crate) fn cargo<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    // What `cargo run` says of this program counts as a change for build scripts that look at it: ring, and all that is made
    // with it, would be compiled again whenever `cargo` and `cargo xtask` take turns.
    let said_of_us = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(said_of_us) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it with our own input and output; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = announce(command);
    let status = command
        .status()
        .with_context(|| format!("failed to start `{line}`"))?;
    succeeded(status, &line)
}

/// Runs it, shows its output as it comes, both streams in their order, and gives each line to `see`.
pub(crate) fn run_watched(command: &mut Command, mut see: impl FnMut(&str)) -> Result<ExitStatus> {
    let line = announce(command);
    let (reader, writer) = std::io::pipe().context("failed to make a pipe")?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command
        .spawn()
        .with_context(|| format!("failed to start `{line}`"))?;
    // The command holds the writing ends until it is given something else; the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        let bytes = line.context("failed to read the output")?;
        let text = String::from_utf8_lossy(&bytes);
        println!("{text}");
        see(text.trim_end());
    }
    child
        .wait()
        .with_context(|| format!("failed to wait for `{line}`"))
}

/// An error that names the command, unless it succeeded.
pub(crate) fn succeeded(status: ExitStatus, line: &str) -> Result<()> {
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Whether the program can be started with these arguments.
pub(crate) fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn announce(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let line = std::iter::once(program)
        .chain(command.get_args().map(|argument| argument.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ");
    eprintln!("\n$ {line}");
    line
}
