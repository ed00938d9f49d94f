//! Secrets at rest: sealed with a key that is not in the database, so that a copied database file tells none.
//!
//! AES-256-GCM (NIST SP 800-38D) with a fresh random 96-bit nonce for each sealing. What a secret belongs to is
//! authenticated along with it, so that a sealed value moved to another row does not open. Must not know which
//! tables there are.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

const KEY_LEN: usize = 32;
/// First byte of a sealed value: which algorithm and layout.
const VERSION: u8 = 1;
/// Text of a key and a newline; anything longer is not a key file.
const MAX_KEY_FILE_LEN: u64 = 256;

/// A key for sealing. `Debug` shows `***`.
#[derive(Clone)]
pub struct SealKey {
    key: LessSafeKey,
    digests: hmac::Key,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    /// The text is not 32 bytes of base64.
    #[error("read the seal key: it must be 32 bytes in base64 (44 characters)")]
    Malformed,
    /// The key file cannot be read or made.
    #[error("use the key file {}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system gave no random bytes.
    #[error("draw random bytes from the system")]
    NoRandomness,
}

/// A sealed value that does not open: another key, another owner, or damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("open a sealed value: the key is another one, or the value was changed")]
pub struct UnsealError;

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl SealKey {
    /// From 32 random bytes.
    #[must_use]
    pub fn new(bytes: &[u8; KEY_LEN]) -> Self {
        // Only a wrong length is refused, and the type excludes that.
        #[expect(clippy::expect_used, reason = "the length is in the type")]
        let key = UnboundKey::new(&AES_256_GCM, bytes).expect("a key of 32 bytes");
        let root = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let digests = hmac::sign(&root, b"postrider digest");
        Self {
            key: LessSafeKey::new(key),
            digests: hmac::Key::new(hmac::HMAC_SHA256, digests.as_ref()),
        }
    }

    /// From base64, as it stands in a configuration.
    ///
    /// # Errors
    /// When the text is not 32 bytes of standard base64.
    pub fn from_base64(text: &str) -> Result<Self, SealKeyError> {
        let bytes = STANDARD
            .decode(text.trim())
            .map_err(|_| SealKeyError::Malformed)?;
        let bytes: [u8; KEY_LEN] = bytes.try_into().map_err(|_| SealKeyError::Malformed)?;
        Ok(Self::new(&bytes))
    }

    /// Reads a key file, or makes one with a fresh key that only its owner may read (mode 0600). The file appears whole or
    /// not at all, also when two processes try at once: both then use the same key.
    ///
    /// # Errors
    /// When the file cannot be read or made, or holds no key.
    pub fn load_or_create(path: &Path) -> Result<Self, SealKeyError> {
        let failed = |source| SealKeyError::File {
            path: path.to_owned(),
            source,
        };
        match File::open(path) {
            Ok(file) => return Self::read(file).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let mut bytes = [0_u8; KEY_LEN];
        fill_random(&mut bytes).map_err(|_| SealKeyError::NoRandomness)?;
        create_whole(path, format!("{}\n", STANDARD.encode(bytes)).as_bytes()).map_err(failed)?;
        Self::read(File::open(path).map_err(failed)?).map_err(failed)?
    }

    fn read(file: File) -> io::Result<Result<Self, SealKeyError>> {
        let mut bytes = Vec::new();
        file.take(MAX_KEY_FILE_LEN).read_to_end(&mut bytes)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| SealKeyError::Malformed);
        Ok(text.and_then(Self::from_base64))
    }

    /// The same for the same text, so that it can be found again; without the key it tells nothing, not even to somebody who
    /// guesses the text.
    pub(crate) fn digest(&self, plain: &[u8]) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(hmac::sign(&self.digests, plain).as_ref());
        digest
    }

    /// Seals `plain` so that it opens only with this key and the same `owner`.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub(crate) fn seal(&self, owner: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealKeyError> {
        let mut nonce = [0_u8; NONCE_LEN];
        fill_random(&mut nonce).map_err(|_| SealKeyError::NoRandomness)?;
        let mut sealed = plain.to_vec();
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(owner), &mut sealed)
            .map_err(|_| SealKeyError::Malformed)?;
        let mut value = Vec::with_capacity(1 + NONCE_LEN + sealed.len());
        value.push(VERSION);
        value.extend_from_slice(&nonce);
        value.append(&mut sealed);
        Ok(value)
    }

    /// Opens what [`SealKey::seal`] made for `owner`.
    ///
    /// # Errors
    /// When the key or the owner is another one, or the value was changed.
    pub(crate) fn open(&self, owner: &[u8], value: &[u8]) -> Result<Vec<u8>, UnsealError> {
        let (&version, rest) = value.split_first().ok_or(UnsealError)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or(UnsealError)?;
        if version != VERSION {
            return Err(UnsealError);
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| UnsealError)?;
        let mut plain = sealed.to_vec();
        let len = self
            .key
            .open_in_place(nonce, Aad::from(owner), &mut plain)
            .map_err(|_| UnsealError)?
            .len();
        plain.truncate(len);
        Ok(plain)
    }
}

/// Fills `bytes` from the system's generator.
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), ring::error::Unspecified> {
    SystemRandom::new().fill(bytes)
}

/// Makes a file of mode 0600 with this content, durable, unless it exists meanwhile.
fn create_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut suffix = [0_u8; 8];
    fill_random(&mut suffix).map_err(|_| io::Error::other("no random bytes"))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}", u64::from_be_bytes(suffix)));
    let temporary = directory.join(name);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        // A hard link fails where a rename would replace the key that another process has just made.
        match std::fs::hard_link(&temporary, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    })();
    let removed = std::fs::remove_file(&temporary);
    written?;
    removed?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn opens_what_it_sealed_and_nothing_else() {
        let key = SealKey::new(&[1; 32]);
        let sealed = key.seal(b"destination 1", b"whsec_canary").unwrap();
        assert_eq!(key.open(b"destination 1", &sealed).unwrap(), b"whsec_canary");
        assert_eq!(
            key.open(b"destination 2", &sealed),
            Err(UnsealError),
            "another owner"
        );
        assert_eq!(
            SealKey::new(&[2; 32]).open(b"destination 1", &sealed),
            Err(UnsealError),
            "another key"
        );
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(
                key.open(b"destination 1", &changed),
                Err(UnsealError),
                "byte {at} changed"
            );
            assert_eq!(
                key.open(b"destination 1", &sealed[..at]),
                Err(UnsealError),
                "cut at {at}"
            );
        }
    }

    #[test]
    fn a_digest_is_of_the_text_and_the_key() {
        let key = SealKey::new(&[1; 32]);
        assert_eq!(key.digest(b"x"), SealKey::new(&[1; 32]).digest(b"x"));
        assert_ne!(key.digest(b"x"), key.digest(b"y"));
        assert_ne!(key.digest(b"x"), SealKey::new(&[2; 32]).digest(b"x"));
    }

    #[test]
    fn the_same_secret_never_looks_the_same() {
        let key = SealKey::new(&[1; 32]);
        assert_ne!(key.seal(b"", b"x").unwrap(), key.seal(b"", b"x").unwrap());
    }

    #[test]
    fn a_key_file_is_made_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data").join("seal.key");
        let sealed = SealKey::load_or_create(&path).unwrap().seal(b"", b"x").unwrap();
        assert_eq!(
            SealKey::load_or_create(&path)
                .unwrap()
                .open(b"", &sealed)
                .unwrap(),
            b"x"
        );
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let entries = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(entries, 1, "no temporary file is left");
    }

    #[test]
    fn a_file_that_is_no_key_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seal.key");
        let not_utf8 = &[0xff, 0xfe, 0x00][..];
        for content in [b"hello", not_utf8] {
            std::fs::write(&path, content).unwrap();
            assert!(matches!(
                SealKey::load_or_create(&path),
                Err(SealKeyError::Malformed)
            ));
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", SealKey::new(&[7; 32])), "***");
    }
}
