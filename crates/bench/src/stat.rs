//! The suite `stat` measures the cost of counting in each width, and the cost of its alternatives.

use super::jvm;
use super::loops::{UNROLLED, bare_add, four_times};
use super::rounds::{Made, Run, Work, insert};
use super::row::{Row, Rows};
use super::suite::{Suite, names};
use crate::measure::padded::Padded;
use ledgerline::percpu::Array;
use ledgerline::stat::{Counters, PlaceId, Places, Width};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};

pub(super) static STAT: Suite =
    Suite { name: "stat", help: HELP, cases: &names(&CASES), measure, remark };

const LONG_ADDER: &str = "long_adder";

/// Makes a case for a number of threads, which count in a zone.
type Make = fn(&Places, PlaceId, usize) -> Made<Work<'static>>;

const CASES: [(&str, Make); 9] = [
    ("bare_add", |_, _, _| {
        let array = Array::new(1)?;
        Ok((UNROLLED, Box::new(move |_, n| bare_add(&array, black_box(1), n))))
    }),
    ("add_i64", |places, zone, _| counting(places, zone, add::<i64>)),
    ("add_u16", |places, zone, _| counting(places, zone, add::<u16>)),
    ("add_i8", |places, zone, _| counting(places, zone, add::<i8>)),
    ("inc_dec_i8", |places, zone, _| counting(places, zone, inc_dec_i8)),
    ("fetch_add_private", |_, _, threads| {
        let words: Vec<Padded<AtomicI64>> = (0..threads).map(|_| Padded::default()).collect();
        Ok((UNROLLED, Box::new(move |thread, n| fetch_add(&words[thread], black_box(1), n))))
    }),
    ("fetch_add_shared", |_, _, _| {
        let word = Padded::<AtomicI64>::default();
        Ok((UNROLLED, Box::new(move |_, n| fetch_add(&word, black_box(1), n))))
    }),
    ("thread_local", |_, _, _| Ok((UNROLLED, Box::new(move |_, n| thread_local(black_box(1), n))))),
    (LONG_ADDER, |_, _, _| Err("it is timed in a Java virtual machine, not in rounds".into())),
];

const HELP: &str = "\
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

ledgerline::items! {
    /// The counted items: as many as a line of differences holds. Only one is used.
    enum Item {
        /// The item that is used.
        Used = "used",
        /// The items beside it.
        Other = "other",
    }
}

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let (in_rounds, long_adder) = run.apart(LONG_ADDER);
    let mut rows = run.in_rounds(&run.options.threads, &in_rounds, |turn| {
        let mut tree = Places::builder("machine");
        let node = tree.node("0")?;
        let zone = tree.zone(node, "Normal")?;
        let places = tree.build()?;
        turn.time(&CASES, |_, make| make(&places, zone, turn.plan.threads))
    })?;
    if long_adder {
        for &threads in &run.options.threads {
            run.tell(format_args!("{threads} threads: {LONG_ADDER}"));
            let Some(measured) = jvm::long_adder(LONG_ADDER, threads, run.options)? else { break };
            insert(&mut rows, Row::new(run.pass(threads, run.options.runs), &measured));
        }
    }
    Ok(rows)
}

/// Makes work that counts in a table of the loop's width.
fn counting<W: Width + 'static>(
    places: &Places,
    zone: PlaceId,
    count: fn(&Counters<Item, W>, PlaceId, u64),
) -> Made<Work<'static>> {
    let counters = Counters::<Item, W>::new(places)?;
    Ok((UNROLLED, Box::new(move |_, n| count(&counters, zone, n))))
}

/// Counts an event in each operation.
#[inline(never)]
fn add<W: Width>(counters: &Counters<Item, W>, zone: PlaceId, n: u64) {
    let at = counters.at(zone);
    for _ in 0..n / UNROLLED {
        four_times!(at.inc(Item::Used));
    }
}

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
        // Observed after each addition, like by a signal handler: otherwise the compiler merges four into one.
        four_times!(SUM.with(|sum| {
            sum.set(sum.get() + one);
            black_box(sum);
        }));
    }
}

/// Compares a figure with its references.
fn remark(row: &Row, rows: Rows<'_>) -> String {
    let mut remarks = Vec::new();
    for other in ["bare_add", "fetch_add_private"] {
        if row.case != other && row.case != "bare_add" {
            remarks.extend(rows.times(row, other).map(|ratio| format!("{ratio:.2}x {other}")));
        }
    }
    remarks.extend(rows.times_one_thread(row));
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_counts_what_its_loop_says() {
        let places = Places::single("machine").unwrap();
        let wide = Counters::<Item, i64>::new(&places).unwrap();
        let narrow = Counters::<Item, i8>::new(&places).unwrap();
        let up = Counters::<Item, u16>::new(&places).unwrap();
        let root = places.root();
        add(&wide, root, 4000);
        add(&narrow, root, 4000);
        add(&up, root, 4000);
        let counted = (
            wide.precise(root, Item::Used),
            narrow.precise(root, Item::Used),
            up.precise(root, Item::Used),
        );
        assert_eq!(counted, (4000, 4000, 4000));
        assert_eq!(wide.precise(root, Item::Other), 0);
    }
}
