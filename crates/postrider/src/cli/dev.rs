//! What `postrider dev` adds to a server: an API key that outlives restarts, and a tour to paste.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use postrider_core::secret::Secret;
use ring::rand::{SecureRandom, SystemRandom};

use super::options::DEV_KEY_FILE;
use super::serve::{WRITABLE, make_private_dir};

const KEY_BYTES: usize = 24;

/// The API key that is kept in the data directory; makes one the first time, in a file for its owner only.
///
/// # Errors
/// When the directory cannot be written.
pub fn api_key(data_dir: &Path) -> anyhow::Result<Secret> {
    let path = data_dir.join(DEV_KEY_FILE);
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if !kept.trim().is_empty() {
        return Ok(Secret::new(kept.trim()));
    }
    make_private_dir(data_dir)?;
    let key = fresh_key()?;
    let keep = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(key.expose().as_bytes())?;
        file.sync_all()
    };
    keep().map_err(|error| anyhow!("keep the API key in {}: {error}; {WRITABLE}", path.display()))?;
    Ok(key)
}

fn fresh_key() -> anyhow::Result<Secret> {
    let mut bytes = [0_u8; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .ok()
        .context("draw random bytes from the system")?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Secret::new(format!("dev_{hex}")))
}

/// What to paste into other terminals.
#[must_use]
pub fn tour(listen: SocketAddr, key: &Secret, data_dir: &Path) -> String {
    let key = key.expose();
    let dir = data_dir.display();
    format!(
        r#"
Postrider listens on http://{listen}, keeps its data in {dir}
API key: {key}

A receiver, in a second terminal:

  postrider sink --port 4000

A tenant, a destination, an event, and what became of it, in a third:

  curl -X PUT http://{listen}/api/v1/tenants/acme -H 'Authorization: Bearer {key}'

  curl -X POST http://{listen}/api/v1/tenants/acme/destinations \
    -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \
    -d '{{"type":"webhook","topics":["*"],"config":{{"url":"http://127.0.0.1:4000/"}}}}'

  curl -X POST http://{listen}/api/v1/publish \
    -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \
    -d '{{"tenant_id":"acme","topic":"order.paid","data":{{"order":42}}}}'

  curl -g 'http://{listen}/api/v1/attempts?tenant_id[]=acme&include[]=response_data' -H 'Authorization: Bearer {key}'

Stop with Ctrl-C.
"#
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let key = api_key(&data).unwrap();
        assert_eq!(key.expose().len(), "dev_".len() + 2 * KEY_BYTES);
        assert_eq!(api_key(&data).unwrap(), key);
        let mode = std::fs::metadata(data.join(DEV_KEY_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn an_address_for_all_interfaces_is_reached_by_loopback() {
        let key = Secret::new("k");
        let tour = tour("127.0.0.1:3333".parse().unwrap(), &key, Path::new("d"));
        assert!(
            tour.contains(r#"-d '{"tenant_id":"acme","topic":"order.paid","data":{"order":42}}'"#),
            "{tour}"
        );
    }
}
