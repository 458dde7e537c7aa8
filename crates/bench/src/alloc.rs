//! The suite `alloc` measures the cost that accounting adds to `malloc` and `free`, beside other accounting allocators
//! over the same one.
//!
//! The allocators are called like the compiler calls a global one: by a function that is not inlined.

use super::allocators::{Header, Tracking};
use super::loops::{UNROLLED, four_times};
use super::rounds::{Made, Run, Work};
use super::row::{Row, Rows, thousandths};
use super::suite::{Suite, names};
use cap::Cap;
use ledgerline::{Alloc, Group, Ledger};
use peak_alloc::PeakAlloc;
use stats_alloc::StatsAlloc;
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::AtomicUsize;

pub(super) static ALLOC: Suite =
    Suite { name: "alloc", help: HELP, cases: &names(&CASES), measure, remark };

const HELP: &str = "\
Cases (figures are nanoseconds for a block that is allocated and freed):
  system              64 bytes by the system's allocator
  ledgerline          by ledgerline's over it, in a group below a tenant
  cap                 by the crate cap: one counter with a limit
  tracking_allocator  by the design of the crate tracking-allocator: the group
                      in front of the block, and a callback
  stats_alloc         by the crate stats_alloc: counters of calls and bytes
  peak_alloc          by the crate peak_alloc: a counter and its peak
  header              by the design of RisingWave's allocator: the address of a
                      task's counter in front of the block
  nobody              by ledgerline's where no group is current
  tasks               by ledgerline's in 64 groups by turns: after each eight
                      blocks another one is current
  system_mixed        the same with sizes from 16 bytes to 4 KiB at random, and
                      32 blocks live at a time
  ledgerline_mixed    ... as above, each over the same sizes in the same order
  cap_mixed           ...
  tracking_allocator_mixed  ...
  stats_alloc_mixed   ...
  peak_alloc_mixed    ...
  header_mixed        ...
  nobody_mixed        ...

With several threads all of them use the same group, or the same counters.
added_ns is what a case takes beyond the system's in the same run.

Both modes are measured in turn, each in a process of its own: rseq (restartable
sequences) and fallback (atomics on a column chosen by thread).

Examples:
  ledgerline bench alloc
  ledgerline bench alloc --threads 1,2 --cases system,ledgerline,cap
  ledgerline bench alloc --mode rseq --json > figures.jsonl";

/// The sizes of the allocations.
#[derive(Clone, Copy)]
enum Sizes {
    Same,
    Mixed,
}

type Make = fn(Sizes) -> Made<Work<'static>>;

const CASES: [(&str, (Make, Sizes)); 17] = [
    ("system", (system, Sizes::Same)),
    ("ledgerline", (ledgerline, Sizes::Same)),
    ("cap", (capped, Sizes::Same)),
    ("tracking_allocator", (tracking, Sizes::Same)),
    ("stats_alloc", (stats, Sizes::Same)),
    ("peak_alloc", (peak, Sizes::Same)),
    ("header", (header, Sizes::Same)),
    ("nobody", (nobody, Sizes::Same)),
    ("tasks", (tasks, Sizes::Same)),
    ("system_mixed", (system, Sizes::Mixed)),
    ("ledgerline_mixed", (ledgerline, Sizes::Mixed)),
    ("cap_mixed", (capped, Sizes::Mixed)),
    ("tracking_allocator_mixed", (tracking, Sizes::Mixed)),
    ("stats_alloc_mixed", (stats, Sizes::Mixed)),
    ("peak_alloc_mixed", (peak, Sizes::Mixed)),
    ("header_mixed", (header, Sizes::Mixed)),
    ("nobody_mixed", (nobody, Sizes::Mixed)),
];

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let mut rows = run.in_rounds(&run.options.threads, &run.options.cases, |turn| {
        turn.time(&CASES, |_, (make, sizes)| make(sizes))
    })?;
    let adds: Vec<Option<f64>> = rows.iter().map(|row| adds(row, Rows(&rows))).collect();
    rows.iter_mut().zip(adds).for_each(|(row, adds)| row.added_ns = adds.map(thousandths));
    Ok(rows)
}

fn system(sizes: Sizes) -> Made<Work<'static>> {
    Ok(work(sizes, &System, || ()))
}

/// Makes a group two levels below the root, with limits far above any charge.
fn group() -> Made<Group<'static>> {
    let ledger = Ledger::new()?.into_static();
    let tenant = ledger.root().create("tenant")?;
    let group = tenant.create("query")?;
    for group in [ledger.root(), tenant, group] {
        group.set_max(ledgerline::Limit::units(1 << 40))?;
    }
    Ok(group)
}

fn ledgerline(sizes: Sizes) -> Made<Work<'static>> {
    let group = group()?;
    Ok(work(sizes, Box::leak(Box::new(Alloc::system())), move || group.enter()))
}

fn nobody(sizes: Sizes) -> Made<Work<'static>> {
    Ok(work(sizes, Box::leak(Box::new(Alloc::system())), || ()))
}

/// A server's number of tasks, each with a group and the blocks of one poll.
const TASKS: usize = 64;
const BLOCKS: u64 = 8;

fn tasks(_: Sizes) -> Made<Work<'static>> {
    let ledger = Ledger::new()?.into_static();
    let tenant = ledger.root().create("tenant")?;
    let tasks = (0..TASKS).map(|task| tenant.create(&format!("task{task}")));
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    let body = move |thread: usize, n: u64| {
        let allocator: &'static Alloc = &const { Alloc::system() };
        for turn in 0..(n / BLOCKS) as usize {
            let task = tasks[(turn + thread * TASKS / 2) % TASKS];
            task.scope(|| same(allocator, black_box(layout(64)), BLOCKS));
        }
    };
    Ok((BLOCKS, Box::new(body)))
}

fn capped(sizes: Sizes) -> Made<Work<'static>> {
    Ok(work(sizes, Box::leak(Box::new(Cap::new(System, 1 << 40))), || ()))
}

fn tracking(sizes: Sizes) -> Made<Work<'static>> {
    Ok(work(sizes, Box::leak(Box::new(Tracking::new())), || Tracking::enter(2)))
}

fn stats(sizes: Sizes) -> Made<Work<'static>> {
    let allocator: &'static StatsAlloc<System> = &stats_alloc::INSTRUMENTED_SYSTEM;
    Ok(work(sizes, allocator, || ()))
}

fn peak(sizes: Sizes) -> Made<Work<'static>> {
    Ok(work(sizes, &PeakAlloc, || ()))
}

fn header(sizes: Sizes) -> Made<Work<'static>> {
    let counter: &'static AtomicUsize = Box::leak(Box::default());
    Ok(work(sizes, &Header, move || Header::enter(counter)))
}

/// Runs a thread: it enters its group, or the allocator's equivalent, and repeats the work.
fn work<A: GlobalAlloc + Sync, E>(
    sizes: Sizes,
    allocator: &'static A,
    enter: impl Fn() -> E + Sync + 'static,
) -> Work<'static> {
    match sizes {
        Sizes::Same => {
            let body = move |_: usize, n: u64| {
                let _entered = enter();
                same(allocator, black_box(layout(64)), n);
            };
            (UNROLLED, Box::new(body))
        }
        Sizes::Mixed => {
            let layouts = layouts();
            let body = move |_: usize, n: u64| {
                let _entered = enter();
                mixed(allocator, &layouts, n);
            };
            (LIVE as u64, Box::new(body))
        }
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a small size")
}

/// Returns sizes from 16 bytes to 4 KiB, as many of each power of two, in a random order that is always the same.
fn layouts() -> Vec<Layout> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    (0..1024)
        .map(|_| {
            let power = 4 + next() % 8;
            layout((1 << power) + (next() % ((1 << power) + 1)) as usize)
        })
        .collect()
}

/// Allocates like `__rust_alloc` calls a global allocator.
#[inline(never)]
fn get<A: GlobalAlloc>(allocator: &A, layout: Layout) -> *mut u8 {
    // SAFETY: no layout of this suite is empty.
    unsafe { allocator.alloc(layout) }
}

/// Frees like `__rust_dealloc` calls a global allocator.
///
/// # Safety
/// The block came from [`get`] with that layout.
#[inline(never)]
unsafe fn give<A: GlobalAlloc>(allocator: &A, block: *mut u8, layout: Layout) {
    // SAFETY: by the caller's contract.
    unsafe { allocator.dealloc(block, layout) }
}

#[inline(never)]
fn same<A: GlobalAlloc>(allocator: &A, layout: Layout, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!({
            let block = black_box(get(allocator, layout));
            assert!(!block.is_null());
            // SAFETY: the block was made above.
            unsafe { give(allocator, block, layout) }
        });
    }
}

/// The number of blocks that are live at the same time.
const LIVE: usize = 32;

#[inline(never)]
fn mixed<A: GlobalAlloc>(allocator: &A, layouts: &[Layout], n: u64) {
    let mut live = [(std::ptr::null_mut::<u8>(), layouts[0]); LIVE];
    let sizes = layouts.iter().cycle();
    for (turn, &layout) in sizes.take(n as usize).enumerate() {
        let (block, old) = &mut live[turn % LIVE];
        if !block.is_null() {
            // SAFETY: the block was made below, in that layout.
            unsafe { give(allocator, *block, *old) }
        }
        (*block, *old) = (black_box(get(allocator, layout)), layout);
        assert!(!block.is_null());
    }
    for (block, layout) in live {
        // SAFETY: there are at least as many turns as blocks; each block was made above.
        unsafe { give(allocator, block, layout) }
    }
}

/// Returns the case that a case is compared with.
fn beneath(case: &str) -> &'static str {
    if case.ends_with("_mixed") { "system_mixed" } else { "system" }
}

/// Returns the cost of an allocator beyond the one beneath.
fn adds(row: &Row, rows: Rows<'_>) -> Option<f64> {
    let system = beneath(&row.case);
    if row.case == system { None } else { Some(row.ns_per_op - rows.beside(row, system)?) }
}

fn remark(row: &Row, rows: Rows<'_>) -> String {
    let mut remarks = Vec::new();
    remarks.extend(adds(row, rows).map(|ns| format!("{ns:+.2} ns on {}", beneath(&row.case))));
    remarks.extend(rows.times_one_thread(row));
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::row::Pass;
    use super::*;
    use crate::measure::harness::Rounds;

    #[test]
    fn every_case_frees_what_it_allocates() {
        for (name, (make, sizes)) in CASES {
            let (granule, body) = make(sizes).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let body = &body;
                    scope.spawn(move || body(thread, 64 * granule));
                }
            });
            assert_eq!(64 * granule % LIVE as u64, 0, "{name}");
        }
    }

    #[test]
    fn ours_charges_its_group_and_leaves_nothing() {
        let group = group().unwrap();
        let _entered = group.enter();
        let allocator = Alloc::system();
        let block = get(&allocator, layout(64));
        assert_eq!(group.precise(), 64);
        // SAFETY: the block was made above.
        unsafe { give(&allocator, block, layout(64)) };
        same(&allocator, layout(64), 400);
        mixed(&allocator, &layouts(), 4 * LIVE as u64);
        assert_eq!(group.precise(), 0);
        assert!(group.peak().value > 32 * 16);
    }

    #[test]
    fn sizes_are_mixed_from_16_bytes_to_4_kib() {
        let sizes: Vec<usize> = layouts().iter().map(|layout| layout.size()).collect();
        assert!(sizes.iter().all(|size| (16..=4096).contains(size)));
        for power in 4..12 {
            let of_power = sizes.iter().filter(|&&size| size >> power == 1).count();
            assert!((80..180).contains(&of_power), "{power}: {of_power}");
        }
    }

    #[test]
    fn remarks_say_what_is_added() {
        let row = |case: &'static str, threads, ns: f64| {
            let pass =
                Pass { suite: "alloc", mode: "rseq", threads, runs: 3, oversubscribed: false };
            Row::new(pass, &Rounds::of_one(case, vec![ns]))
        };
        let rows = [
            row("system", 1, 10.0),
            row("ledgerline", 1, 12.0),
            row("system", 2, 10.0),
            row("cap", 2, 30.0),
            row("system_mixed", 2, 20.0),
            row("ledgerline", 2, 12.5),
            row("ledgerline_mixed", 2, 21.5),
        ];
        let remark = |at: usize| remark(&rows[at], Rows(&rows));
        assert_eq!(remark(0), "");
        assert_eq!(remark(1), "+2.00 ns on system");
        assert_eq!(remark(3), "+20.00 ns on system");
        assert_eq!(remark(5), "+2.50 ns on system, 1.04x one thread");
        assert_eq!(remark(6), "+1.50 ns on system_mixed");
    }
}
