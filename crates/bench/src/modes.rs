//! Measures each mode in a separate process, since a process determines its mode once and keeps it.

use super::options::{Modes, Options};
use super::row::Row;
use super::suite::Suite;
use ledgerline::percpu::Mode;
use ledgerline_view::terminal::output::say;
use std::process::{Command, ExitCode, Stdio};

/// The variable that forces the library's mode.
const VARIABLE: &str = "LEDGERLINE_PERCPU";
/// The exit status of a process whose mode this machine does not have.
const NOT_HERE: u8 = 3;

/// Measures each mode in a separate process.
pub(super) fn measure(suite: &Suite, modes: Modes, options: &Options) -> Result<Vec<Row>, String> {
    let wanted = match modes.one() {
        Some(mode) => vec![mode],
        // Columns owned by threads serve only charges; everything else works like the fallback.
        None if suite.name == "charge" => vec![Mode::Rseq, Mode::Owned, Mode::Fallback],
        None => vec![Mode::Rseq, Mode::Fallback],
    };
    let mut rows = Vec::new();
    for mode in wanted {
        match in_mode(suite, options, mode)? {
            Some(more) => rows.extend(more),
            None if modes == Modes::All => {
                say(format_args!("ledgerline: bench: {mode} does not work here and was left out"));
            }
            None => return Err(format!("{mode} does not work here")),
        }
    }
    Ok(rows)
}

/// Returns the rows of one mode, or `None` if this machine does not have it.
fn in_mode(suite: &Suite, options: &Options, mode: Mode) -> Result<Option<Vec<Row>>, String> {
    let threads: Vec<String> = options.threads.iter().map(usize::to_string).collect();
    let sleepers = (options.sleepers > 0).then(|| format!("--sleepers={}", options.sleepers));
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command
        .args(["bench", suite.name, "--threads", &threads.join(",")])
        .args(["--runs", &options.runs.to_string(), "--cases", &options.cases.join(",")])
        .args(["--in-this-process", "--mode", &mode.to_string()])
        .args(options.quick.then_some("--quick"))
        .args(sleepers)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    match mode {
        // Not forced, so that the self-test decides whether it really works.
        Mode::Rseq => command.env_remove(VARIABLE),
        Mode::Owned | Mode::Fallback => command.env(VARIABLE, mode.to_string()),
    };
    let output = command.output().map_err(|error| format!("cannot start myself: {error}"))?;
    if output.status.code() == Some(i32::from(NOT_HERE)) {
        return Ok(None);
    }
    if !output.status.success() {
        return Err(format!("measuring {mode} failed: {}", output.status));
    }
    output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).map_err(|e| format!("{mode}: bad row: {e}")))
        .collect::<Result<Vec<Row>, String>>()
        .map(Some)
}

/// Checks, in a process that was started for one mode, that it has that mode.
pub(super) fn check_own(wanted: Modes) -> Result<(), ExitCode> {
    let own = Some(ledgerline::percpu::detect());
    if own == wanted.one() { Ok(()) } else { Err(ExitCode::from(NOT_HERE)) }
}
