//! Memory use of a simulation of a thousand CPUs. The test is alone in its process, since it reads the process's
//! peak.

use ledgerline_coherence::experiments::numa_threshold;
use ledgerline_coherence::layout::{Layout, Scope};
use ledgerline_coherence::machine::Machine;
use ledgerline_coherence::program::{Lock, Program, Step};
use ledgerline_coherence::simulate::Setup;

/// Returns the peak of this process's memory in MiB; `None` on a kernel that does not report it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? / 1024)
}

/// Returns a setup in which each CPU has 64 lines of its own, takes a queue lock, and adds to a counter that all
/// read.
fn wide(cpus: usize) -> Setup {
    let mut settings = Machine::built_in("four-socket-144").unwrap().best();
    settings.topology = settings.topology.grown_to(cpus);
    let mut layout = Layout::new();
    let shared = layout.object("shared", Scope::Machine);
    let tail = layout.field(shared, "tail", 0);
    let total = layout.field(shared, "total", 128);
    let own = layout.object("own", Scope::Cpu);
    let lock = Lock::Queue {
        tail,
        next: layout.field(own, "next", 0),
        waiting: layout.field(own, "waiting", 8),
    };
    let cells = (1..64).map(|line| layout.field(own, "cell", 64 * line));
    let mut steps: Vec<Step> = cells.map(Step::store).collect();
    steps.extend([Step::compute(5_000.0), Step::Acquire(lock), Step::load(total)]);
    steps.extend([Step::rmw(total), Step::Release(lock)]);
    Setup::uniform(settings, layout, Program::new("wide", steps), cpus)
}

#[test]
fn a_thousand_cpus_take_less_than_256_mib() {
    let mut settings = Machine::built_in("broadwell-2x22").unwrap().best();
    settings.topology = settings.topology.grown_to(1024);
    let floor = numa_threshold::SIGNED;
    let thresholds = numa_threshold::setup(settings, 125, floor, 1024).during(0.0, 300_000.0);
    for setup in [thresholds, wide(1024)] {
        assert!(setup.run().unwrap().total() > 10);
    }
    match peak() {
        Some(mebibytes) => assert!(mebibytes < 256, "{mebibytes} MiB"),
        None => eprintln!("skipped: this kernel does not tell what a process has held"),
    }
}
