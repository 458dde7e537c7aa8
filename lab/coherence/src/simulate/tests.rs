use super::*;
use crate::layout::{FieldId, Layout, Scope};
use crate::machine::{Machine, Topology};
use crate::program::{Lock, Spread, Step, When};
use proptest::prelude::*;

mod lines;

fn settings() -> Settings {
    Machine::built_in("haswell-ep-2699v3").unwrap().best()
}

/// Returns fields for random programs, and lock nodes. The fields lie on shared lines and pairs, in objects of
/// sockets, groups and CPUs, and in a row.
fn playground() -> (Layout, Vec<FieldId>, Vec<Lock>) {
    let mut layout = Layout::new();
    let shared = layout.object("shared", Scope::Machine);
    let socket = layout.object_at("socket", Scope::Socket, 64);
    let group = layout.object("group", Scope::Groups(3));
    let own = layout.object("own", Scope::Cpu);
    let row = layout.object_at("row", Scope::Row(40), 16);
    let node = layout.object("node", Scope::Cpu);
    let mut fields: Vec<FieldId> = [0, 8, 64, 128]
        .iter()
        .map(|&offset| layout.field(shared, &format!("s{offset}"), offset))
        .collect();
    fields.push(layout.field(socket, "k", 0));
    fields.push(layout.field(socket, "l", 64));
    fields.push(layout.field(group, "g", 0));
    fields.push(layout.field(own, "o", 0));
    fields.push(layout.field(own, "p", 64));
    fields.push(layout.field(row, "q", 0));
    fields.push(layout.field(row, "r", 32));
    let next = layout.field(shared, "next", 256);
    let serving = layout.field(shared, "serving", 264);
    let word = layout.field(shared, "word", 320);
    let tail = layout.field(shared, "tail", 384);
    let after = layout.field(node, "after", 0);
    let waiting = layout.field(node, "waiting", 8);
    let locks = vec![
        Lock::Ticket { next, serving },
        Lock::TestAndSet { word },
        Lock::Queue { tail, next: after, waiting },
    ];
    (layout, fields, locks)
}

fn step() -> impl Strategy<Value = Step> {
    let (_, fields, locks) = playground();
    let field = prop::sample::select(fields);
    let spread = prop_oneof![
        Just(Spread::Fixed),
        Just(Spread::Exponential),
        (0.0..1.0).prop_map(Spread::Uniform),
        (0.0..1.0).prop_map(Spread::Beside)
    ];
    let leaf = prop_oneof![
        (0.0..800.0, spread).prop_map(|(cycles, spread)| Step::Compute { cycles, spread }),
        (field.clone(), any::<bool>())
            .prop_map(|(field, overlapping)| Step::Load { field, overlapping }),
        field.clone().prop_map(Step::Store),
        field.clone().prop_map(Step::Rmw),
        (field.clone(), 0.0..50.0).prop_map(|(field, cycles)| Step::CompareSwap { field, cycles }),
    ];
    leaf.prop_recursive(2, 12, 4, move |inner| {
        let steps = prop::collection::vec(inner, 1..4);
        let when = prop_oneof![(0.0..1.0).prop_map(When::Chance), (1u32..9).prop_map(When::Every)];
        let locked =
            (prop::sample::select(locks.clone()), steps.clone()).prop_map(|(lock, inside)| {
                let mut steps = vec![Step::Acquire(lock)];
                // No lock is taken twice, so the steps inside are plain.
                steps.extend(inside.into_iter().filter(plain));
                steps.push(Step::Release(lock));
                Step::Sometimes { when: When::Every(1), steps }
            });
        prop_oneof![
            (when, steps.clone()).prop_map(|(when, steps)| Step::Sometimes { when, steps }),
            locked,
        ]
    })
}

fn plain(step: &Step) -> bool {
    !matches!(step, Step::Sometimes { .. } | Step::Acquire(_) | Step::Release(_))
}

prop_compose! {
    fn random_settings()(
        sockets in 1usize..4, complexes in 1usize..3, cores in 1usize..4, threads in 1usize..3,
        hops in 1usize..3, times in prop::collection::vec(500u64..200_000, 16),
        handover in 0.1..1.0f64, pair in prop::sample::select(vec![0.0, 0.5, 1.0]),
        overlap in 0.0..1.0f64, store_buffer in 1u32..5, keep in 0u64..50_000, read in 0u64..20_000,
        request in prop::sample::select(vec![0.0, 0.3, 1.0]), migratory in any::<bool>(),
        keep_spread in prop::sample::select(vec![0.0, 0.4]), upgrade_keep in 0.0..1.0f64,
        early_request in any::<bool>(), moved in 0u64..20_000,
        closing in 0u64..20_000, window in 0u64..100_000, behind in 0u64..60_000, ahead in 0u64..300_000,
        lead in prop::sample::select(vec![0, 5_000, 60_000, 400_000]), flush in 0u64..10_000,
    ) -> Settings {
        let mut times = times.into_iter();
        let mut time = || times.next().unwrap();
        Settings {
            topology: Topology {
                sockets, complexes_per_socket: complexes, cores_per_complex: cores,
                threads_per_core: threads, hops,
            },
            first_cache: time(), second_cache: time(),
            transfer: [[time(), time()], [time(), time()], [time(), time()], [time(), time()],
                [time(), time()]],
            homed_at_reader: time(), memory: [time(), time()], atomic: time(),
            handover, read_service: read, keep, pair, overlap, store_buffer, request, migratory,
            keep_spread, upgrade_keep, early_request, moved, closing, behind, ahead, window, lead, flush,
            ..settings()
        }
    }
}

prop_compose! {
    fn random_setup()(
        settings in random_settings(),
        programs in prop::collection::vec(
            (prop::collection::vec(step(), 1..7), any::<bool>(), any::<bool>()), 1..3),
        cpus in 1usize..20, seed in any::<u64>(),
    ) -> Setup {
        let (layout, fields, _) = playground();
        let programs: Vec<Program> = programs.into_iter().map(|(mut steps, outgrows, knows)| {
            steps.push(Step::Load { field: fields[0], overlapping: false });
            let program = Program::new("random", steps);
            let program = Program { knows_places: knows, ..program };
            if outgrows { program.outgrowing_first_cache() } else { program }
        }).collect();
        let cpus = cpus.min(settings.topology.cpus());
        let which = (0..cpus).map(|cpu| cpu % programs.len()).collect();
        Setup { settings, layout, programs, cpus: which, seed,
            window: Window { from_ns: 2_000.0, to_ns: 30_000.0 } }
    }
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 400))]

    #[test]
    fn the_engine_equals_the_plain_rules_bit_for_bit(setup in random_setup()) {
        let outcome = setup.run();
        prop_assert_eq!(&outcome, &oracle::run(&setup));
        // Locks that are released never leave all CPUs waiting.
        prop_assert!(outcome.is_ok());
    }

    #[test]
    fn the_engine_equals_the_plain_rules_where_much_happens_at_once(
        setup in random_setup(), reads in prop::collection::vec(0usize..9, 1..8), period in 1u32..20,
    ) {
        // Every time is a multiple of one nanosecond, and readers run far ahead of rare writers.
        let mut setup = setup;
        let settings = &mut setup.settings;
        settings.clock_ghz = 1.0;
        settings.cycle = 1_000;
        let coarse = |time: &mut u64| *time = (*time / 20_000) * 1_000;
        settings.transfer.iter_mut().flatten().for_each(coarse);
        settings.memory.iter_mut().for_each(coarse);
        for time in [&mut settings.homed_at_reader, &mut settings.atomic, &mut settings.keep,
            &mut settings.first_cache, &mut settings.second_cache] {
            coarse(time);
        }
        // An operation that takes no time at all would never end; `Setup` refuses it.
        for time in [&mut settings.first_cache, &mut settings.second_cache]
            .into_iter()
            .chain(settings.transfer.iter_mut().flatten())
        {
            *time = (*time).max(1_000);
        }
        settings.read_service = (settings.read_service / 5_000) * 1_000;
        (settings.handover, settings.overlap) = (1.0, settings.overlap.round());
        let (_, fields, _) = playground();
        let fixed = |cycles| Step::Compute { cycles, spread: Spread::Fixed };
        let written = fields[reads.len() % fields.len()];
        let loads = reads.iter().flat_map(|&read| [fixed(2.0), Step::load(fields[read])]);
        let mut steps: Vec<Step> = [fixed(1.0)].into_iter().chain(loads).collect();
        steps.push(Step::every(period, [if period % 2 == 0 {
            Step::store(written)
        } else {
            Step::rmw(written)
        }]));
        setup.programs[0] = Program::new("read and write", steps);
        let outcome = setup.run();
        prop_assert_eq!(&outcome, &oracle::run(&setup));
        prop_assert!(outcome.is_ok());
    }

    #[test]
    fn the_same_seed_gives_the_same_bits(setup in random_setup()) {
        prop_assert_eq!(setup.run(), setup.run());
    }
}

/// Returns a setup in which all CPUs add to one counter after some work.
fn counter(cpus: usize, cycles: f64, threshold: u32) -> Setup {
    let mut layout = Layout::new();
    let object = layout.object("object", Scope::Machine);
    let usage = layout.field(object, "usage", 0);
    let steps = [Step::compute(cycles), Step::every(threshold, [Step::rmw(usage)])];
    Setup::uniform(settings(), layout, Program::new("count", steps), cpus)
}

#[test]
fn one_cpu_pays_what_its_steps_cost() {
    let outcome = counter(1, 1000.0, 1).during(1_000.0, 2_000_000.0).run().unwrap();
    let expected = 1000.0 / 2.3 + 1.6 + 5.6;
    assert!((outcome.nanoseconds() / expected - 1.0).abs() < 0.002, "{}", outcome.nanoseconds());
    assert!(outcome.lines.is_empty() && outcome.stalled == 0);
}

#[test]
fn two_cpus_that_hammer_pass_the_line_to_and_fro() {
    let mut setup = counter(2, 0.0, 1);
    (setup.settings.keep, setup.settings.handover, setup.settings.atomic) = (0, 0.9, 0);
    let outcome = setup.run().unwrap();
    // For each operation, the part of a modified transfer within the socket that keeps the line busy.
    let apart = outcome.picoseconds as f64 / outcome.total() as f64;
    assert!((apart / 42_300.0 - 1.0).abs() < 0.01, "{apart}");
}

#[test]
fn an_owner_that_keeps_a_line_does_several_operations_a_visit() {
    let mut setup = counter(16, 0.0, 1);
    setup.settings.keep = 0;
    let hasty = setup.run().unwrap();
    setup.settings.keep = 40_000;
    let kept = setup.run().unwrap();
    let per_visit = |outcome: &Outcome| outcome.total() as f64 / outcome.lines[0].transfers as f64;
    assert!(per_visit(&hasty) < 1.5, "{}", per_visit(&hasty));
    assert!(per_visit(&kept) > 4.0, "{}", per_visit(&kept));
}

#[test]
fn more_cpus_never_move_a_counter_less() {
    let mut last = 0;
    for cpus in [1, 2, 4, 8, 18, 36, 72] {
        let outcome = counter(cpus, 2000.0, 4).during(20_000.0, 200_000.0).run().unwrap();
        let transfers = outcome.lines.iter().map(|line| line.transfers).sum::<u64>();
        assert!(transfers >= last, "{cpus} CPUs: {transfers} after {last}");
        last = transfers;
    }
}

#[test]
fn a_wider_batch_never_costs_more() {
    let mut last = f64::MAX;
    for threshold in [1, 4, 16, 64, 256] {
        let outcome = counter(72, 500.0, threshold).during(20_000.0, 300_000.0).run().unwrap();
        assert!(outcome.nanoseconds() < last, "batch {threshold}");
        last = outcome.nanoseconds();
    }
}

#[test]
fn time_is_conserved() {
    // In the window CPUs work or stand still, and do nothing else.
    let mut setup = counter(36, 800.0, 1).during(50_000.0, 1_050_000.0);
    setup.programs[0].steps[0] = Step::Compute { cycles: 800.0, spread: Spread::Fixed };
    let outcome = setup.run().unwrap();
    let hits = outcome.total().saturating_sub(outcome.lines[0].transfers);
    let working = outcome.total() as f64 * (800.0 / 2.3 + 5.6) + hits as f64 * 1.6;
    let accounted = working * 1000.0 + outcome.stalled as f64;
    let all = (outcome.picoseconds * 36) as f64;
    assert!((accounted / all - 1.0).abs() < 0.005, "{accounted} of {all}");
}

#[test]
fn blame_names_the_written_field_and_the_one_that_waits_for_it() {
    let mut layout = Layout::new();
    let object = layout.object("object", Scope::Machine);
    let usage = layout.field(object, "usage", 0);
    let limit = layout.field(object, "limit", 8);
    let steps = [Step::compute(2000.0), Step::load(limit), Step::every(16, [Step::rmw(usage)])];
    let setup = Setup::uniform(settings(), layout, Program::new("charge", steps), 36);
    let outcome = setup.run().unwrap();
    assert_eq!((outcome.blame[0].writer, outcome.blame[0].victim), (usage, limit));
}

#[test]
fn a_neighbour_line_costs_what_the_pair_probability_says() {
    let cost = |pair: f64, offset: u64| {
        let mut layout = Layout::new();
        let object = layout.object("object", Scope::Machine);
        let written = layout.field(object, "written", 0);
        let read = layout.field(object, "read", offset);
        let steps = [Step::compute(2000.0), Step::load(read), Step::every(8, [Step::rmw(written)])];
        let setup = Setup::uniform(settings(), layout, Program::new("p", steps), 36);
        let mut setup = setup.during(5_000.0, 100_000.0);
        setup.settings.pair = pair;
        setup.run().unwrap().nanoseconds()
    };
    let (alone, neighbour, far) = (cost(0.0, 64), cost(1.0, 64), cost(1.0, 128));
    assert!((alone / far - 1.0).abs() < 0.01, "{alone} {far}");
    assert!(neighbour > 1.05 * far, "{neighbour} {far}");
}

#[test]
fn a_deeper_store_buffer_hides_more_of_what_stores_cost() {
    let cost = |entries: u32| {
        let mut layout = Layout::new();
        let steps: Vec<Step> = (0..4)
            .map(|index| {
                let object = layout.object("object", Scope::Machine);
                Step::store(layout.field(object, &format!("field {index}"), 0))
            })
            .chain([Step::compute(3000.0)])
            .collect();
        let mut setup = Setup::uniform(settings(), layout, Program::new("store", steps), 16);
        setup.settings.store_buffer = entries;
        setup.run().unwrap().nanoseconds()
    };
    let work = 3000.0 / 2.3;
    assert!(cost(1) > 1.02 * cost(4), "{} {}", cost(1), cost(4));
    assert!(cost(4) < 1.02 * work, "{} {work}", cost(4));
}

#[test]
fn overlap_hides_its_share_of_a_readers_wait() {
    let stalled = |overlap: f64| {
        let mut layout = Layout::new();
        let object = layout.object("object", Scope::Machine);
        let field = layout.field(object, "field", 0);
        let read = Step::load_overlapping(field);
        let reader = Program::new("read", [Step::compute(1000.0), read]);
        let writer = Program::new("write", [Step::compute(500.0), Step::rmw(field)]);
        let setup = Setup::uniform(settings(), layout, reader, 2);
        let mut setup = setup.during(5_000.0, 500_000.0);
        setup.programs.push(writer);
        setup.cpus[1] = 1;
        setup.settings.overlap = overlap;
        setup.run().unwrap().nanoseconds_of(0) - 1000.0 / 2.3
    };
    let (whole, half) = (stalled(0.0), stalled(0.5));
    assert!((0.4..0.7).contains(&(half / whole)), "{half} of {whole}");
}

/// Runs CPUs that take a lock, add to the fields that it protects, and release it.
fn locked(lock: usize, cpus: usize) -> Outcome {
    let (layout, fields, locks) = playground();
    let lock = locks[lock];
    let steps = [
        Step::compute(500.0),
        Step::Acquire(lock),
        Step::load(fields[3]),
        Step::store(fields[3]),
        Step::compute(100.0),
        Step::Release(lock),
    ];
    Setup::uniform(settings(), layout, Program::new("locked", steps), cpus).run().unwrap()
}

#[test]
fn a_lock_lets_in_one_at_a_time() {
    for lock in 0..3 {
        for cpus in [1, 2, 8, 72] {
            let outcome = locked(lock, cpus);
            // The work under the lock alone, 90 cycles at the least, cannot overlap.
            let least = outcome.total() as f64 * 90.0 / 2.3 * 1000.0;
            assert!(least <= outcome.picoseconds as f64, "lock {lock}, {cpus} CPUs");
            // The release of a test-and-set lock waits behind all CPUs that have just failed to take it: few get in.
            assert!(outcome.total() > 2, "lock {lock}, {cpus} CPUs: {}", outcome.total());
        }
    }
}

#[test]
fn a_queue_lock_outdoes_a_ticket_lock_when_many_wait() {
    let (ticket, queue) = (locked(0, 72), locked(2, 72));
    assert!(queue.total() > 2 * ticket.total(), "{} {}", queue.total(), ticket.total());
}

#[test]
fn a_sequence_reader_reads_again_when_a_writer_comes_between() {
    let mut layout = Layout::new();
    let object = layout.object("object", Scope::Machine);
    let sequence = layout.field(object, "sequence", 0);
    let data = layout.field(object, "data", 64);
    let read = Step::ReadSequence { sequence, steps: vec![Step::load(data), Step::compute(200.0)] };
    let write =
        Step::WriteSequence { sequence, steps: vec![Step::store(data), Step::compute(50.0)] };
    let reader = Program::new("reader", [Step::compute(300.0), read]);
    let writer = Program::new("writer", [Step::compute(2000.0), write]);
    let run = |writers: usize| {
        let mut setup = Setup::uniform(settings(), layout.clone(), reader.clone(), 16);
        setup.programs.push(writer.clone());
        setup.cpus[..writers].fill(1);
        setup.run().unwrap()
    };
    let (quiet, busy) = (run(0), run(1));
    let slower = busy.nanoseconds_of(0) / quiet.nanoseconds_of(0);
    assert!(slower > 1.1, "{slower}");
    // A reading that no writer disturbs takes three accesses; some of the others take more.
    assert_eq!(quiet.accesses, 3 * quiet.total());
    let undisturbed = 3 * busy.operations[0] + 3 * busy.operations[1];
    assert!(busy.accesses > undisturbed, "{} {undisturbed}", busy.accesses);
}

#[test]
fn cpus_that_wait_for_each_other_for_ever_are_an_error() {
    let (layout, _, locks) = playground();
    let steps = [Step::compute(10.0), Step::Acquire(locks[1])];
    let setup = Setup::uniform(settings(), layout, Program::new("greedy", steps), 2);
    assert!(matches!(setup.run(), Err(Error::Stuck { .. })));
}

#[test]
fn a_setup_that_means_nothing_is_refused_in_a_line() {
    let line = |setup: &Setup| setup.run().unwrap_err().to_string();
    let good = counter(4, 100.0, 1);
    let many = Setup { cpus: vec![0; 100], ..good.clone() };
    assert_eq!(line(&many), "100 CPUs are asked for; the machine has 1 to 72");
    let backwards = good.clone().during(5.0, 5.0);
    assert_eq!(
        line(&backwards),
        "a window of 5 to 5 ns; it begins at 0 or later and ends within a second"
    );
    for forget in [
        (|settings| settings.second_cache = 0) as fn(&mut Settings),
        |settings| settings.first_cache = 0,
        |settings| settings.cycle = 0,
        |settings| settings.transfer[2][1] = 0,
    ] {
        let mut timeless = good.clone();
        forget(&mut timeless.settings);
        assert_eq!(
            line(&timeless),
            "a cycle, a hit or a transfer takes less than a picosecond; operations that take no time \
             never end"
        );
    }
    let mut wide = good.clone();
    let object = wide.layout.object("wide", Scope::Machine);
    for field in 0..5000 {
        wide.layout.field(object, "field", 8 * field);
    }
    assert_eq!(line(&wide), "5001 fields; give the 4096 that matter most");
    let empty = Setup { programs: vec![Program::new("idle", [])], ..good.clone() };
    assert_eq!(line(&empty), "program `idle`: an operation takes no time; give it a step");
    let negative = Setup { programs: vec![Program::new("n", [Step::compute(-1.0)])], ..good };
    assert_eq!(
        line(&negative),
        "program `n`: computing takes -1 cycles; it takes 0 to 1000000000000"
    );
}

#[test]
fn a_thousand_cpus_are_simulated() {
    let mut setup = counter(72, 3000.0, 8);
    setup.settings.topology = setup.settings.topology.grown_to(1024);
    setup.cpus = vec![0; 1024];
    let outcome = setup.run().unwrap();
    assert!(outcome.total() > 1024);
}
