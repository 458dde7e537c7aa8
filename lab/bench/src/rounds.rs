//! The passes of a suite whose cases are timed in rounds: one for each number of threads.

use super::options::Options;
use super::row::{Pass, Row};
use ledgerline_measure::harness::{Measured, Plan, Step};
use ledgerline_terminal::progress::Progress;
use std::error::Error;

/// Makes the named cases and times them as planned.
pub(super) type Timed<'a> = dyn Fn(&[&'static str], &Plan, &(dyn Fn(Step) + Sync)) -> Result<Vec<Measured>, Box<dyn Error>>
    + 'a;

/// Measures the named cases with each number of threads that was asked for.
pub(super) fn measure(
    suite: &str,
    names: &[&'static str],
    options: &Options,
    progress: &Progress,
    timed: &Timed<'_>,
) -> Result<Vec<Row>, String> {
    let mode = ledgerline::percpu::detect().to_string();
    let mut rows = Vec::new();
    for &threads in &options.threads {
        if names.is_empty() {
            break;
        }
        let plan = Plan {
            threads,
            runs: options.runs,
            round: options.round(),
            cpus: options.cpus.clone(),
        };
        let plural = if threads == 1 { "" } else { "s" };
        let what = format!("{mode}, {threads} thread{plural}");
        let measured = timed(names, &plan, &|step| progress.show(format_args!("{what}: {step}")))
            .map_err(|error| format!("{what}: {error}"))?;
        let pass = pass(suite, &mode, threads, plan.runs, options);
        rows.extend(measured.iter().map(|measured| Row::new(pass, measured)));
    }
    Ok(rows)
}

/// What the rows of one pass have in common.
pub(super) fn pass<'a>(
    suite: &'a str,
    mode: &'a str,
    threads: usize,
    runs: usize,
    options: &Options,
) -> Pass<'a> {
    Pass { suite, mode, threads, runs, oversubscribed: threads > options.cpus.len() }
}
