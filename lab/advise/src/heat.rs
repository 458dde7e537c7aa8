//! Hands a profile's accesses to the printer of layouts.

use std::collections::BTreeMap;

use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::show::Access;

use crate::profile::{TypeProfile, find};
use crate::uses::Uses;

/// Returns how often each role touches which bits of a type. Accesses have the names of roles if the profile has
/// several.
///
/// # Errors
/// If the profile names a field that the type does not have. The error lists similar names.
pub fn accesses(types: &Types, id: TypeId, profile: &TypeProfile) -> Result<Vec<Access>, Error> {
    let mut accesses = Vec::new();
    for role in &profile.roles {
        // The reads and writes of each field in an operation of this role.
        let mut rates: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for phase in &role.phases {
            for access in &phase.accesses {
                let (reads, writes) = rates.entry(&access.field).or_default();
                let rate = if access.kind.writes() { writes } else { reads };
                *rate += phase.times * access.times;
            }
        }
        for (field, (reads, writes)) in rates {
            let Some(leaf) = find(types, id, field) else {
                // Its error lists similar names.
                Uses::resolve(types, id, profile)?;
                continue;
            };
            let who = if profile.roles.len() > 1 { role.name.clone() } else { String::new() };
            let (start, bits, share) = (leaf.start, leaf.bits, role.share);
            accesses.push(Access { start, bits, who, reads, writes, share });
        }
    }
    Ok(accesses)
}
