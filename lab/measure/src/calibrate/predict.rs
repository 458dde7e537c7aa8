//! The patterns in the simulation.

use super::patterns::Pattern;
use super::world::{Data, Told};
use ledgerline_coherence::machine::Settings;
use ledgerline_coherence::program::Program;
use ledgerline_coherence::simulate::{Error, Outcome, Setup, Window};
use std::ops::Range;

/// Approximate number of simulated operations of a CPU, enough for steady averages.
const OPERATIONS: f64 = 4000.0;

/// Simulates `cpus` CPUs that do `pattern` with `cycles` of private work in each operation.
///
/// # Errors
/// If there are more CPUs than the machine has.
pub(super) fn predict(
    pattern: Pattern,
    cycles: f64,
    cpus: usize,
    settings: &Settings,
) -> Result<Outcome, String> {
    // An operation takes its own work and a few transfers, in turn with the others.
    let transfer = settings.transfer.iter().flatten().max().map_or(0.0, |&ps| ps as f64);
    let operation = settings.cycles(cycles) as f64 + 2.0 * transfer * cpus as f64;
    let length = OPERATIONS * operation / 1000.0;
    let outcome = simulate(pattern.name(), cpus, pattern.pairs(cpus), settings, length, |told| {
        told.cycles = cycles;
        pattern.operation(told);
    });
    outcome.map_err(|error| error.to_string())
}

/// Simulates `cpus` CPUs that share `pairs` pairs of lines. Each repeats the operation that `tell` describes. The
/// window has the length `nanoseconds`, and begins after a tenth of that.
///
/// # Errors
/// If there are more CPUs than the machine has.
pub(super) fn simulate(
    name: &str,
    cpus: usize,
    pairs: usize,
    settings: &Settings,
    nanoseconds: f64,
    tell: impl Fn(&mut Told<'_>),
) -> Result<Outcome, Error> {
    let mut data = Data::new(pairs);
    let told = |cpu| {
        let mut told = Told::new(cpu, &mut data);
        tell(&mut told);
        Program::new(&format!("{name}, CPU {cpu}"), told.steps)
    };
    let programs = (0..cpus).map(told).collect();
    let setup = Setup {
        settings: settings.clone(),
        layout: data.layout,
        programs,
        cpus: (0..cpus).collect(),
        window: Window { from_ns: 0.1 * nanoseconds, to_ns: 1.1 * nanoseconds },
        seed: 1,
    };
    setup.run()
}

/// Returns the time of an operation of some of the CPUs, in nanoseconds.
pub(super) fn nanoseconds(outcome: &Outcome, cpus: Range<usize>) -> f64 {
    let count = cpus.len() as f64;
    count * outcome.picoseconds as f64
        / 1000.0
        / outcome.operations[cpus].iter().sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_coherence::machine::Machine;

    fn settings() -> Settings {
        Machine::built_in("zen4-2vcpu").unwrap().best()
    }

    #[test]
    fn what_is_padded_costs_its_work_and_a_hit() {
        let settings = settings();
        let hit = (settings.first_cache + settings.atomic + settings.cycle) as f64 / 1000.0;
        for cycles in [0.0, 100.0, 1000.0] {
            let alone = cycles / settings.clock_ghz + hit;
            let predicted = predict(Pattern::Padded, cycles, 2, &settings).unwrap().nanoseconds();
            assert!((predicted / alone - 1.0).abs() < 0.01, "{predicted} for {alone}");
        }
    }

    #[test]
    fn every_pattern_that_shares_costs_more_than_none() {
        let settings = settings();
        for cycles in [200.0, 1000.0] {
            let cost = |pattern| predict(pattern, cycles, 2, &settings).unwrap().nanoseconds();
            let padded = cost(Pattern::Padded);
            // If one CPU only writes, the average is less than that of atomics on separate lines.
            let shares =
                |&pattern: &Pattern| ![Pattern::Padded, Pattern::StoredBeside].contains(&pattern);
            for pattern in Pattern::ALL.map(|(pattern, _)| pattern).into_iter().filter(shares) {
                assert!(cost(pattern) > padded, "{} at {cycles}", pattern.name());
            }
        }
    }

    #[test]
    fn nobody_simulates_more_cpus_than_there_are() {
        assert!(predict(Pattern::Shared, 0.0, 3, &settings()).is_err());
    }
}
