//! The user's options.

use crate::measure::machine;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};
use ledgerline::percpu::Mode;
use std::ffi::OsStr;
use std::time::Duration;

/// The most threads of a pass, and the most rounds.
const MOST: u64 = 4096;

/// Which ways of updating per-CPU memory to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Modes {
    Rseq,
    Owned,
    Fallback,
    // The alias dates from when there were two.
    #[value(alias = "both")]
    All,
}

impl Modes {
    /// Returns the one requested mode, unless all are.
    pub fn one(self) -> Option<Mode> {
        match self {
            Modes::Rseq => Some(Mode::Rseq),
            Modes::Owned => Some(Mode::Owned),
            Modes::Fallback => Some(Mode::Fallback),
            Modes::All => None,
        }
    }
}

/// The options of every suite.
#[derive(Args, Clone, Debug)]
pub struct SuiteArgs {
    /// Numbers of threads, separated by commas [default: 1, 2 and as many as CPUs]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Trimmed(count(MOST)))]
    threads: Vec<usize>,

    /// Only these cases, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_possible_values = true)]
    cases: Vec<String>,

    /// Rounds to take the median of; with --quick: 3
    #[arg(long, value_name = "N", default_value = "21", value_parser = count(MOST))]
    #[arg(default_value_if("quick", "true", "3"))]
    pub runs: usize,

    /// How per-CPU memory is updated
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Modes::All)]
    pub mode: Modes,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub json: bool,

    /// Short rounds and fewer groups: to see that it works, not how fast
    #[arg(long)]
    pub quick: bool,

    /// Measure the one mode in this process: how a run starts itself for each mode
    #[arg(long, hide = true)]
    pub in_this_process: bool,
}

/// The options of the suite `run`: each figure is of a program of its own, on one thread.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Only these cases, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_possible_values = true)]
    cases: Vec<String>,

    /// Pairs of programs to take the median of; with --quick: 3
    #[arg(long, value_name = "N", default_value = "21", value_parser = count(MOST))]
    #[arg(default_value_if("quick", "true", "3"))]
    runs: usize,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub json: bool,

    /// Short programs: to see that it works, not how fast
    #[arg(long)]
    pub quick: bool,

    /// Be the program that works so, and print what that took
    #[arg(long, hide = true, value_enum)]
    pub(crate) work: Option<crate::program::Work>,
}

/// Parses a number from 1 to `most`.
pub fn count(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
}

/// Restricts an option to the names of a suite's cases.
pub fn one_of(cases: &'static [&'static str]) -> impl Fn(Arg) -> Arg {
    move |option| option.value_parser(Trimmed(PossibleValuesParser::new(cases)))
}

/// Parses a value without the blanks around it, which people write after commas.
#[derive(Clone)]
struct Trimmed<P>(P);

impl<P: TypedValueParser> TypedValueParser for Trimmed<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<P::Value, clap::Error> {
        let trimmed = value.to_str().map_or(value, |text| OsStr::new(text.trim()));
        self.0.parse_ref(command, arg, trimmed)
    }
}

/// A suite's options, with the values that depend on the machine.
#[derive(Clone, Debug)]
pub struct Options {
    pub threads: Vec<usize>,
    pub runs: usize,
    /// The names of the chosen cases, in the suite's order.
    pub cases: Vec<&'static str>,
    /// Small and short: to see that it works, not how fast.
    pub quick: bool,
    /// The CPUs to run on, in the order of the threads.
    pub cpus: Vec<usize>,
    /// The number of threads that touch memory and sleep, in the laboratory's suite `rss`.
    pub sleepers: usize,
}

impl Options {
    /// Returns the options of a suite that has these cases.
    pub fn of(
        args: &SuiteArgs,
        sleepers: usize,
        cases: &[&'static str],
    ) -> Result<Options, String> {
        let one_thread = Options::of_one_thread(args.runs, args.quick, &args.cases, cases)?;
        let threads = match &args.threads[..] {
            [] => usual_threads(one_thread.cpus.len()),
            list => once_each(list),
        };
        Ok(Options { threads, sleepers, ..one_thread })
    }

    /// Returns the options of the suite `run`, which has these cases.
    pub fn of_programs(args: &RunArgs, cases: &[&'static str]) -> Result<Options, String> {
        Options::of_one_thread(args.runs, args.quick, &args.cases, cases)
    }

    fn of_one_thread(
        runs: usize,
        quick: bool,
        wanted: &[String],
        cases: &[&'static str],
    ) -> Result<Options, String> {
        let cpus = machine::allowed_cpus()
            .map_err(|error| format!("cannot tell which CPUs may be used: {error}"))?;
        let cases = in_order(wanted, cases);
        Ok(Options { threads: vec![1], runs, cases, quick, cpus, sleepers: 0 })
    }

    /// Returns the approximate time of a case in a round.
    pub fn round(&self) -> Duration {
        Duration::from_millis(if self.quick { 1 } else { 20 })
    }
}

/// Returns the default numbers of threads: one, two, and one on each CPU.
fn usual_threads(cpus: usize) -> Vec<usize> {
    let mut threads = vec![1, 2.min(cpus), cpus];
    threads.dedup();
    threads
}

fn once_each(list: &[usize]) -> Vec<usize> {
    let mut threads = Vec::new();
    for &number in list {
        if !threads.contains(&number) {
            threads.push(number);
        }
    }
    threads
}

/// Returns the requested cases in the suite's order; all if none is requested.
fn in_order(wanted: &[String], cases: &[&'static str]) -> Vec<&'static str> {
    let chosen = |case: &&str| wanted.is_empty() || wanted.iter().any(|name| name == case);
    cases.iter().copied().filter(chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parse(arguments: &[&str]) -> Result<SuiteArgs, clap::Error> {
        let command = SuiteArgs::augment_args(Command::new("suite"));
        let command = command.mut_arg("cases", one_of(&["a", "b", "c"]));
        let line = [&["suite"], arguments].concat();
        SuiteArgs::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    #[test]
    fn one_two_and_all_cpus_are_usual() {
        assert_eq!(usual_threads(1), [1]);
        assert_eq!(usual_threads(2), [1, 2]);
        assert_eq!(usual_threads(64), [1, 2, 64]);
    }

    #[test]
    fn thread_lists_are_checked() {
        let threads = |list| once_each(&parse(&["--threads", list]).unwrap().threads);
        assert_eq!(threads("1"), [1]);
        assert_eq!(threads("4, 1,4"), [4, 1]);
        for bad in ["", "0", "1,", "-1", "two", "1.5", "4097", "99999999999999999999999"] {
            let error = parse(&[&format!("--threads={bad}")]).unwrap_err().to_string();
            assert!(error.contains("'--threads <LIST>'"), "{error}");
        }
    }

    #[test]
    fn cases_come_in_the_order_of_the_suite() {
        let cases = |arguments: &[&str]| {
            parse(arguments).map(|args| in_order(&args.cases, &["a", "b", "c"]))
        };
        assert_eq!(cases(&["--cases", "c, a"]).unwrap(), ["a", "c"]);
        assert_eq!(cases(&[]).unwrap(), ["a", "b", "c"]);
        let error = cases(&["--cases", "a,d"]).unwrap_err().to_string();
        assert!(error.contains("invalid value 'd'"), "{error}");
        assert!(error.contains("[possible values: a, b, c]"), "{error}");
        assert!(cases(&["--cases", ""]).is_err());
    }

    #[test]
    fn modes_are_three_and_all() {
        let mode = |name| parse(&["--mode", name]).map(|args| args.mode);
        for (name, expected) in [
            ("rseq", Modes::Rseq),
            ("owned", Modes::Owned),
            ("fallback", Modes::Fallback),
            ("all", Modes::All),
            ("both", Modes::All),
        ] {
            assert_eq!(mode(name).unwrap(), expected);
        }
        assert!(mode("All").is_err());
    }

    #[test]
    fn a_quick_run_has_fewer_rounds_unless_they_are_given() {
        let runs = |arguments: &[&str]| parse(arguments).unwrap().runs;
        assert_eq!((runs(&[]), runs(&["--quick"])), (21, 3));
        assert_eq!(runs(&["--quick", "--runs", "7"]), 7);
    }
}
