use super::*;
use crate::layout::{Layout, Scope};
use crate::machine::{BUILT_IN, Machine, Settings};
use crate::program::{Program, Spread, Step};
use crate::random::Random;
use crate::simulate::Setup;
use proptest::prelude::*;

/// Returns the cycle by the machine-repair formula, for one exponential server and customers with exponential think
/// times.
fn repair(think: f64, service: f64, customers: usize) -> f64 {
    let load = service / think;
    let (mut term, mut sum) = (1.0, 1.0);
    for waiting in 0..customers {
        term *= (customers - waiting) as f64 * load;
        sum += term;
    }
    (1.0 - 1.0 / sum) / service
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn one_exponential_server_follows_the_machine_repair_formula(
        think in 10.0..1000.0f64, service in 1.0..100.0f64, customers in 1usize..100,
    ) {
        let station = Station { visits: 1.0, service, variation: 1.0 };
        let solution = solve(think, &[station], customers);
        let exact = repair(think, service, customers);
        prop_assert!((solution.throughput / exact - 1.0).abs() < 1e-9);
    }

    #[test]
    fn customers_are_conserved_and_no_server_is_more_than_busy(
        think in 0.0..1000.0f64,
        stations in prop::collection::vec((0.1..3.0f64, 1.0..100.0f64, 0.0..1.0f64), 1..6),
        customers in 1usize..100,
    ) {
        let stations: Vec<Station> = stations.into_iter()
            .map(|(visits, service, variation)| Station { visits, service, variation })
            .collect();
        let solution = solve(think, &stations, customers);
        // Little's law gives the number of thinking customers; every customer thinks or queues.
        let thinking = solution.throughput * think;
        let all = thinking + solution.queues.iter().sum::<f64>();
        prop_assert!((all / customers as f64 - 1.0).abs() < 1e-9);
        let dearest = stations.iter().map(|s| s.visits * s.service).fold(0.0, f64::max);
        prop_assert!(solution.throughput * dearest <= 1.0 + 1e-9);
    }
}

#[test]
fn it_agrees_with_the_simulation_within_five_per_cent() {
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let mut worst: (f64, String) = (0.0, String::new());
    for cpus in [2, 4, 9, 18, 36, 72] {
        for work in [1_000.0, 2_000.0, 8_000.0, 20_000.0] {
            for batch in [1, 4] {
                for spread in [Spread::Exponential, Spread::Uniform(0.5)] {
                    let mut layout = Layout::new();
                    let object = layout.object("object", Scope::Machine);
                    let usage = layout.field(object, "usage", 0);
                    let compute = Step::Compute { cycles: work, spread };
                    let count = Step::chance(1.0 / f64::from(batch), [Step::rmw(usage)]);
                    let program = Program::new("count", [compute, count]);
                    let setup = Setup::uniform(machine.best(), layout, program, cpus)
                        .during(20_000.0, 60_000_000.0 / cpus as f64);
                    let simulated = setup.run().unwrap().nanoseconds();
                    let error = (nanoseconds(&setup).unwrap() / simulated - 1.0).abs();
                    if error > worst.0 {
                        worst = (error, format!("{cpus} CPUs, {work} cycles, {batch}, {spread:?}"));
                    }
                }
            }
        }
    }
    assert!(worst.0 < 0.05, "{worst:?}");
}

/// Returns a program's cost by the model over its cost by the simulation, less one; `None` where the model does not
/// apply.
fn error(setup: &Setup) -> Option<f64> {
    let model = nanoseconds(setup).ok()?;
    Some(model / setup.run().unwrap().nanoseconds() - 1.0)
}

#[test]
fn readers_of_a_line_that_is_written_now_and_then_agree_within_five_per_cent() {
    let (mut worst, mut applied): ((f64, String), u32) = ((0.0, String::new()), 0);
    for name in ["haswell-ep-2699v3", "epyc-milan", "skylake-sp-8180", "four-socket-144"] {
        let machine = Machine::built_in(name).unwrap();
        for cpus in [2, 8, 18, 36, 64, 96] {
            if cpus > machine.topology.cpus() {
                continue;
            }
            for work in [1_000.0, 3_000.0, 10_000.0] {
                for every in [4.0, 16.0, 64.0, 256.0] {
                    let mut layout = Layout::new();
                    let object = layout.object("object", Scope::Machine);
                    let usage = layout.field(object, "usage", 0);
                    let limit = layout.field(object, "limit", 8);
                    let steps = [
                        Step::compute(work),
                        Step::load(limit),
                        Step::compute(work / 4.0),
                        Step::load(limit),
                        Step::chance(1.0 / every, [Step::rmw(usage)]),
                    ];
                    let program = Program::new("charge", steps);
                    let setup = Setup::uniform(machine.best(), layout, program, cpus)
                        .during(20_000.0, 20_000.0 + 60_000_000.0 / cpus as f64);
                    let Some(error) = error(&setup) else { continue };
                    applied += 1;
                    if error.abs() > worst.0 {
                        let place = format!("{name}, {cpus} CPUs, {work} cycles, one in {every}");
                        worst = (error.abs(), place);
                    }
                }
            }
        }
    }
    assert!(applied >= 150, "{applied}");
    assert!(worst.0 < 0.05, "{worst:?}");
}

#[test]
fn several_lines_of_all_of_a_socket_and_of_one_cpu_agree_within_five_per_cent() {
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let (mut worst, mut applied): ((f64, String), u32) = ((0.0, String::new()), 0);
    for cpus in [4, 18, 36, 72] {
        for work in [4_000.0, 8_000.0, 12_000.0, 40_000.0] {
            let mut layout = Layout::new();
            let scopes = [Scope::Machine, Scope::Socket, Scope::Groups(2), Scope::Cpu];
            let fields = scopes.map(|scope| {
                let object = layout.object("object", scope);
                layout.field(object, "count", 0)
            });
            let steps =
                fields.into_iter().flat_map(|field| [Step::compute(work / 4.0), Step::rmw(field)]);
            let program = Program::new("count", steps);
            let setup = Setup::uniform(machine.best(), layout, program, cpus)
                .during(20_000.0, 20_000.0 + 60_000_000.0 / cpus as f64);
            let Some(error) = error(&setup) else { continue };
            applied += 1;
            if error.abs() > worst.0 {
                worst = (error.abs(), format!("{cpus} CPUs, {work} cycles"));
            }
        }
    }
    assert!(applied >= 9, "{applied}");
    assert!(worst.0 < 0.05, "{worst:?}");
}

#[test]
fn what_it_does_not_know_it_refuses() {
    let mut layout = Layout::new();
    let object = layout.object("object", Scope::Machine);
    let limit = layout.field(object, "limit", 0);
    let beside = layout.field(object, "beside", 64);
    let object = layout.object("zone", Scope::Socket);
    let socket = layout.field(object, "count", 0);
    let settings = Machine::built_in("haswell-ep-2699v3").unwrap().best();
    let refusal = |steps: Vec<Step>, cpus| {
        let program = Program::new("program", steps);
        let setup = Setup::uniform(settings.clone(), layout.clone(), program, cpus);
        nanoseconds(&setup).unwrap_err().to_string()
    };
    let (work, count) = (Step::compute(2_000.0), Step::rmw(limit));
    assert_eq!(
        refusal(vec![Step::store(limit)], 4),
        "the analytic model knows computing, atomics and loads; simulate the rest"
    );
    assert_eq!(
        refusal(vec![work.clone(), Step::load_overlapping(limit), count.clone()], 4),
        "the analytic model knows no overlapping loads; simulate them"
    );
    assert_eq!(
        refusal(vec![work.clone(), Step::load(beside), count.clone()], 4),
        "the analytic model fetches no neighbours of lines; simulate that"
    );
    assert_eq!(
        refusal(vec![Step::compute(900.0), count.clone()], 4),
        "between two atomics lie less than 1 000 cycles; simulate that"
    );
    assert_eq!(
        refusal(vec![work.clone(), Step::rmw(socket)], 30),
        "sockets or groups have different numbers of CPUs; simulate that"
    );
    assert_eq!(
        refusal(vec![work, Step::load(limit), count], 72),
        "readers of a line, or visitors of several, queue too often; simulate that"
    );
}

#[test]
fn what_nobody_takes_away_costs_what_it_computes() {
    let mut layout = Layout::new();
    let fields = [Scope::Machine, Scope::Cpu].map(|scope| {
        let object = layout.object("object", scope);
        layout.field(object, "field", 0)
    });
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let steps = [Step::compute(100.0), Step::load(fields[0]), Step::rmw(fields[1])];
    let setup = Setup::uniform(machine.best(), layout, Program::new("own", steps), 72);
    let error = nanoseconds(&setup).unwrap() / setup.run().unwrap().nanoseconds() - 1.0;
    assert!(error.abs() < 0.01, "{error}");
}

/// Returns a random program of computing, loads and atomics on one to four objects, on `cpus` CPUs of a machine.
fn drawn(random: &mut Random) -> Setup {
    let names = BUILT_IN.map(|(name, _)| name);
    let machine = Machine::built_in(names[random.below(names.len() as u32) as usize]).unwrap();
    let settings = machine.design(40)[random.below(40) as usize].clone();
    let settings = Settings { overlap: 0.0, ..settings };
    let cpus = 1 + random.below(settings.topology.cpus() as u32) as usize;
    let mut layout = Layout::new();
    let mut steps = Vec::new();
    for _ in 0..1 + random.below(4) {
        let groups = Scope::Groups(2 + random.below(5) as usize);
        let scopes = [Scope::Machine, Scope::Socket, groups, Scope::Cpu];
        let object = layout.object("object", scopes[random.below(4) as usize]);
        let field = layout.field(object, "field", 0);
        for _ in 0..random.below(3) {
            steps.push(Step::compute(f64::from(200 + random.below(4_000))));
            steps.push(Step::load(field));
        }
        let chance = [1.0, 0.5, 0.1, 0.01][random.below(4) as usize];
        steps.push(Step::compute(f64::from(200 + random.below(8_000))));
        steps.push(Step::chance(chance, [Step::rmw(field)]));
    }
    Setup::uniform(settings, layout, Program::new("drawn", steps), cpus)
        .during(50_000.0, 50_000.0 + 60_000_000.0 / cpus as f64)
}

#[test]
fn whatever_it_answers_about_random_programs_agrees_within_five_per_cent() {
    let mut random = Random::stream(1, 2);
    let mut answered = 0;
    for case in 0..600 {
        let setup = drawn(&mut random);
        let Some(error) = error(&setup) else { continue };
        answered += 1;
        let what = || format!("{case}: {error:+.3} {:?} on {}", setup.programs, setup.cpus.len());
        assert!(error.abs() < 0.05, "{}", what());
    }
    assert!(answered >= 100, "{answered}");
}
