//! The model's cost of false sharing by the dependences of a program, to compare with `lab/advise/programs/dependence.c`.
//!
//! `cargo run --release --example dependence -- MACHINE`, a machine file of two CPUs or more. The place of what is
//! touched is known before the work or not, and what is brought is needed at once or not.

use ledgerline_coherence::layout::{FieldId, Layout, Scope};
use ledgerline_coherence::machine::{Machine, Settings};
use ledgerline_coherence::program::{Program, Spread, Step};
use ledgerline_coherence::simulate::Setup;

const MODES: [&str; 4] = ["atomics", "atomic-load", "load-atomic", "reader"];
/// Work, in nanoseconds.
const WORKS: [f64; 8] = [3.0, 9.0, 18.0, 29.0, 44.0, 65.0, 87.0, 130.0];
/// Leads and windows, in picoseconds, for programs that know no place and need no value before the work.
const FAR: u64 = 90_000;

fn program(mode: usize, me: usize, cycles: f64, words: &[FieldId]) -> Program {
    let (own, beside) = (words[me], words[me + 2]);
    let accesses = match (mode, me) {
        (0, _) | (3, 0) => vec![Step::rmw(own)],
        (1, _) => vec![Step::rmw(own), Step::load(beside)],
        (2, _) => vec![Step::load(beside), Step::rmw(own)],
        _ => vec![Step::load(own)],
    };
    // The work varies a little: without variation the model's CPUs fall into step.
    let work = Step::Compute { cycles, spread: Spread::Beside(0.1) };
    let program = Program::new(MODES[mode], std::iter::once(work).chain(accesses));
    Program { knows_places: true, ..program }
}

fn takes(mode: usize, work: f64, settings: &Settings, cpus: usize) -> f64 {
    let mut layout = Layout::new();
    let line = layout.object("line", Scope::Machine);
    let words: Vec<FieldId> =
        (0..4).map(|word| layout.field(line, &format!("w{word}"), 8 * word)).collect();
    let cycles = work * settings.clock_ghz;
    let programs: Vec<Program> = (0..2).map(|me| program(mode, me, cycles, &words)).collect();
    let mut setup = Setup::uniform(settings.clone(), layout, programs[0].clone(), cpus);
    (setup.programs, setup.cpus) = (programs, (0..cpus).collect());
    let outcome = setup.during(5_000.0, 105_000.0).run().expect("two CPUs run plain programs");
    let each = |&done: &u64| 1e5 / done.max(1) as f64;
    outcome.operations.iter().take(cpus).map(each).sum::<f64>() / cpus as f64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("dependence MACHINE")?;
    let machine = Machine::open(&name)?;
    for (mode, name) in MODES.iter().enumerate() {
        println!("{name}");
        for (late, needed) in [(false, false), (false, true), (true, false), (true, true)] {
            let (lead, window) = (if late { 0 } else { FAR }, if needed { 0 } else { FAR });
            let settings = Settings { lead, window, ..machine.best() };
            print!(
                "{:<5} {:<6}",
                ["known", "late"][usize::from(late)],
                ["not", "needed"][usize::from(needed)]
            );
            for work in WORKS {
                let time = |cpus| takes(mode, work, &settings, cpus);
                print!("  {:>4.0} -> {:>3.0}", time(1), time(2));
            }
            println!();
        }
    }
    Ok(())
}
