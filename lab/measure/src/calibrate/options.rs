//! The command's options.

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use ledgerline_bench::measure::machine::allowed_cpus;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The text of `ledgerline help calibrate`.
pub const LONG_ABOUT: &str = "\
Measure what this machine's cache lines, atomics and locks take, and write a machine file

Two CPUs hand lines to each other for some seconds, in blocks short enough to be told apart from whoever else \
runs; disturbed blocks are dropped. The file has each figure with its bounds and its source, and leaves out, or \
marks as inferred, what could not be measured. What cannot be seen by itself, such as how long a line stays, is fitted: the CPUs \
fight for lines, and the simulation is made to take what they took. Where the machine changes in between, as virtual machines do when \
their CPUs move on the host, each mode is kept apart and gets a file of its own.

Whoever takes `--machine` reads the file. `--validate` holds simulations against real runs.

Examples:
  ledgerline calibrate                             measure and print
  ledgerline calibrate --out box.toml              and write a machine file (others: box-110ns.toml)
  ledgerline calibrate --validate --csv runs.csv   hold predictions against real runs
  ledgerline calibrate --cpus 0,4 --quick --json   two CPUs, in two seconds, for a program";

/// What to measure, and where to put it.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Write the machine file there
    #[arg(long, value_name = "FILE", value_parser = file())]
    pub(super) out: Option<PathBuf>,

    /// The CPUs to measure, such as 0,2-5 [default: all that this process may use]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range)]
    cpus: Vec<RangeInclusive<usize>>,

    /// Hold simulations against real runs of two CPUs or more
    #[arg(long)]
    validate: bool,

    /// Write the real runs and predictions there, as comma-separated values
    #[arg(long, value_name = "FILE", requires = "validate", value_parser = file())]
    pub(super) csv: Option<PathBuf>,

    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(super) json: bool,

    /// Few rounds: to see that it works, not what it is
    #[arg(long)]
    pub(super) quick: bool,
}

impl CalibrateArgs {
    /// Returns the number of rounds of measuring.
    pub(super) fn rounds(&self) -> usize {
        if self.quick { 4 } else { 30 }
    }

    /// Returns the number of passes of validation; zero if it was not requested.
    pub(super) fn passes(&self) -> usize {
        match (self.validate, self.quick) {
            (false, _) => 0,
            (true, true) => 2,
            (true, false) => 30,
        }
    }

    /// Returns the CPUs to measure: two or more, cores before further threads of them.
    ///
    /// # Errors
    /// One line: there are fewer, or this process may not use one.
    pub(super) fn cpus(&self) -> Result<Vec<usize>, String> {
        let allowed = allowed_cpus().map_err(|error| format!("cannot ask for CPUs: {error}"))?;
        let cpus = if self.cpus.is_empty() { allowed } else { chosen(&self.cpus, &allowed)? };
        if cpus.len() < 2 {
            return Err("one CPU has nobody to hand lines to; at least two are needed".to_owned());
        }
        Ok(cpus)
    }
}

/// Rejects a path that could not be written, before minutes are spent on measuring.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if path.is_dir() || path.file_name().is_none() {
            return Err("it is no name for a file");
        }
        match folder {
            Some(folder) if !folder.is_dir() => Err("there is no such folder"),
            _ => Ok(path),
        }
    })
}

/// Parses one CPU, or a range of them.
fn range(part: &str) -> Result<RangeInclusive<usize>, &'static str> {
    let number = |text: &str| text.trim().parse().ok();
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let range = number(first).zip(number(last)).map(|(first, last)| first..=last);
    range.filter(|range| !range.is_empty()).ok_or("neither a number nor a range like 2-5")
}

/// Returns the CPUs of a list, in the order of the permitted ones.
fn chosen(wanted: &[RangeInclusive<usize>], allowed: &[usize]) -> Result<Vec<usize>, String> {
    for range in wanted {
        if let Some(cpu) = range.clone().find(|cpu| !allowed.contains(cpu)) {
            return Err(format!("--cpus: this process may not use CPU {cpu}"));
        }
    }
    let wanted = |cpu: &usize| wanted.iter().any(|range| range.contains(cpu));
    Ok(allowed.iter().copied().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn parse(arguments: &[&str]) -> Result<CalibrateArgs, String> {
        let command = CalibrateArgs::augment_args(Command::new("calibrate"));
        let line = [&["calibrate"], arguments].concat();
        let parsed = command.try_get_matches_from(line);
        parsed
            .and_then(|found| CalibrateArgs::from_arg_matches(&found))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_anything_is_measured() {
        assert!(parse(&["--out", "box.toml"]).is_ok());
        let there = std::env::temp_dir().join("box.toml");
        assert_eq!(parse(&["--out", there.to_str().unwrap()]).unwrap().out, Some(there));
        for (path, complaint) in [
            ("/", "invalid value '/' for '--out <FILE>': it is no name for a file"),
            (
                "/no/such/box.toml",
                "invalid value '/no/such/box.toml' for '--out <FILE>': there is no such folder",
            ),
        ] {
            let told = parse(&["--out", path]).unwrap_err();
            assert!(told.contains(complaint), "{told}");
        }
    }

    #[test]
    fn lists_and_ranges_choose_among_the_allowed() {
        let allowed = [0, 2, 4, 1, 3, 5];
        let chosen =
            |list: &str| parse(&["--cpus", list]).and_then(|args| chosen(&args.cpus, &allowed));
        assert_eq!(chosen("0-2,5"), Ok(vec![0, 2, 1, 5]));
        assert_eq!(chosen("3, 3"), Ok(vec![3]));
        for (list, complaint) in [
            ("", "'' for '--cpus <LIST>': neither a number nor a range like 2-5"),
            ("1,x", "'x' for '--cpus <LIST>': neither a number nor a range like 2-5"),
            ("5-2", "'5-2' for '--cpus <LIST>': neither a number nor a range like 2-5"),
            ("6", "--cpus: this process may not use CPU 6"),
            ("0-99999999999", "--cpus: this process may not use CPU 6"),
        ] {
            let told = chosen(list).unwrap_err();
            assert!(told.contains(complaint), "{told}");
        }
    }

    #[test]
    fn validation_is_for_those_who_ask_for_it() {
        let passes = |arguments: &[&str]| parse(arguments).map(|args| args.passes());
        assert_eq!(passes(&["--quick"]), Ok(0));
        assert_eq!(passes(&["--quick", "--validate"]), Ok(2));
        assert!(passes(&["--csv", "runs.csv"]).is_err());
    }
}
