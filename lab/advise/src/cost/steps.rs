//! Turns the uses of a type into fields and programs of the simulator.

use std::collections::BTreeSet;

use ledgerline_coherence::layout::{FieldId, Layout, Scope};
use ledgerline_coherence::machine::{Distance, Settings};
use ledgerline_coherence::program::{Program, Step};

use super::{PAIR, Place};
use crate::profile::{Instances, Kind, Role};
use crate::uses::{Spot, Touch, Uses};

/// A phase that occurs more often in an operation is spread over parts of the operation.
const MOST_TIMES: f64 = 4.0;
/// Most repetitions of an access in a phase. The rest are hits and only add time.
const MOST_REPEATS: f64 = 16.0;
/// Most lines on which an array is touched that is touched as a whole.
const MOST_PARTS: u64 = 32;
/// An operation with that much other work fills the first cache with other data.
const OUTGROWS_NS: f64 = 250.0;
/// Bytes of a second cache: the smallest of the machines that come with the simulator.
const SECOND_CACHE: f64 = 262_144.0;

/// The program that a role's CPUs run.
pub(super) struct Running {
    pub program: Program,
    /// Passes of the program that make an operation.
    pub passes: f64,
    /// Accesses of a pass, about.
    pub accesses: f64,
    /// How often the rarest phase comes in a pass.
    pub rarest: f64,
}

/// Returns one offset on each line that a spot touches, if objects begin `begins` bytes into a pair.
pub(crate) fn parts(spot: &Spot, offset: u64, begins: u64) -> Vec<u64> {
    let first = (begins + offset) / 64;
    let last = (begins + offset).saturating_add(spot.size.saturating_sub(1)) / 64;
    let count = (last - first + 1).min(MOST_PARTS);
    let line = |part: u64| {
        let apart = (last - first).checked_mul(part).map_or(part, |far| far / (count - 1).max(1));
        first + apart
    };
    (0..count).map(|part| (line(part) * 64).saturating_sub(begins).max(offset)).collect()
}

/// Returns how often an access to a spot touches each of its parts.
pub(crate) fn share(spot: &Spot, parts: usize) -> f64 {
    if spot.divided { 1.0 / parts as f64 } else { 1.0 }
}

/// Returns whether a role's work between two operations empties its first cache.
pub(crate) fn outgrows(role: &Role<Touch>) -> bool {
    role.work_ns >= OUTGROWS_NS
}

/// Returns the number of passes of a program that make an operation of a role.
pub(crate) fn passes(role: &Role<Touch>) -> f64 {
    let most = role.phases.iter().map(|phase| phase.times).fold(0.0, f64::max);
    (most / MOST_TIMES).ceil().max(1.0)
}

/// Returns the fields in the simulator, and the spot that each is a part of.
pub(super) fn layout(
    uses: &Uses,
    place: &Place,
    begins: u64,
    cpus: usize,
) -> (Layout, Vec<Vec<FieldId>>) {
    let mut layout = Layout::new();
    let scope = match uses.instances {
        Instances::Shared => Scope::Machine,
        Instances::PerCpu => Scope::Cpu,
        Instances::Row(row) => Scope::Row(place.row.unwrap_or(row).stride),
        // Each CPU has an object of its own: the simulator need not look at other CPUs.
        Instances::Dealt(count) if count >= cpus => Scope::Cpu,
        Instances::Dealt(count) => Scope::Groups(count.max(1)),
    };
    let object = layout.object_at(&uses.name, scope, begins % PAIR);
    let fields = (uses.spots.iter().zip(&place.offsets))
        .map(|(spot, &offset)| {
            let parts = parts(spot, offset, begins).into_iter();
            parts.map(|part| layout.field(object, &spot.path, part)).collect()
        })
        .collect();
    (layout, fields)
}

/// Returns the program of a role's CPUs: its work, then its phases, each as often as it occurs. The share `between` of
/// the work is spread over the fields of a phase, in its first pass through them, if that pass is certain.
pub(super) fn running(
    role: &Role<Touch>,
    uses: &Uses,
    fields: &[Vec<FieldId>],
    clock_ghz: f64,
    hit_cycles: f64,
    between: f64,
) -> Running {
    let passes = passes(role);
    let work = role.work_ns.max(0.0) * clock_ghz / passes / role.phases.len().max(1) as f64;
    let mut running =
        Running { program: Program::new(&role.name, []), passes, accesses: 0.0, rarest: 1.0 };
    let steps = &mut running.program.steps;
    if role.phases.is_empty() {
        steps.push(Step::work(work.max(1.0)));
    }
    for phase in &role.phases {
        let times = phase.times / passes;
        // All accesses to one field happen at once, as in a sum or in a list's length.
        let by_field = phase.accesses.chunk_by(|one, next| one.spot == next.spot);
        let mut touches: Vec<Vec<Step>> = Vec::new();
        let mut given_back: Vec<Step> = Vec::new();
        for of_field in by_field {
            let mut here = Vec::new();
            for touch in of_field {
                let spot = &uses.spots[touch.spot];
                let parts = &fields[touch.spot];
                let share = share(spot, parts.len());
                for &field in parts {
                    let last = gives_back(touch, &phase.accesses);
                    let lies = if last { &mut given_back } else { &mut here };
                    repeat(touch, spot, field, touch.times * share, hit_cycles, lies);
                }
                running.accesses += times * touch.times;
            }
            touches.push(here);
        }
        if let Some(last) = touches.last_mut() {
            last.extend(given_back);
        }
        // In an even program, each field has the same work in front of it.
        let gap = work * between / touches.len().max(1) as f64;
        let gaps = if times >= 1.0 && gap >= 1.0 { touches.len().saturating_sub(1) } else { 0 };
        let front = work - gap * gaps as f64;
        if front >= 1.0 {
            steps.push(Step::work(front));
        }
        for pass in 0..times as u64 {
            for (at, touch) in touches.iter().enumerate() {
                if pass == 0 && (1..=gaps).contains(&at) {
                    // This work depends on the access before it, so it cannot run while the CPU waits for that access.
                    steps.push(Step::compute(gap));
                }
                steps.extend(touch.iter().cloned());
            }
        }
        let chance = times.fract();
        if chance > 0.0 {
            steps.push(Step::chance(chance, touches.concat()));
        }
        running.rarest = running.rarest.min(times);
    }
    running.program.outgrows_first_cache = outgrows(role);
    running.program.knows_places = true;
    running
}

/// Returns whether a touch comes last in its phase. A field that is changed atomically and stored to is a lock, and the
/// store releases it.
fn gives_back(touch: &Touch, phase: &[Touch]) -> bool {
    let takes = |other: &Touch| other.spot == touch.spot && other.kind == Kind::Atomic;
    touch.kind == Kind::Store && phase.iter().any(takes)
}

/// Returns the accesses to one part of a spot, touched `times`: whole times, and a chance of one more.
fn repeat(
    touch: &Touch,
    spot: &Spot,
    field: FieldId,
    times: f64,
    hit_cycles: f64,
    steps: &mut Vec<Step>,
) {
    let step = match touch.kind {
        Kind::Load if spot.awaited => Step::load(field),
        Kind::Load => Step::load_overlapping(field),
        Kind::Store => Step::store(field),
        Kind::Atomic => Step::rmw(field),
    };
    let whole = times.floor().min(MOST_REPEATS);
    steps.extend(std::iter::repeat_n(step.clone(), whole as usize));
    let rest = times - whole;
    if rest > 1.0 {
        steps.push(Step::compute(rest * hit_cycles));
    } else if rest > 0.0 {
        steps.push(Step::chance(rest, [step]));
    }
}

/// The cost of the first touch of a line in an operation if no other CPU took the line, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fetch {
    /// From the second cache, beyond the first, for an access that is waited for. Simulations include it.
    pub second: f64,
    /// From the last cache, beyond the second, if a CPU has more objects than its second cache holds. Simulations have
    /// no capacity, so this is added to their result.
    pub last: f64,
    /// The share of it that other work hides, for a load that overlaps.
    pub overlap: f64,
    /// The probability that a line comes with its neighbour.
    pub pair: f64,
}

impl Fetch {
    pub(crate) fn new(settings: &Settings, uses: &Uses, cpus: usize) -> Fetch {
        let ns = |picoseconds: u64| picoseconds as f64 / 1000.0;
        let lines: BTreeSet<u64> = uses.spots.iter().map(|spot| spot.offset / 64).collect();
        let objects = match uses.instances {
            Instances::Dealt(count) => count as f64 / cpus as f64,
            _ => 1.0,
        };
        let outgrown = objects * (64 * lines.len()) as f64 > SECOND_CACHE;
        let last = ns(settings.transfer[Distance::Near as usize][0]) - ns(settings.second_cache);
        Fetch {
            second: (ns(settings.second_cache) - ns(settings.first_cache)).max(0.0),
            last: if outgrown { last.max(0.0) } else { 0.0 },
            overlap: settings.overlap,
            pair: settings.pair,
        }
    }

    /// Returns the cost of an access of a kind from the second cache, and from the last.
    pub(crate) fn price(&self, kind: Kind, awaited: bool) -> (f64, f64) {
        match kind {
            Kind::Atomic => (self.second, self.last),
            Kind::Load if awaited => (self.second, self.last),
            Kind::Load => (0.0, self.last * (1.0 - self.overlap)),
            Kind::Store => (0.0, 0.0),
        }
    }
}

/// Returns the cost of each spot's first touches of lines, in nanoseconds an operation: from the second cache, which a
/// simulation includes, and from the last, which it does not.
pub(super) fn fetching(fetch: &Fetch, uses: &Uses, place: &Place, begins: u64) -> Vec<(f64, f64)> {
    let mut costs = vec![(0.0, 0.0); uses.spots.len()];
    for role in uses.roles.iter().filter(|role| outgrows(role)) {
        let passes = passes(role);
        let mut certain = BTreeSet::new();
        for phase in &role.phases {
            // As in the simulator, a line that is touched for certain stays for the rest of the pass; one that is
            // touched by chance stays for the rest of its phase.
            let times = phase.times / passes;
            let mut seen = certain.clone();
            let last = |touch: &&Touch| gives_back(touch, &phase.accesses);
            let (given_back, first): (Vec<&Touch>, Vec<&Touch>) =
                phase.accesses.iter().partition(last);
            for touch in first.into_iter().chain(given_back) {
                let spot = &uses.spots[touch.spot];
                let parts = parts(spot, place.offsets[touch.spot], begins);
                let chance = (touch.times * share(spot, parts.len())).min(1.0);
                let (second, last) = fetch.price(touch.kind, spot.awaited);
                for part in parts {
                    let line = (begins + part) / 64;
                    if !seen.contains(&line) {
                        let often = role.share * passes * times.min(1.0) * chance;
                        let beside =
                            if seen.contains(&(line ^ 1)) { 1.0 - fetch.pair } else { 1.0 };
                        costs[touch.spot].0 += often * second;
                        costs[touch.spot].1 += often * last * beside;
                        if chance >= 1.0 {
                            seen.insert(line);
                        }
                    }
                }
            }
            if times >= 1.0 {
                certain = seen;
            }
        }
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Phase, WorkBasis};
    use ledgerline_coherence::program::Spread;

    /// Adds to a total, then reads and writes a list's length.
    fn program(between: f64) -> Vec<Step> {
        steps([(0, Kind::Atomic), (1, Kind::Load), (1, Kind::Store)], between)
    }

    /// Returns the steps of touches of two fields, in the order of a profile.
    fn steps<const TOUCHES: usize>(touches: [(usize, Kind); TOUCHES], between: f64) -> Vec<Step> {
        let spot = |path: &str, offset| Spot {
            path: path.to_owned(),
            offset,
            size: 8,
            divided: false,
            awaited: true,
        };
        let touch = |(spot, kind)| Touch { spot, kind, times: 1.0 };
        let accesses = touches.map(touch).to_vec();
        let phases = vec![Phase { name: "add".to_owned(), times: 1.0, accesses }];
        let uses = Uses {
            name: "list".to_owned(),
            instances: Instances::Shared,
            spots: vec![spot("total", 0), spot("length", 8)],
            roles: vec![Role {
                name: "all".to_owned(),
                share: 1.0,
                work_ns: 100.0,
                basis: WorkBasis::Stated,
                phases,
            }],
            unknown: Vec::new(),
            settled: Vec::new(),
        };
        let (_, fields) = layout(&uses, &Place::of(&uses), 0, 2);
        running(&uses.roles[0], &uses, &fields, 1.0, 1.0, between).program.steps
    }

    #[test]
    fn a_lock_is_given_back_when_all_is_done() {
        let (lock, guarded) = (0, 1);
        let touches = [Kind::Store, Kind::Atomic].map(|kind| (lock, kind));
        let held = [Kind::Load, Kind::Store].map(|kind| (guarded, kind));
        let steps = steps([touches[0], touches[1], held[0], held[1]], 0.0);
        let [
            Step::Compute { .. },
            Step::Rmw(taken),
            Step::Load { .. },
            Step::Store(_),
            Step::Store(last),
        ] = steps[..]
        else {
            panic!("{steps:?}")
        };
        assert_eq!(taken, last);
    }

    #[test]
    fn work_lies_between_fields_as_far_as_is_said_and_is_as_much_as_before() {
        for (between, wanted) in
            [(0.0, vec![100.0]), (0.5, vec![75.0, 25.0]), (1.0, vec![50.0, 50.0])]
        {
            let steps = program(between);
            let works = steps.iter().filter_map(|step| match step {
                Step::Compute { cycles, .. } => Some(*cycles),
                _ => None,
            });
            assert_eq!(works.collect::<Vec<_>>(), wanted);
            assert_eq!(steps.len(), 3 + wanted.len());
            // No work between the load and the store of one field.
            assert!(matches!(steps[steps.len() - 2..], [Step::Load { .. }, Step::Store(_)]));
            // Work in front goes on while the CPU waits. Work in between depends on the access.
            assert!(matches!(steps[0], Step::Compute { spread: Spread::Beside(_), .. }));
            let uniform =
                |step: &Step| matches!(step, Step::Compute { spread: Spread::Uniform(_), .. });
            assert_eq!(steps.iter().filter(|step| uniform(step)).count(), wanted.len() - 1);
        }
    }
}
