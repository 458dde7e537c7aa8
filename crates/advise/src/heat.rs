//! A profile's accesses as the printer of layouts takes them.

use ledgerline_layout::Error;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::show::Access;

use crate::profile::{TypeProfile, find};
use crate::uses::Uses;

/// Which bits of a type are touched how often by whom. CPUs are told apart where the profile has several roles.
///
/// # Errors
/// As [`Uses::resolve`]: when the profile names a field that the type has not.
pub fn accesses(types: &Types, id: TypeId, profile: &TypeProfile) -> Result<Vec<Access>, Error> {
    let uses = Uses::resolve(types, id, profile)?;
    let mut accesses = Vec::new();
    for role in &uses.roles {
        // What an operation of this role does to each spot.
        let mut rates = vec![(0.0, 0.0); uses.spots.len()];
        for phase in &role.phases {
            for touch in &phase.touches {
                let (reads, writes) = &mut rates[touch.spot];
                let rate = if touch.kind.writes() { writes } else { reads };
                *rate += phase.times * touch.times;
            }
        }
        for (spot, (reads, writes)) in uses.spots.iter().zip(rates) {
            let Some(leaf) = find(types, id, &spot.path).filter(|_| reads + writes > 0.0) else {
                continue;
            };
            let who = if uses.roles.len() > 1 { role.name.clone() } else { String::new() };
            let (start, bits, share) = (leaf.start, leaf.bits, role.share);
            accesses.push(Access { start, bits, who, reads, writes, share });
        }
    }
    Ok(accesses)
}
