//! A destination's secrets between memory and their sealed column.

use std::collections::BTreeMap;

use postrider_core::secret::Secret;

use super::failure::Fault;
use crate::record::{Credentials, Destination};
use crate::seal::SealKey;

/// Seals the secrets of a destination to its row.
pub(super) fn seal(key: &SealKey, destination: &Destination) -> Result<Vec<u8>, Fault> {
    let fields: BTreeMap<&str, &str> = destination
        .credentials
        .fields
        .iter()
        .map(|(name, secret)| (name.as_str(), secret.expose()))
        .collect();
    let plain = serde_json::to_vec(&fields).map_err(|_| Fault::corrupt("secrets that are no JSON"))?;
    key.seal(&owner(destination.tenant.0, &destination.id), &plain)
        .map_err(|error| Fault::corrupt(error.to_string()))
}

/// Opens the sealed secrets of the destination `id` of `tenant`.
pub(super) fn open(key: &SealKey, tenant: i64, id: &str, sealed: &[u8]) -> Result<Credentials, Fault> {
    let plain = key.open(&owner(tenant, id), sealed).map_err(|_| {
        Fault::corrupt(format!(
            "the secrets of destination {id} do not open with this seal key"
        ))
    })?;
    let fields: BTreeMap<String, String> =
        serde_json::from_slice(&plain).map_err(|_| Fault::corrupt("sealed secrets are no JSON"))?;
    let fields = fields
        .into_iter()
        .map(|(name, text)| (name, Secret::new(text)))
        .collect();
    Ok(Credentials { fields })
}

fn owner(tenant: i64, id: &str) -> Vec<u8> {
    let mut owner = b"destination ".to_vec();
    owner.extend_from_slice(&tenant.to_be_bytes());
    owner.extend_from_slice(id.as_bytes());
    owner
}
