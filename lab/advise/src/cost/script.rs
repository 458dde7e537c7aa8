//! The programs that the CPUs of a simulation run, for execution elsewhere: on real CPUs.

use std::collections::BTreeMap;

use ledgerline_coherence::layout::FieldId;
use ledgerline_coherence::program::Program;

use super::{Place, run, steps};
use crate::uses::Uses;

/// The input of one simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// The role of each CPU, as an index into [`Script::roles`].
    pub dealt: Vec<usize>,
    /// The program of each role's CPUs.
    pub roles: Vec<Part>,
    /// The byte that an access to a field touches, counted from the start of the object.
    pub offsets: BTreeMap<FieldId, u64>,
}

/// The program that a role's CPUs repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// One pass. Its cycles are nanoseconds: the clock has one gigahertz, and a hit takes one cycle.
    pub program: Program,
    /// Passes that make an operation.
    pub passes: f64,
}

/// Returns the script of `cpus` CPUs, for objects that begin `begins` bytes into a pair of lines.
///
/// # Panics
/// If the place does not belong to these uses.
#[must_use]
pub fn script(uses: &Uses, place: &Place, begins: u64, cpus: usize) -> Script {
    assert_eq!(place.offsets.len(), uses.spots.len(), "a place has an offset for each spot");
    let (_, fields) = steps::layout(uses, place, begins, cpus);
    let mut offsets = BTreeMap::new();
    for ((spot, &offset), fields) in uses.spots.iter().zip(&place.offsets).zip(&fields) {
        let parts = steps::parts(spot, offset, begins);
        offsets.extend(fields.iter().copied().zip(parts));
    }
    let part = |role| {
        let running = steps::running(role, uses, &fields, 1.0, 1.0, 0.0);
        Part { program: running.program, passes: running.passes }
    };
    Script {
        dealt: run::deal(&uses.roles, cpus),
        roles: uses.roles.iter().map(part).collect(),
        offsets,
    }
}
