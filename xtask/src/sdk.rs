//! Fetches the published Standard Webhooks libraries that the SDK tests verify with, once, into `target/sdk`.
//!
//! The tests look for them there and fail without them, so that no layer is skipped in silence.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{at_root, run, works};

const NODE_PACKAGE: &str = "standardwebhooks@1.1.1";
const PYTHON_PACKAGE: &str = "standardwebhooks==1.1.0";

/// Makes `target/sdk/node_modules` and `target/sdk/venv`, unless they hold these very versions already.
pub(crate) fn set_up() -> Result<()> {
    let home = at_root("target/sdk");
    std::fs::create_dir_all(&home).with_context(|| format!("failed to create {}", home.display()))?;
    node(&home)?;
    python(&home)
}

fn node(home: &Path) -> Result<()> {
    once(home, "node.stamp", NODE_PACKAGE, || {
        ensure!(
            works("node", &["--version"]) && works("npm", &["--version"]),
            "Node 20 with npm is needed for the SDK tests"
        );
        // A package of its own, so that npm does not look for one in the folders above.
        std::fs::write(
            home.join("package.json"),
            r#"{ "name": "sdk-tests", "private": true }"#,
        )?;
        run(Command::new("npm")
            .args([
                "install",
                "--no-save",
                "--no-audit",
                "--no-fund",
                "--no-package-lock",
                NODE_PACKAGE,
            ])
            .current_dir(home))
    })
}

fn python(home: &Path) -> Result<()> {
    once(home, "python.stamp", PYTHON_PACKAGE, || {
        ensure!(
            works("python3", &["--version"]),
            "Python 3.11 is needed for the SDK tests"
        );
        run(Command::new("python3")
            .args(["-m", "venv", "--clear", "venv"])
            .current_dir(home))?;
        run(Command::new(home.join("venv/bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                PYTHON_PACKAGE,
            ])
            .current_dir(home))
    })
}

/// Does the work unless the stamp says that it was done for the same packages.
fn once(home: &Path, stamp: &str, packages: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = home.join(stamp);
    if std::fs::read_to_string(&stamp).is_ok_and(|done| done == packages) {
        return Ok(());
    }
    work()?;
    std::fs::write(&stamp, packages).with_context(|| format!("failed to write {}", stamp.display()))
}
