//! Published layout changes as rough sketches: each gets the right sign at every design point. `published.rs` has
//! cases with sources, assumptions and figures.
//!
//! A case is data: the fields of one object with offsets before and after, the accesses of a CPU, the number of CPUs.

use ledgerline_coherence::layout::{FieldId, Layout, Scope};
use ledgerline_coherence::machine::Machine;
use ledgerline_coherence::program::{Lock, Program, Step};
use ledgerline_coherence::simulate::Setup;

struct Case {
    name: &'static str,
    machine: &'static str,
    cpus: usize,
    /// Field, its offset in the worse layout, its offset in the better one.
    fields: &'static [(&'static str, u64, u64)],
    steps: fn(&[FieldId]) -> Vec<Step>,
}

const CASES: &[Case] = &[
    // Linux 408587baee39, one level: the counter that is written moves away from the limits that are read.
    Case {
        name: "page_counter split",
        machine: "haswell-ep-2699v3",
        cpus: 72,
        fields: &[("usage", 0, 0), ("high", 24, 144), ("max", 32, 152), ("parent", 104, 160)],
        steps: |f| {
            let charge = [Step::rmw(f[0]), Step::load(f[2]), Step::load(f[3]), Step::load(f[1])];
            vec![Step::compute(4_000.0), Step::chance(0.5, charge), Step::load(f[1])]
        },
    },
    // Linux 4df910620beb: pointers are read, and the other line of their pair is written.
    Case {
        name: "mem_cgroup, adjacent lines",
        machine: "four-socket-144",
        cpus: 144,
        fields: &[("vmstats_percpu", 128, 384), ("vmstats", 192, 192)],
        steps: |f| {
            let count = [Step::load(f[0]), Step::every(64, [Step::rmw(f[1])])];
            [Step::compute(4_000.0)].into_iter().chain(count).collect()
        },
    },
    // Linux 374767adea42: a contended lock shares a line with fields that are read without it, `task_size` and `pgd`,
    // and one that is written under it, `map_count`. CPUs that wait queue up, like optimistic spinners of a rwsem.
    Case {
        name: "mmap_lock isolated",
        machine: "four-socket-144",
        cpus: 144,
        fields: &[("osq", 64, 0), ("map_count", 72, 128), ("task_size", 80, 136), ("pgd", 88, 144)],
        steps: |f| {
            let lock = Lock::Queue { tail: f[0], next: f[4], waiting: f[5] };
            vec![
                Step::compute(2_000.0),
                Step::load(f[2]),
                Step::Acquire(lock),
                Step::load(f[1]),
                Step::store(f[1]),
                Step::compute(300.0),
                Step::Release(lock),
                Step::load(f[3]),
            ]
        },
    },
    // Linux 14006f1d8fa2: the fields that one path reads lie on fewer lines. No other CPU writes them, and they have
    // left the first cache by the time the next packet comes.
    Case {
        name: "fields of a path gathered on fewer lines",
        machine: "skylake-sp-8180",
        cpus: 56,
        fields: &[
            ("a", 0, 0),
            ("b", 64, 8),
            ("c", 128, 16),
            ("d", 192, 24),
            ("e", 256, 32),
            ("f", 320, 40),
        ],
        steps: |f| {
            [Step::compute(500.0)]
                .into_iter()
                .chain(f[..6].iter().copied().map(Step::load))
                .collect()
        },
    },
];

fn nanoseconds(case: &Case, better: bool, point: usize) -> f64 {
    let machine = Machine::built_in(case.machine).unwrap();
    let mut layout = Layout::new();
    let object = layout.object(case.name, Scope::Machine);
    let mut fields: Vec<FieldId> = case
        .fields
        .iter()
        .map(|&(name, worse, good)| layout.field(object, name, if better { good } else { worse }))
        .collect();
    // Each CPU's node in the queue of a lock comes after the case's own fields.
    let node = layout.object("node", Scope::Cpu);
    fields.extend([layout.field(node, "next", 0), layout.field(node, "waiting", 8)]);
    let program = Program::new(case.name, (case.steps)(&fields)).outgrowing_first_cache();
    let settings = machine.design(8)[point].clone();
    let setup = Setup::uniform(settings, layout, program, case.cpus);
    setup.during(20_000.0, 220_000.0).run().unwrap().nanoseconds()
}

#[test]
fn every_published_case_gets_the_right_sign_at_every_design_point() {
    for case in CASES {
        for point in 0..8 {
            let (worse, better) = (nanoseconds(case, false, point), nanoseconds(case, true, point));
            assert!(worse > 1.005 * better, "{}, point {point}: {worse} {better}", case.name);
        }
    }
}
