//! The effect of a program's operation on each line, read off straight-line code.

use super::ns;
use crate::code::{self, Access, Action, Instruction, Kind};
use crate::layout::{FieldId, Placement};
use crate::simulate::{Error, Setup};
use std::collections::{BTreeMap, HashMap};

/// The least computing between atomics for which averages hold.
const LEAST_CYCLES: f64 = 1_000.0;

/// One access of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    /// The computing from the operation's start up to the access, in nanoseconds.
    pub at: f64,
    /// The share of operations that reach it.
    pub share: f64,
    /// Whether it is an atomic; otherwise it is a load.
    pub writes: bool,
}

/// A line that several CPUs visit, seen from the first CPU.
#[derive(Clone, Debug)]
pub(super) struct Visited {
    /// The socket of its memory.
    pub home: usize,
    /// The CPUs that visit it.
    pub cpus: Vec<usize>,
    /// The accesses, in the order of the program.
    pub visits: Vec<Visit>,
}

/// An operation taken apart into computing and visits to lines.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// The nanoseconds of an operation without any wait.
    pub think: f64,
    /// The lines that it may wait for.
    pub lines: Vec<Visited>,
}

impl Operation {
    pub(super) fn of(setup: &Setup) -> Result<Operation, Error> {
        let refuse = |reason: &str| Err(Error::Setup(reason.to_owned()));
        let [program] = setup.programs.as_slice() else {
            return refuse("the analytic model takes one program");
        };
        let code = code::compile(program, &setup.layout).map_err(Error::Program)?;
        let settings = &setup.settings;
        let cpus = setup.cpus.len();
        if cpus == 0 || cpus > settings.topology.cpus() {
            let most = settings.topology.cpus();
            return Err(Error::Setup(format!("{cpus} CPUs on a machine of {most}")));
        }
        let placement = Placement::new(&setup.layout, &settings.topology, cpus);
        let mut think = 0.0;
        let mut visits: BTreeMap<usize, Vec<(Access, Visit)>> = BTreeMap::new();
        // Each conditional stretch with its end, and how often it is entered.
        let mut stretches: Vec<(u32, f64)> = Vec::new();
        for (pc, instruction) in code.instructions.iter().enumerate() {
            stretches.retain(|&(end, _)| pc < end as usize);
            let share: f64 = stretches.iter().map(|(_, share)| share).product();
            match *instruction {
                Instruction::Chance { probability, otherwise } => {
                    stretches.push((otherwise, probability as f64 / 2f64.powi(32)));
                }
                Instruction::Every { period, otherwise, .. } => {
                    stretches.push((otherwise, 1.0 / f64::from(period)));
                }
                Instruction::Compute { cycles, .. } => {
                    think += share * cycles / settings.clock_ghz;
                }
                Instruction::Access(access)
                    if access.kind != Kind::Store
                        && access.action == Action::Nothing
                        && access.of.is_none() =>
                {
                    let writes = access.kind == Kind::Rmw;
                    let line = placement.line(access.field, 0);
                    let visit = Visit { at: think, share, writes };
                    visits.entry(line).or_default().push((access, visit));
                    let load = if access.second_cache {
                        settings.second_cache
                    } else {
                        settings.first_cache
                    };
                    let hit = match access.kind {
                        Kind::Load { overlapping: true } => settings.cycle,
                        Kind::Load { overlapping: false } => load,
                        _ => load + settings.atomic,
                    };
                    think += share * ns(hit);
                }
                Instruction::End => {}
                _ => {
                    return refuse(
                        "the analytic model knows computing, atomics and loads; simulate the rest",
                    );
                }
            }
        }
        let mut lines: Vec<Visited> = Vec::new();
        for (&number, of) in &visits {
            let field = of[0].0.field;
            let shares = |cpu: &usize| placement.line(field, *cpu as u32) == number;
            let sharing: Vec<usize> = (0..cpus).filter(shares).collect();
            // A line that one CPU alone uses, or that all CPUs only read, is never taken away.
            if sharing.len() < 2 || of.iter().all(|(_, visit)| !visit.writes) {
                continue;
            }
            // These CPUs stand for those of other sockets and groups, which must therefore be equally many.
            let sizes = sizes(&placement, field, cpus);
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            if least.zip(most).is_some_and(|(least, most)| 20 * (most - least) > *most) {
                return refuse("sockets or groups have different numbers of CPUs; simulate that");
            }
            let overlaps = |access: &Access| access.kind == (Kind::Load { overlapping: true });
            if settings.overlap > 0.0 && of.iter().any(|(access, _)| overlaps(access)) {
                return refuse("the analytic model knows no overlapping loads; simulate them");
            }
            let neighbour = placement.lines[number].neighbour;
            if settings.pair > 0.0
                && neighbour.is_some_and(|line| visits.contains_key(&(line as usize)))
            {
                return refuse("the analytic model fetches no neighbours of lines; simulate that");
            }
            let home = placement.lines[number].home;
            let visits = of.iter().map(|(_, visit)| *visit).collect();
            lines.push(Visited { home, cpus: sharing, visits });
        }
        let atomics: f64 = lines.iter().flat_map(|line| &line.visits).map(Visit::atomics).sum();
        if think * settings.clock_ghz < LEAST_CYCLES * atomics {
            return refuse("between two atomics lie less than 1 000 cycles; simulate that");
        }
        Ok(Operation { think, lines })
    }
}

/// Returns how many CPUs share each line on which a field lies.
fn sizes(placement: &Placement, field: FieldId, cpus: usize) -> Vec<usize> {
    let mut sizes = HashMap::new();
    for cpu in 0..cpus as u32 {
        *sizes.entry(placement.line(field, cpu)).or_insert(0) += 1;
    }
    sizes.into_values().collect()
}

impl Visit {
    /// Returns how often an operation writes to the line.
    pub(super) fn atomics(&self) -> f64 {
        if self.writes { self.share } else { 0.0 }
    }
}
