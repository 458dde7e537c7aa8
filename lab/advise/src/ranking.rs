//! Predicts the cost of the difference between two builds, by the changes in which fields share a line, and by pairs of
//! fields.
//!
//! Both builds answer one [`Question`]. The difference is taken at each design point, so that unknowns of the machine
//! that both builds have in common do not blur it. The waiting of fields for each other changes from build to build.
//! The change of a pair's waiting is attributed to the first of these that exists:
//!
//! 1. the change that separated the two fields or brought them onto one line,
//! 2. the change that moved the field that waits,
//! 3. the change that moved the field that is written.

mod print;

use std::collections::{BTreeMap, HashMap};

use ledgerline_coherence::experiments::Interval;
use ledgerline_layout::Error;
use ledgerline_layout::diff::{Change, Difference, Sides, What};
use ledgerline_layout::leaf;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::advise_field;
use serde::Serialize;

pub use print::{json, text};

use crate::cost::{self, Cost, Place, Question, Timed};
use crate::profile::{Row, TypeProfile, find};
use crate::uses::Uses;

/// The cost of a [`Difference`].
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    /// Nanoseconds of an operation in the old build.
    pub before: Interval,
    /// Nanoseconds of an operation in the new build.
    pub after: Interval,
    /// The new build less the old.
    pub difference: cost::Difference,
    /// For each of [`Difference::changes`], its effect on the waiting, in nanoseconds an operation.
    pub changes: Vec<Share>,
    /// Waiting that no such change explains, mostly of fields that became neighbours in a pair of lines.
    pub rest: Share,
    /// Fields of the profile that the old build does not have. Their accesses are left out of its cost.
    pub not_before: Vec<String>,
    /// Fields of the profile that the new build does not have.
    pub not_after: Vec<String>,
}

/// The effect of a change on the waiting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// In nanoseconds an operation. Positive if it became dearer.
    pub change: Interval,
    /// Pairs of fields whose waiting changed, the largest change first.
    pub culprits: Vec<Culprit>,
}

/// A pair of fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Culprit {
    /// The field whose writing takes the line away.
    pub writer: String,
    /// The field whose access waits.
    pub victim: String,
    /// Their places in the build in which the wait is longer.
    pub near: Near,
    /// The change of the wait, in nanoseconds an operation.
    pub change: Interval,
}

/// The places of two fields relative to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Near {
    /// They are one field.
    Itself,
    /// On one line.
    Line,
    /// On two lines of a pair that is fetched together.
    Neighbour,
    /// In objects of different CPUs that lie side by side.
    Beside,
}

/// Prices a difference. Times of the profile belong to the old build, on the machine `timed`. Objects begin at
/// multiples of `base` bytes, or else as the profile has it, or else of [`PAIR`](cost::PAIR).
///
/// Fields that were renamed, or moved into another record, are followed in either direction.
///
/// # Errors
/// If the profile names a field that neither build has; the error lists similar names. Otherwise like [`cost::of`].
pub fn price(
    sides: Sides<'_>,
    difference: &Difference,
    profile: &TypeProfile,
    question: &Question<'_>,
    timed: Option<&Timed>,
    base: Option<u64>,
) -> Result<Priced, Error> {
    let (renamed, back) = renames(difference);
    let sizes = [sides.old, sides.new].map(|(types, id)| leaf::record(types, id));
    let mut before = Side::of(sides.old, profile, &back)?;
    let mut after = Side::of(sides.new, profile, &renamed)?;
    if let Some(name) = before.unknown.iter().find(|name| after.unknown.contains(name)) {
        let error = Error::new(format!("{} has no field {name:?} in either build", profile.name));
        let (types, id) = sides.new;
        return Err(advise_field(error, types, id, name));
    }
    if let [Some((_, old)), Some((_, new))] = sizes {
        let row = profile.instances.row();
        after.row = row.map(|row| row.of_size(old.size, new.size, new.align.bytes()));
    }
    // Operations were timed with the old build.
    let place = before.place(base);
    (before.uses, _) = cost::settle(question, timed, before.uses, &place)?;
    after.uses.settled.clone_from(&before.uses.settled);
    for (role, settled) in after.uses.roles.iter_mut().zip(&before.uses.roles) {
        role.work_ns = settled.work_ns;
    }
    let old = cost::of(question, &before.uses, &place)?;
    let new = cost::of(question, &after.uses, &after.place(base))?;
    let pairs = changed_pairs((&before, &old), (&after, &new));
    let mut dealt: Vec<Vec<Pair>> = vec![Vec::new(); difference.changes.len() + 1];
    for pair in pairs {
        let index = explains(&difference.changes, &pair, &renamed);
        dealt[index.unwrap_or(difference.changes.len())].push(pair);
    }
    let mut shares: Vec<Share> =
        dealt.into_iter().map(|pairs| share(pairs, question.points)).collect();
    let rest = shares.pop().expect("the rest is the last");
    Ok(Priced {
        before: old.nanoseconds,
        after: new.nanoseconds,
        difference: cost::difference(&old, &new),
        changes: shares,
        rest,
        not_before: before.unknown,
        not_after: after.unknown,
    })
}

/// Maps names of the old build to those of the new, or back.
type Renames = HashMap<String, String>;

fn renames(difference: &Difference) -> (Renames, Renames) {
    let renamed = difference.causes.iter().filter_map(|cause| match &cause.what {
        What::Renamed(new) => Some((cause.field.clone(), new.clone())),
        _ => None,
    });
    let renamed: Renames = renamed.collect();
    let back = renamed.iter().map(|(old, new)| (new.clone(), old.clone())).collect();
    (renamed, back)
}

/// Returns a path with the names of the other build, if it is, or goes through, a renamed field.
fn translated(path: &str, names: &Renames) -> Option<String> {
    let ends = path.match_indices(['.', '[']).map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| Some(format!("{}{}", names.get(&path[..end])?, &path[end..]))).next_back()
}

/// One build under the profile.
struct Side {
    uses: Uses,
    /// Like in [`Place`].
    row: Option<Row>,
    /// The profile's name of each spot.
    names: Vec<String>,
    /// Fields that the profile names and this build does not have.
    unknown: Vec<String>,
}

impl Side {
    fn of(
        (types, id): (&Types, TypeId),
        profile: &TypeProfile,
        names: &Renames,
    ) -> Result<Side, Error> {
        let mut here = profile.clone();
        let mut said: HashMap<String, String> = HashMap::new();
        let accesses = here.roles.iter_mut().flat_map(|role| &mut role.phases);
        for access in accesses.flat_map(|phase| &mut phase.accesses) {
            if find(types, id, &access.field).is_none()
                && let Some(other) = translated(&access.field, names)
            {
                said.insert(other.clone(), std::mem::replace(&mut access.field, other));
            }
        }
        let mut uses = Uses::resolve_known(types, id, &here)?;
        let original = |path: &String| said.get(path).unwrap_or(path).clone();
        let names = uses.spots.iter().map(|spot| original(&spot.path)).collect();
        let unknown = std::mem::take(&mut uses.unknown).iter().map(original).collect();
        Ok(Side { row: uses.instances.row(), uses, names, unknown })
    }

    fn place(&self, base: Option<u64>) -> Place {
        Place { row: self.row, ..Place::of(&self.uses) }.based(base)
    }

    fn near(&self, writer: &str, victim: &str) -> Option<Near> {
        if self.row.is_some() {
            return Some(Near::Beside);
        }
        let spot = |name: &str| self.names.iter().position(|other| other == name);
        let (one, two) = (&self.uses.spots[spot(writer)?], &self.uses.spots[spot(victim)?]);
        let lines = |offset: u64, size: u64| offset / 64..=(offset + size.max(1) - 1) / 64;
        let (a, b) = (lines(one.offset, one.size), lines(two.offset, two.size));
        Some(if writer == victim {
            Near::Itself
        } else if a.start() <= b.end() && b.start() <= a.end() {
            Near::Line
        } else {
            Near::Neighbour
        })
    }
}

/// The wait of one pair at each point, new less old.
#[derive(Clone)]
struct Pair {
    writer: String,
    victim: String,
    near: Near,
    changes: Vec<f64>,
}

fn changed_pairs(old: (&Side, &Cost), new: (&Side, &Cost)) -> Vec<Pair> {
    let points = old.1.points.len();
    // The waits in the old build and in the new one.
    let mut waits: BTreeMap<(String, String), (Vec<f64>, [f64; 2])> = BTreeMap::new();
    for (build, sign, (side, cost)) in [(0, -1.0, old), (1, 1.0, new)] {
        for (index, point) in cost.points.iter().enumerate() {
            for (&(writer, victim), waited) in &point.pairs {
                let names = (side.names[writer].clone(), side.names[victim].clone());
                let (changes, sums) =
                    waits.entry(names).or_insert_with(|| (vec![0.0; points], [0.0; 2]));
                changes[index] += sign * waited;
                sums[build] += waited;
            }
        }
    }
    let pairs = waits.into_iter().map(|((writer, victim), (changes, sums))| {
        let worse = if sums[0] > sums[1] { old.0 } else { new.0 };
        let near = worse.near(&writer, &victim).unwrap_or(Near::Neighbour);
        Pair { writer, victim, near, changes }
    });
    pairs.filter(|pair| pair.changes.iter().any(|change| *change != 0.0)).collect()
}

fn share(pairs: Vec<Pair>, points: usize) -> Share {
    let sum = |point: usize| pairs.iter().map(|pair| pair.changes[point]).sum();
    let change = Interval::of((0..points).map(sum).collect());
    let culprit = |pair: Pair| Culprit {
        change: Interval::of(pair.changes),
        writer: pair.writer,
        victim: pair.victim,
        near: pair.near,
    };
    let mut culprits: Vec<Culprit> = pairs.into_iter().map(culprit).collect();
    culprits.sort_by(|a, b| b.change.median.abs().total_cmp(&a.change.median.abs()));
    Share { change, culprits }
}

/// Returns the change that a pair's waiting is attributed to.
fn explains(changes: &[Change], pair: &Pair, renamed: &Renames) -> Option<usize> {
    let now = |name: &str| translated(name, renamed).unwrap_or_else(|| name.to_owned());
    let (writer, victim) = (now(&pair.writer), now(&pair.victim));
    let moved = |change: &Change, path: &str| change.fields.iter().any(|field| covers(field, path));
    let met = |change: &Change, path: &str| {
        let mates = change.left.iter().chain(&change.joined).flat_map(|mates| &mates.0);
        mates.into_iter().any(|field| covers(field, path))
    };
    let find = |wanted: &dyn Fn(&Change) -> bool| changes.iter().position(wanted);
    find(&|change| {
        (moved(change, &victim) && met(change, &writer))
            || (moved(change, &writer) && met(change, &victim))
    })
    .or_else(|| find(&|change| moved(change, &victim)))
    .or_else(|| find(&|change| moved(change, &writer)))
}

/// Returns whether a field of a difference, like `memory` or `stat[0..5]`, contains what a path names.
fn covers(field: &str, path: &str) -> bool {
    // The field may be a range of an array's elements.
    let (field, elements) = match field.split_once('[') {
        Some((before, rest)) => {
            let range = rest.split(']').next().and_then(|range| range.split_once(".."));
            let range = range.and_then(|(from, to)| Some(from.parse().ok()?..=to.parse().ok()?));
            (before, range)
        }
        None => (field, None::<std::ops::RangeInclusive<u64>>),
    };
    let Some(rest) = path.strip_prefix(field) else { return false };
    match (rest.strip_prefix('['), elements) {
        (Some(index), Some(elements)) => {
            let index = index.split(']').next().and_then(|index| index.parse().ok());
            index.is_none_or(|index| elements.contains(&index))
        }
        (Some(_), None) => true,
        (None, _) => rest.is_empty() || rest.starts_with('.'),
    }
}

#[cfg(test)]
mod tests;
