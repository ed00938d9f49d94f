//! Reads the text files of the tree.

use std::path::Path;

use anyhow::{Context, Result};

/// Folders that are not ours, wherever they are.
const FOREIGN: [&str; 4] = ["target", "node_modules", ".git", ".postrider"];
const DEEPEST: usize = 16;

/// One text file.
#[derive(Debug)]
pub(crate) struct File {
    /// From the root, with `/`.
    pub(crate) path: String,
    /// Content.
    pub(crate) text: String,
}

/// Every UTF-8 file below the root, in the order of their paths.
pub(crate) fn read(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, "", 0, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<File>) -> Result<()> {
    if depth > DEEPEST {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !FOREIGN.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{path}/"), depth + 1, files)?;
            }
        } else if kind.is_file()
            // In a linked worktree `.git` is a file that holds a path of the machine.
            && name != ".git"
            && let Ok(text) = String::from_utf8(std::fs::read(entry.path())?)
        {
            files.push(File { path, text });
        }
    }
    Ok(())
}
