//! Finds a profile's accesses in a type: which bytes are touched, how, and by which role.

use std::borrow::Borrow;
use std::collections::HashMap;

use ledgerline_coherence::machine::Settings;
use ledgerline_layout::Error;
use ledgerline_layout::model::{Type, TypeId, Types};
use ledgerline_layout::pick::advise_field;

use crate::profile::{self, Instances, Kind, Phase, Role, Row, TypeProfile};

/// The most fields of one type whose accesses are told apart: there is a figure for each pair of them.
pub const MOST_SPOTS: usize = 1000;

/// A field that is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// As the profile names it.
    pub path: String,
    /// Its first byte, from the start of the type.
    pub offset: u64,
    /// Bytes that it touches; 0 for an array without a length.
    pub size: u64,
    /// Whether each access goes to some part of it, since it is an array or a record that is named as a whole.
    pub divided: bool,
    /// Whether a CPU waits for a load, since it reads a pointer, which is followed. Other loads overlap with what comes
    /// next.
    pub awaited: bool,
}

/// A spot is touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// Which, as an index into [`Uses::spots`].
    pub spot: usize,
    /// How.
    pub kind: Kind,
    /// How many times a phase.
    pub times: f64,
}

/// The accesses of a profile to the fields of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uses {
    /// The type, as the profile spells it.
    pub name: String,
    /// How many objects there are.
    pub instances: Instances,
    /// What is touched, in the order of the profile.
    pub spots: Vec<Spot>,
    /// Who touches it.
    pub roles: Vec<Role<Touch>>,
    /// Fields of the profile that the type does not have; their accesses are left out. Always empty after
    /// [`Uses::resolve`].
    pub unknown: Vec<String>,
    /// By design point, what times say of the program, where points differ in it ([`settle`](crate::cost::settle));
    /// otherwise empty.
    pub settled: Vec<Settled>,
}

/// What times say of the program at one design point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// The work of an operation by role, in nanoseconds.
    pub works: Vec<f64>,
    /// What goes on while lines are on their way, in place of what the machine says of it.
    pub hides: Option<Hides>,
    /// By role, how many times what is simulated others make it wait: by times alone and beside others, or, where nobody was
    /// timed alone, somewhere within what the model may be off by. Empty where no operation was timed.
    pub waits: Vec<f64>,
    /// The share of the work that lies between the accesses of an operation, and not in front of them. No time says it.
    pub between: f64,
}

/// What a program has its CPU do while lines are on their way: it turns on what needs what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hides {
    /// How long before its turn an access has its line asked for, and how much of a wait other work hides, as a share of
    /// what the machine allows.
    pub lead: f64,
    /// How much of the work that follows needs nothing of what an access brings, in picoseconds.
    pub window: u64,
}

impl Settled {
    /// The settings of a machine for this program.
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
    /// When the profile names a field that the type does not have (the error has the names that resemble it), says
    /// nothing of the type, or names more than [`MOST_SPOTS`] fields.
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

    /// The same for one of two builds: fields that the type does not have are listed in [`Uses::unknown`] and left out.
    ///
    /// # Errors
    /// When the profile names no access to the type, or more than [`MOST_SPOTS`] fields.
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

    /// The same with other works, by role.
    pub(crate) fn with_works(&self, works: &[f64]) -> Uses {
        let mut uses = Uses { settled: Vec::new(), ..self.clone() };
        for (role, &work) in uses.roles.iter_mut().zip(works) {
            role.work_ns = work;
        }
        uses
    }

    /// Where the spots lie today.
    #[must_use]
    pub fn offsets(&self) -> Vec<u64> {
        self.spots.iter().map(|spot| spot.offset).collect()
    }

    /// How often an operation touches a spot: reading, writing.
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

/// The field that a path names: `memory.usage`, `stat[3]`, `slots[2].next`.
#[must_use]
pub fn find(types: &Types, id: TypeId, path: &str) -> Option<Spot> {
    // No type is that large: the file lies.
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

/// A name without what could steer a terminal or break a line.
pub(crate) fn clean(name: &str) -> String {
    let shown = |character: char| match character {
        control if control.is_control() => control.escape_default().to_string(),
        plain => plain.to_string(),
    };
    name.chars().map(shown).collect()
}

/// The first `most` names, and how many more there are.
pub(crate) fn few<S: Borrow<str>>(names: &[S], most: usize, between: &str) -> String {
    let named = names[..names.len().min(most)].join(between);
    match names.len().checked_sub(most) {
        Some(more @ 1..) => format!("{named} and {more} more"),
        _ => named,
    }
}

#[cfg(test)]
mod tests;
