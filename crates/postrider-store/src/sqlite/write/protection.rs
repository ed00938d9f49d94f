//! What outlives a restart of the protection of receivers: one small row for each that is in trouble.

use postrider_core::dispatcher::Protection;
use postrider_core::id::DestinationKey;

use super::Work;
use crate::sqlite::failure::Fault;

/// Replaces or forgets; a destination that is deleted is passed over.
pub(in crate::sqlite) fn keep(
    work: &mut Work<'_>,
    changes: &[(DestinationKey, Option<Protection>)],
) -> Result<(), Fault> {
    for (destination, protection) in changes {
        match protection {
            Some(protection) if work.names.destinations.contains_key(&destination.0) => {
                let text = serde_json::to_string(protection)
                    .map_err(|_| Fault::corrupt("a state that is no JSON"))?;
                work.conn
                    .prepare_cached(
                        "INSERT INTO protection(destination, state) VALUES (?1, ?2)
                         ON CONFLICT(destination) DO UPDATE SET state = excluded.state",
                    )?
                    .execute((destination.0, text))?;
            }
            Some(_) => {}
            None => {
                work.conn
                    .prepare_cached("DELETE FROM protection WHERE destination = ?1")?
                    .execute([destination.0])?;
            }
        }
    }
    Ok(())
}
