//! A large sweep with the analytic model. It finds how many operations a CPU has to batch before it adds them to a
//! counter that all share, so that counting takes no more than a given share of their work, on 2 to 1 024 CPUs.
//!
//! `cargo run --release --example sweep -- [MACHINE] [CYCLES] [PERCENT]` takes the machine, what an operation
//! computes (1 000 cycles or more), and the share. Each answer is simulated once, with the machine's best guesses, to
//! see how far off the model is.

use ledgerline_coherence::analytic;
use ledgerline_coherence::layout::{Layout, Scope};
use ledgerline_coherence::machine::{Machine, Settings};
use ledgerline_coherence::program::{Program, Step};
use ledgerline_coherence::simulate::{Error, Setup};
use std::time::{Duration, Instant};

const POINTS: usize = 8;
const LARGEST: u32 = 1 << 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let machine = Machine::open(&args.next().unwrap_or_else(|| "broadwell-2x22".to_owned()))?;
    let cycles: f64 = args.next().map_or(Ok(2_000.0), |cycles| cycles.parse())?;
    let percent: f64 = args.next().map_or(Ok(1.0), |percent| percent.parse())?;
    println!("{}: a counter, {cycles} cycles an operation, at most {percent} %", machine.name);
    println!("{:>5} {:>17} {:>14} {:>14}", "CPUs", "batch (range)", "model, ns", "simulated, ns");
    let (mut answers, mut model) = (0, Duration::ZERO);
    for cpus in (1..=10).map(|power| 1 << power) {
        let most = cycles / machine.clock_ghz.value * (1.0 + percent / 100.0);
        let mut smallest = Vec::new();
        for settings in machine.design(POINTS) {
            let start = Instant::now();
            let (batch, asked) = smallest_batch(&settings, cycles, cpus, most)?;
            model += start.elapsed();
            answers += asked;
            smallest.push(batch);
        }
        smallest.sort_unstable();
        let [low, batch, high] = [smallest[0], smallest[POINTS / 2], smallest[POINTS - 1]];
        let setup = setup(&machine.best(), cycles, batch, cpus).during(100_000.0, 1_100_000.0);
        let (told, simulated) = (analytic::nanoseconds(&setup)?, setup.run()?.nanoseconds());
        let range = format!("{batch} ({low} .. {high})");
        println!("{cpus:>5} {range:>17} {told:>14.1} {simulated:>14.1}");
    }
    eprintln!("{answers} answers of the model in {:.1} s", model.as_secs_f64());
    Ok(())
}

/// Returns the smallest batch, among powers of two, with which an operation takes at most so many nanoseconds; and
/// how many batches the model was asked for.
fn smallest_batch(
    settings: &Settings,
    cycles: f64,
    cpus: usize,
    most: f64,
) -> Result<(u32, u32), Error> {
    let mut asked = 0;
    let mut batch = 1;
    while batch < LARGEST {
        asked += 1;
        if analytic::nanoseconds(&setup(settings, cycles, batch, cpus))? <= most {
            break;
        }
        batch *= 2;
    }
    Ok((batch, asked))
}

/// Returns the setup of CPUs that compute and add to one counter after each batch.
fn setup(settings: &Settings, cycles: f64, batch: u32, cpus: usize) -> Setup {
    let mut settings = settings.clone();
    settings.topology = settings.topology.grown_to(cpus);
    let mut layout = Layout::new();
    let counter = layout.object("counter", Scope::Machine);
    let usage = layout.field(counter, "usage", 0);
    let steps = [Step::compute(cycles), Step::every(batch, [Step::rmw(usage)])];
    Setup::uniform(settings, layout, Program::new("count", steps), cpus)
}
