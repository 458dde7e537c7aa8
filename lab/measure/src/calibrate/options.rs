//! What the user asked for, checked.

use crate::machine::allowed_cpus;
use clap::Args;
use std::path::{Path, PathBuf};

/// `ledgerline help calibrate`.
pub const LONG_ABOUT: &str = "\
Measure what this machine's cache lines, atomics and locks take, and write a machine file

Two CPUs hand lines to each other for some seconds, in blocks short enough to be told apart from whoever else
runs; disturbed blocks are dropped. The file has each figure with its bounds and its source, and leaves out, or
marks as inferred, what could not be measured. Where the machine changes in between, as virtual machines do when
their CPUs move on the host, each mode is kept apart and gets a file of its own.

Whoever takes `--machine` reads the file. `--validate` holds simulations against real runs.

Examples:
  ledgerline calibrate                             measure and print
  ledgerline calibrate --out box.toml              and write a machine file (others: box-110ns.toml)
  ledgerline calibrate --validate --csv runs.csv   hold predictions against real runs
  ledgerline calibrate --cpus 0,4 --quick --json   two CPUs, in two seconds, for a program";

/// What to measure, and where to put it.
// Values are texts that `Options` checks, so that a bad one is reported in one line.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Write the machine file there
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// The CPUs to measure, such as 0,2-5 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,

    /// Hold simulations against real runs of two CPUs or more
    #[arg(long)]
    validate: bool,

    /// Write the real runs and predictions there, as comma-separated values
    #[arg(long, value_name = "FILE", requires = "validate")]
    csv: Option<PathBuf>,

    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,

    /// Few rounds: to see that it works, not what it is
    #[arg(long)]
    quick: bool,
}

/// The same, checked.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) out: Option<PathBuf>,
    pub(super) csv: Option<PathBuf>,
    /// Two or more, cores before further threads of them.
    pub(super) cpus: Vec<usize>,
    /// Rounds of measuring.
    pub(super) rounds: usize,
    /// Passes of validation; none if it was not asked for.
    pub(super) passes: usize,
    pub(super) json: bool,
    pub(super) quick: bool,
}

impl Options {
    /// # Errors
    /// One line: which value is wrong, and what is expected.
    pub(super) fn check(args: &CalibrateArgs) -> Result<Options, String> {
        let allowed = allowed_cpus().map_err(|error| format!("cannot ask for CPUs: {error}"))?;
        let cpus = match &args.cpus {
            Some(list) => chosen(list, &allowed)?,
            None => allowed,
        };
        if cpus.len() < 2 {
            return Err("one CPU has nobody to hand lines to; at least two are needed".to_owned());
        }
        for path in [&args.out, &args.csv].into_iter().flatten() {
            can_hold(path)?;
        }
        let (rounds, passes) = if args.quick { (4, 2) } else { (30, 30) };
        Ok(Options {
            out: args.out.clone(),
            csv: args.csv.clone(),
            cpus,
            rounds,
            passes: if args.validate { passes } else { 0 },
            json: args.json,
            quick: args.quick,
        })
    }
}

/// Refuses what could not be written anyway, before minutes are spent on it.
fn can_hold(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() || path.file_name().is_none() {
        return Err(format!("cannot write {}: it is no name for a file", path.display()));
    }
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(format!("cannot write {}: there is no folder {}", path.display(), folder.display()))
        }
        _ => Ok(()),
    }
}

/// The CPUs of a list, in the order of those that are allowed.
fn chosen(list: &str, allowed: &[usize]) -> Result<Vec<usize>, String> {
    let mut wanted = Vec::new();
    for part in list.split(',') {
        let bad = || format!("--cpus: \"{part}\" is neither a number nor a range like 2-5");
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| bad());
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(bad());
        }
        for cpu in first..=last {
            if !allowed.contains(&cpu) {
                return Err(format!("--cpus: this process may not use CPU {cpu}"));
            }
            wanted.push(cpu);
        }
    }
    Ok(allowed.iter().copied().filter(|cpu| wanted.contains(cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_refused_before_anything_is_measured() {
        assert_eq!(can_hold(Path::new("box.toml")), Ok(()));
        assert_eq!(can_hold(&std::env::temp_dir().join("box.toml")), Ok(()));
        for (path, complaint) in [
            ("/", "cannot write /: it is no name for a file"),
            ("/no/such/box.toml", "cannot write /no/such/box.toml: there is no folder /no/such"),
        ] {
            assert_eq!(can_hold(Path::new(path)).unwrap_err(), complaint);
        }
    }

    #[test]
    fn lists_and_ranges_choose_among_the_allowed() {
        let allowed = [0, 2, 4, 1, 3, 5];
        assert_eq!(chosen("0-2,5", &allowed), Ok(vec![0, 2, 1, 5]));
        assert_eq!(chosen("3, 3", &allowed), Ok(vec![3]));
        for (list, complaint) in [
            ("", "--cpus: \"\" is neither a number nor a range like 2-5"),
            ("1,x", "--cpus: \"x\" is neither a number nor a range like 2-5"),
            ("5-2", "--cpus: \"5-2\" is neither a number nor a range like 2-5"),
            ("6", "--cpus: this process may not use CPU 6"),
            ("0-99999999999", "--cpus: this process may not use CPU 6"),
        ] {
            assert_eq!(chosen(list, &allowed).unwrap_err(), complaint);
        }
    }
}
