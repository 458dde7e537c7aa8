//! The actions of a role as a flat list: the steps of the simulation, with bytes of an object in place of fields.

use std::collections::BTreeMap;

use crate::cost::Part;
use ledgerline_coherence::layout::FieldId;
use ledgerline_coherence::program::{Spread, Step, When};

/// One action of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    /// Works for this many nanoseconds without memory. The share `spread` is the largest deviation, evenly distributed.
    Work { ns: f64, spread: f64 },
    /// Reads a byte of the object.
    Load { at: u32, awaited: bool },
    /// Writes a byte.
    Store { at: u32 },
    /// Adds to a byte, atomically.
    Add { at: u32 },
    /// Evicts the line of a byte from the first cache, like the rest of the program's work.
    Outgrow { at: u32 },
    /// Does the next `count` acts with this probability, or skips them.
    Sometimes { chance: f64, count: u32 },
}

/// Work during which a line can be evicted without an effect on the time, in nanoseconds.
const UNNOTICED_NS: f64 = 25.0;

/// Returns the acts of a pass, for objects that begin `begins` bytes into a line.
pub(crate) fn acts(part: &Part, offsets: &BTreeMap<FieldId, u64>, begins: u64) -> Vec<Act> {
    let mut acts = Vec::new();
    append(&part.program.steps, offsets, &mut acts);
    if part.program.outgrows_first_cache {
        let most = (sums(&acts).work / UNNOTICED_NS) as usize;
        let lines = lines(&acts, begins);
        acts.splice(0..0, lines.into_iter().take(most).map(|at| Act::Outgrow { at }));
    }
    acts
}

/// Returns one touched byte of each touched line, in the order of the first touch.
fn lines(acts: &[Act], begins: u64) -> Vec<u32> {
    let mut lines: Vec<u32> = Vec::new();
    let line = |at: u32| (u64::from(at) + begins) / 64;
    for act in acts {
        if let Act::Load { at, .. } | Act::Store { at } | Act::Add { at } = *act
            && !lines.iter().any(|&other| line(other) == line(at))
        {
            lines.push(at);
        }
    }
    lines
}

fn append(steps: &[Step], offsets: &BTreeMap<FieldId, u64>, acts: &mut Vec<Act>) {
    let at = |field: &FieldId| offsets[field] as u32;
    for step in steps {
        match step {
            Step::Compute { cycles, spread } => {
                let spread = match spread {
                    Spread::Uniform(share) | Spread::Beside(share) => *share,
                    _ => 0.0,
                };
                acts.push(Act::Work { ns: *cycles, spread });
            }
            Step::Load { field, overlapping } => {
                acts.push(Act::Load { at: at(field), awaited: !overlapping });
            }
            Step::Store(field) => acts.push(Act::Store { at: at(field) }),
            Step::Rmw(field) => acts.push(Act::Add { at: at(field) }),
            Step::Sometimes { when, steps } => {
                let chance = match when {
                    When::Chance(chance) => *chance,
                    When::Every(times) => 1.0 / f64::from((*times).max(1)),
                };
                let place = acts.len();
                acts.push(Act::Sometimes { chance, count: 0 });
                append(steps, offsets, acts);
                let count = (acts.len() - place - 1) as u32;
                acts[place] = Act::Sometimes { chance, count };
            }
            // A profile knows neither locks nor loops, so `ledgerline_advise` makes none of these.
            other => unreachable!("no profile has {other:?}"),
        }
    }
}

/// The average actions of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sums {
    /// Nanoseconds of work.
    pub(crate) work: f64,
    /// Loads that are waited for.
    pub(crate) awaited: f64,
    /// Other loads, and stores.
    pub(crate) passing: f64,
    /// Atomic additions.
    pub(crate) adds: f64,
}

/// Returns the average actions of a pass.
pub(crate) fn sums(acts: &[Act]) -> Sums {
    let mut sums = Sums::default();
    // The probabilities of the enclosing `Sometimes` acts and their ends, the innermost last.
    let mut often = vec![(1.0, usize::MAX)];
    for (index, act) in acts.iter().enumerate() {
        while often.last().is_some_and(|&(_, end)| index >= end) {
            often.pop();
        }
        let now = often.last().map_or(1.0, |&(now, _)| now);
        match *act {
            Act::Work { ns, .. } => sums.work += now * ns,
            Act::Load { awaited: true, .. } => sums.awaited += now,
            Act::Load { .. } | Act::Store { .. } => sums.passing += now,
            Act::Add { .. } => sums.adds += now,
            Act::Outgrow { .. } => {}
            Act::Sometimes { chance, count } => {
                often.push((now * chance, index + 1 + count as usize));
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Place, script};
    use crate::profile::{Instances, Kind, Phase, Role};
    use crate::uses::{Spot, Touch, Uses};

    fn uses(size: u64, times: f64) -> Uses {
        let spot = |path: &str, offset, size, awaited| Spot {
            path: path.to_owned(),
            offset,
            size,
            divided: false,
            awaited,
        };
        let touch = |spot, kind, times| Touch { spot, kind, times };
        let phase = |name: &str, times, accesses| Phase { name: name.to_owned(), times, accesses };
        let phases = vec![
            phase("check", 1.0, vec![touch(0, Kind::Load, 1.0), touch(1, Kind::Load, 1.0)]),
            phase("add", times, vec![touch(2, Kind::Atomic, 1.0), touch(0, Kind::Store, 1.5)]),
        ];
        Uses {
            name: "object".to_owned(),
            instances: Instances::Shared,
            spots: vec![
                spot("limit", 0, 8, false),
                spot("parent", 8, 8, true),
                spot("usage", 60, size, false),
            ],
            roles: vec![Role {
                name: "all".to_owned(),
                share: 1.0,
                work_ns: 100.0,
                basis: Default::default(),
                phases,
            }],
            unknown: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn of(uses: &Uses) -> Vec<Act> {
        let script = script(uses, &Place::of(uses), 0, 2);
        acts(&script.roles[0], &script.offsets, 0)
    }

    #[test]
    fn a_role_becomes_its_work_its_accesses_and_its_chances_in_order() {
        let work = Act::Work { ns: 50.0, spread: 0.1 };
        assert_eq!(
            of(&uses(4, 0.25)),
            [
                work,
                Act::Load { at: 0, awaited: false },
                Act::Load { at: 8, awaited: true },
                work,
                Act::Sometimes { chance: 0.25, count: 4 },
                Act::Add { at: 60 },
                Act::Store { at: 0 },
                Act::Sometimes { chance: 0.5, count: 1 },
                Act::Store { at: 0 },
            ]
        );
    }

    #[test]
    fn a_field_that_straddles_touches_both_lines() {
        let acts = of(&uses(8, 1.0));
        let adds = acts.iter().filter(|act| matches!(act, Act::Add { .. }));
        assert_eq!(adds.collect::<Vec<_>>(), [&Act::Add { at: 60 }, &Act::Add { at: 64 }]);
    }

    #[test]
    fn other_work_has_each_touched_line_leave_the_first_cache_once() {
        let mut uses = uses(8, 0.25);
        uses.roles[0].work_ns = 1000.0;
        let script = script(&uses, &Place::of(&uses), 0, 2);
        let outgrown = |begins| {
            let acts = acts(&script.roles[0], &script.offsets, begins);
            let lines = acts.iter().take_while(|act| matches!(act, Act::Outgrow { .. }));
            lines.copied().collect::<Vec<_>>()
        };
        assert_eq!(outgrown(0), [Act::Outgrow { at: 0 }, Act::Outgrow { at: 64 }]);
        assert_eq!(outgrown(56), [Act::Outgrow { at: 0 }, Act::Outgrow { at: 8 }]);
        // Below a quarter of a microsecond of work, lines stay in the first cache.
        uses.roles[0].work_ns = 200.0;
        assert!(!of(&uses).iter().any(|act| matches!(act, Act::Outgrow { .. })));
    }

    #[test]
    fn what_comes_by_chance_counts_as_often_as_it_comes() {
        let sums = sums(&of(&uses(4, 0.25)));
        assert_eq!(sums, Sums { work: 100.0, awaited: 1.0, passing: 1.375, adds: 0.25 });
    }

    #[test]
    fn an_operation_of_many_phases_is_spread_over_passes_as_in_the_simulation() {
        let uses = uses(4, 12.0);
        let script = script(&uses, &Place::of(&uses), 0, 2);
        assert_eq!(script.roles[0].passes, 3.0);
        let sums = sums(&acts(&script.roles[0], &script.offsets, 0));
        assert!((3.0 * sums.adds - 12.0).abs() < 1e-9 && (3.0 * sums.work - 100.0).abs() < 1e-9);
    }
}
