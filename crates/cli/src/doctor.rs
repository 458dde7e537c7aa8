//! `ledgerline doctor`: the abilities of this machine and this environment, their use, and improvements.

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use clap::Args;
use ledgerline::container::Limits;
use ledgerline::percpu::{Grounds, Index, Mode, grounds};
use ledgerline_view::terminal::output::{fail, print, printable};
use ledgerline_view::terminal::style::{Paint, Style};
use serde::Serialize;

use crate::carried::ACCOUNT;
use crate::lab;

/// The introduction of `ledgerline doctor --help`.
pub const LONG_ABOUT: &str = "\
Say what this machine and this environment offer, what is used of it, and what would change that.

It tries rather than guesses: a section is interrupted by the kernel, and a program is run under an account. Run it where \
the program runs: in its container, under its filter of system calls, with its environment.

If LEDGERLINE_FLEET_STORE names a fleet's store, doctor asks the store whether it may lose books.

Each line says `fine`, `slower` (it works, by a longer way), `risky` (it works, and may lose what it was told) or `missing` \
(it does not work), and below it what to change. \
The exit status is 1 where something is missing, and 0 otherwise.";

const EXAMPLES: &str = "\
Examples:
  ledgerline doctor
  ledgerline doctor --json | jq -r '.findings[] | select(.state != \"fine\") | .change[]'
  docker exec server ledgerline doctor";

/// The options of `ledgerline doctor`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// The command's version.
    version: &'static str,
    system: System,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct System {
    /// The kernel's own words: `Linux 6.12.1`.
    kernel: String,
    architecture: &'static str,
    /// The C library that this command runs with.
    c_library: String,
    /// The number of CPUs that this process may run on.
    cpus: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Fine,
    Slower,
    Risky,
    Missing,
}

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    found: String,
    /// Possible improvements; the most effective first.
    change: Vec<&'static str>,
}

/// Inspects the machine, and prints the findings.
pub fn main(args: &DoctorArgs) -> ExitCode {
    let mut findings = vec![charges(&grounds()), run(), record(), memory()];
    findings.extend(fleet());
    let report = Report {
        schema: "ledgerline/doctor.v1",
        version: env!("CARGO_PKG_VERSION"),
        system: system(),
        findings,
    };
    let text = if args.json {
        serde_json::to_string_pretty(&report).expect("names are text") + "\n"
    } else {
        table(&report, Style::of_stdout())
    };
    match print(text, "cannot write what was found") {
        Err(error) => fail("doctor", &error, 1),
        Ok(_) if report.findings.iter().any(|one| one.state == State::Missing) => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
    }
}

fn system() -> System {
    let name = rustix::system::uname();
    System {
        kernel: format!(
            "{} {}",
            name.sysname().to_string_lossy(),
            name.release().to_string_lossy()
        ),
        architecture: std::env::consts::ARCH,
        c_library: c_library(),
        cpus: std::thread::available_parallelism().ok().map(Into::into),
    }
}

#[cfg(target_env = "gnu")]
fn c_library() -> String {
    // SAFETY: it takes nothing, and returns a text that lives as long as the process.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn c_library() -> String {
    if cfg!(target_env = "musl") { "musl" } else { "another C library" }.to_owned()
}

/// Returns the way in which charges and statistics are counted.
fn charges(grounds: &Grounds) -> Finding {
    let mut change = Vec::new();
    let mut found = match (grounds.mode, grounds.sections) {
        (_, Ok(Index::Compact)) => "restartable sequences, by compact id".to_owned(),
        (_, Ok(index)) => {
            change.push("Linux 6.3 or later, where units lie idle in fewer columns");
            format!("restartable sequences, by {index}")
        }
        (Mode::Owned, _) => {
            "columns that threads own; in files, and for statistics, atomics".to_owned()
        }
        _ => "atomics".to_owned(),
    };
    let without = [
        ("restartable sequences", grounds.sections.err()),
        ("columns of threads", grounds.owned.and_then(Result::err)),
    ];
    for (what, why) in without.into_iter().filter_map(|(what, why)| Some((what, why?))) {
        let _ = write!(found, "; no {what}: {why}");
        change.extend(why.remedy().filter(|told| !change.contains(told)));
    }
    let state = if grounds.mode == Mode::Rseq { State::Fine } else { State::Slower };
    Finding { what: "charges", state, found, change }
}

/// Returns whether programs are accounted, by running one.
fn run() -> Finding {
    let (state, found, change) = match accounted() {
        Ok(mode) => {
            let found = format!("`sh` was accounted (mode {mode})");
            match mode == Mode::Rseq.to_string() {
                true => (State::Fine, found, Vec::new()),
                false => (State::Slower, found, vec!["what `charges` says"]),
            }
        }
        Err((found, change)) => (State::Missing, found, vec![change]),
    };
    Finding { what: "run", state, found, change }
}

/// Runs a program, and returns how it was accounted; or the problem, with an improvement.
fn accounted() -> Result<String, (String, &'static str)> {
    if let Err(failure) = ACCOUNT.bytes() {
        let change = "a command that was built on Linux, x86-64 or arm64";
        return Err((failure.message().to_owned(), change));
    }
    let tried = std::env::current_exe().and_then(|command| {
        Command::new(command).args(["run", "--json", "-", "--", "sh", "-c", ":"]).output()
    });
    let output = tried
        .map_err(|error| (format!("this command does not start again: {error}"), "mount /proc"))?;
    let account: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it said nothing");
        (format!("`sh` could not be run under it: {said}"), "what that line says")
    })?;
    let unseen = account["not_accounted"].as_array().and_then(|programs| programs.first());
    if let Some(unseen) = unseen {
        let why = unseen["reason"].as_str().unwrap_or("?");
        return Err((format!("`sh` was not accounted: {why}"), "see `ledgerline help run`"));
    }
    if account["groups"].as_array().is_none_or(|groups| groups.len() < 2) {
        let hint = match std::env::var_os("LEDGERLINE_PRELOAD") {
            Some(_) => "unset LEDGERLINE_PRELOAD",
            None => "allow LD_PRELOAD in the sandbox",
        };
        return Err(("`sh` ran, and is in no account".to_owned(), hint));
    }
    Ok(account["mode"].as_str().unwrap_or("?").to_owned())
}

/// Returns whether accesses to fields can be recorded.
fn record() -> Finding {
    let has_recorder = cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"));
    let other = "what `perf record` wrote is a profile, too (`ledgerline help layout advise`)";
    let (state, found, change) = match lab::installed() {
        Some(program) if has_recorder => {
            (State::Fine, format!("by {}", printable(&program.to_string_lossy())), Vec::new())
        }
        Some(_) => (State::Slower, "it needs x86-64 and glibc".to_owned(), vec![other]),
        None => (
            State::Slower,
            "ledgerline-lab lies neither beside this command nor in PATH".to_owned(),
            vec!["install ledgerline-lab beside this command, or in a folder of PATH"],
        ),
    };
    Finding { what: "layout record", state, found, change }
}

/// Returns the limit for this process's memory, which `run --container` follows.
fn memory() -> Finding {
    let limits = Limits::read();
    let (state, found, change) = match limits.smallest() {
        Some(bound) => (State::Fine, format!("at most {bound}"), Vec::new()),
        None => (State::Slower, "nothing says how much there is".to_owned(), vec!["mount /proc"]),
    };
    Finding { what: "memory", state, found, change }
}

/// Whether a fleet's store may lose books, where the environment names one.
fn fleet() -> Option<Finding> {
    let address = std::env::var("LEDGERLINE_FLEET_STORE").ok().filter(|it| !it.is_empty())?;
    let (state, found, change) = match crate::fleet::warnings(&address) {
        Ok(warnings) if warnings.is_empty() => {
            (State::Fine, "it answers, and keeps what it is told".to_owned(), Vec::new())
        }
        Ok(warnings) => (State::Risky, warnings.join("; "), vec!["the settings that it names"]),
        Err(error) => (State::Missing, error, vec!["what that line says"]),
    };
    Some(Finding { what: "fleet's store", state, found, change })
}

fn table(report: &Report, style: Style) -> String {
    let system = &report.system;
    let cpus = system.cpus.map_or("unknown".to_owned(), |cpus| cpus.to_string());
    let mut text = style.paint(Paint::Strong, &format!("ledgerline {}", report.version));
    let _ = writeln!(
        text,
        ", {} {}, {}, CPUs: {cpus}",
        printable(&system.kernel),
        system.architecture,
        system.c_library
    );
    for finding in &report.findings {
        let (paint, state) = match finding.state {
            State::Fine => (Paint::Good, "fine   "),
            State::Slower => (Paint::Strong, "slower "),
            State::Risky => (Paint::Strong, "risky  "),
            State::Missing => (Paint::Bad, "missing"),
        };
        let state = style.paint(paint, state);
        let _ = writeln!(text, "{:<14} {state}  {}", finding.what, printable(&finding.found));
        for change in &finding.change {
            let _ = writeln!(text, "{:<14} change   {change}", "");
        }
    }
    text
}
