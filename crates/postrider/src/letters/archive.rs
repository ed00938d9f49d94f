//! Where the archive's files go: a directory, or a bucket of an object store.
//!
//! A file appears whole or not at all, and is on disk when [`Archive::put`] returns, because what it holds is deleted
//! from the store next.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme};
use tokio::time::timeout;
use url::Url;

use super::object_client::Connector;

/// For one file, with the repeats that the object store's client makes by itself.
const PUT_TIME: Duration = Duration::from_secs(300);
/// Level of compression: 3 is zstd's own choice between speed and size.
const LEVEL: i32 = 3;
/// Bytes that one line may have when it is read: payload, attempts and their bodies in base64.
const MAX_LINE_BYTES: usize = 256 << 20;

/// Schemes of addresses.
const SCHEMES: [&str; 5] = ["s3", "gs", "az", "abfs", "abfss"];

/// Where files go.
#[derive(Clone)]
pub enum Archive {
    /// Into a directory, which is made when it is not there.
    Directory(PathBuf),
    /// Into a bucket, below a prefix.
    Bucket(Arc<dyn ObjectStore>, ObjectPath),
}

/// Why an archive cannot be used or was not written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The address is none that is known.
    #[error(
        "{0:?} is neither a directory nor an address such as s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
    )]
    Unknown(String),
    /// The object store did not take it.
    #[error("use the object store")]
    ObjectStore(#[from] object_store::Error),
    /// The directory did not take it.
    #[error("write {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// The object store did not confirm the file in time, repeats of requests included.
    #[error("store the file within {} s", PUT_TIME.as_secs())]
    TooSlow,
    /// The writing task died.
    #[error("finish writing the archive")]
    Interrupted,
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => f.debug_tuple("Directory").field(path).finish(),
            // Its own `Debug` could show credentials.
            Self::Bucket(store, prefix) => write!(f, "Bucket({store}, {prefix})"),
        }
    }
}

impl fmt::Display for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Bucket(store, prefix) => write!(f, "{store} {prefix}"),
        }
    }
}

impl Archive {
    /// From the configuration's text: a path, or a URL with the scheme `s3`, `gs`, `az`, `abfs` or `abfss`. Credentials of
    /// object stores come from the environment variables of their own tools (`AWS_…`, `GOOGLE_…`, `AZURE_…`). Nothing is
    /// contacted yet.
    ///
    /// # Errors
    /// When the address is not known or incomplete.
    pub fn open(target: &str) -> Result<Self, ArchiveError> {
        let unknown = || ArchiveError::Unknown(target.to_owned());
        let Some((scheme, _)) = target.split_once("://") else {
            // `s3:/bucket` and `gs:bucket` are addresses with a slip, not directories.
            let is_slip = target
                .split_once(':')
                .is_some_and(|(scheme, _)| SCHEMES.contains(&scheme));
            return if is_slip {
                Err(unknown())
            } else {
                Ok(Self::Directory(PathBuf::from(target)))
            };
        };
        let is_known = SCHEMES.contains(&scheme);
        let url = Url::parse(target).ok().filter(|_| is_known).ok_or_else(unknown)?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| unknown())?;
        let connector = Connector::default();
        let address = url.as_str();
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::AmazonS3 => Arc::new(
                AmazonS3Builder::from_env()
                    .with_url(address)
                    .with_http_connector(connector)
                    .build()?,
            ),
            ObjectStoreScheme::GoogleCloudStorage => Arc::new(
                GoogleCloudStorageBuilder::from_env()
                    .with_url(address)
                    .with_http_connector(connector)
                    .build()?,
            ),
            ObjectStoreScheme::MicrosoftAzure => Arc::new(
                MicrosoftAzureBuilder::from_env()
                    .with_url(address)
                    .with_http_connector(connector)
                    .build()?,
            ),
            _ => return Err(unknown()),
        };
        Ok(Self::Bucket(store, prefix))
    }

    /// Whether files could be written, as far as that can be known without the network: a directory must be writable, or
    /// the nearest one above it that is there.
    ///
    /// # Errors
    /// When they could not.
    pub fn check_writable(&self) -> Result<(), ArchiveError> {
        let Self::Directory(dir) = self else {
            return Ok(());
        };
        let existing = dir
            .ancestors()
            .find(|above| above.exists() && !above.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let probe = existing.join(format!(".postrider-probe-{}", std::process::id()));
        let make = || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(&probe)
        };
        let written = make().or_else(|error| {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
            // A killed process of the same number left it.
            fs::remove_file(&probe).and_then(|()| make())
        });
        written
            .and_then(|_| fs::remove_file(&probe))
            .map_err(|error| ArchiveError::Directory(dir.clone(), error))
    }

    /// Stores a file under a name without separators. It is durable when this returns; one of the same name is replaced.
    ///
    /// # Errors
    /// When it is not there whole.
    pub async fn put(&self, name: String, content: Vec<u8>) -> Result<(), ArchiveError> {
        match self {
            Self::Directory(dir) => {
                let dir = dir.clone();
                tokio::task::spawn_blocking(move || write_file(&dir, &name, &content))
                    .await
                    .map_err(|_| ArchiveError::Interrupted)?
            }
            Self::Bucket(store, prefix) => {
                let path = prefix.clone().join(name);
                match timeout(PUT_TIME, store.put(&path, content.into())).await {
                    Ok(put) => Ok(put.map(drop)?),
                    Err(_) => Err(ArchiveError::TooSlow),
                }
            }
        }
    }
}

/// Written beside its place, flushed, moved into it, and the directory flushed.
fn write_file(dir: &Path, name: &str, content: &[u8]) -> Result<(), ArchiveError> {
    let (temporary, place) = (dir.join(format!(".{name}.tmp")), dir.join(name));
    let write = || {
        fs::create_dir_all(dir)?;
        let mut options = OpenOptions::new();
        // Payloads are the customers' data: for the owner of the process only.
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, &place)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|error| {
        drop(fs::remove_file(&temporary));
        ArchiveError::Directory(place.clone(), error)
    })
}

/// Lines, compressed as they come.
pub struct Compressor {
    encoder: zstd::Encoder<'static, Vec<u8>>,
    raw_bytes: usize,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("raw_bytes", &self.raw_bytes)
            .finish_non_exhaustive()
    }
}

impl Compressor {
    /// An empty file, with a checksum at its end.
    ///
    /// # Errors
    /// When there is no memory for the encoder.
    pub fn new() -> io::Result<Self> {
        let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Self {
            encoder,
            raw_bytes: 0,
        })
    }

    /// Adds whole lines.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.raw_bytes += lines.len();
        self.encoder.write_all(lines)
    }

    /// Bytes before compression.
    #[must_use]
    pub const fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// The whole file.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        self.encoder.finish()
    }
}

/// Reads lines, compressed or not: which it is shows in the first bytes.
///
/// # Errors
/// When the source cannot be read.
pub fn lines(mut source: impl io::BufRead + 'static) -> io::Result<Lines> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let is_compressed = source.fill_buf()?.starts_with(&MAGIC);
    let source: Box<dyn io::BufRead> = if is_compressed {
        Box::new(io::BufReader::new(zstd::Decoder::with_buffer(source)?))
    } else {
        Box::new(source)
    };
    Ok(Lines {
        source: Some(source),
        number: 0,
    })
}

/// Lines of a file, without their ends; empty ones are left out. Ends after an error.
pub struct Lines {
    source: Option<Box<dyn io::BufRead>>,
    number: usize,
}

impl Lines {
    /// Number of the line that came last, 1 for the first of the file; empty ones count.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Iterator for Lines {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = next_line(self.source.as_mut()?, &mut self.number);
        if !matches!(read, Ok(Some(_))) {
            self.source = None;
        }
        read.transpose()
    }
}

fn next_line(source: &mut dyn io::BufRead, number: &mut usize) -> io::Result<Option<Vec<u8>>> {
    loop {
        let mut line = Vec::new();
        let mut bounded = io::Read::take(&mut *source, MAX_LINE_BYTES as u64);
        let length = io::BufRead::read_until(&mut bounded, b'\n', &mut line)?;
        if length == 0 {
            return Ok(None);
        }
        *number += 1;
        if length == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            return Err(io::Error::other("a line is longer than 256 MiB"));
        }
        let whole = line.trim_ascii();
        if !whole.is_empty() {
            return Ok(Some(whole.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};
    use tokio::time::Instant;

    use super::super::line::Line;
    use super::super::line::tests::{event, head};
    use super::*;

    fn compressed(lines: &[u8]) -> Vec<u8> {
        let mut compressor = Compressor::new().unwrap();
        compressor.write(lines).unwrap();
        assert_eq!(compressor.raw_bytes(), lines.len());
        compressor.finish().unwrap()
    }

    #[test]
    fn what_was_compressed_is_read_line_by_line() {
        let mut text = Vec::new();
        for data in [b"\xff\xfe\x80".as_slice(), b"\n\0"] {
            Line::new(head(), event(data), &[], None)
                .write(&mut text)
                .unwrap();
        }
        for file in [text.clone(), compressed(&text)] {
            let read: Vec<Line> = lines(io::Cursor::new(file))
                .unwrap()
                .map(|line| Line::read(&line.unwrap()).unwrap())
                .collect();
            let data: Vec<&[u8]> = read.iter().map(|line| &*line.event.data).collect();
            assert_eq!(data, [b"\xff\xfe\x80".as_slice(), b"\n\0"]);
        }
    }

    #[test]
    fn a_file_that_was_cut_off_is_an_error_and_not_the_end() {
        let whole = compressed(&b"{}\n".repeat(1_000));
        let cut = whole[..whole.len() - 3].to_vec();
        let last = lines(io::Cursor::new(cut)).unwrap().last().unwrap();
        assert!(last.is_err());
    }

    #[tokio::test]
    async fn a_directory_gets_whole_private_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a/b");
        let archive = Archive::open(target.to_str().unwrap()).unwrap();
        archive
            .put("one.jsonl.zst".to_owned(), b"first".to_vec())
            .await
            .unwrap();
        archive
            .put("one.jsonl.zst".to_owned(), b"second".to_vec())
            .await
            .unwrap();
        let names: Vec<_> = fs::read_dir(&target)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["one.jsonl.zst"]);
        let place = target.join("one.jsonl.zst");
        assert_eq!(fs::read(&place).unwrap(), b"second");
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o600);
        let blocked = Archive::Directory(place.join("below-a-file"));
        assert!(blocked.put("x".to_owned(), Vec::new()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_confirms_nothing_is_given_up_after_five_minutes() {
        let slow = ThrottleConfig {
            wait_put_per_call: Duration::from_secs(3_600),
            ..ThrottleConfig::default()
        };
        let store = ThrottledStore::new(InMemory::new(), slow);
        let archive = Archive::Bucket(Arc::new(store), ObjectPath::default());
        let started = Instant::now();
        let put = archive.put("one.jsonl.zst".to_owned(), b"content".to_vec()).await;
        assert!(matches!(put, Err(ArchiveError::TooSlow)), "{put:?}");
        assert_eq!(started.elapsed().as_secs(), 300);
    }

    #[tokio::test]
    async fn a_bucket_gets_files_below_its_prefix() {
        let store = Arc::new(InMemory::new());
        let archive = Archive::Bucket(
            Arc::clone(&store) as Arc<dyn ObjectStore>,
            ObjectPath::from("dead/letters"),
        );
        archive
            .put("one.jsonl.zst".to_owned(), b"content".to_vec())
            .await
            .unwrap();
        let found = store
            .get(&ObjectPath::from("dead/letters/one.jsonl.zst"))
            .await
            .unwrap();
        assert_eq!(found.bytes().await.unwrap(), "content");
    }

    #[test]
    fn addresses_that_are_not_known_are_refused() {
        for target in [
            "ftp://host/x",
            "s4://bucket",
            "http://bucket/x",
            "file:///var/x",
            "s3:///x",
        ] {
            let error = Archive::open(target).unwrap_err().to_string();
            assert!(
                error.contains("is neither a directory nor an address such as s3://"),
                "{target}: {error}"
            );
        }
        assert!(matches!(Archive::open("./relative"), Ok(Archive::Directory(_))));
        assert_eq!(Archive::open("/var/archive").unwrap().to_string(), "/var/archive");
    }

    #[test]
    fn empty_lines_are_left_out_and_counted() {
        let mut read = lines(io::Cursor::new(b"a\n\n  \nb\n".to_vec())).unwrap();
        assert_eq!(read.next().unwrap().unwrap(), b"a");
        assert_eq!(read.number(), 1);
        assert_eq!(read.next().unwrap().unwrap(), b"b");
        assert_eq!(read.number(), 4);
        assert!(read.next().is_none());
    }

    #[test]
    fn what_cannot_be_written_is_known_before_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let new = Archive::open(folder.path().join("new/er").to_str().unwrap()).unwrap();
        assert!(new.check_writable().is_ok());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let proc = Archive::open("/proc/foo").unwrap();
        assert!(matches!(proc.check_writable(), Err(ArchiveError::Directory(..))));
        assert!(matches!(Archive::open("s3:/foo"), Err(ArchiveError::Unknown(_))));
    }
}
