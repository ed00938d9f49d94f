//! House rules that no other tool holds. Each rule looks at one file or at the whole tree and answers findings; it
//! never changes anything.

mod docs;
mod rust;
mod tree;

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::process::root;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// From the root.
    path: String,
    /// From 1; 0 when it is about the whole file.
    line: usize,
    /// What is wrong and what to do.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks every rule over the whole tree and names every finding.
pub(crate) fn run() -> Result<()> {
    let files = tree::read(root()).context("failed to read the tree")?;
    let findings = check(&files);
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} broken house rules", findings.len());
    }
    println!("tidy: {} files follow the house rules", files.len());
    Ok(())
}

fn check(files: &[tree::File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.path.ends_with(".rs") {
            rust::check(file, &mut findings);
        }
        docs::machine_paths(file, &mut findings);
        if file.path.ends_with(".md") {
            docs::links(file, files, &mut findings);
        }
    }
    rust::one_test_binary(files, &mut findings);
    rust::directions(files, &mut findings);
    docs::decisions(files, &mut findings);
    findings
}
