//! An experiment's variants, timed side by side in the same rounds on all CPUs.

use super::row::{Measured, Note, quartiles};
use ledgerline_bench::measure::harness::{self, Case, Plan, Rounds, Transfer};
use ledgerline_coherence::experiments::Interval;
use std::time::Duration;

/// If transfers of a row differ by more than this factor, the machine changed during the measurement.
const STEADY: f64 = 1.5;
/// The largest share of the time that other programs may have the CPUs without a note.
const WAITED: f64 = 0.1;
/// The least number of rounds for a significant difference.
const ROUNDS_LEAST: usize = 10;

/// The settings of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    /// The CPUs to measure on, one thread each.
    pub(super) cpus: &'a [usize],
    /// Whether rounds are short, as a test.
    pub(super) quick: bool,
    /// Called with the progress of the measurement.
    pub(super) progress: &'a (dyn Fn(&str) + Sync),
}

/// A variant's rounds. Round `i` of one came right before or after round `i` of the others.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    /// Nanoseconds an operation, the mean of the threads.
    rounds: Vec<f64>,
    transfer: Option<Transfer>,
    /// The share of the time in which other programs had the CPUs.
    waited: f64,
}

impl Timed {
    pub(super) fn figure(&self) -> Interval {
        quartiles(&self.rounds)
    }

    /// Merges several variants into one.
    pub(super) fn all<'a>(variants: impl Iterator<Item = &'a Timed>) -> Option<Timed> {
        variants.cloned().reduce(|mut all, one| {
            all.rounds.extend(one.rounds);
            all.transfer = all.transfer.or(one.transfer);
            all.waited = all.waited.max(one.waited);
            all
        })
    }

    /// Returns whether the two are not clearly different: neither is above the other in four of five rounds, of enough
    /// rounds.
    fn same_as(&self, other: &Timed) -> bool {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let above = pairs.clone().filter(|(one, other)| one > other).count();
        let below = pairs.clone().filter(|(one, other)| one < other).count();
        let count = pairs.count();
        count < ROUNDS_LEAST || 5 * above.max(below) < 4 * count
    }
}

impl Session<'_> {
    /// Times the cases on all CPUs, round by round in turns. Returns one result for each, in their order.
    pub(super) fn time(&self, cases: &[Case<'_>]) -> Vec<Timed> {
        let (runs, round) = if self.quick { (3, 1) } else { (15, 10) };
        let plan = Plan {
            threads: self.cpus.len(),
            runs,
            round: Duration::from_millis(round),
            cpus: self.cpus.to_vec(),
        };
        let measured = harness::rounds(cases, &plan, &|step| (self.progress)(&step.to_string()));
        let timed = |Rounds { threads, transfer, waited, .. }| {
            let rounds = 0..threads.first().map_or(0, Vec::len);
            let mean = |round: usize| {
                threads.iter().map(|thread| thread[round]).sum::<f64>() / threads.len() as f64
            };
            Timed { rounds: rounds.map(mean).collect(), transfer, waited }
        };
        measured.into_iter().map(timed).collect()
    }

    /// Describes the number of CPUs, and the limits of few.
    pub(super) fn few(&self) -> String {
        match self.cpus.len() {
            1 => "measured on one CPU, where nothing is shared".to_owned(),
            cpus @ 2..=7 => {
                format!("measured on {cpus} CPUs: the document's effects need many more")
            }
            cpus => format!("measured on {cpus} CPUs"),
        }
    }
}

/// Does `one` in a burst and then `other` in a burst, each `n` times in all.
#[inline(always)]
pub(super) fn in_bursts(n: u64, burst: u64, mut one: impl FnMut(), mut other: impl FnMut()) {
    for _ in 0..n / burst {
        for _ in 0..burst {
            one();
        }
        for _ in 0..burst {
            other();
        }
    }
}

/// Makes a row of timed variants, with the notes that follow from the figures.
pub(super) fn row(
    name: &str,
    before: Option<&Timed>,
    after: Option<&Timed>,
    ours: Option<&Timed>,
    about: Option<Note>,
) -> Measured {
    let timed = [before, after, ours];
    let transfers: Vec<Transfer> = timed.iter().flatten().filter_map(|one| one.transfer).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let medians: Vec<f64> = transfers.iter().map(|one| one.median).collect();
    let mut notes: Vec<Note> = about.into_iter().collect();
    if let (Some(before), Some(after)) = (before, after)
        && before.same_as(after)
    {
        notes.push(Note::Same);
    }
    let ends = || transfers.iter().flat_map(|one| [one.before, one.median, one.after]);
    let (low, high) = (ends().fold(f64::INFINITY, f64::min), ends().fold(0.0, f64::max));
    if high > low * STEADY {
        notes.push(Note::Moved { low, high });
    }
    let waited = timed.iter().flatten().map(|one| one.waited).fold(0.0, f64::max);
    if waited > WAITED {
        notes.push(Note::Waited(waited));
    }
    Measured {
        row: name.to_owned(),
        unit: "ns",
        before: before.map(Timed::figure),
        after: after.map(Timed::figure),
        ours: ours.map(Timed::figure),
        transfer_ns: (!medians.is_empty()).then(|| mean(&medians)),
        notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns rounds around a value, alternately above and below it.
    fn timed(around: f64, transfer: f64) -> Timed {
        let rounds = (0..12).map(|round| around + f64::from(round % 4) - 1.5).collect();
        let transfer = Transfer { median: transfer, before: transfer, after: transfer };
        Timed { rounds, transfer: Some(transfer), waited: 0.0 }
    }

    /// Returns the same with its rounds in another order.
    fn turned(mut timed: Timed) -> Timed {
        timed.rounds.rotate_left(2);
        timed
    }

    #[test]
    fn a_difference_must_show_in_most_rounds() {
        let note =
            |one: &Timed, other: &Timed| row("row", Some(one), Some(other), None, None).note();
        let told = Some("no difference between before and after can be told".to_owned());
        assert_eq!(note(&timed(10.0, 28.0), &turned(timed(10.5, 28.0))), told);
        assert_eq!(note(&timed(10.0, 28.0), &turned(timed(20.0, 28.0))), None);
        assert_eq!(note(&timed(20.0, 28.0), &turned(timed(10.0, 28.0))), None);
        // The machine drifts, and both variants with it. Pairs of rounds still show the difference.
        let drifting = |by: f64| {
            let mut timed = timed(10.0, 28.0);
            timed.rounds = (0..12).map(|round| by + f64::from(round)).collect();
            timed
        };
        assert_eq!(note(&drifting(0.0), &drifting(0.5)), None);
        let few = |mut timed: Timed| {
            timed.rounds.truncate(3);
            timed
        };
        assert_eq!(note(&few(timed(10.0, 28.0)), &few(timed(20.0, 28.0))), told);
    }

    #[test]
    fn a_row_says_when_the_machine_changed_or_was_shared() {
        let quiet = timed(10.0, 28.0);
        let about = Note::Table("about".to_owned());
        let row = |other: &Timed| row("row", None, Some(&quiet), Some(other), Some(about.clone()));
        assert_eq!(row(&timed(10.0, 29.0)).transfer_ns, Some(28.5));
        assert_eq!(row(&timed(10.0, 29.0)).note().unwrap(), "about");
        let moved = row(&timed(10.0, 110.0)).note().unwrap();
        assert!(moved.ends_with("a line took 28 to 110 ns to move: the machine changed meanwhile"));
        let shared = row(&Timed { waited: 0.42, ..quiet.clone() }).note().unwrap();
        assert!(shared.ends_with("others had the CPUs for up to 42 % of the time"));
    }

    #[test]
    fn several_variants_span_their_rounds() {
        let all = Timed::all([timed(10.0, 28.0), timed(20.0, 30.0)].iter()).unwrap();
        assert_eq!((all.rounds.len(), all.transfer.unwrap().median), (24, 28.0));
        assert!(all.figure().low < 12.0 && all.figure().high > 18.0);
        assert!(Timed::all([].iter()).is_none());
    }

    #[test]
    fn one_cpu_shares_nothing() {
        let few = |cpus: &[usize]| Session { cpus, quick: true, progress: &|_| () }.few();
        assert!(few(&[0]).contains("nothing is shared"));
        assert!(few(&[0, 1]).contains("need many more"));
    }
}
