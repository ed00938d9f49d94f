//! What SQLite can answer, in the words of the trait.

use rusqlite::ErrorCode;

use crate::error::StoreError;

/// A failure inside the backend, before it is told to a caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// SQLite said so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A row holds what this program never writes.
    #[error("{0}")]
    Corrupt(String),
}

impl Fault {
    /// A row holds `what`, which this program never writes.
    pub(super) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// SQLite's code, when it is SQLite's failure.
    pub(super) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite(error) => error.sqlite_error_code(),
            Self::Corrupt(_) => None,
        }
    }

    /// Whether the disk or the machine is to blame, so that every operation beside it would fail too.
    pub(super) fn blames_environment(&self) -> bool {
        matches!(
            self.code(),
            Some(
                ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::ReadOnly
                    | ErrorCode::CannotOpen
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::OutOfMemory
                    | ErrorCode::FileLockingProtocolFailed
                    | ErrorCode::PermissionDenied
            )
        )
    }

    /// The same, as the trait says it. Can be repeated: one commit has many waiters.
    pub(super) fn to_store_error(&self) -> StoreError {
        match self.code() {
            Some(ErrorCode::DiskFull) => StoreError::Full,
            Some(ErrorCode::OperationInterrupted) => StoreError::TooSlow,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StoreError::Corrupt(self.to_string())
            }
            Some(_) => StoreError::Unavailable(self.to_string().into()),
            None => StoreError::Corrupt(self.to_string()),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        fault.to_store_error()
    }
}
