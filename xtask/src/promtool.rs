//! Fetches `promtool`, which checks and tests the alert rules, once, into `target/promtool`.
//!
//! It is the one of Debian's package `prometheus`, taken out of the package without installing it: no root is needed and no
//! server starts. The tests look for it there and fail without it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{at_root, run, works};

const PACKAGE: &str = "prometheus";

/// Makes `target/promtool/promtool`, unless it is there and works.
pub(crate) fn set_up() -> Result<()> {
    let home = at_root("target/promtool");
    let promtool = home.join("promtool");
    if is_promtool(&promtool) {
        return Ok(());
    }
    std::fs::create_dir_all(&home).with_context(|| format!("failed to create {}", home.display()))?;
    let found = match installed() {
        Some(installed) => installed,
        None => unpacked(&home)?,
    };
    std::fs::copy(&found, &promtool)
        .with_context(|| format!("failed to copy {} to {}", found.display(), promtool.display()))?;
    ensure!(
        is_promtool(&promtool),
        "{} does not run on this machine",
        promtool.display()
    );
    Ok(())
}

fn is_promtool(path: &Path) -> bool {
    path.to_str().is_some_and(|path| works(path, &["--version"]))
}

/// The one in the path of programs, if any.
fn installed() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join("promtool"))
        .find(|path| is_promtool(path))
}

fn unpacked(home: &Path) -> Result<PathBuf> {
    ensure!(
        works("apt-get", &["--version"]) && works("dpkg-deb", &["--version"]),
        "promtool is needed for the tests of the alert rules; put it into the path (it comes with Prometheus)"
    );
    let folder = home.join("package");
    std::fs::remove_dir_all(&folder).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    std::fs::create_dir_all(&folder)?;
    if download(&folder, &[]).is_err() {
        // This machine has no package lists, or old ones: fetch some of our own, which needs no root.
        let lists = own_lists(home)?;
        run(Command::new("apt-get")
            .args(&lists)
            .args(["update", "--quiet"])
            .current_dir(&folder))?;
        download(&folder, &lists).context("failed to download Debian's package `prometheus`")?;
    }
    let package = std::fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .context("apt-get downloaded no package")?;
    run(Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(&folder))?;
    Ok(folder.join("usr/bin/promtool"))
}

fn download(folder: &Path, options: &[String]) -> Result<()> {
    run(Command::new("apt-get")
        .args(options)
        .args(["download", "--quiet", PACKAGE])
        .current_dir(folder))
}

/// Options of `apt-get` that keep package lists below `home`.
fn own_lists(home: &Path) -> Result<Vec<String>> {
    let mut options = Vec::new();
    for (name, folder) in [("Dir::State::lists", "lists"), ("Dir::Cache", "cache")] {
        let folder = home.join(folder);
        std::fs::create_dir_all(folder.join("partial"))
            .with_context(|| format!("failed to create {}", folder.display()))?;
        options.push("-o".to_owned());
        options.push(format!("{name}={}", folder.display()));
    }
    Ok(options)
}
