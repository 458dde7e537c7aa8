//! Merges all units of a file into one model. Several threads walk the units, which are merged in the order of the
//! file.
//!
//! Most units refer to themselves alone. They are merged in their turn and then dropped. Units that refer to others
//! are kept, joined, and merged last. They occur after link-time optimization, with dwz, and with type units.

use super::entries::walk;
use super::identity::Identities;
use super::merge::Merger;
use super::parsed::Parsed;
use super::sections::{self, Names, Sections};
use super::separate;
use super::team::Team;
use super::unit::{SUPPLEMENT, Split, Tables, Universe};
use crate::Error;
use gimli::UnitType;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// The most walked units that may wait for one that comes before them.
const MOST_WAITING: usize = 32;

/// The split files of a program's units, each read when its unit's turn comes.
pub(super) struct Splits<'p> {
    path: Option<&'p Path>,
    /// Whether a package has all of them.
    packaged: bool,
    bytes: Vec<OnceLock<Vec<u8>>>,
}

impl<'p> Splits<'p> {
    /// Returns the split files of a program at `path` with `units` units.
    pub(super) fn new(path: Option<&'p Path>, packaged: bool, units: usize) -> Splits<'p> {
        let bytes = std::iter::repeat_with(OnceLock::new).take(units).collect();
        Splits { path, packaged, bytes }
    }
}

/// A unit's types, and the hashes for their comparison.
type Walked<'a> = (Parsed<'a>, Identities);

/// The units that have been walked and not yet merged.
struct Progress<'b, 'a> {
    merger: Merger<'b>,
    /// The unit whose turn it is.
    next: usize,
    waiting: BTreeMap<usize, Option<Walked<'a>>>,
    /// Units that refer to others, in order.
    linked: BTreeMap<usize, Parsed<'a>>,
    failed: Option<(usize, Error)>,
}

/// Merges all units of `universe`.
pub(super) fn merge<'b, 'f>(
    universe: &Universe<'_, '_>,
    splits: Option<&'f Splits<'_>>,
    merger: Merger<'b>,
    threads: usize,
) -> Result<Merger<'b>, Error> {
    let count = universe.units.len();
    let opened: Vec<OnceLock<Sections<'f>>> = std::iter::repeat_with(OnceLock::new)
        .take(if splits.is_some() { count } else { 0 })
        .collect();
    let progress = Progress {
        merger,
        next: 0,
        waiting: BTreeMap::new(),
        linked: BTreeMap::new(),
        failed: None,
    };
    let shared = Shared { universe, splits, opened: &opened, team: Team::new(progress) };
    shared
        .team
        .work(threads, count, |index, tables| shared.deliver(index, shared.walk(index, tables)));
    let progress = shared.team.into_progress();
    if let Some((_, error)) = progress.failed {
        return Err(error);
    }
    let mut merger = progress.merger;
    if !progress.linked.is_empty() {
        let mut parsed = link(universe, progress.linked)?;
        parsed.resolve();
        merger.add(&parsed, &Identities::of(&parsed))?;
    }
    Ok(merger)
}

/// The state that the threads share.
struct Shared<'s, 'd, 'a, 'f, 'p, 'b> {
    universe: &'s Universe<'d, 'a>,
    splits: Option<&'f Splits<'p>>,
    opened: &'s [OnceLock<Sections<'f>>],
    team: Team<Progress<'b, 's>>,
}

impl<'s, 'a: 's, 'f: 's> Shared<'s, '_, 'a, 'f, '_, '_> {
    fn walk(&self, index: usize, tables: &mut Tables) -> Result<Parsed<'s>, Error> {
        let unit = self.universe.units[index];
        if unit.space == SUPPLEMENT {
            // The units of dwz's file belong to many programs; only those that this program refers to count.
            return Ok(Parsed::new());
        }
        let (parsed, split) = walk(unit, self.universe, tables)?;
        match (split, self.splits) {
            (Some(split), Some(splits)) if !splits.packaged => {
                self.walk_split(index, split, splits)
            }
            _ => Ok(parsed),
        }
    }

    /// Walks all units of a split file, and joins them.
    fn walk_split(
        &self,
        index: usize,
        split: Split<'_>,
        splits: &'f Splits<'_>,
    ) -> Result<Parsed<'s>, Error> {
        let bytes = separate::split_file(split, splits.path)?;
        let bytes: &'f [u8] = splits.bytes[index].get_or_init(|| bytes);
        let file = sections::parse(bytes)?;
        let loaded = Sections::load(&file, Names::Split)?;
        let sections: &'s Sections<'f> = self.opened[index].get_or_init(|| loaded);
        let dwarf = sections.dwarf();
        let universe = Universe::new(&dwarf, None, self.universe.budget)?;
        let other = universe.units.iter().any(|unit| match unit.header.type_() {
            UnitType::SplitCompilation(id) => split.id.is_some_and(|wanted| wanted != id),
            _ => false,
        });
        if other {
            let name = String::from_utf8_lossy(split.name).into_owned();
            return Err(Error::new(format!("has types in {name}, which is of another build"))
                .advise("build the program again"));
        }
        let mut tables = Tables::default();
        let mut joined = Parsed::new();
        for &unit in &universe.units {
            joined.append(walk(unit, &universe, &mut tables)?.0);
        }
        // The units refer only to each other, so no reference leads outward.
        joined.outward.clear();
        Ok(joined)
    }

    /// Hands in a unit's types, and merges them if it is the unit's turn. Returns whether to go on.
    fn deliver(&self, index: usize, outcome: Result<Parsed<'s>, Error>) -> bool {
        // This needs no lock, so it is done before the lock is taken.
        let walked = outcome.map(|mut parsed| {
            let identities = parsed.outward.is_empty().then(|| {
                parsed.resolve();
                Identities::of(&parsed)
            });
            (parsed, identities)
        });
        let mut progress = self.team.lock();
        match walked {
            Ok((parsed, Some(identities))) => {
                progress.waiting.insert(index, Some((parsed, identities)));
            }
            Ok((parsed, None)) => {
                progress.linked.insert(index, parsed);
                progress.waiting.insert(index, None);
            }
            Err(error) => progress.fail(index, error),
        }
        progress.advance();
        self.team.tell();
        // The thread that has the unit whose turn it is does not wait, so one thread always goes on.
        let progress = self.team.wait_while(progress, |progress| {
            progress.waiting.len() >= MOST_WAITING && progress.failed.is_none()
        });
        progress.failed.is_none()
    }
}

impl Progress<'_, '_> {
    fn advance(&mut self) {
        while self.failed.is_none()
            && let Some(walked) = self.waiting.remove(&self.next)
        {
            if let Some((parsed, identities)) = walked
                && let Err(error) = self.merger.add(&parsed, &identities)
            {
                self.fail(self.next, error);
            }
            self.next += 1;
        }
    }

    /// Keeps a failure. Of two, the earlier one in the file stays.
    fn fail(&mut self, index: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|&(first, _)| index < first) {
            self.failed = Some((index, error));
        }
    }
}

/// Joins units that refer to others with those others.
fn link<'s, 'a: 's>(
    universe: &Universe<'_, 'a>,
    mut linked: BTreeMap<usize, Parsed<'s>>,
) -> Result<Parsed<'s>, Error> {
    let mut tables = Tables::default();
    let mut wanted: BTreeSet<usize> = BTreeSet::new();
    let want = |parsed: &Parsed<'_>, wanted: &mut BTreeSet<usize>| {
        wanted.extend(parsed.outward.iter().filter_map(|&to| universe.unit_of(to)));
    };
    linked.values().for_each(|parsed| want(parsed, &mut wanted));
    while let Some(index) = wanted.pop_first() {
        if linked.contains_key(&index) {
            continue;
        }
        let (parsed, _) = walk(universe.units[index], universe, &mut tables)?;
        want(&parsed, &mut wanted);
        linked.insert(index, parsed);
    }
    let mut joined = Parsed::new();
    linked.into_values().for_each(|parsed| joined.append(parsed));
    Ok(joined)
}
