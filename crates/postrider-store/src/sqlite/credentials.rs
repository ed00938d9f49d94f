//! A destination's secrets between memory and their sealed column: its credentials, and the part of its configuration that
//! may hold secrets too.

use std::collections::BTreeMap;

use postrider_core::secret::Secret;

use super::failure::Fault;
use crate::record::{Credentials, Metadata, SECRET_CONFIG};
use crate::seal::SealKey;

/// Before the name of a field that belongs to the configuration. No credential's name has a dot.
const CONFIG: &str = "config.";

/// The part of a configuration that may be kept in clear.
pub(super) fn shown(config: &Metadata) -> Metadata {
    config
        .iter()
        .filter(|(name, _)| !SECRET_CONFIG.contains(&name.as_str()))
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect()
}

/// Seals the secrets of a destination to its row.
pub(super) fn seal(
    key: &SealKey,
    tenant: i64,
    id: &str,
    credentials: &Credentials,
    config: &Metadata,
) -> Result<Vec<u8>, Fault> {
    let of_config = SECRET_CONFIG
        .iter()
        .filter_map(|name| Some((format!("{CONFIG}{name}"), config.get(*name)?.as_str())));
    let fields: BTreeMap<String, &str> = credentials
        .fields
        .iter()
        .map(|(name, secret)| (name.clone(), secret.expose()))
        .chain(of_config)
        .collect();
    let plain = serde_json::to_vec(&fields).map_err(|_| Fault::corrupt("secrets that are no JSON"))?;
    key.seal(&owner(tenant, id), &plain)
        .map_err(|error| Fault::corrupt(error.to_string()))
}

/// Opens the sealed secrets of the destination `id` of `tenant`, and gives `config` back what it lacks.
pub(super) fn open(
    key: &SealKey,
    tenant: i64,
    id: &str,
    sealed: &[u8],
    config: &mut Metadata,
) -> Result<Credentials, Fault> {
    let plain = key.open(&owner(tenant, id), sealed).map_err(|_| {
        Fault::corrupt(format!(
            "the secrets of destination {id} do not open with this seal key"
        ))
    })?;
    let fields: BTreeMap<String, String> =
        serde_json::from_slice(&plain).map_err(|_| Fault::corrupt("sealed secrets are no JSON"))?;
    let mut credentials = Credentials::default();
    for (name, text) in fields {
        match name.strip_prefix(CONFIG) {
            Some(name) => drop(config.insert(name.to_owned(), text)),
            None => drop(credentials.fields.insert(name, Secret::new(text))),
        }
    }
    Ok(credentials)
}

fn owner(tenant: i64, id: &str) -> Vec<u8> {
    let mut owner = b"destination ".to_vec();
    owner.extend_from_slice(&tenant.to_be_bytes());
    owner.extend_from_slice(id.as_bytes());
    owner
}
