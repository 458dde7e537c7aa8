//! The suite `charge` measures the cost of an update on trees of several depths and widths, and the cost of its
//! alternatives.

use super::cases::{CASES, MILLION, UNWATCHED, WATCHED};
use super::guards;
use super::queries;
use super::rounds::{Made, Run, insert};
use super::row::{Pass, Row, Rows, thousandths};
use super::suite::{Suite, names};
use super::watched;
use crate::measure::harness::Rounds;
use crate::measure::machine;
use crate::measure::stats::median;
use ledgerline::Ledger;
use std::fs::File;
use std::io::Write;
use std::time::Instant;

pub(super) static CHARGE: Suite =
    Suite { name: "charge", help: HELP, cases: &names(&CASES), measure, remark };

const HELP: &str = "\
Cases (figures are nanoseconds an operation and thread):
  bare_add            add to a per-CPU counter without limits: the floor
  pair_depth1         charge and uncharge the root
  pair_depth3         the same for /a/b: three levels, the root included
  pair_depth8         the same for a group with eight levels
  pair_groups1        the same for one group below the root, its handle loaded
                      from a list each time
  pair_groups8        ... for 8 groups in random order
  pair_groups1000     ... for 1 000 groups
  pair_groups10000    ... for 10 000 groups
  guard_depth1        charge the root by a guard (Group::try_charge) and drop it
  guard_depth3        the same for /a/b; times_units: beside the units alone
  guard_depth8        the same for a group with eight levels
  guard_question      ... with `?` into Box<dyn Error>
  guard_vec           ... pushed to a Vec and popped
  guard_split         ... split in two, and both dropped
  guard_transfer      ... moved to a sibling, and dropped there
  atomics_depth3      for comparison: the pair on three levels of plain atomics
  mutex_depth3        for comparison: the pair on three levels behind a mutex
  create_destroy      create a group below the root and destroy it
  large_64k           charge 64 KiB of /tenant/query by a guard and drop it
  large_1m            the same with 1 MiB
  grow_shrink         hold a thousand guards of 64 KiB, then drop them
  grow_shrink_1m      the same with 1 MiB
  own_query           the same with 64 KiB, each thread in a query of its own
  short_query         create a query, hold 20 guards of 64 KiB, drop them and
                      destroy the query; an operation is one charge
  transfer_cells      move 64 KiB to a sibling and back; an operation is one move
  refusal             ask a full query for 64 KiB
  atomics_peaks       for comparison: the pair on three levels of atomics that
                      check limits and keep peaks
  atomics_grow        ... a thousand added, then a thousand subtracted
  atomics_refusal     ... refused at the first level
  mutex_grow          ... behind a mutex
  pair_unwatched      the pair on three levels of a ledger in a file, with
                      10 000 groups besides
  pair_watched        the same, while another process looks at all groups at the
                      beginning of each round and every 100 ms; times_unwatched:
                      beside the one that nobody looks at
  create_million      create 1 048 576 groups: time and memory, on one thread

With several threads all of them use the same groups. What moving a cache line
between the first two CPUs costs at that moment (transfer_ns) is measured before
and after every round: it decides how slow shared counters are, and it changes.

All modes are measured in turn, each in a process of its own: rseq (restartable
sequences), owned (a column for each thread) and fallback (atomics on a column
chosen by thread).

Examples:
  ledgerline bench charge
  ledgerline bench charge --threads 1,2,4 --cases bare_add,pair_depth1
  ledgerline bench charge --mode rseq --json > figures.jsonl";

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let (in_rounds, million) = run.apart(MILLION);
    let mut rows = run.in_rounds(&run.options.threads, &in_rounds, |turn| {
        // Each case has a ledger of its own.
        let quick = run.options.quick;
        let ledgers = in_rounds.iter().map(|case| ledger(case, quick)).collect::<Made<Vec<_>>>()?;
        turn.time(&CASES, |at, make| match &ledgers[at] {
            (ledger, Some(file)) if in_rounds[at] == WATCHED => watched::watched(ledger, file),
            (ledger, _) => make(ledger, turn.plan.threads),
        })
    })?;
    let ratios: Vec<Option<f64>> = rows.iter().map(|row| times_units(row, Rows(&rows))).collect();
    rows.iter_mut().zip(ratios).for_each(|(row, ratio)| row.times_units = ratio.map(thousandths));
    let ratios: Vec<Option<f64>> =
        rows.iter().map(|row| times_unwatched(row, Rows(&rows))).collect();
    rows.iter_mut()
        .zip(ratios)
        .for_each(|(row, ratio)| row.times_unwatched = ratio.map(thousandths));
    if million {
        let groups = if run.options.quick { 1 << 16 } else { 1 << 20 };
        run.tell(MILLION);
        let row = create_many(groups, run.pass(1, run.options.runs.min(3)))
            .map_err(|error| format!("{MILLION}: {error}"))?;
        insert(&mut rows, row);
    }
    Ok(rows)
}

/// Makes a case's own ledger, with its file.
fn ledger(case: &str, quick: bool) -> Made<(Ledger, Option<File>)> {
    if [UNWATCHED, WATCHED].contains(&case) {
        let (ledger, file) = watched::ledger(quick)?;
        return Ok((ledger, Some(file)));
    }
    Ok((Ledger::new()?, None))
}

/// Fills a ledger until it has this many groups, the root included.
fn create_many(groups: u64, pass: Pass<'_>) -> Made<Row> {
    let mut seconds = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..pass.runs {
        let before = machine::resident_bytes().unwrap_or(0);
        let start = Instant::now();
        let ledger = Ledger::new()?;
        let root = ledger.root();
        for number in 1..groups {
            let mut name = [0u8; 20];
            root.create(decimal(number, &mut name))?;
        }
        seconds.push(start.elapsed().as_secs_f64());
        resident.push(machine::resident_bytes().unwrap_or(0).saturating_sub(before) as f64);
    }
    let ns: Vec<f64> = seconds.iter().map(|s| s * 1e9 / groups as f64).collect();
    let measured = Rounds::of_one(MILLION, ns);
    Ok(Row {
        groups: Some(groups),
        seconds: Some(thousandths(median(&seconds))),
        resident_bytes: Some(median(&resident) as u64),
        ..Row::new(pass, &measured)
    })
}

/// Writes a number without the heap.
fn decimal(number: u64, into: &mut [u8; 20]) -> &str {
    let mut rest = &mut into[..];
    write!(rest, "{number}").expect("a number of 64 bits has at most 20 digits");
    let length = 20 - rest.len();
    std::str::from_utf8(&into[..length]).expect("digits are UTF-8")
}

/// Returns the cost of a guard relative to the units alone.
fn times_units(row: &Row, rows: Rows<'_>) -> Option<f64> {
    rows.times(row, guards::beside(&row.case)?)
}

/// Returns the cost of an observer.
fn times_unwatched(row: &Row, rows: Rows<'_>) -> Option<f64> {
    rows.times(row, UNWATCHED).filter(|_| row.case == WATCHED)
}

/// Compares a figure with its references.
fn remark(row: &Row, rows: Rows<'_>) -> String {
    let of = |case: &str| rows.times(row, case);
    let mut remarks = Vec::new();
    match row.case.as_str() {
        "pair_depth1" => {
            remarks.extend(of("bare_add").map(|ratio| format!("{ratio:.2}x bare_add")));
            for peer in ["atomics_depth3", "mutex_depth3"] {
                remarks.extend(of(peer).map(|ratio| against(ratio, peer)));
            }
        }
        "pair_depth3" | "pair_depth8" => remarks.extend(
            of("pair_depth1").map(|r| format!("{:+.1} % on pair_depth1", (r - 1.0) * 100.0)),
        ),
        WATCHED => remarks.extend(
            times_unwatched(row, rows)
                .map(|ratio| format!("{:+.1} % on {}", (ratio - 1.0) * 100.0, UNWATCHED)),
        ),
        case if case.starts_with("pair_groups") => {
            for one in ["pair_groups1", "pair_depth1"].into_iter().filter(|&one| one != case) {
                remarks.extend(of(one).map(|ratio| format!("{ratio:.2}x {one}")));
            }
        }
        case => {
            let units = times_units(row, rows).zip(guards::beside(case));
            remarks.extend(units.map(|(ratio, units)| format!("{ratio:.2}x {units}")));
            for peer in queries::beside(case) {
                remarks.extend(of(peer).map(|ratio| against(ratio, peer)));
            }
        }
    }
    remarks.extend(rows.times_one_thread(row));
    if let (Some(groups), Some(seconds), Some(bytes)) =
        (row.groups, row.seconds, row.resident_bytes)
    {
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        remarks.push(format!("{groups} groups in {seconds:.2} s, {mebibytes:.0} MiB resident"));
    }
    remarks.join(", ")
}

fn against(ratio: f64, peer: &str) -> String {
    if ratio <= 1.0 {
        format!("{:.1}x faster than {peer}", 1.0 / ratio)
    } else {
        format!("{ratio:.1}x slower than {peer}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(threads: usize) -> Pass<'static> {
        Pass { suite: "charge", mode: "rseq", threads, runs: 3, oversubscribed: false }
    }

    fn row(case: &'static str, threads: usize, ns: f64) -> Row {
        Row::new(pass(threads), &Rounds::of_one(case, vec![ns]))
    }

    #[test]
    fn remarks_give_the_ratios_that_targets_are_stated_in() {
        let rows = [
            row("bare_add", 1, 1.0),
            row("pair_depth1", 1, 2.5),
            row("pair_depth8", 1, 2.6),
            row("pair_groups1", 1, 2.5),
            row("pair_groups1000", 1, 3.0),
            row("atomics_depth3", 1, 15.0),
            row("mutex_depth3", 1, 2.0),
            row("pair_depth1", 2, 2.75),
            row("pair_depth3", 1, 2.5),
            row("guard_vec", 1, 3.5),
            row("pair_unwatched", 1, 2.5),
            row("pair_watched", 1, 2.525),
            row("atomics_grow", 1, 14.0),
            row("short_query", 1, 28.0),
        ];
        let remark = |at: usize| remark(&rows[at], Rows(&rows));
        assert_eq!(remark(0), "");
        assert_eq!(
            remark(1),
            "2.50x bare_add, 6.0x faster than atomics_depth3, 1.2x slower than mutex_depth3"
        );
        assert_eq!(remark(2), "+4.0 % on pair_depth1");
        assert_eq!(remark(3), "1.00x pair_depth1");
        assert_eq!(remark(4), "1.20x pair_groups1, 1.20x pair_depth1");
        assert_eq!(remark(7), "1.10x one thread", "two threads have no others to compare with");
        assert_eq!(remark(9), "1.40x pair_depth3");
        assert_eq!(remark(11), "+1.0 % on pair_unwatched");
        assert_eq!(remark(13), "2.0x slower than atomics_grow");
    }

    #[test]
    fn many_groups_take_time_and_memory() {
        let row = create_many(1000, pass(1)).unwrap();
        assert_eq!((row.groups, row.runs, row.case.as_str()), (Some(1000), 3, MILLION));
        assert!(row.min > 0.0 && row.min <= row.ns_per_op && row.ns_per_op <= row.max);
        assert!(row.seconds.is_some() && row.resident_bytes.is_some());
        assert!(remark(&row, Rows(&[])).starts_with("1000 groups in 0.0"));
    }

    #[test]
    fn numbers_are_written_without_the_heap() {
        assert_eq!(decimal(0, &mut [0; 20]), "0");
        assert_eq!(decimal(u64::MAX, &mut [0; 20]), u64::MAX.to_string());
    }
}
