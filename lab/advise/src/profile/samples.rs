//! Makes a profile of samples of accesses.
//!
//! A sampler sees one access in many and knows no operations. So an operation here is what lies between two
//! accesses of the busiest CPU to the field that it touches most: that field is touched once, and all others in
//! proportion, by CPU. CPUs that were seen writing play one role, those that only read another. The other work of an
//! operation is taken to be [`WORK_NS`].
//!
//! Which CPUs share which fields is therefore as observed. So are ratios between fields, as far as the sampler is fair
//! (loads are often sampled only above a latency, and stores with another period). Nanoseconds are not, until somebody
//! corrects `work_ns` and the rates.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ledgerline_layout::Error;
use ledgerline_layout::pick::{named, near};

use super::fields::Bytes;
use super::{
    ALWAYS, Access, EVERYONE, Instances, Kind, Known, Object, Phase, Profile, Role, TypeProfile,
    WORK_NS, Where,
};

/// Who made an access: a CPU, else a thread, else nobody in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Who {
    Cpu(u64),
    Thread(u64),
    Somebody,
}

/// Where an access went.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Address(u64),
    Symbol(&'a str, u64),
}

/// An object, and what lies in it.
struct Target<'t> {
    object: &'t Object,
    bytes: Bytes<'t>,
}

/// The samples of one type: how often who touched which field of which object in which way.
type Seen = BTreeMap<(usize, Who, String, Kind), f64>;

/// Collects samples.
pub(super) struct Samples<'t> {
    targets: Vec<Target<'t>>,
    /// Targets at an address, by it.
    by_address: Vec<(u64, usize)>,
    by_symbol: HashMap<&'t str, Vec<usize>>,
    seen: BTreeMap<&'t str, Seen>,
    /// Samples that hit no object, or a hole of one.
    outside: u64,
    inside: u64,
}

impl<'t> Samples<'t> {
    /// For the objects that are known.
    ///
    /// # Errors
    /// When there are no objects, or one is of a type that does not exist.
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
        Ok(Samples { targets, by_address, by_symbol, seen, outside: 0, inside: 0 })
    }

    /// Takes a sample that stands for `times` accesses.
    pub fn add(&mut self, place: Place<'_>, kind: Kind, who: Who, times: f64) {
        let Some((index, offset)) = self.hit(place) else {
            self.outside += 1;
            return;
        };
        let target = &self.targets[index];
        let Some(field) = target.bytes.field(offset) else {
            self.outside += 1;
            return;
        };
        self.inside += 1;
        let seen = self.seen.entry(&target.object.ty).or_default();
        *seen.entry((index, who, field, kind)).or_default() += times;
    }

    /// The object, and the byte of it.
    fn hit(&self, place: Place<'_>) -> Option<(usize, u64)> {
        match place {
            Place::Address(address) => {
                let end = self.by_address.partition_point(|&(start, _)| start <= address);
                let (start, index) = *self.by_address[..end].last()?;
                let offset = address - start;
                (offset < self.targets[index].bytes.size).then_some((index, offset))
            }
            Place::Symbol(symbol, at) => self.by_symbol.get(symbol)?.iter().find_map(|&index| {
                let Where::Symbol(_, start) = self.targets[index].object.at else { return None };
                let offset = at.checked_sub(start)?;
                (offset < self.targets[index].bytes.size).then_some((index, offset))
            }),
        }
    }

    /// The profile.
    ///
    /// # Errors
    /// When no sample hit an object.
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
        .map(|((role, count), rates)| Role {
            name: (*role).to_owned(),
            share: count as f64 / all.len() as f64,
            work_ns: WORK_NS,
            basis: super::WorkBasis::Stated,
            phases: vec![Phase {
                name: ALWAYS.to_owned(),
                times: 1.0,
                accesses: rates
                    .into_iter()
                    .map(|((field, kind), times)| Access { field, kind, times: times / busiest })
                    .collect(),
            }],
        })
        .collect();
    TypeProfile { name: name.to_owned(), instances: instances(seen), roles }
}

/// One object for each CPU, where each object was seen with one CPU. Several objects that CPUs share, where each CPU
/// was seen with one object. Otherwise all are taken for one object.
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
