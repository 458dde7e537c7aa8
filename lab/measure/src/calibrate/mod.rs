//! `ledgerline calibrate` measures the times of this machine's lines, atomics and locks, and writes a machine file.
//! On request it compares simulations with real runs.
//!
//! | module       | what it holds                                                      |
//! |--------------|--------------------------------------------------------------------|
//! | `options`    | the command's options                                              |
//! | `team`       | threads on CPUs, in blocks; whether each was disturbed             |
//! | `work`       | private work of a known length, and the clock                      |
//! | `probe`      | the measurements of a pair of CPUs; `queue_lock`, `chase`: for them |
//! | `fights`     | the times of two CPUs that want one line, real and simulated       |
//! | `fit`        | the settings with which the simulation takes the same              |
//! | `rounds`     | measurements over some seconds                                     |
//! | `spread`     | a figure over rounds                                               |
//! | `modes`      | whether the machine changed in between                             |
//! | `topology`   | the kernel's data on the places of CPUs                            |
//! | `describe`   | a machine file of all figures, and the unknown ones                |
//! | `world`      | one description of a program, for real memory and the simulation   |
//! | `patterns`   | the effects of CPUs on each other                                  |
//! | `bracket`    | real runs between two games of ping-pong                           |
//! | `predict`    | simulated ones                                                     |
//! | `validate`   | the two held against each other                                    |
//! | `report`     | table and JSON                                                     |

mod bracket;
mod chase;
mod describe;
mod fights;
mod fit;
mod modes;
mod options;
mod patterns;
mod predict;
mod probe;
mod queue_lock;
mod report;
mod rounds;
mod spread;
mod team;
mod topology;
mod validate;
mod work;
mod world;

pub use options::{CalibrateArgs, LONG_ABOUT};

use self::describe::{Caches, Described, Subject};
use self::report::Report;
use self::rounds::{LEAST_ROUNDS, Pair};
use self::topology::Places;
use ledgerline_bench::measure::machine;
use ledgerline_coherence::machine::Machine;
use ledgerline_view::terminal::output;
use ledgerline_view::terminal::progress::Progress;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The time limit of rounds; validation has four times as much.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most CPUs whose every pair is measured.
const MATRIX: usize = 64;

/// Measures, writes and prints. The exit status is 0; 1 if something could not be measured or written; 2 for a bad
/// command line.
pub fn main(args: &CalibrateArgs) -> ExitCode {
    match args.cpus() {
        Ok(cpus) => output::finish("calibrate", calibrate(args, &cpus)),
        Err(error) => output::fail("calibrate", &error, 2),
    }
}

fn calibrate(args: &CalibrateArgs, cpus: &[usize]) -> Result<String, String> {
    let progress = Progress::on_stderr();
    let places = Places::of(cpus);
    let mut pairs = rounds::pairs(cpus, &places);
    rounds::measure(&mut pairs, args.rounds(), PATIENCE, &progress)?;
    let cases = match args.passes() {
        0 => None,
        passes => Some(validate::collect(cpus, &mut pairs, passes, 4 * PATIENCE, &progress)?),
    };
    let caches = caches(cpus[0], args.quick, &progress);
    let matrix = matrix(cpus, &progress)?;

    let (model, date) = (machine::model(), machine::today());
    let subject = Subject { model: &model, date: &date, places: &places, pairs: &pairs, caches };
    progress.show("settings with which the model takes what fights for a line took");
    let (described, left_out) = describe_modes(&subject)?;
    drop(progress);
    let validated = cases.map(|cases| {
        let rows = described.iter().map(|described| {
            let cycles = multiplication_cycles(&pairs[0], described);
            validate::rows(&cases, described, cycles)
        });
        rows.collect::<Result<Vec<_>, String>>()
    });
    let validated = validated.transpose()?;
    if let Some(path) = &args.out {
        for (index, described) in described.iter().enumerate() {
            write(&path_of(path, index, described), &described.machine.to_toml())?;
        }
    }
    if let (Some(path), Some(rows)) = (&args.csv, &validated) {
        write(path, &validate::csv(&date, &model, &rows.concat()))?;
    }
    let report = Report {
        machine: &machine::describe(cpus.len()),
        pairs: &pairs,
        matrix: &matrix,
        described: &described,
        left_out: &left_out,
        validated: validated.as_deref(),
    };
    Ok(if args.json { report::json(&report) } else { report::table(&report) })
}

/// Returns the machine in each of its modes, the most frequent first, and the reasons for leaving out others.
fn describe_modes(subject: &Subject<'_>) -> Result<(Vec<Described>, Vec<String>), String> {
    let pair = &subject.pairs[0];
    let modes = pair.modes();
    let (mut described, mut left_out) = (Vec::new(), Vec::new());
    for mode in &modes {
        let visits = pair.during(mode).count();
        let outcome = if visits < LEAST_ROUNDS && modes.len() > 1 {
            Err(format!("only {visits} rounds were in it from beginning to end"))
        } else {
            subject.in_mode(mode)
        };
        match outcome {
            Ok(machine) => {
                let text = machine.machine.to_toml();
                Machine::parse("this machine", &text)
                    .map_err(|error| format!("what was measured makes no machine: {error}"))?;
                described.push(machine);
            }
            Err(why) => left_out.push(format!(
                "transfers of {:.1} ns came up and are left out: {why}",
                mode.median
            )),
        }
    }
    match left_out.first() {
        Some(why) if described.is_empty() => Err(why.clone()),
        _ if described.is_empty() => Err("no game of ping-pong could be played".to_owned()),
        _ => Ok((described, left_out)),
    }
}

/// Returns the cycles of a multiplication, from the chain of them and the chain of additions.
fn multiplication_cycles(pair: &Pair, described: &Described) -> f64 {
    let cycles = pair.figure(&described.mode, |found| found.multiplication / found.cycle);
    cycles.map_or(f64::NAN, |cycles| cycles.value)
}

/// Walks data that is larger than every first cache and fits most second ones, and data larger than every last
/// cache.
fn caches(cpu: usize, quick: bool, progress: &Progress) -> Caches {
    progress.show("loads from the second cache and from memory");
    let memory = if quick { None } else { chase::chase(cpu, 256 << 20) };
    Caches { second: chase::chase(cpu, 512 << 10), memory }
}

/// Measures a transfer between every two CPUs.
fn matrix(cpus: &[usize], progress: &Progress) -> Result<Vec<(usize, usize, f64)>, String> {
    let mut matrix = Vec::new();
    if (3..=MATRIX).contains(&cpus.len()) {
        for (index, &one) in cpus.iter().enumerate() {
            for &other in &cpus[index + 1..] {
                progress.show(format_args!("CPUs {one} and {other}"));
                let line = ledgerline_bench::measure::transfer::Line::default();
                let games = team::play(&[one, other], |seat| probe::game(&line, seat))?;
                matrix.push((one, other, games[0]));
            }
        }
    }
    Ok(matrix)
}

/// Returns the path of a mode's file. The first mode has the user's path; others are beside it, named by their
/// transfers.
fn path_of(path: &Path, index: usize, described: &Described) -> PathBuf {
    if index == 0 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{:.0}ns.toml", described.mode.median))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
