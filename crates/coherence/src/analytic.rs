//! The analytic twin: a closed network of queues, one a line, solved by mean-value analysis.
//!
//! CPUs are the customers, computing is the thinking, a contended line is a server that serves in order of
//! arrival. It takes microseconds where the simulation takes a fraction of a second, knows averages alone,
//! and speaks of atomics: what readers do to a written line is the simulation's business.
//!
//! ```
//! use ledgerline_coherence::analytic::{Station, solve};
//! // Four CPUs, a line that serves each for 50 ns, 500 ns of work between two visits.
//! let line = Station { visits: 1.0, service: 50.0, variation: 1.0 };
//! let solution = solve(500.0, &[line], 4);
//! assert!(solution.cycle > 550.0 && solution.cycle < 600.0);
//! ```

use crate::code::{self, Access, Code, Instruction, Kind};
use crate::layout::Placement;
use crate::machine::Distance;
use crate::simulate::{Error, Setup};

/// A server that customers queue for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// How often a customer comes in a cycle.
    pub visits: f64,
    /// How long it serves, in nanoseconds.
    pub service: f64,
    /// Variance of that over its square: 0 if it is always the same, 1 if it is exponential. The solution
    /// is exact for 1; for others it corrects for the service that an arrival finds half done.
    pub variation: f64,
}

/// A network's averages.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// How long a customer's cycle takes, in nanoseconds.
    pub cycle: f64,
    /// Cycles of all customers a nanosecond.
    pub throughput: f64,
    /// Customers at each station.
    pub queues: Vec<f64>,
}

/// Solves a closed network of `customers` who think for `think` nanoseconds in a cycle.
///
/// Takes time in proportion to customers times stations.
#[must_use]
pub fn solve(think: f64, stations: &[Station], customers: usize) -> Solution {
    let mut solution =
        Solution { cycle: think, throughput: 0.0, queues: vec![0.0; stations.len()] };
    for population in 1..=customers {
        // An arrival sees the network as it is with one customer less.
        let mut waits: Vec<f64> = stations
            .iter()
            .zip(&solution.queues)
            .map(|(station, queue)| {
                let busy = (solution.throughput * station.visits * station.service).min(1.0);
                let found = queue - busy * (1.0 - station.variation) / 2.0;
                station.visits * station.service * (1.0 + found.max(0.0))
            })
            .collect();
        // The correction for steady service may promise more than the dearest server can do.
        let demand = |&(_, station): &(usize, &Station)| station.visits * station.service;
        let dearest = stations.iter().enumerate().max_by(|a, b| demand(a).total_cmp(&demand(b)));
        if let Some(dearest) = dearest {
            let least = population as f64 * demand(&dearest);
            let short = least - think - waits.iter().sum::<f64>();
            waits[dearest.0] += short.max(0.0);
        }
        solution.cycle = think + waits.iter().sum::<f64>();
        solution.throughput = population as f64 / solution.cycle;
        for (queue, wait) in solution.queues.iter_mut().zip(&waits) {
            *queue = solution.throughput * wait;
        }
    }
    solution
}

/// Nanoseconds an operation takes, where all CPUs run one program of computing and atomics.
///
/// It applies where CPUs compute for 1 000 cycles or more between atomics, and agrees with the simulation
/// within 5 % there. In tighter loops all CPUs always wait, in an order that hardly changes, and the mean
/// over all pairs of CPUs is not what they pay.
///
/// # Errors
/// A setup that the simulation refuses; one with loads or stores of shared lines, locks, or several programs.
pub fn nanoseconds(setup: &Setup) -> Result<f64, Error> {
    let [program] = setup.programs.as_slice() else {
        return Err(Error::Setup("the analytic twin takes one program".to_owned()));
    };
    let code = code::compile(program, &setup.layout).map_err(Error::Program)?;
    let settings = &setup.settings;
    let cpus = setup.cpus.len();
    if cpus == 0 || cpus > settings.topology.cpus() {
        return Err(Error::Setup(format!(
            "{cpus} CPUs on a machine of {}",
            settings.topology.cpus()
        )));
    }
    let placement = Placement::new(&setup.layout, &settings.topology, cpus);
    let mut think = 0.0;
    let mut visits = vec![0.0; placement.lines.len()];
    each_visit(&code, |share, instruction| match instruction {
        Instruction::Compute { cycles, .. } => {
            think += share * cycles / settings.clock_ghz;
            Ok(())
        }
        Instruction::Access(Access { field, kind: Kind::Rmw, of: None, .. }) => {
            // CPUs are alike, so the first one speaks for all that share its lines.
            visits[placement.line(*field, 0)] += share;
            think += share * ns(settings.atomic);
            Ok(())
        }
        Instruction::End => Ok(()),
        _ => Err(Error::Setup(
            "the analytic twin knows computing and atomics; simulate the rest".to_owned(),
        )),
    })?;
    if cpus == 1 {
        return Ok(think + visits.iter().sum::<f64>() * ns(settings.first_cache));
    }
    let lines: Vec<Line> = visits
        .iter()
        .enumerate()
        .filter(|(_, visits)| **visits > 0.0)
        .map(|(line, &visits)| Line::new(setup, placement.lines[line].home, visits))
        .collect();
    // A CPU finds the line still its own when the last visit was its own, and that takes an idle line: a
    // busy one goes to whoever waits. How busy it is depends on the answer, so it is found in rounds.
    const ROUNDS: usize = 30;
    let mut busy = vec![0.5; lines.len()];
    let mut cycle = think;
    for _ in 0..ROUNDS {
        let mut thinks = think;
        let mut stations = Vec::new();
        for (line, busy) in lines.iter().zip(&busy) {
            let hits = line.visits * (1.0 - busy) / cpus as f64;
            let missed = line.visits - hits;
            // What the CPU waits for while the line already serves the next.
            thinks += hits * ns(settings.first_cache) + missed * (line.latency - line.service);
            let Line { service, variation, .. } = *line;
            stations.push(Station { visits: missed, service, variation });
        }
        let solution = solve(thinks.max(0.0), &stations, cpus);
        for (busy, station) in busy.iter_mut().zip(&stations) {
            let now = (solution.throughput * station.visits * station.service).min(1.0);
            *busy = f64::midpoint(*busy, now);
        }
        cycle = solution.cycle;
    }
    Ok(cycle)
}

/// A line that all CPUs add to, in nanoseconds.
struct Line {
    visits: f64,
    latency: f64,
    service: f64,
    variation: f64,
}

impl Line {
    /// Averages over all pairs of CPUs that may hand it to each other.
    fn new(setup: &Setup, home: usize, visits: f64) -> Line {
        let settings = &setup.settings;
        let topology = &settings.topology;
        let cpus = setup.cpus.len();
        let (mut latency, mut service, mut square) = (0.0, 0.0, 0.0);
        for reader in 0..cpus {
            for owner in (0..cpus).filter(|&owner| owner != reader) {
                let distance = topology.distance(owner, reader);
                let transfer = settings.transfer(distance, true, home, topology.socket(reader));
                let busy = match distance {
                    Distance::Sibling => 0,
                    _ => settings.occupied(transfer) + settings.keep + settings.atomic,
                };
                latency += ns(transfer);
                service += ns(busy);
                square += ns(busy) * ns(busy);
            }
        }
        let pairs = (cpus * (cpus - 1)) as f64;
        let (latency, service, square) = (latency / pairs, service / pairs, square / pairs);
        let variation = (square / (service * service) - 1.0).clamp(0.0, 1.0);
        Line { visits, latency, service, variation }
    }
}

fn ns(picoseconds: u64) -> f64 {
    picoseconds as f64 / 1000.0
}

/// Names each instruction of straight-line code with how often an operation reaches it.
fn each_visit(
    code: &Code,
    mut visit: impl FnMut(f64, &Instruction) -> Result<(), Error>,
) -> Result<(), Error> {
    // Where conditional stretches end, and how often they are entered.
    let mut stretches: Vec<(u32, f64)> = Vec::new();
    for (pc, instruction) in code.instructions.iter().enumerate() {
        stretches.retain(|&(end, _)| pc < end as usize);
        let share: f64 = stretches.iter().map(|(_, share)| share).product();
        match instruction {
            Instruction::Chance { probability, otherwise } => {
                stretches.push((*otherwise, *probability as f64 / 2f64.powi(32)));
            }
            Instruction::Every { period, otherwise, .. } => {
                stretches.push((*otherwise, 1.0 / f64::from(*period)));
            }
            _ => visit(share, instruction)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, Scope};
    use crate::machine::Machine;
    use crate::program::{Program, Spread, Step};
    use crate::simulate::Setup;
    use proptest::prelude::*;

    /// The machine-repair formula: one exponential server, customers who think exponentially.
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
            // Little's law for the thinkers, and everybody is somewhere.
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
                            worst =
                                (error, format!("{cpus} CPUs, {work} cycles, {batch}, {spread:?}"));
                        }
                    }
                }
            }
        }
        assert!(worst.0 < 0.05, "{worst:?}");
    }

    #[test]
    fn what_it_does_not_know_it_refuses() {
        let mut layout = Layout::new();
        let object = layout.object("object", Scope::Machine);
        let limit = layout.field(object, "limit", 0);
        let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
        let program = Program::new("read", [Step::load(limit)]);
        let setup = Setup::uniform(machine.best(), layout, program, 4);
        assert_eq!(
            nanoseconds(&setup).unwrap_err().to_string(),
            "the analytic twin knows computing and atomics; simulate the rest"
        );
    }
}
