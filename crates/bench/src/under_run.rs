//! The suite `run` measures the cost that `ledgerline run` adds to a program: to a malloc and its free, and to a start.
//!
//! Each figure is of a separate program, plain and under `run` in turns: the cost of a pair depends on where the kernel
//! places the program, its libraries and its stack, which differs each time. The program is in `program`.

use super::program::Work;
use super::rounds::{Run, of};
use super::row::{Row, Rows, thousandths};
use super::suite::{Suite, names};
use crate::measure::harness::Rounds;
use crate::measure::stats::{median, quantile};
use clap::ValueEnum;
use std::process::{Command, Stdio};

pub(super) static RUN: Suite =
    Suite { name: "run", help: HELP, cases: &names(&CASES), measure, remark };

const HELP: &str = "\
Cases (figures are nanoseconds; of a program the median of its rounds, and of
these the median over all programs):
  malloc              a malloc of 64 bytes and its free, plain
  malloc_run          the same under `ledgerline run`
  sizes               a malloc of 0 to 511 bytes, one after the other, and its free
  sizes_run           ...
  start               `true` is started, and waited for
  start_run           ...

Each of --runs pairs starts a program that runs plain and one under `run`. What
is added is the median of the pairs' differences, and stands with its quartiles.

Examples:
  ledgerline bench run
  ledgerline bench run --cases malloc,malloc_run --runs 101
  ledgerline bench run --json > figures.jsonl
  LD_PRELOAD=libjemalloc.so.2 ledgerline bench run
                      the same with another allocator beneath";

/// The work of each case's program, and whether it runs under `run`.
const CASES: [(&str, (Work, bool)); 6] = [
    ("malloc", (Work::Malloc, false)),
    ("malloc_run", (Work::Malloc, true)),
    ("sizes", (Work::Sizes, false)),
    ("sizes_run", (Work::Sizes, true)),
    ("start", (Work::Start, false)),
    ("start_run", (Work::Start, true)),
];

fn measure(run: &Run<'_>) -> Result<Vec<Row>, String> {
    let options = run.options;
    let mut rows = Vec::new();
    for work in [Work::Malloc, Work::Sizes, Work::Start] {
        let chosen = |name: &&&str| of(&CASES, name).is_some_and(|(of, _)| of == work);
        let chosen: Vec<&'static str> = options.cases.iter().filter(chosen).copied().collect();
        if chosen.is_empty() {
            continue;
        }
        let (mut plain, mut under) = (Vec::new(), Vec::new());
        // The first pair warms up.
        for round in 0..=options.runs {
            run.tell(format_args!("{work:?}: pair {round} of {}", options.runs));
            for turn in 0..2 {
                let is_under = (round + turn) % 2 == 1;
                let took = program(work, is_under, options.quick)?;
                if round > 0 {
                    if is_under { &mut under } else { &mut plain }.push(took);
                }
            }
        }
        let more: Vec<f64> = under.iter().zip(&plain).map(|(under, plain)| under - plain).collect();
        for name in chosen {
            let (_, is_under) = of(&CASES, name).expect("options name cases of the table");
            let took = if is_under { &under } else { &plain };
            let measured = Rounds::of_one(name, took.clone());
            let added = is_under.then(|| thousandths(median(&more)));
            let quartiles =
                is_under.then(|| [0.25, 0.75].map(|at| thousandths(quantile(&more, at))));
            rows.push(Row {
                added_ns: added,
                added_quartiles: quartiles,
                ..Row::new(run.pass(1, options.runs), &measured)
            });
        }
    }
    Ok(rows)
}

/// Runs a program with the work, and returns its measurement.
fn program(work: Work, under: bool, quick: bool) -> Result<f64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(&own);
    if under {
        command.args(["run", "--strict", "--"]).arg(&own);
    }
    let named = work.to_possible_value().expect("no work is hidden");
    command.args(["bench", "run", "--work", named.get_name()]).args(quick.then_some("--quick"));
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start myself: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let mut told = told.split_whitespace();
    let (took, place) = (told.next().and_then(|took| took.parse().ok()), told.next());
    match (took, place) {
        (Some(took), Some(place)) if output.status.success() => match (under, place) {
            (true, "run") | (false, "plain") => Ok(took),
            (false, _) => {
                Err("this command itself runs under `ledgerline run`, so that no program \
                               is plain: start it without"
                    .to_owned())
            }
            (true, _) => Err("the preloaded library did not come into the program".to_owned()),
        },
        _ => {
            let door = if under { "under `ledgerline run`" } else { "plain" };
            let why = String::from_utf8_lossy(&output.stderr);
            Err(format!("a program {door} ended with {}: {}", output.status, why.trim_end()))
        }
    }
}

fn remark(row: &Row, rows: Rows<'_>) -> String {
    let (Some(added), Some([low, high])) = (row.added_ns, row.added_quartiles) else {
        return String::new();
    };
    let plain = row.case.trim_end_matches("_run");
    let decimals = if added.abs() < 100.0 { 2 } else { 0 };
    let times = rows.times(row, plain).map(|ratio| format!(", {ratio:.2}x {plain}"));
    let times = times.unwrap_or_default();
    format!("{added:+.decimals$} ns ({low:+.decimals$} to {high:+.decimals$}) on {plain}{times}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_says_what_run_adds_with_its_quartiles() {
        let row = |case: &str, ns: f64, added: Option<[f64; 3]>| Row {
            case: case.to_owned(),
            threads: 1,
            ns_per_op: ns,
            added_ns: added.map(|[added, ..]| added),
            added_quartiles: added.map(|[_, low, high]| [low, high]),
            ..Row::default()
        };
        let rows = [
            row("malloc", 8.0, None),
            row("malloc_run", 12.0, Some([3.9, 3.5, 4.25])),
            row("start_run", 700_000.0, Some([220_000.4, 200_000.0, 230_000.0])),
        ];
        let remark = |at: usize| remark(&rows[at], Rows(&rows));
        assert_eq!(remark(0), "");
        assert_eq!(remark(1), "+3.90 ns (+3.50 to +4.25) on malloc, 1.50x malloc");
        assert_eq!(remark(2), "+220000 ns (+200000 to +230000) on start");
    }
}
