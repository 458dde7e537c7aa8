//! Turns a case's roles into programs, and its fields into one of the two layouts.

use super::{Case, Doing, Quantity, Role, What};
use crate::layout::{FieldId, Layout, Scope};
use crate::machine::Settings;
use crate::program::{Lock, Program, Step, deal};
use crate::simulate::Setup;

/// The assumptions about an operation at a point.
#[derive(Clone, Debug)]
pub(super) struct Assumed {
    pub settings: Settings,
    pub work_ns: f64,
    pub unknowns: Vec<f64>,
}

impl Assumed {
    fn quantity(&self, quantity: &Quantity) -> f64 {
        match quantity {
            Quantity::Number(number) => *number,
            Quantity::Unknown(which) => self.unknowns[*which],
        }
    }
}

/// Fields of the simulator; an array has one for each CPU.
struct Placed {
    fields: Vec<Vec<FieldId>>,
    next: FieldId,
    waiting: FieldId,
}

/// Returns the setup of the layout before (0) or after (1).
pub(super) fn setup(case: &Case, side: usize, cpus: usize, assumed: &Assumed) -> Setup {
    let mut layout = Layout::new();
    let object = layout.object(&case.name, Scope::Machine);
    let fields = case.fields.iter().map(|field| match field.strides {
        None => vec![layout.field(object, &field.name, field.offsets[side])],
        Some(strides) => {
            let at = |cpu| field.offsets[side] + element(cpu, cpus) as u64 * strides[side];
            (0..cpus).map(|cpu| layout.field(object, &field.name, at(cpu))).collect()
        }
    });
    let fields = fields.collect();
    let node = layout.object("node", Scope::Cpu);
    let next = layout.field(node, "next", 0);
    let placed = Placed { fields, next, waiting: layout.field(node, "waiting", 8) };
    let shares: Vec<f64> = case.roles.iter().map(|role| role.share).collect();
    let dealt = deal(&shares, cpus);
    // CPUs that have elements of their own have programs of their own.
    let own = case.fields.iter().any(|field| field.strides.is_some());
    let program = |role: &Role, cpu| {
        let mut steps = Vec::new();
        push(&role.steps, &placed, cpu, assumed, &mut steps);
        Program::new(&role.name, steps).outgrowing_first_cache()
    };
    let (programs, cpus) = if own {
        let programs = dealt.iter().enumerate();
        (
            programs.map(|(cpu, &role)| program(&case.roles[role], cpu)).collect(),
            (0..cpus).collect(),
        )
    } else {
        (case.roles.iter().map(|role| program(role, 0)).collect(), dealt)
    };
    let setup = Setup::uniform(assumed.settings.clone(), layout, Program::new("none", []), 1);
    Setup { programs, cpus, ..setup }
}

/// Returns the element of a CPU. The order in which CPUs took elements is not known, so neighbours in an array are
/// not neighbours on the machine.
pub(super) fn element(cpu: usize, cpus: usize) -> usize {
    let divides =
        |step: usize| (2..=step).any(|by| step.is_multiple_of(by) && cpus.is_multiple_of(by));
    let step = ((0.618 * cpus as f64) as usize..).find(|&step| step > 0 && !divides(step));
    cpu * step.expect("one past any number of CPUs divides nothing") % cpus
}

fn push(doings: &[Doing], placed: &Placed, cpu: usize, assumed: &Assumed, steps: &mut Vec<Step>) {
    for Doing { times, what } in doings {
        let mut once = Vec::new();
        one(what, placed, cpu, assumed, &mut once);
        let times = assumed.quantity(times);
        for _ in 0..times as usize {
            steps.extend(once.iter().cloned());
        }
        if times.fract() > 0.0 {
            steps.push(Step::chance(times.fract(), once));
        }
    }
}

fn one(what: &What, placed: &Placed, cpu: usize, assumed: &Assumed, steps: &mut Vec<Step>) {
    let clock = assumed.settings.clock_ghz;
    let of = |field: usize| {
        let fields = &placed.fields[field];
        if fields.len() == 1 { fields[0] } else { fields[cpu] }
    };
    let queue = |field| Lock::Queue { tail: of(field), next: placed.next, waiting: placed.waiting };
    match what {
        What::Work(share) => {
            let cycles = share * assumed.work_ns * clock;
            // Zero work needs no step.
            if cycles >= 1.0 {
                steps.push(Step::compute(cycles));
            }
        }
        What::Nanoseconds(ns) => steps.push(Step::compute((assumed.quantity(ns) * clock).max(1.0))),
        What::Load { field, overlapping, of_all } => {
            let all = &placed.fields[*field];
            let fields = if *of_all { all.clone() } else { vec![of(*field)] };
            steps.extend(fields.into_iter().map(|field| {
                if *overlapping { Step::load_overlapping(field) } else { Step::load(field) }
            }));
        }
        What::Store(field) => steps.push(Step::store(of(*field))),
        What::Atomic(field) => steps.push(Step::rmw(of(*field))),
        What::Acquire(field) => steps.push(Step::Acquire(queue(*field))),
        What::Release(field) => steps.push(Step::Release(queue(*field))),
        What::Lock(field) => steps.push(Step::Acquire(Lock::TestAndSet { word: of(*field) })),
        What::Unlock(field) => steps.push(Step::Release(Lock::TestAndSet { word: of(*field) })),
        What::Together(doings) => push(doings, placed, cpu, assumed, steps),
    }
}
