//! A pattern as the simulation sees it.

use super::patterns::Pattern;
use super::world::{Data, Told};
use ledgerline_coherence::machine::Settings;
use ledgerline_coherence::program::Program;
use ledgerline_coherence::simulate::{Outcome, Setup, Window};
use std::ops::Range;

/// Simulated operations of a CPU, or about: enough for steady averages.
const OPERATIONS: f64 = 4000.0;

/// Simulates `cpus` CPUs that do `pattern` with `cycles` of work of their own in each operation.
///
/// # Errors
/// More CPUs than the machine has.
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
    let setup = Setup {
        window: Window { from_ns: 0.1 * length, to_ns: 1.1 * length },
        ..setup(pattern, cycles, cpus, settings)
    };
    setup.run().map_err(|error| error.to_string())
}

/// What an operation of some of the CPUs took, in nanoseconds.
pub(super) fn nanoseconds(outcome: &Outcome, cpus: Range<usize>) -> f64 {
    let count = cpus.len() as f64;
    count * outcome.picoseconds as f64
        / 1000.0
        / outcome.operations[cpus].iter().sum::<u64>() as f64
}

/// The pattern, written down.
fn setup(pattern: Pattern, cycles: f64, cpus: usize, settings: &Settings) -> Setup {
    let mut data = Data::new(pattern.pairs(cpus));
    let programs: Vec<Program> = (0..cpus)
        .map(|cpu| {
            let mut told = Told::new(cpu, cycles, &mut data);
            pattern.operation(&mut told);
            Program::new(&format!("{}, CPU {cpu}", pattern.name()), told.steps)
        })
        .collect();
    let window = Window { from_ns: 0.0, to_ns: 1.0 };
    let cpus = (0..cpus).collect();
    Setup { settings: settings.clone(), layout: data.layout, programs, cpus, window, seed: 1 }
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
            // (Where one only writes, the average is less than of atomics apart.)
            let shares =
                |&pattern: &Pattern| ![Pattern::Padded, Pattern::StoredBeside].contains(&pattern);
            for pattern in Pattern::ALL.into_iter().filter(shares) {
                assert!(cost(pattern) > padded, "{} at {cycles}", pattern.name());
            }
        }
    }

    #[test]
    fn nobody_simulates_more_cpus_than_there_are() {
        assert!(predict(Pattern::Shared, 0.0, 3, &settings()).is_err());
    }
}
