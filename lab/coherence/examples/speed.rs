//! Prints how many accesses are simulated in a second of CPU time. The cases are the thresholds of `numa-threshold`
//! on 88 and on 1 024 CPUs, and three in which CPUs touch nothing of their own: a line that all read beside a counter
//! that they add to now and then, both on one line, and the counter alone, where every access moves a line.

use ledgerline_coherence::experiments::numa_threshold;
use ledgerline_coherence::layout::{Layout, Scope};
use ledgerline_coherence::machine::Machine;
use ledgerline_coherence::program::{Program, Step};
use ledgerline_coherence::simulate::Setup;
use std::time::Instant;

/// Returns the CPU time of this thread in seconds, or the clock's time on a kernel that does not report CPU time.
fn seconds(began: Instant) -> f64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = schedstat.split_ascii_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    ran.map_or_else(|| began.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Machine::built_in("broadwell-2x22").expect("it comes with the crate").best();
    let mut grown = settings.clone();
    grown.topology = grown.topology.grown_to(1024);
    let shared = |offset, every| {
        let mut layout = Layout::new();
        let object = layout.object("object", Scope::Machine);
        let read = layout.field(object, "read", 0);
        let written = layout.field(object, "written", offset);
        let mut steps = vec![Step::compute(400.0), Step::every(every, [Step::rmw(written)])];
        if every > 1 {
            steps.insert(1, Step::load(read));
        }
        Setup::uniform(settings.clone(), layout, Program::new("shared", steps), 88)
    };
    let (apart, beside, written) = (shared(128, 16), shared(8, 256), shared(128, 1));
    let floor = numa_threshold::SIGNED;
    let began = Instant::now();
    for (name, setup) in [
        ("threshold 32, 88 CPUs", numa_threshold::setup(settings.clone(), 32, floor, 88)),
        ("threshold 125, 88 CPUs", numa_threshold::setup(settings.clone(), 125, floor, 88)),
        ("threshold 4096, 88 CPUs", numa_threshold::setup(settings.clone(), 4096, floor, 88)),
        ("threshold 125, 1024 CPUs", numa_threshold::setup(grown, 125, floor, 1024)),
        ("shared lines alone, 88 CPUs", apart),
        ("read beside written, 88 CPUs", beside),
        ("a counter alone, 88 CPUs", written),
    ] {
        let setup = setup.during(0.0, 3_000_000.0);
        let start = seconds(began);
        let mut accesses = 0;
        // A kernel may update a thread's time only every few milliseconds.
        while seconds(began) - start < 0.5 {
            accesses += setup.run()?.accesses;
        }
        let rate = accesses as f64 / (seconds(began) - start) / 1e6;
        println!("{name:30} {rate:7.1} million accesses a second");
    }
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    }
    Ok(())
}
