//! `ledgerline record`: records another program's ledger over time, for `ledgerline report`.

use ledgerline_protocol::alive;
use ledgerline_run::launch::is_one;
use ledgerline_view::report::{Recorder, Settings};
use ledgerline_view::terminal::output::{one_line, printable, say, status};
use ledgerline_view::watch::Source;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::run::record::{every, size};

/// The introduction of `ledgerline record --help`.
pub const LONG_ABOUT: &str = "\
Record what a ledger holds over time, from outside, for `ledgerline report`.

LEDGER is a PID, a file, or the name under which a program announced its ledger. A PID may be that of a `ledgerline run`, of \
any process under one, or of a program that embeds the library and shares its ledger. The program does not notice. (A run \
records itself with `ledgerline run --record`.)

It goes on until the process with that PID has ended, the ledger cannot be read any more, --for is over, or somebody ends it: \
Ctrl-C is fine, since what was written until then is read.";

const EXAMPLES: &str = "\
Examples:
  ledgerline record 4711 -o server.rec
  ledgerline record /dev/shm/server.ledger -o server.rec --every 1s --for 600s
  ledgerline report server.rec -o server.html";

/// The options of `ledgerline record`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RecordArgs {
    /// A PID, a file, or a name that a program announced
    #[arg(value_name = "LEDGER")]
    ledger: String,

    /// Where the recording goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// How often it looks: 100ms, 2s
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    every: String,

    /// Hold the recording to SIZE, coarser with age where it gets longer
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    size: String,

    /// How long it goes on: 600s
    #[arg(long = "for", value_name = "TIME")]
    lasts: Option<String>,
}

/// Records until there is nothing more to record. The exit status is 0, or 1 on an error.
pub fn main(args: &RecordArgs) -> ExitCode {
    status("record", record(args))
}

fn record(args: &RecordArgs) -> Result<(), String> {
    let step = every(&args.every).map_err(|why| format!("--every: {why}"))?;
    let lasts = args.lasts.as_deref().map(every).transpose();
    let lasts = lasts.map_err(|why| format!("--for: {why}"))?;
    let size = size(&args.size).map_err(|why| format!("--size: {why}"))?;
    let source = Source::named(&args.ledger)?;
    let settings = Settings { title: one_line(source.title()), every: step, size };
    if is_one(&args.output, source.path()) {
        return Err("-o names the ledger itself; name another file".to_owned());
    }
    let name = args.output.display();
    let told = |error: std::io::Error| format!("{name} cannot be written: {error}");
    let mut recorder = Recorder::create(&args.output, settings).map_err(told)?;
    let pid: Option<u32> = args.ledger.parse().ok();
    let began = Instant::now();
    let mut next = began;
    let mut warned = false;
    let how = loop {
        // Asked before the look, so that the look includes the last holdings.
        let lives = pid.is_none_or(alive);
        let look = match source.try_look() {
            Ok(look) => look,
            Err(_) => break "the ledger cannot be read any more",
        };
        if let Err(error) = recorder.push(&look)
            && !warned
        {
            warned = true;
            say(format_args!("ledgerline: warning: record: {}", printable(&told(error))));
        }
        if !lives {
            break "the process ended";
        }
        if lasts.is_some_and(|lasts| began.elapsed() >= lasts) {
            break "its time was over, and the program goes on";
        }
        next = (next + step).max(Instant::now());
        let left = next.saturating_duration_since(Instant::now());
        let rest = lasts.map_or(Duration::MAX, |lasts| lasts.saturating_sub(began.elapsed()));
        std::thread::sleep(left.min(rest));
    };
    recorder.end(how).map_err(told)
}
