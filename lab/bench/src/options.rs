//! What the user asked for, checked.

use ledgerline_measure::machine;
use std::time::Duration;

/// Most threads of a pass, and most rounds.
const MOST: usize = 4096;
/// Most threads that sleep.
const SLEEPERS_MOST: usize = 1_000_000;

/// Which ways of updating per-CPU memory to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modes {
    Rseq,
    Fallback,
    Both,
}

/// The checked options of a suite.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) threads: Vec<usize>,
    pub(super) runs: usize,
    /// Names of the suite's cases, in its order.
    pub(super) cases: Vec<&'static str>,
    pub(super) modes: Modes,
    pub(super) json: bool,
    /// Small and short: whether it works, not how fast.
    pub(super) quick: bool,
    /// CPUs to run on, in the order of the threads.
    pub(super) cpus: Vec<usize>,
    /// Threads of the suite `rss` that touch memory and sleep.
    pub(super) sleepers: usize,
}

impl Options {
    /// Checks what was written on the command line against what the suite has. The error is one
    /// line for the user.
    pub(super) fn check(
        args: &super::SuiteArgs,
        sleepers: Option<&str>,
        cases: &'static [&'static str],
    ) -> Result<Options, String> {
        let cpus = machine::allowed_cpus()
            .map_err(|error| format!("cannot tell which CPUs may be used: {error}"))?;
        let quick = args.quick;
        Ok(Options {
            threads: match &args.threads {
                Some(list) => thread_list(list)?,
                None => usual_threads(cpus.len()),
            },
            runs: match &args.runs {
                Some(text) => count("--runs", text)?,
                None if quick => 3,
                None => 21,
            },
            cases: match &args.cases {
                Some(list) => case_list(list, cases)?,
                None => cases.to_vec(),
            },
            modes: modes(&args.mode)?,
            json: args.json,
            quick,
            cpus,
            sleepers: match sleepers {
                Some(text) => count_to("--sleepers", text, SLEEPERS_MOST)?,
                None if quick => 200,
                None => 10_000,
            },
        })
    }

    /// About how long a case runs in a round.
    pub(super) fn round(&self) -> Duration {
        Duration::from_millis(if self.quick { 1 } else { 20 })
    }
}

/// One thread, two, and one on each CPU.
fn usual_threads(cpus: usize) -> Vec<usize> {
    let mut threads = vec![1, 2.min(cpus), cpus];
    threads.dedup();
    threads
}

fn thread_list(list: &str) -> Result<Vec<usize>, String> {
    let mut threads = Vec::new();
    for text in list.split(',') {
        let number = count("--threads", text)?;
        if !threads.contains(&number) {
            threads.push(number);
        }
    }
    Ok(threads)
}

fn count(option: &str, text: &str) -> Result<usize, String> {
    count_to(option, text, MOST)
}

fn count_to(option: &str, text: &str, most: usize) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("{option}: {text:?} is not a number from 1 to {most}")),
    }
}

fn case_list(list: &str, known: &'static [&'static str]) -> Result<Vec<&'static str>, String> {
    let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
    match wanted.iter().find(|name| !known.contains(name)) {
        Some(name) => {
            Err(format!("--cases: there is no case {name:?}; there are {}", known.join(", ")))
        }
        None => Ok(known.iter().copied().filter(|name| wanted.contains(name)).collect()),
    }
}

fn modes(text: &str) -> Result<Modes, String> {
    match text {
        "rseq" => Ok(Modes::Rseq),
        "fallback" => Ok(Modes::Fallback),
        "both" => Ok(Modes::Both),
        _ => Err(format!("--mode: {text:?} is none of rseq, fallback, both")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_two_and_all_cpus_are_usual() {
        assert_eq!(usual_threads(1), [1]);
        assert_eq!(usual_threads(2), [1, 2]);
        assert_eq!(usual_threads(64), [1, 2, 64]);
    }

    #[test]
    fn thread_lists_are_checked() {
        assert_eq!(thread_list("1"), Ok(vec![1]));
        assert_eq!(thread_list("4, 1,4"), Ok(vec![4, 1]));
        for bad in ["", "0", "1,", "-1", "two", "1.5", "4097", "99999999999999999999999"] {
            let error = thread_list(bad).unwrap_err();
            assert!(error.starts_with("--threads: \"") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn cases_come_in_the_order_of_the_suite() {
        assert_eq!(case_list("c,a", &["a", "b", "c"]), Ok(vec!["a", "c"]));
        assert_eq!(
            case_list("a,d", &["a", "b"]),
            Err("--cases: there is no case \"d\"; there are a, b".to_owned())
        );
        assert!(case_list("", &["a"]).is_err());
    }

    #[test]
    fn modes_are_three() {
        assert_eq!(modes("both"), Ok(Modes::Both));
        assert!(modes("Both").is_err());
    }
}
