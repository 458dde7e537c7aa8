//! Reads a few types by their names, and only the parts of the file that they need.
//!
//! ```text
//! names ── wanted ── unit by unit: hits ── survey ── select ── replay ── merge
//!          places    bytes that may        the       what it   as `entries`
//!          in the    name one              entries   needs     walks
//!          strings
//! ```
//!
//! A unit without hits costs one look over its bytes, and one with hits a step over its entries. The types then take
//! the same path as in a read of all units: [`Parsed`](super::parsed::Parsed), identities, and the model in the order
//! of the file. So a type comes out the same. At most one unit for each thread is in memory.
//!
//! A header's types are chosen alike in every unit that includes it. A unit that chose the same as an earlier one is
//! skipped: it would add nothing.
//!
//! If a model of a few types needs more than that, there is no answer, and the caller reads the whole file. That is
//! the case for units that refer to each other, type units, split units, and objects that are not linked.

mod input;
mod reading;
mod replay;
mod select;
mod steps;
mod survey;
mod wanted;

use super::budget::Budget;
use super::entries::{is_c, is_rust};
use super::identity::Identities;
use super::merge::Merger;
use super::options::{Options, threads};
use super::team::Team;
use super::unit::{self, INFO, Tables, Unit, UnitAt, Universe};
use super::{Slice, sections, separate};
use crate::model::{Role, Type, TypeId, Types};
use crate::pick::{Pattern, last_part, pick};
use gimli::{DebugInfo, DebugLine, DebugLineOffset, Dwarf, Section};
use input::{Head, Input};
use object::{ReadCache, ReadRef};
use reading::Stopped;
use select::select;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;
use steps::Steps;
use survey::Survey;
use wanted::{Hits, Wanted};

/// The most further passages through the file for types that turned out to be needed.
const MOST_ROUNDS: usize = 8;

/// The depth to which structures that end in a structure are followed for Rust's unsized tails.
const DEEPEST_TAIL: usize = 100;

/// The prefixes of a type's name in the names of Rust's pointers to it.
const POINTERS: [&str; 4] = super::unsized_tails::POINTERS;

/// A few types of a file.
#[derive(Debug)]
pub struct Named {
    /// The requested types, and those that they need.
    pub types: Types,
    /// The number of units of the file.
    pub units: usize,
    /// The number of units of which something was read, and the number of entries that were stepped over or read
    /// there.
    pub read: (usize, u64),
    /// The number of these units that add to the types of the units before them. With several threads it may be a few
    /// more, since a thread does not wait for the findings of another.
    pub distinct: usize,
}

/// Reads the types of the ELF file at `path` that have one of `names`, or of the debug file that belongs to it.
///
/// Returns `None` if that requires reading the whole file, or if a name is not found. The whole file is needed if
/// units refer to each other, are split, or are type units, and if the file is an object file, not ELF, or
/// damaged.
/// Otherwise [`pick`](crate::pick::pick) finds the same records by these names as in the result of
/// [`open`](super::open), in the same order, and they print the same. Pointers may lead to declarations instead of
/// records, and other types may be missing.
///
/// It costs a look over the bytes of all units, 0.1 s for 200 MB, and a step over the entries of units in which a
/// name occurs. The memory is that of the strings and tables of abbreviations, and a unit for each thread.
///
/// ```no_run
/// let names = ["page_counter".to_owned()];
/// let named = ledgerline_layout::dwarf::open_named("vmlinux".as_ref(), &names);
/// assert!(named.is_some_and(|named| named.types.records().next().is_some()));
/// ```
pub fn open_named(path: &Path, names: &[String]) -> Option<Named> {
    let options = Options::beside(path);
    let mut file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let found = {
        let cache = ReadCache::new(&mut file);
        let parsed = object::File::parse(&cache).ok()?;
        if sections::has(&parsed, ".debug_info") {
            None
        } else if sections::has(&parsed, ".debug_info.dwo")
            || sections::has(&parsed, ".debug_cu_index")
            || sections::has(&parsed, ".BTF")
        {
            return None;
        } else {
            Some(separate::debug_path(&parsed, &options)?)
        }
    };
    let path = found.as_deref().unwrap_or(path);
    let mut file = if found.is_some() { File::open(path).ok()? } else { file };
    let shared = file.try_clone().ok()?;
    let cache = ReadCache::new(&mut file);
    let parsed = object::File::parse(&cache).ok()?;
    // Units of a package would have to be read as well.
    if separate::package_path(path).is_some() {
        return None;
    }
    let file = InParts::of(&shared, &parsed)?;
    file.read(names, &options)
}

/// A file that is read in part.
struct InParts<'f, 'a> {
    input: Input<'f, 'a>,
    heads: Vec<Head>,
    widest_scalar_align: u64,
}

impl<'f, 'a> InParts<'f, 'a> {
    fn of<R: ReadRef<'a>>(file: &'f File, parsed: &object::File<'a, R>) -> Option<Self> {
        let input = Input::of(file, parsed)?;
        let heads = input.heads()?;
        let widest_scalar_align = sections::widest_scalar_align(parsed);
        Some(InParts { input, heads, widest_scalar_align })
    }

    fn read(&self, names: &[String], options: &Options) -> Option<Named> {
        let dwarf = self.input.dwarf();
        let strings = dwarf.debug_str.reader().slice();
        if is_split(dwarf.debug_abbrev.reader().slice()) {
            return None;
        }
        let mut wanted: BTreeSet<Vec<u8>> = BTreeSet::new();
        for name in names {
            let pattern = Pattern::new(name).ok()?;
            let name = pattern.exact()?;
            wanted.insert(last_part(name).into());
            wanted.insert(name.as_bytes().into());
            wanted.extend(pointers_to(name, strings));
        }
        let mut entries = 0;
        for _ in 0..MOST_ROUNDS {
            let (types, found) = self.round(&dwarf, wanted.clone(), options)?;
            entries += found.entries;
            let before = wanted.len();
            wanted.extend(found.declared);
            let picked = pick(&types, names).ok()?;
            if found.rust {
                for name in picked.iter().flat_map(|&(_, id)| tails(&types, id)) {
                    wanted.extend(pointers_to(name, strings));
                }
            }
            if wanted.len() == before {
                let (units, read) = (self.heads.len(), (found.units, entries));
                return Some(Named { types, units, read, distinct: found.distinct });
            }
        }
        None
    }

    /// Goes through the file once.
    fn round(
        &self,
        dwarf: &Dwarf<Slice<'_>>,
        names: BTreeSet<Vec<u8>>,
        options: &Options,
    ) -> Option<(Types, Found)> {
        let budget = Budget::of(self.input.size());
        let wanted = Wanted::new(
            names,
            dwarf.debug_str.reader().slice(),
            dwarf.debug_str_offsets.reader().slice(),
            self.input.endian,
            self.heads.iter().any(|head| head.wide),
        );
        let tables = unit::tables(dwarf, self.heads.iter().map(|head| head.abbreviations));
        let pointer_size = self.heads.first().map_or(8, |head| head.address_size);
        let big_endian = self.input.endian == gimli::RunTimeEndian::Big;
        let team = Team::new(Progress {
            merger: Merger::new(pointer_size, self.widest_scalar_align, big_endian, &budget),
            next: 0,
            passed: BTreeSet::new(),
            chosen: HashMap::new(),
            found: Found::default(),
            stopped: false,
        });
        let (tables, budget, wanted) = (&tables, &budget, &wanted);
        let shared = Shared { file: self, dwarf, tables, budget, wanted, team: &team };
        let units = self.heads.len();
        team.work(threads(options, self.input.size(), units), units, |index, buffers| {
            shared.take(index, buffers)
        });
        let progress = team.into_progress();
        (!progress.stopped).then(|| (progress.merger.finish(), progress.found))
    }
}

/// The findings of one passage through the file, beside the types.
#[derive(Default)]
struct Found {
    /// The names of types that are held by value and that some unit only declares.
    declared: BTreeSet<Vec<u8>>,
    /// Whether any of it is Rust.
    rust: bool,
    /// The number of units of which something was read.
    units: usize,
    /// The number of those whose types were added.
    distinct: usize,
    /// The number of entries that were stepped over or read.
    entries: u64,
}

/// The state that the threads share.
struct Shared<'s, 'f, 'a, 'b> {
    file: &'s InParts<'f, 'a>,
    dwarf: &'s Dwarf<Slice<'s>>,
    /// The starts of tables of abbreviations.
    tables: &'s [(usize, usize)],
    budget: &'s Budget,
    wanted: &'s Wanted,
    team: &'s Team<Progress<'b>>,
}

struct Progress<'b> {
    merger: Merger<'b>,
    /// The unit whose turn it is.
    next: usize,
    /// Later units that have nothing to merge.
    passed: BTreeSet<usize>,
    /// For each digest of a unit's choice, the first known unit with that digest.
    chosen: HashMap<u64, usize>,
    found: Found,
    stopped: bool,
}

impl Progress<'_> {
    fn pass(&mut self, unit: usize) {
        self.passed.insert(unit);
        while self.passed.remove(&self.next) {
            self.next += 1;
        }
    }
}

/// Buffers that a thread reuses for each unit.
#[derive(Default)]
struct Buffers {
    unit: Vec<u8>,
    lines: Vec<u8>,
    tables: Tables,
}

impl Shared<'_, '_, '_, '_> {
    /// Takes a unit. Returns whether to go on.
    fn take(&self, index: usize, buffers: &mut Buffers) -> bool {
        let entries = self.unit(index, &self.file.heads[index], buffers);
        let mut progress = self.team.lock();
        match entries {
            Ok(entries) => progress.found.entries += entries,
            Err(_) => progress.stopped = true,
        }
        progress.pass(index);
        self.team.tell();
        !progress.stopped
    }

    /// Reads the wanted types of a unit, and merges them when it is the unit's turn. Returns the number of entries it
    /// looked at.
    fn unit(&self, index: usize, head: &Head, buffers: &mut Buffers) -> Result<u64, Stopped> {
        let input = &self.file.input;
        let bytes = input.unit(head, &mut buffers.unit).ok_or(Stopped::Broken)?;
        let mut hits = self.wanted.hits(bytes);
        if hits.is_empty() && !self.wanted.numbered() {
            return Ok(0);
        }
        let mut units = DebugInfo::new(bytes, input.endian).units();
        let header = units.next().ok().flatten().ok_or(Stopped::Broken)?;
        let at =
            UnitAt { header, dwarf: self.dwarf, space: INFO, start: head.start, end: head.end };
        let universe = Universe::of_one(self.tables, self.budget);
        let unit = Unit::new(at, &universe, &mut buffers.tables)?;
        if unit.split.is_some() {
            return Err(Stopped::Linked);
        }
        if self.names_by_number(&unit) {
            hits = Hits::Anywhere;
        }
        if hits.is_empty() {
            return Ok(0);
        }
        let unit = &unit;
        let mut steps = Steps::new(unit, bytes);
        let survey = Survey::of(&mut steps, &hits, self.wanted, is_c(unit.language))?;
        if survey.targets.is_empty() {
            return Ok(steps.count);
        }
        if steps.leads_out() {
            return Err(Stopped::Linked);
        }
        let lines = unit.lines.map(|offset| input.lines(offset.0, &mut buffers.lines));
        let files = match lines {
            Some(lines) => unit.files_of(&DebugLine::new(lines, input.endian), DebugLineOffset(0)),
            None => unit.files(),
        }?;
        let selection = select(unit, &mut steps, &survey, &files)?;
        if selection.digest.is_some_and(|digest| self.is_earlier(digest, index)) {
            self.team.lock().found.units += 1;
            return Ok(steps.count);
        }
        let mut parsed = replay::replay(unit, &mut steps, &survey, &selection, files)?;
        let entries = steps.count + parsed.types.len() as u64;
        parsed.resolve();
        let identities = Identities::of(&parsed);

        // The unit whose turn it is does not wait, so one thread always goes on.
        let mut progress = self
            .team
            .wait_while(self.team.lock(), |progress| progress.next != index && !progress.stopped);
        let Progress { merger, found, .. } = &mut *progress;
        found.rust |= is_rust(unit.language);
        found.units += 1;
        found.distinct += 1;
        found.declared.extend(selection.declared.iter().map(|&name| name.to_vec()));
        merger.add(&parsed, &identities)?;
        Ok(entries)
    }

    /// Returns whether an earlier unit chose the same. That one adds the types, before a later one would.
    fn is_earlier(&self, digest: u64, unit: usize) -> bool {
        let mut progress = self.team.lock();
        let first = progress.chosen.entry(digest).or_insert(unit);
        let earlier = *first < unit;
        *first = unit.min(*first);
        earlier
    }

    /// Returns whether the unit's table of names may have a wanted one.
    fn names_by_number(&self, unit: &Unit<'_, '_>) -> bool {
        if !self.wanted.numbered() || unit.at.header.version() < 5 {
            return false;
        }
        let offsets = self.dwarf.debug_str_offsets.reader().slice();
        let start = unit.strings.0;
        // The length of the table is in its header, and counts the bytes behind itself.
        let end = start.checked_sub(8).and_then(|header| {
            let bytes = offsets.get(header..header + 4)?;
            let length = gimli::Endianity::read_u32(self.file.input.endian, bytes);
            (length != u32::MAX && length != 0).then_some(header + 4 + length as usize)
        });
        self.wanted.in_table(start, end.unwrap_or(offsets.len()))
    }
}

/// Returns whether a table of abbreviations is for units whose rest is in split files, in the form of GNU compilers
/// before DWARF 5: the number of the attribute that names such a file occurs in it.
fn is_split(abbreviations: &[u8]) -> bool {
    memchr::memmem::find(abbreviations, &[0xb0, 0x42]).is_some()
}

/// Returns those names of Rust's pointers to a type that occur; they show whether it has a size.
fn pointers_to(name: &str, strings: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let pointers = POINTERS.map(|pointer| format!("{pointer}{name}").into_bytes());
    pointers.into_iter().filter(|name| Wanted::is_text(strings, name))
}

/// Returns the names of the structure and of the structures at its end.
fn tails(types: &Types, id: TypeId) -> Vec<&str> {
    let mut names = Vec::new();
    let mut id = id;
    while let Type::Record(record) = types.get(types.resolve(id)) {
        names.push(types.name(record.name));
        match record.members.last() {
            Some(last) if last.role == Role::Field && names.len() < DEEPEST_TAIL => id = last.ty,
            _ => break,
        }
        // Until a tail is known to have no size, the model has it as the element of an array.
        if let Type::Array { element, count: None } = types.get(id) {
            id = *element;
        }
    }
    names
}
