//! This project's own design in the documents' experiments.
//!
//! The work, the machines and the fitted figures are the documents'. Only the lines that are read and written are
//! ours. Offsets are those of the library's types; a test of the command compares them with the library's debug
//! information. The order of accesses is that of its sources. Work that no other CPU sees is left out if the
//! document's own figure includes it: taking a unit from a cell costs about as much as taking one from a stock.
//!
//! | experiment | what ours does there |
//! |---|---|
//! | `page-counter-lockless` | a cell and a stock a CPU; a walk of two levels moves twice the batch ([`walk`]) |
//! | `page-counter-layout` | the same of four levels; as many walks as patch C leaves |
//! | `memcg-layout` | an event is counted in the running CPU's cell, no line is shared ([`counters`]) |
//! | `numa-threshold` | differences and thresholds as the row says, totals in four stripes ([`counters`]) |
//!
//! No reader reads the counters meanwhile, in the documents or here. A reader of ours would add up CPUs or collect
//! cells.

pub mod counters;
pub mod walk;

use super::page_counter_layout::{self, message_ns};
use super::{memcg_layout, numa_threshold, page_counter_lockless};
use crate::layout::{Layout, Scope};
use crate::machine::Settings;
use crate::program::{Program, Step};
use crate::simulate::Setup;

/// Returns the assumptions about our design in an experiment, beside those fitted on the document; empty for a name
/// that is not simulated.
#[must_use]
pub fn assumptions(experiment: &str) -> &'static [&'static str] {
    match experiment {
        "page-counter-lockless" => &[
            "half of the document's visits: ours moves 64 pages a walk, where it had 32; half of them charge \
             and half return",
            "a walk has four atomics a level where the kernel has one: all additions, which succeed at once \
             where all CPUs meet at the root",
        ],
        "page-counter-layout" => &[
            "as many walks as patch C leaves: both move 64 pages; that ours keeps half of a cell that is full \
             would save walks, and is not counted",
            "a walk has four atomics a level where the kernel has one, on two lines where it has one: what it \
             costs that no limit is overrun, nothing refused falsely and idle units known; all are additions, \
             and larger batches would make them fewer",
            "no group has a limit; where one has, a walk also reads its usage before it reserves",
        ],
        "memcg-layout" => &[
            "an event is counted in the running CPU's cell, and no line is shared; nobody reads meanwhile, and \
             a charge that moves to another group takes its units along, not its events",
        ],
        "numa-threshold" => &[
            "the row's threshold with differences of a byte up to 125 and of 16 bits above, on the document's \
             floors (394 and 369 cycles); an overstep goes to one of four stripes of its zone's total, on a pair \
             of lines that no allocation reads",
        ],
        _ => &[],
    }
}

/// How many pages of 4 KiB a walk moves by default: the library's `DEFAULT_BATCH`. The documents that count walks
/// had 32.
pub const BATCH_PAGES: u32 = 64;

/// Returns the setup of a fault on CPUs, each in a group of its own below the root. `visits` is counted as in the
/// document, with batches of 32 pages; ours makes half as many visits.
#[must_use]
pub fn page_counter_lockless(
    settings: Settings,
    visits: u32,
    work_cycles: f64,
    cpus: usize,
) -> Setup {
    let mut layout = Layout::new();
    let levels = [("group", Scope::Groups(288)), ("root", Scope::Machine)];
    let tree = walk::Tree::new(&mut layout, &levels);
    let visits = f64::from(visits) * 32.0 / f64::from(BATCH_PAGES);
    // The document does not give the share of visits that return units. It is half here, as in a run that frees
    // everything.
    let visit = [Step::chance(0.5, tree.charge()), Step::chance(0.5, tree.uncharge())];
    let steps = [Step::compute(work_cycles), Step::chance(visits / 32.0, visit)];
    let window = page_counter_lockless::setup(settings.clone(), false, 1, work_cycles, cpus).window;
    Setup { window, ..Setup::uniform(settings, layout, Program::new("fault", steps), cpus) }
}

/// Returns the setup of a side of a message, in a group three levels below the root, with as many walks as patch C
/// leaves.
#[must_use]
pub fn page_counter_layout(point: &page_counter_layout::Point, cpus: usize) -> Setup {
    let mut layout = Layout::new();
    let levels = ["leaf", "middle", "top", "root"].map(|level| (level, Scope::Machine));
    let tree = walk::Tree::new(&mut layout, &levels);
    let like = point.setup(page_counter_layout::Patches { a: true, b: true, c: true }, cpus);
    let chance = point.walks * point.remaining / 4.0;
    // A cell is assumed to cost as much as a stock. Our design does not check whether sockets are short of memory.
    let message = message_ns(page_counter_layout::ROOT) + point.stock_ns;
    let work = message * point.settings.clock_ghz / 4.0;
    let quarter = |_| {
        [
            Step::compute(work / 2.0),
            Step::chance(chance, tree.charge()),
            Step::compute(work / 2.0),
            Step::chance(chance, tree.uncharge()),
        ]
    };
    let program = Program::new("send or receive 10 KiB", (0..4).flat_map(quarter));
    let setup = Setup::uniform(point.settings.clone(), layout, program, cpus);
    Setup { window: like.window, ..setup }
}

/// Returns the setup of a fault and the unmapping of its page. Both are counted in the group: three additions to its
/// statistics.
#[must_use]
pub fn memcg_layout(point: &memcg_layout::Point, cpus: usize) -> Setup {
    let memcg_layout::Point { settings, base_ns } = point;
    let mut layout = Layout::new();
    let cell = counters::Sums::new(&mut layout);
    let work = base_ns * settings.clock_ghz;
    let event = |share: f64| [Step::compute(work * share)].into_iter().chain(cell.add());
    let steps = [0.2, 0.4, 0.4].into_iter().flat_map(event);
    let program = Program::new("fault and unmap a page", steps).outgrowing_first_cache();
    let like = memcg_layout::setup(settings.clone(), memcg_layout::GOOD, *base_ns, cpus);
    Setup { window: like.window, ..Setup::uniform(settings.clone(), layout, program, cpus) }
}

/// Returns the cycles of an allocation that is counted with a threshold and never oversteps. They are the document's,
/// for that width.
#[must_use]
pub fn numa_floor(threshold: u32) -> f64 {
    if threshold <= counters::MOST_OF_A_BYTE {
        numa_threshold::SIGNED
    } else {
        numa_threshold::UNSIGNED
    }
}

/// Returns the setup of an allocation and its freeing, counted with the threshold of a row: in signed bytes up to the
/// most that these hold, and above in unsigned 16 bits. Without oversteps it takes `floor` cycles.
#[must_use]
pub fn numa_threshold(settings: Settings, threshold: u32, floor: f64, cpus: usize) -> Setup {
    let bytes = threshold <= counters::MOST_OF_A_BYTE;
    let like = numa_threshold::setup(settings.clone(), threshold, floor, cpus);
    let mut layout = Layout::new();
    let zone = layout.object("zone", Scope::Socket);
    let free = layout.field(zone, "nr_free_pages", 0);
    let own = layout.object("per_cpu_pageset", Scope::Cpu);
    let pages = layout.field(own, "count", 0);
    let topology = settings.topology;
    let zones = (0..topology.sockets).map(|socket| {
        let counting = counters::Zone::new(&mut layout, socket, bytes).count(threshold);
        numa_threshold::allocation(&settings, floor, [free, pages], counting)
    });
    let programs: Vec<Program> = zones.collect();
    let on = (0..cpus).map(|cpu| topology.socket(cpu)).collect();
    Setup { settings, layout, programs, cpus: on, window: like.window, seed: like.seed }
}
