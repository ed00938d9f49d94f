//! Opening the data directory: who may, what is in it, and bringing it up to date.
//!
//! Everything is checked before anything is changed, so that a refusal damages nothing.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use postrider_core::id::IdCodec;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::SqliteConfig;
use super::failure::Fault;
use super::log::Log;
use super::schema::{self, meta};
use crate::seal::{SealKey, fill_random};

const DATABASE: &str = "postrider.db";
const LOCK: &str = "postrider.lock";
const SEAL_CHECK: &[u8] = b"postrider seal check";
/// How long a statement waits for a lock of another program (`sqlite3`, a backup) before it fails.
const BUSY_TIMEOUT_MS: u32 = 30_000;
const STATEMENTS_CACHED: usize = 128;

/// Why the data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made or written.
    #[error("write to the data directory {}", dir.display())]
    NotWritable {
        /// Which directory.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process uses it.
    #[error("use the data directory {}: another postrider process has it open", dir.display())]
    InUse {
        /// Which directory.
        dir: PathBuf,
    },
    /// The database was written by a later version.
    #[error(
        "open {}: its schema is version {found} and this program knows up to {supported}; use a newer postrider",
        path.display()
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The highest version that this program can use.
        supported: i64,
    },
    /// The file is not a database of ours.
    #[error("open {}: it is not a postrider database", path.display())]
    NotADatabase {
        /// Which file.
        path: PathBuf,
    },
    /// There is a log without its database. A new database would begin with overwriting the log.
    #[error(
        "open {}: it is not there, but its log {} is, which may hold events",
        path.display(),
        log.display()
    )]
    LogWithoutDatabase {
        /// The database that is missing.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// Its secrets were sealed with another key.
    #[error("open {}: its secrets were sealed with another seal key", path.display())]
    WrongSealKey {
        /// Which file.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("open {}: the disk is full", path.display())]
    Full {
        /// Which file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("open {}: {reason}", path.display())]
    Failed {
        /// Which file.
        path: PathBuf,
        /// What SQLite or the system said.
        reason: String,
    },
}

/// A data directory that is ours now.
pub(super) struct Opened {
    pub(super) conn: Connection,
    pub(super) path: PathBuf,
    pub(super) ids: IdCodec,
    /// Held as long as the store is open; the system lets go of it when the process ends, however it ends.
    pub(super) lock: File,
}

/// Opens or creates the database, exclusively.
pub(super) fn open(config: &SqliteConfig) -> Result<Opened, OpenError> {
    let dir = &config.dir;
    let lock = lock(dir)?;
    let path = dir.join(DATABASE);
    check_log(&path)?;
    make_private(&path).map_err(|source| OpenError::NotWritable {
        dir: dir.to_owned(),
        source,
    })?;
    let mut conn = Connection::open_with_flags(
        &path,
        flags(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE),
    )
    .map_err(|error| refused(&path, dir, &error.into()))?;
    let ids = prepare(&mut conn, config, &path).map_err(|problem| match problem {
        Problem::Known(error) => error,
        Problem::Fault(fault) => refused(&path, dir, &fault),
    })?;
    Ok(Opened {
        conn,
        path,
        ids,
        lock,
    })
}

/// Looks at the database of a data directory, also while another process uses it: the version of its schema, `None` when
/// there is no database yet.
///
/// # Errors
/// When it is not a database that this program can use.
pub fn inspect(dir: &Path) -> Result<Option<i64>, OpenError> {
    let path = dir.join(DATABASE);
    check_log(&path)?;
    if !path.exists() {
        return Ok(None);
    }
    let refused = |fault: Fault| refused(&path, dir, &fault);
    let conn = open_reader(&path, 1_024).map_err(refused)?;
    check(&conn, &path).map_err(|problem| match problem {
        Problem::Known(error) => error,
        Problem::Fault(fault) => refused(fault),
    })
}

/// Whether a key is the one with which the secrets of a data directory's database were sealed; it is, too, when there is no
/// database yet.
///
/// # Errors
/// [`OpenError::WrongSealKey`] when it is not, and when the database cannot be read.
pub fn check_seal_key(dir: &Path, key: &SealKey) -> Result<(), OpenError> {
    if inspect(dir)?.is_none() {
        return Ok(());
    }
    let path = dir.join(DATABASE);
    let checked = open_reader(&path, 1_024)
        .map_err(Problem::Fault)
        .and_then(|conn| check_seal(&conn, key, &path));
    checked.map_err(|problem| match problem {
        Problem::Known(error) => error,
        Problem::Fault(fault) => refused(&path, dir, &fault),
    })
}

/// Opens another connection that writes, to a database that was opened and is up to date.
pub(super) fn open_writer(config: &SqliteConfig) -> Result<Connection, Fault> {
    let path = config.dir.join(DATABASE);
    let conn = Connection::open_with_flags(path, flags(OpenFlags::SQLITE_OPEN_READ_WRITE))?;
    be_patient(&conn)?;
    tune(&conn, config)?;
    Ok(conn)
}

/// Opens a connection that only reads.
pub(super) fn open_reader(path: &Path, cache_kib: u32) -> Result<Connection, Fault> {
    let conn = Connection::open_with_flags(path, flags(OpenFlags::SQLITE_OPEN_READ_WRITE))?;
    conn.execute_batch(&format!(
        "PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}; PRAGMA query_only = ON; PRAGMA foreign_keys = OFF;
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{cache_kib};"
    ))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    Ok(conn)
}

fn flags(access: OpenFlags) -> OpenFlags {
    // Each connection is used by one thread at a time, so SQLite's own mutexes are not needed.
    access | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let not_writable = |source| OpenError::NotWritable {
        dir: dir.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(not_writable)?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(dir.join(LOCK))
        .map_err(not_writable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(not_writable(source)),
    }
}

/// Refuses a log without its database: SQLite takes it for a leftover and overwrites it.
fn check_log(path: &Path) -> Result<(), OpenError> {
    let log = Log::path(path);
    let is_empty = |path: &Path| std::fs::metadata(path).map_or(true, |found| found.len() == 0);
    if is_empty(path) && !is_empty(&log) {
        return Err(OpenError::LogWithoutDatabase {
            path: path.to_owned(),
            log,
        });
    }
    Ok(())
}

/// Makes the database's file for its owner only, unless it is there. SQLite gives the files beside it the same mode.
fn make_private(path: &Path) -> io::Result<()> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop),
    }
}

enum Problem {
    Known(OpenError),
    Fault(Fault),
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        Self::Fault(error.into())
    }
}

fn prepare(conn: &mut Connection, config: &SqliteConfig, path: &Path) -> Result<IdCodec, Problem> {
    be_patient(conn)?;
    let version = check(conn, path)?;
    if version.is_some() {
        check_seal(conn, &config.seal_key, path)?;
    }
    tune(conn, config)?;
    let origin = match version {
        Some(_) => Vec::new(),
        None => origin(&config.seal_key)?,
    };
    schema::migrate(conn, version, &origin, &config.seal_key)?;
    let seed = schema::bytes(conn, meta::ID_SEED)?.and_then(|seed| <[u8; 16]>::try_from(seed).ok());
    let seed = seed.ok_or_else(|| Fault::corrupt("the seed of the ids is missing"))?;
    Ok(IdCodec::new(&seed))
}

fn be_patient(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.execute_batch(&format!(
        "PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}; PRAGMA foreign_keys = OFF;"
    ))
}

/// Sets a connection up for writing.
fn tune(conn: &Connection, config: &SqliteConfig) -> Result<(), rusqlite::Error> {
    conn.execute_batch(&format!(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 134217728;
         PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA cache_size = -{};",
        config.writer_cache_kib
    ))?;
    if let Some(pages) = config.max_pages {
        conn.execute_batch(&format!("PRAGMA max_page_count = {pages};"))?;
    }
    conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    Ok(())
}

/// What is drawn once an installation.
fn origin(key: &SealKey) -> Result<Vec<(&'static str, Vec<u8>)>, Fault> {
    let sealed = key
        .seal(meta::SEAL_CHECK.as_bytes(), SEAL_CHECK)
        .map_err(|error| Fault::corrupt(error.to_string()))?;
    let mut seed = vec![0_u8; 16];
    fill_random(&mut seed).map_err(|_| Fault::corrupt("the system gave no random bytes"))?;
    Ok(vec![(meta::SEAL_CHECK, sealed), (meta::ID_SEED, seed)])
}

/// Looks at the file without changing it; answers its version, `None` when it is empty.
fn check(conn: &Connection, path: &Path) -> Result<Option<i64>, Problem> {
    let application_id: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 && application_id == 0 {
        return Ok(None);
    }
    if application_id != schema::APPLICATION_ID {
        return Err(Problem::Known(OpenError::NotADatabase {
            path: path.to_owned(),
        }));
    }
    let version = schema::version(conn)?;
    match version {
        Some(found) if found > schema::current_version() => Err(Problem::Known(OpenError::Newer {
            path: path.to_owned(),
            found,
            supported: schema::current_version(),
        })),
        Some(found) => Ok(Some(found)),
        None => Err(Problem::Known(OpenError::NotADatabase {
            path: path.to_owned(),
        })),
    }
}

fn check_seal(conn: &Connection, key: &SealKey, path: &Path) -> Result<(), Problem> {
    let sealed = schema::bytes(conn, meta::SEAL_CHECK)?.unwrap_or_default();
    match key.open(meta::SEAL_CHECK.as_bytes(), &sealed) {
        Ok(text) if text == SEAL_CHECK => Ok(()),
        _ => Err(Problem::Known(OpenError::WrongSealKey {
            path: path.to_owned(),
        })),
    }
}

fn refused(path: &Path, dir: &Path, fault: &Fault) -> OpenError {
    let path = path.to_owned();
    match fault.code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path },
        Some(ErrorCode::DiskFull) => OpenError::Full { path },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            OpenError::NotWritable {
                dir: dir.to_owned(),
                source: io::Error::other(fault.to_string()),
            }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::InUse { dir: dir.to_owned() },
        _ => OpenError::Failed {
            path,
            reason: fault.to_string(),
        },
    }
}
