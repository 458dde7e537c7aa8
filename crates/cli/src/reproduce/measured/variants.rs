//! An experiment's variants, timed side by side in the same rounds on all CPUs.

use super::{Figure, Measured, Request};
use crate::timing::harness::{self, Case, Plan, Step, Transfer};
use crate::timing::machine;
use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

/// Transfers that differ by more than this within a row mean that the machine changed meanwhile.
const STEADY: f64 = 1.5;

/// The CPUs to measure on, one thread each.
pub(super) fn cpus() -> Result<Vec<usize>, String> {
    machine::allowed_cpus().map_err(|error| format!("cannot tell which CPUs may be used: {error}"))
}

/// A variant's figures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) figure: Figure,
    pub(super) transfer: Option<Transfer>,
}

/// Times the cases on all CPUs, round by round in turns; a figure for each, in their order.
pub(super) fn time(
    cases: &[Case<'_>],
    cpus: &[usize],
    request: &Request,
    progress: &mut dyn FnMut(&str),
) -> Vec<Timed> {
    let (runs, round) = if request.quick { (3, 1) } else { (15, 10) };
    let plan = Plan {
        threads: cpus.len(),
        runs,
        round: Duration::from_millis(round),
        cpus: cpus.to_vec(),
    };
    let (steps, told) = mpsc::channel::<Step>();
    let measured = std::thread::scope(|scope| {
        let plan = &plan;
        let timing = scope.spawn(move || {
            // Whoever no longer listens misses nothing else.
            harness::measure(cases, plan, &|step| {
                let _ = steps.send(step);
            })
        });
        for step in told {
            progress(&match step.round {
                0 => format!("warming up: {}", step.case),
                round => format!("round {round} of {runs}: {}", step.case),
            });
        }
        timing.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
    });
    measured
        .into_iter()
        .map(|case| Timed { figure: case.ns_per_op.into(), transfer: case.transfer })
        .collect()
}

/// A row of timed variants, with the notes that follow from the figures themselves.
pub(super) fn row(
    name: &str,
    before: Option<Timed>,
    after: Option<Timed>,
    ours: Option<Timed>,
    about: Option<&str>,
) -> Measured {
    let timed = [before, after, ours];
    let transfers: Vec<Transfer> = timed.iter().flatten().filter_map(|one| one.transfer).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let medians: Vec<f64> = transfers.iter().map(|one| one.median).collect();
    let mut notes: Vec<String> = about.map(str::to_owned).into_iter().collect();
    if let (Some(before), Some(after)) = (before, after)
        && same(before.figure, after.figure)
    {
        notes
            .push("before and after lie within each other's spread: no difference seen".to_owned());
    }
    let ends = || transfers.iter().flat_map(|one| [one.before, one.median, one.after]);
    let (low, high) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
    if high > low * STEADY {
        notes.push(format!(
            "a line took {low:.0} to {high:.0} ns to move: the machine changed meanwhile"
        ));
    }
    Measured {
        row: name.to_owned(),
        unit: "ns",
        before: before.map(|one| one.figure),
        after: after.map(|one| one.figure),
        ours: ours.map(|one| one.figure),
        transfer_ns: (!medians.is_empty()).then(|| mean(&medians)),
        note: (!notes.is_empty()).then(|| notes.join("; ")),
    }
}

/// Whether two figures lie within each other's spread.
fn same(one: Figure, other: Figure) -> bool {
    let within = |figure: Figure, value| (figure.low..=figure.high).contains(&value);
    within(one, other.median) && within(other, one.median)
}

/// What few CPUs cannot show.
pub(super) fn few(cpus: usize) -> String {
    match cpus {
        1 => "measured on one CPU, where nothing is shared".to_owned(),
        2..=7 => format!("measured on {cpus} CPUs: the document's effects need many more"),
        _ => format!("measured on {cpus} CPUs"),
    }
}

/// A line for the user from whatever went wrong while a variant was made.
pub(super) fn cannot(error: Box<dyn Error>) -> String {
    format!("cannot make what is to be measured: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(median: f64, low: f64, high: f64, transfer: f64) -> Timed {
        let transfer = Transfer { median: transfer, before: transfer, after: transfer };
        Timed { figure: Figure { median, low, high }, transfer: Some(transfer) }
    }

    #[test]
    fn a_row_says_when_there_is_no_difference_and_when_the_machine_changed() {
        let near = [timed(10.0, 9.0, 12.0, 28.0), timed(11.0, 9.5, 12.0, 29.0)];
        let row_of = |one, other| row("row", Some(one), Some(other), None, None);
        let same = row_of(near[0], near[1]);
        assert_eq!(same.transfer_ns, Some(28.5));
        assert!(same.note.unwrap().contains("no difference seen"));
        assert_eq!(row_of(near[0], timed(20.0, 19.0, 21.0, 28.0)).note, None);
        let moved = row_of(near[0], timed(20.0, 19.0, 21.0, 110.0)).note.unwrap();
        assert_eq!(moved, "a line took 28 to 110 ns to move: the machine changed meanwhile");
    }

    #[test]
    fn one_cpu_shares_nothing() {
        assert!(few(1).contains("nothing is shared"));
        assert!(few(2).contains("need many more"));
    }
}
