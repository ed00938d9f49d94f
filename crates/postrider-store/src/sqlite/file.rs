//! Whether the database is still where it was.
//!
//! A file that is removed or replaced stays open and can be written, so nothing would fail until the next start, and then
//! everything since would be missing. So before each transaction its name is looked up, which costs a few microseconds.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is answered while it is not there.
pub(super) const GONE: &str =
    "the database file was removed or replaced; put it back: the log beside it belongs to it";

/// The database's file, as it was when it was opened.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    identity: (u64, u64),
    is_gone: AtomicBool,
}

impl DatabaseFile {
    /// The file that has this name now.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn at(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: identity(&std::fs::metadata(path)?),
            is_gone: AtomicBool::new(false),
        })
    }

    /// Whether the name leads nowhere or to another file now. Says so in the log when that changes.
    pub(super) fn is_gone(&self) -> bool {
        let found = std::fs::metadata(&self.path);
        let is_gone = found.map_or(true, |found| identity(&found) != self.identity);
        if is_gone != self.is_gone.swap(is_gone, Ordering::Relaxed) {
            let path = self.path.display();
            if is_gone {
                tracing::error!(%path, "the database file was removed or replaced: nothing is written until it is back");
            } else {
                tracing::info!(%path, "the database file is back");
            }
        }
        is_gone
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
