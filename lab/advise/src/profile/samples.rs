//! Makes a profile from samples of accesses.
//!
//! A sampler sees one access in many and does not know operations. So an operation here spans two accesses of the
//! busiest CPU to the field that it touches most: that field is touched once, and all others in proportion, by CPU.
//! CPUs that were seen writing play one role, those that only read another. The other work of an operation is taken to
//! be [`WORK_NS`](super::WORK_NS).
//!
//! The sharing of fields between CPUs is therefore as observed. So are ratios between fields, as far as the sampler is
//! fair: loads are often sampled only above a latency, and stores with another period. Nanoseconds are meaningful only
//! after a user has corrected `work_ns` and the rates.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ledgerline_layout::Error;
use ledgerline_layout::pick::{named, near};
use ledgerline_layout::symbols::Symbols;

use super::fields::Bytes;
use super::{Access, EVERYONE, Instances, Kind, Known, Object, Profile, Role, TypeProfile, Where};

/// The origin of an access: a CPU, or else a thread, or else unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Who {
    Cpu(u64),
    Thread(u64),
    Somebody,
}

impl Who {
    /// Returns the origin that a sample names.
    pub fn of(cpu: Option<u64>, thread: Option<u64>) -> Who {
        cpu.map(Who::Cpu).or(thread.map(Who::Thread)).unwrap_or(Who::Somebody)
    }
}

/// Counts of samples by whether they have an address and a kind.
#[derive(Default)]
pub(super) struct Told {
    pub taken: u64,
    pub without_address: u64,
    pub without_kind: u64,
}

impl Told {
    /// Counts a sample. Returns its address and its kind if it has both.
    pub fn both(&mut self, address: Option<u64>, kind: Option<Kind>) -> Option<(u64, Kind)> {
        *match (address, kind) {
            (None, _) => &mut self.without_address,
            (_, None) => &mut self.without_kind,
            _ => &mut self.taken,
        } += 1;
        address.zip(kind)
    }

    /// Returns what the samples lack, and the field of `perf script` that has it.
    pub fn missing(&self) -> (&'static str, &'static str) {
        if self.without_kind > self.without_address {
            ("no sample says whether it is a load or a store", "data_src")
        } else {
            ("no sample has an address", "addr")
        }
    }
}

/// Parses a number as perf prints addresses, with or without `0x`.
pub(super) fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

/// The place of an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Address(u64),
    /// An address in the program's file.
    InFile(u64),
    Symbol(&'a str, u64),
}

/// The advice if only addresses are known.
const ADDRESSES: &str = "give the perf.data itself, which says where the program was loaded, or name addresses: TYPE@0xADDRESS";

/// An object and its fields.
struct Target<'t> {
    object: &'t Object,
    bytes: Bytes<'t>,
}

/// The samples of one type: the accesses by object, origin, field and kind.
type Seen = BTreeMap<(usize, Who, String, Kind), f64>;

/// Collects samples.
pub(super) struct Samples<'t> {
    targets: Vec<Target<'t>>,
    /// Targets at an address, sorted by it.
    by_address: Vec<(u64, usize)>,
    /// Targets at a symbol, by the symbol's address in the program's file.
    in_file: Vec<(u64, usize)>,
    by_symbol: HashMap<&'t str, Vec<usize>>,
    seen: BTreeMap<&'t str, Seen>,
    /// Samples that hit no object, or a hole of one.
    outside: u64,
    inside: u64,
}

impl<'t> Samples<'t> {
    /// Makes a collector for the known objects.
    ///
    /// # Errors
    /// If there are no objects, or one has a type that does not exist.
    pub fn of(known: &'t Known<'t>) -> Result<Samples<'t>, Error> {
        let Some(types) = known.types.filter(|_| !known.objects.is_empty()) else {
            return Err(Error::new("it has addresses and does not say of what")
                .advise("name objects: --object TYPE@0xADDRESS or TYPE@SYMBOL"));
        };
        let named = named(types);
        let target = |object: &'t Object| {
            let found = named.iter().find(|(name, _)| *name == object.ty);
            let bytes = found.and_then(|&(_, id)| Bytes::of(types, id));
            let bytes = bytes.ok_or_else(|| {
                let error =
                    Error::new(format!("object {object}: there is no type {:?}", object.ty));
                match near(&object.ty, named.iter().map(|entry| entry.0)) {
                    Some(near) => error.advise(near),
                    None => error,
                }
            })?;
            Ok(Target { object, bytes })
        };
        let targets = known.objects.iter().map(target).collect::<Result<Vec<Target>, Error>>()?;
        let mut by_address = Vec::new();
        let mut by_symbol: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, target) in targets.iter().enumerate() {
            match &target.object.at {
                Where::Address(address) => by_address.push((*address, index)),
                Where::Symbol(symbol, _) => by_symbol.entry(symbol).or_default().push(index),
            }
        }
        by_address.sort_unstable();
        let seen = BTreeMap::new();
        let in_file = Vec::new();
        Ok(Samples { targets, by_address, in_file, by_symbol, seen, outside: 0, inside: 0 })
    }

    /// Returns the program's symbols that name objects, for samples that have only addresses. `None` if there are none.
    ///
    /// # Errors
    /// If the program is not known, or has no such symbol.
    pub fn symbols(&mut self, known: &Known<'_>) -> Result<Option<Symbols>, Error> {
        let names: Vec<&str> = self.by_symbol.keys().copied().collect();
        let Some(first) = names.first() else { return Ok(None) };
        let program = known.program.ok_or_else(|| {
            Error::new(format!("it has addresses, and {first:?} is a symbol")).advise(ADDRESSES)
        })?;
        let symbols = Symbols::of(program, &names)?;
        for (index, target) in self.targets.iter().enumerate() {
            if let Where::Symbol(name, offset) = &target.object.at
                && let Some(address) = symbols.address(name)
            {
                self.in_file.push((address.wrapping_add(*offset), index));
            }
        }
        self.in_file.sort_unstable();
        Ok(Some(symbols))
    }

    /// Returns whether all objects are named by symbols.
    pub fn are_all_symbols(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Checks that an object is named by an address.
    ///
    /// # Errors
    /// If all objects are named by symbols: for a text that has only addresses.
    pub fn need_addresses(&self) -> Result<(), Error> {
        if !self.are_all_symbols() {
            return Ok(());
        }
        Err(Error::new("it has addresses, and the objects are named by symbols").advise(ADDRESSES))
    }

    /// Returns whether an object is at a place.
    pub fn meets(&self, place: Place<'_>) -> bool {
        self.hit(place).is_some()
    }

    /// Adds a sample that stands for `times` accesses.
    pub fn add(&mut self, place: Place<'_>, kind: Kind, who: Who, times: f64) {
        let field = |(index, offset): (usize, u64)| {
            self.targets[index].bytes.field(offset).map(|field| (index, field))
        };
        let Some((index, field)) = self.hit(place).and_then(field) else {
            self.outside += 1;
            return;
        };
        self.inside += 1;
        let seen = self.seen.entry(&self.targets[index].object.ty).or_default();
        *seen.entry((index, who, field, kind)).or_default() += times;
    }

    /// Returns the object at a place, and the offset in it.
    fn hit(&self, place: Place<'_>) -> Option<(usize, u64)> {
        match place {
            Place::Address(address) => self.within(&self.by_address, address),
            Place::InFile(address) => self.within(&self.in_file, address),
            Place::Symbol(symbol, at) => self.by_symbol.get(symbol)?.iter().find_map(|&index| {
                let Where::Symbol(_, start) = self.targets[index].object.at else { return None };
                let offset = at.checked_sub(start)?;
                (offset < self.targets[index].bytes.size).then_some((index, offset))
            }),
        }
    }

    /// Returns the target among sorted ones that contains an address, and the offset in it.
    fn within(&self, sorted: &[(u64, usize)], address: u64) -> Option<(usize, u64)> {
        let end = sorted.partition_point(|&(start, _)| start <= address);
        let (start, index) = *sorted[..end].last()?;
        let offset = address - start;
        (offset < self.targets[index].bytes.size).then_some((index, offset))
    }

    /// Makes the profile.
    ///
    /// # Errors
    /// If no sample hit an object.
    pub fn profile(self, source: &str) -> Result<Profile, Error> {
        if self.inside == 0 {
            let samples = if self.outside == 1 { "sample" } else { "samples" };
            return Err(Error::new(format!(
                "none of its {} {samples} hit a field of the objects that are named",
                self.outside
            ))
            .advise("addresses change from run to run: name those of the run that was sampled"));
        }
        let types = self.seen.into_iter().map(|(name, seen)| of_type(name, &seen)).collect();
        Ok(Profile { source: source.to_owned(), types, ..Profile::default() })
    }
}

fn of_type(name: &str, seen: &Seen) -> TypeProfile {
    let writers: BTreeSet<Who> =
        seen.keys().filter(|(_, _, _, kind)| kind.writes()).map(|&(_, who, _, _)| who).collect();
    let all: BTreeSet<Who> = seen.keys().map(|&(_, who, _, _)| who).collect();
    // Accesses of a CPU in each of the two roles.
    let mut roles: [BTreeMap<(String, Kind), f64>; 2] = Default::default();
    let counts = [writers.len(), all.len() - writers.len()];
    for ((_, who, field, kind), times) in seen {
        let role = usize::from(!writers.contains(who));
        *roles[role].entry((field.clone(), *kind)).or_default() += times / counts[role] as f64;
    }
    let busiest = roles.iter().flat_map(BTreeMap::values).copied().fold(0.0, f64::max);
    let alone = counts.contains(&0);
    let names = ["writers", "readers"].map(|name| if alone { EVERYONE } else { name });
    let roles = names.iter().zip(counts).zip(roles).filter(|((_, count), _)| *count > 0);
    let roles = roles
        .map(|((role, count), rates)| {
            let access = |((field, kind), times)| Access { field, kind, times: times / busiest };
            let share = count as f64 / all.len() as f64;
            Role::supposed(role, share, rates.into_iter().map(access).collect())
        })
        .collect();
    TypeProfile { name: name.to_owned(), instances: instances(seen), roles }
}

/// Returns one object for each CPU if each object was seen with one CPU, and several shared objects if each CPU was
/// seen with one object. Otherwise all count as one object.
fn instances(seen: &Seen) -> Instances {
    let pairs: BTreeSet<(usize, Who)> =
        seen.keys().map(|&(object, who, _, _)| (object, who)).collect();
    let objects = pairs.iter().map(|pair| pair.0).collect::<BTreeSet<_>>().len();
    let cpus = pairs.iter().map(|pair| pair.1).collect::<BTreeSet<_>>().len();
    if objects > 1 && pairs.len() == objects && cpus == objects {
        Instances::PerCpu
    } else if objects > 1 && pairs.len() == cpus {
        Instances::Dealt(objects)
    } else {
        Instances::Shared
    }
}
