//! Compares real runs with predictions of the same patterns, for the machine as it was measured in the same seconds.

use super::bracket::{Run, WORK, runs};
use super::describe::Described;
use super::modes::Mode;
use super::patterns::{Part, Pattern};
use super::predict::{self, predict};
use super::rounds::{Pair, measure};
use super::spread::Spread;
use super::work::multiplications;
use ledgerline_view::terminal::progress::Progress;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Blocks of a case in a pass.
const BLOCKS: usize = 10;
/// The fewest undisturbed runs of a case that counts.
const LEAST: usize = 8;
/// A run counts if additions took at most this times their undisturbed time.
const PACE: f64 = 1.1;
/// The private work from which predictions are scored; tighter loops are only shown.
pub(super) const SCORED: usize = 10;

/// Real runs of one pattern, with an amount of private work, on a number of CPUs.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pattern: Pattern,
    work: usize,
    cpus: usize,
    runs: Vec<Run>,
}

/// The result of a case in one mode of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) pattern: &'static str,
    /// The part of the CPUs, if they do different things.
    #[serde(skip_serializing_if = "Part::is_all")]
    pub(super) part: Part,
    pub(super) cpus: usize,
    /// Private work of an operation, in cycles of the measured clock.
    pub(super) work_cycles: f64,
    /// A transfer between the first two CPUs, by ping-pong before and after each run.
    pub(super) transfer_ns: f64,
    /// Undisturbed runs.
    pub(super) runs: usize,
    /// The time of an operation; nine tenths of the runs lie within low and high.
    pub(super) real_ns: f64,
    pub(super) real_low_ns: f64,
    pub(super) real_high_ns: f64,
    pub(super) predicted_ns: f64,
    /// The error of the prediction, in hundredths of the measured time.
    pub(super) error_percent: f64,
    /// Whether it counts: there is enough private work, and the model claims to know the pattern.
    pub(super) scored: bool,
}

/// Returns the numbers of CPUs to try: 2, doubled, and all.
pub(super) fn counts(cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(2), |count| Some(count * 2))
        .take_while(|&count| count < cpus)
        .collect();
    counts.push(cpus);
    counts
}

/// Runs every case in `passes` passes, and measures the pairs between them. It does fewer passes if they take longer
/// than `patience`.
///
/// # Errors
/// If a CPU cannot be used.
pub(super) fn collect(
    cpus: &[usize],
    pairs: &mut [Pair],
    passes: usize,
    patience: Duration,
    progress: &Progress,
) -> Result<Vec<Case>, String> {
    let start = Instant::now();
    let mut cases: Vec<Case> = Vec::new();
    for count in counts(cpus.len()) {
        for (pattern, _) in Pattern::ALL {
            let case = |work| Case { pattern, work, cpus: count, runs: Vec::new() };
            cases.extend(WORK.map(case));
        }
    }
    for pass in 1..=passes {
        if pass > 1 && start.elapsed() > patience {
            break;
        }
        for case in &mut cases {
            let Case { pattern, work, cpus: count, .. } = *case;
            progress.show(format_args!(
                "pass {pass} of {passes}: {}, {count} CPUs, {work} cycles of work",
                pattern.name()
            ));
            case.runs.extend(runs(&cpus[..count], pattern, work, BLOCKS, pass)?);
        }
        measure(pairs, 1, patience, progress)?;
    }
    Ok(cases)
}

/// Returns the rows of one mode. A case has a row if enough of its runs were in the mode from beginning to end. It is
/// predicted with the mode's machine, and with the transfer that was measured around its own runs.
///
/// # Errors
/// The errors of the simulation.
pub(super) fn rows(
    cases: &[Case],
    described: &Described,
    multiplication_cycles: f64,
) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for case in cases {
        for &part in case.pattern.parts() {
            rows.extend(row(case, part, described, multiplication_cycles)?);
        }
    }
    Ok(rows)
}

fn row(
    case: &Case,
    part: Part,
    described: &Described,
    multiplication_cycles: f64,
) -> Result<Option<Row>, String> {
    let mode = &described.mode;
    let cycle = 1.0 / described.machine.clock_ghz.value;
    let kept: Vec<&Run> = case.runs.iter().filter(|run| belongs(run, mode, cycle)).collect();
    let games = kept.iter().flat_map(|run| [run.before, run.after]);
    let (Some(real), Some(transfer), true) = (
        Spread::of(kept.iter().map(|run| run.nanoseconds(part))),
        Spread::of(games),
        kept.len() >= LEAST,
    ) else {
        return Ok(None);
    };
    let mut settings = described.machine.best();
    let scale = transfer.value / mode.median;
    for latency in settings.transfer.iter_mut().flatten() {
        *latency = (*latency as f64 * scale).round() as u64;
    }
    let work_cycles = multiplications(case.work) as f64 * multiplication_cycles;
    let predicted = predict(case.pattern, work_cycles, case.cpus, &settings)?;
    let predicted = predict::nanoseconds(&predicted, part.of(case.cpus));
    Ok(Some(Row {
        pattern: case.pattern.name(),
        part,
        cpus: case.cpus,
        work_cycles,
        transfer_ns: transfer.value,
        runs: kept.len(),
        real_ns: real.value,
        real_low_ns: real.low,
        real_high_ns: real.high,
        predicted_ns: predicted,
        error_percent: 100.0 * (predicted / real.value - 1.0),
        scored: case.work >= SCORED && case.pattern.claimed(),
    }))
}

/// Returns whether a run was in a mode before and after, on CPUs at their undisturbed pace.
fn belongs(run: &Run, mode: &Mode, cycle: f64) -> bool {
    run.undisturbed && run.cycle <= PACE * cycle && mode.holds(run.before) && mode.holds(run.after)
}

/// Returns the median and the worst of the scored errors, in hundredths; none if there is none.
pub(super) fn score(rows: &[Row]) -> Option<[f64; 2]> {
    let scored = rows.iter().filter(|row| row.scored).map(|row| row.error_percent.abs());
    let mut errors: Vec<f64> = scored.collect();
    errors.sort_unstable_by(f64::total_cmp);
    let worst = *errors.last()?;
    Some([ledgerline_bench::measure::stats::median(&errors), worst])
}

/// Returns rows as comma-separated values, under a line of names.
pub(super) fn csv(date: &str, model: &str, rows: &[Row]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "date,cpu,pattern,cpus,work_cycles,transfer_ns,runs,real_ns,real_low_ns,real_high_ns,predicted_ns,\
         error_percent,scored\n",
    );
    let model = model.replace([',', '"', '\n'], " ");
    for row in rows {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{date},{model},{}{},{},{:.0},{:.2},{},{:.2},{:.2},{:.2},{:.2},{:.1},{}",
            row.pattern,
            row.part.suffix().replace(", ", " "),
            row.cpus,
            row.work_cycles,
            row.transfer_ns,
            row.runs,
            row.real_ns,
            row.real_low_ns,
            row.real_high_ns,
            row.predicted_ns,
            row.error_percent,
            row.scored
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cpus_double_from_two_to_all() {
        assert_eq!(counts(2), [2]);
        assert_eq!(counts(3), [2, 3]);
        assert_eq!(counts(8), [2, 4, 8]);
        assert_eq!(counts(12), [2, 4, 8, 12]);
    }

    #[test]
    fn a_run_belongs_to_a_mode_that_held_before_and_after() {
        let mode = Mode { median: 28.0, low: 27.0, high: 29.0, count: 9 };
        let run = |before, after, undisturbed| {
            let per_operation = vec![1.0, 1.0];
            belongs(&Run { before, after, per_operation, cycle: 0.28, undisturbed }, &mode, 0.27)
        };
        assert!(run(28.0, 30.0, true));
        assert!(run(28.0, 28.0, true));
        let slow = Run {
            before: 28.0,
            after: 28.0,
            per_operation: vec![1.0, 1.0],
            cycle: 0.5,
            undisturbed: true,
        };
        assert!(!belongs(&slow, &mode, 0.27));
        assert!(!run(28.0, 110.0, true) && !run(110.0, 28.0, true) && !run(28.0, 28.0, false));
    }

    #[test]
    fn the_score_is_of_what_counts() {
        let row = |error_percent, scored| Row {
            pattern: "shared",
            part: Part::All,
            cpus: 2,
            work_cycles: 100.0,
            transfer_ns: 28.0,
            runs: 9,
            real_ns: 60.0,
            real_low_ns: 59.0,
            real_high_ns: 61.0,
            predicted_ns: 60.0,
            error_percent,
            scored,
        };
        let rows = [row(90.0, false), row(-3.0, true), row(1.0, true), row(7.0, true)];
        assert_eq!(score(&rows), Some([3.0, 7.0]));
        assert_eq!(score(&rows[..1]), None);
        let text = csv("2026-11-21", "A, \"B\"", &rows[1..2]);
        assert_eq!(
            text.lines().nth(1),
            Some("2026-11-21,A   B ,shared,2,100,28.00,9,60.00,59.00,61.00,60.00,-3.0,true")
        );
    }
}
