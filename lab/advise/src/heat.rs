//! Hands a profile's accesses to the printer of layouts.

use std::collections::BTreeMap;

use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::show::Access;

use crate::profile::{TypeProfile, find};
use crate::uses::Uses;

/// How often which role touches which bits of a type. Roles are told apart where the profile has several.
///
/// # Errors
/// When the profile names a field that the type does not have; the error has the names that resemble it.
pub fn accesses(types: &Types, id: TypeId, profile: &TypeProfile) -> Result<Vec<Access>, Error> {
    let mut accesses = Vec::new();
    for role in &profile.roles {
        // What an operation of this role does to each field.
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
                // It says which names resemble it.
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
