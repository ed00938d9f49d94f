//! `cargo xtask check`: all that can be said about the code without running it.

use anyhow::Result;

use crate::process::{self, cargo, works};
use crate::tidy;

/// Runs every check; stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    process::run(&mut cargo(["fmt", "--all", "--check"]))?;
    tidy::run()?;
    process::run(&mut cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    licences()
}

/// Licences, bans and sources of everything that is linked. Advisories are left to a manual run, since their database
/// lives on a git host and this must work with package registries alone.
fn licences() -> Result<()> {
    if !works("cargo", &["deny", "--version"]) {
        process::run(&mut cargo(["install", "--locked", "cargo-deny"]))?;
    }
    process::run(&mut cargo([
        "deny",
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))
}
