//! Finds a profile's accesses in a type: the bytes that are touched, the kind of access, and the role.

use std::borrow::Borrow;
use std::collections::HashMap;

use ledgerline_coherence::machine::Settings;
use ledgerline_layout::Error;
use ledgerline_layout::model::{Type, TypeId, Types};
use ledgerline_layout::pick::advise_field;

use crate::profile::{self, Instances, Kind, Phase, Role, Row, TypeProfile};

/// The most fields of one type whose accesses are kept apart. There is a figure for each pair of them.
pub const MOST_SPOTS: usize = 1000;

/// A field that is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The profile's name of it.
    pub path: String,
    /// Its first byte, from the start of the type.
    pub offset: u64,
    /// Bytes that it has; 0 for an array without a length.
    pub size: u64,
    /// Whether each access goes to a part of it, because an array or a record is named as a whole.
    pub divided: bool,
    /// Whether a CPU waits for a load, because the loaded value is a pointer that is followed. Other loads overlap with
    /// the code behind them.
    pub awaited: bool,
}

/// An access to a spot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// The spot, as an index into [`Uses::spots`].
    pub spot: usize,
    /// The kind of access.
    pub kind: Kind,
    /// Occurrences in a phase.
    pub times: f64,
}

/// The accesses of a profile to the fields of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uses {
    /// The profile's name of the type.
    pub name: String,
    /// The number of objects.
    pub instances: Instances,
    /// The touched fields, in the order of the profile.
    pub spots: Vec<Spot>,
    /// The roles that touch them.
    pub roles: Vec<Role<Touch>>,
    /// Fields of the profile that the type does not have. Their accesses are left out. Always empty after
    /// [`Uses::resolve`].
    pub unknown: Vec<String>,
    /// The program's properties by design point, if times make them differ ([`settle`](crate::cost::settle)); otherwise
    /// empty.
    pub settled: Vec<Settled>,
}

/// The properties of the program that times determine, at one design point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// The work of an operation by role, in nanoseconds.
    pub works: Vec<f64>,
    /// How much of its waiting the program hides, in place of the machine's figures.
    pub hides: Option<Hides>,
    /// By role, its waiting for other CPUs as a multiple of the simulated waiting. It follows from times alone and
    /// beside others; without times alone, it lies within the error of the model. Empty if no operation was timed.
    pub waits: Vec<f64>,
    /// The share of the work that lies between the accesses of an operation, and not in front of them. No time
    /// determines it.
    pub between: f64,
}

/// How much a program hides of the time in which lines are on their way. It depends on the dependences between
/// instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hides {
    /// How long before an access its line is requested, and how much of a wait other work hides, as a share of what the
    /// machine allows.
    pub lead: f64,
    /// How much of the following work does not depend on an access, in picoseconds.
    pub window: u64,
}

impl Settled {
    /// Returns the settings of a machine for this program.
    pub(crate) fn on(&self, settings: &Settings) -> Settings {
        let Some(Hides { lead, window }) = self.hides else { return settings.clone() };
        let overlap = settings.overlap * lead;
        let lead = (settings.lead as f64 * lead).round() as u64;
        Settings { overlap, lead, window, ..settings.clone() }
    }
}

impl Uses {
    /// Finds the fields of a profile in a type.
    ///
    /// # Errors
    /// If the profile names a field that the type does not have (the error lists similar names), has no access to the
    /// type, or names more than [`MOST_SPOTS`] fields.
    pub fn resolve(types: &Types, id: TypeId, profile: &TypeProfile) -> Result<Uses, Error> {
        let uses = Uses::resolve_known(types, id, profile)?;
        if let (Some(Row { stride, .. }), Some(size)) = (uses.instances.row(), types.size(id))
            && stride < size
        {
            let name = &profile.name;
            let error =
                Error::new(format!("{name} has {size} bytes, and lies {stride} bytes apart"));
            return Err(error.advise("`stride` of the profile is of another build: record again"));
        }
        let Some(name) = uses.unknown.first() else { return Ok(uses) };
        let error = Error::new(format!("{} has no field {name:?}", profile.name));
        Err(advise_field(error, types, id, name))
    }

    /// Like `resolve`, for one of two builds: fields that the type does not have are listed in [`Uses::unknown`] and
    /// left out.
    ///
    /// # Errors
    /// If the profile names no access to the type, or more than [`MOST_SPOTS`] fields.
    pub fn resolve_known(types: &Types, id: TypeId, profile: &TypeProfile) -> Result<Uses, Error> {
        let mut numbers: HashMap<&str, Option<usize>> = HashMap::new();
        let mut uses =
            Uses { name: profile.name.clone(), instances: profile.instances, ..Uses::default() };
        for role in &profile.roles {
            let mut phases = Vec::new();
            for phase in &role.phases {
                let mut accesses = Vec::new();
                for access in &phase.accesses {
                    let number = *numbers.entry(&access.field).or_insert_with(|| {
                        let Some(spot) = find(types, id, &access.field) else {
                            uses.unknown.push(access.field.clone());
                            return None;
                        };
                        uses.spots.push(spot);
                        Some(uses.spots.len() - 1)
                    });
                    if let Some(spot) = number
                        && access.times > 0.0
                    {
                        accesses.push(Touch { spot, kind: access.kind, times: access.times });
                    }
                }
                if phase.times > 0.0 && !accesses.is_empty() {
                    phases.push(Phase { name: phase.name.clone(), times: phase.times, accesses });
                }
            }
            let Role { share, work_ns, basis, .. } = *role;
            uses.roles.push(Role { name: role.name.clone(), share, work_ns, basis, phases });
        }
        let spots = uses.spots.len();
        if spots > MOST_SPOTS {
            let error = Error::new(format!("the profile touches {spots} fields of {}", uses.name));
            return Err(error.advise(format!("keep the {MOST_SPOTS} that matter most")));
        }
        if uses.unknown.is_empty() && uses.roles.iter().all(|role| role.phases.is_empty()) {
            let error = Error::new(format!("the profile names no access to {}", uses.name));
            return Err(
                error.advise("give each field that is touched its loads, stores or atomics")
            );
        }
        Ok(uses)
    }

    /// Returns the same uses with other works, by role.
    pub(crate) fn with_works(&self, works: &[f64]) -> Uses {
        let mut uses = Uses { settled: Vec::new(), ..self.clone() };
        for (role, &work) in uses.roles.iter_mut().zip(works) {
            role.work_ns = work;
        }
        uses
    }

    /// Returns the offsets of the spots today.
    #[must_use]
    pub fn offsets(&self) -> Vec<u64> {
        self.spots.iter().map(|spot| spot.offset).collect()
    }

    /// Returns how often an operation reads and writes a spot.
    #[must_use]
    pub fn rates(&self, spot: usize) -> (f64, f64) {
        let (mut reads, mut writes) = (0.0, 0.0);
        for role in &self.roles {
            for phase in &role.phases {
                for touch in phase.accesses.iter().filter(|touch| touch.spot == spot) {
                    let rate = role.share * phase.times * touch.times;
                    *(if touch.kind.writes() { &mut writes } else { &mut reads }) += rate;
                }
            }
        }
        (reads, writes)
    }
}

/// Returns the field that a path names: `memory.usage`, `stat[3]`, `slots[2].next`.
#[must_use]
pub fn find(types: &Types, id: TypeId, path: &str) -> Option<Spot> {
    // No type is that large: the file is wrong.
    let leaf = profile::find(types, id, path).filter(|leaf| leaf.end() < 1 << 43)?;
    let ty = types.resolve(leaf.ty);
    let divided = match types.get(ty) {
        Type::Array { .. } => true,
        Type::Record(_) => leaf.size() > 16,
        _ => false,
    };
    let awaited = matches!(types.get(ty), Type::Pointer { .. });
    Some(Spot { path: clean(path), offset: leaf.offset(), size: leaf.size(), divided, awaited })
}

/// Escapes the characters of a name that could control a terminal or break a line.
pub(crate) fn clean(name: &str) -> String {
    let shown = |character: char| match character {
        control if control.is_control() => control.escape_default().to_string(),
        plain => plain.to_string(),
    };
    name.chars().map(shown).collect()
}

/// Returns the first `most` names, and how many more there are.
pub(crate) fn few<S: Borrow<str>>(names: &[S], most: usize, between: &str) -> String {
    let named = names[..names.len().min(most)].join(between);
    match names.len().checked_sub(most) {
        Some(more @ 1..) => format!("{named} and {more} more"),
        _ => named,
    }
}

#[cfg(test)]
mod tests;
