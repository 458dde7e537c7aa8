//! The suite `stat`: what counting costs, in each width, beside what else one might count with.

use super::jvm;
use super::options::Options;
use super::rounds;
use super::row::{Row, Rows};
use super::suite::Suite;
use ledgerline::percpu::Array;
use ledgerline::stat::{Counters, PlaceId, Places};
use ledgerline_measure::harness::{self, Body, Case, Measured, Plan};
use ledgerline_measure::padded::Padded;
use ledgerline_terminal::progress::Progress;
use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};

pub(super) static STAT: Suite = Suite { name: "stat", cases: &ALL, measure, remark };

const LONG_ADDER: &str = "long_adder";

const ALL: [&str; 9] = [
    "bare_add",
    "add_i64",
    "add_u16",
    "add_i8",
    "inc_dec_i8",
    "fetch_add_private",
    "fetch_add_shared",
    "thread_local",
    LONG_ADDER,
];

pub(super) const HELP: &str = "\
Cases (figures are nanoseconds an update and thread):
  bare_add            add to a per-CPU sum: the floor
  add_i64             count an event in a zone of a node of a machine, with
                      differences of 64 bits
  add_u16             ... of 16 bits, which go to the total above 65 533
  add_i8              ... of 8 bits with the threshold for this machine
  inc_dec_i8          ... one up, one down, as a number of pages goes: the total is
                      not touched
  fetch_add_private   for comparison: a relaxed atomic addition, each thread to a
                      word of its own
  fetch_add_shared    ... all threads to one word
  thread_local        ... a thread-local word, which nobody else can read
  long_adder          java.util.concurrent.LongAdder, where there is a JVM that
                      starts source files (11 and later)

Examples:
  ledgerline bench stat
  ledgerline bench stat --threads 1,2 --mode rseq --cases bare_add,add_i8
  ledgerline bench stat --json > figures.jsonl";

/// Operations a turn of the loops: as in the suite `charge`.
const UNROLLED: u64 = 4;

macro_rules! four_times {
    ($operation:expr) => {{
        $operation;
        $operation;
        $operation;
        $operation;
    }};
}

ledgerline::items! {
    /// What is counted: as many as a line of differences holds, and one of them is used.
    enum Item {
        /// The one that is used.
        Used = "used",
        /// Those beside it.
        Other = "other",
    }
}

fn measure(options: &Options, progress: &Progress) -> Result<Vec<Row>, String> {
    let in_rounds: Vec<&'static str> =
        options.cases.iter().copied().filter(|&name| name != LONG_ADDER).collect();
    let mut rows = rounds::measure(STAT.name, &in_rounds, options, progress, &timed)?;
    if options.cases.contains(&LONG_ADDER) {
        let mode = ledgerline::percpu::detect().to_string();
        for &threads in &options.threads {
            progress.show(format_args!("{mode}: {LONG_ADDER}, {threads} threads"));
            let Some(measured) = jvm::long_adder(LONG_ADDER, threads, options)? else { break };
            let pass = rounds::pass(STAT.name, &mode, threads, options.runs, options);
            let row = Row::new(pass, &measured);
            let at = rows
                .iter()
                .rposition(|row: &Row| row.threads == threads)
                .map_or(rows.len(), |at| at + 1);
            rows.insert(at, row);
        }
    }
    Ok(rows)
}

fn timed(
    names: &[&'static str],
    plan: &Plan,
    progress: &(dyn Fn(harness::Step) + Sync),
) -> Result<Vec<Measured>, Box<dyn Error>> {
    let mut tree = Places::builder("machine");
    let node = tree.node("0")?;
    let zone = tree.zone(node, "Normal")?;
    let places = tree.build()?;
    let cases = names
        .iter()
        .map(|&name| case(name, &places, zone, plan.threads))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(harness::measure(&cases, plan, progress))
}

fn case(
    name: &'static str,
    places: &Places,
    zone: PlaceId,
    threads: usize,
) -> Result<Case<'static>, Box<dyn Error>> {
    let body: Body<'static> = match name {
        "bare_add" => {
            let array = Array::new(1)?;
            Box::new(move |_, n| bare_add(&array, black_box(1), n))
        }
        "add_i64" => {
            let counters = Counters::<Item, i64>::new(places)?;
            Box::new(move |_, n| add_i64(&counters, zone, n))
        }
        "add_u16" => {
            let counters = Counters::<Item, u16>::new(places)?;
            Box::new(move |_, n| add_u16(&counters, zone, n))
        }
        "add_i8" => {
            let counters = Counters::<Item, i8>::new(places)?;
            Box::new(move |_, n| add_i8(&counters, zone, n))
        }
        "inc_dec_i8" => {
            let counters = Counters::<Item, i8>::new(places)?;
            Box::new(move |_, n| inc_dec_i8(&counters, zone, n))
        }
        "fetch_add_private" => {
            let words: Vec<Padded<AtomicI64>> = (0..threads).map(|_| Padded::default()).collect();
            Box::new(move |thread, n| fetch_add(&words[thread], black_box(1), n))
        }
        "fetch_add_shared" => {
            let word = Padded::<AtomicI64>::default();
            Box::new(move |_, n| fetch_add(&word, black_box(1), n))
        }
        "thread_local" => Box::new(move |_, n| thread_local(black_box(1), n)),
        _ => unreachable!("{name} is in the table of cases"),
    };
    Ok(Case { name, granule: UNROLLED, body })
}

#[inline(never)]
fn bare_add(array: &Array, one: i64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(array.add(0, one));
    }
}

/// A loop for each width: the table is generic, and what is inlined here is what a user's loop has.
macro_rules! counting {
    ($name:ident, $width:ty) => {
        #[inline(never)]
        fn $name(counters: &Counters<Item, $width>, zone: PlaceId, n: u64) {
            let at = counters.at(zone);
            for _ in 0..n / UNROLLED {
                four_times!(at.inc(Item::Used));
            }
        }
    };
}

counting!(add_i64, i64);
counting!(add_u16, u16);
counting!(add_i8, i8);

#[inline(never)]
fn inc_dec_i8(counters: &Counters<Item, i8>, zone: PlaceId, n: u64) {
    let at = counters.at(zone);
    for _ in 0..n / UNROLLED {
        at.inc(Item::Used);
        at.dec(Item::Used);
        at.inc(Item::Used);
        at.dec(Item::Used);
    }
}

#[inline(never)]
fn fetch_add(word: &AtomicI64, one: i64, n: u64) {
    for _ in 0..n / UNROLLED {
        four_times!(word.fetch_add(one, Ordering::Relaxed));
    }
}

#[inline(never)]
fn thread_local(one: i64, n: u64) {
    thread_local!(static SUM: Cell<i64> = const { Cell::new(0) });
    for _ in 0..n / UNROLLED {
        // (Looked at after each addition, as a signal handler could: otherwise four are one.)
        four_times!(SUM.with(|sum| {
            sum.set(sum.get() + one);
            black_box(sum);
        }));
    }
}

/// How a figure stands to those that it should be judged by.
fn remark(row: &Row, rows: Rows<'_>) -> String {
    let mut remarks = Vec::new();
    for other in ["bare_add", "fetch_add_private"] {
        if row.case != other && row.case != "bare_add" {
            let ratio = rows.beside(row, other).map(|figure| row.ns_per_op / figure);
            remarks.extend(ratio.map(|ratio| format!("{ratio:.2}x {other}")));
        }
    }
    remarks
        .extend(rows.alone(row).map(|alone| format!("{:.2}x one thread", row.ns_per_op / alone)));
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_explains_every_case() {
        for name in ALL {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }

    #[test]
    fn every_width_counts_what_its_loop_says() {
        let places = Places::single("machine").unwrap();
        let wide = Counters::<Item, i64>::new(&places).unwrap();
        let narrow = Counters::<Item, i8>::new(&places).unwrap();
        let up = Counters::<Item, u16>::new(&places).unwrap();
        let root = places.root();
        add_i64(&wide, root, 4000);
        add_i8(&narrow, root, 4000);
        add_u16(&up, root, 4000);
        let counted = (
            wide.precise(root, Item::Used),
            narrow.precise(root, Item::Used),
            up.precise(root, Item::Used),
        );
        assert_eq!(counted, (4000, 4000, 4000));
        assert_eq!(wide.precise(root, Item::Other), 0);
    }
}
