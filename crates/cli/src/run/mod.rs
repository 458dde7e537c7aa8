//! `ledgerline run`: a program, and everything it starts, under one ledger.
//!
//! The flow: check all that can be checked before anything starts; make a
//! ledger in a memory file; start the program with the preload library, which
//! opens that file through `/proc` and charges every allocation; watch the
//! processes until the program has ended; print the account.

mod ledger;
mod living;

use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ledgerline::Limit;
use ledgerline_protocol::{By, OnMax, Order, PERCPU};

use crate::account::{Account, Ending, Mistakes};
use crate::launch::{Failure, Launch, Signals, Target, library, program};
use crate::render;
use ledgerline_terminal::output::printable;
use ledgerline_terminal::style::Style;
use living::Living;

/// What `ledgerline run --help` says first.
pub const LONG_ABOUT: &str = "\
Run a program and print who held its memory.

The program and every process that it starts are charged to one ledger, without being recompiled: \
a library that is preloaded charges each allocation to a row for the process, the thread or the \
shared library that asked. When the program has ended, the account is printed as a tree on \
standard error; the program's standard output stays clean. The exit code is the program's own, \
or 128 plus the signal that killed it.

The account has a row for each group, with what it held when the program ended (current), the \
most that it held (peak), that peak as a share of the root's (peaks of neighbours need not \
coincide, so shares may add up to more than 100 %), the number of charges, how many were refused, \
and which limit refused them. Rows of processes that ended before the program did also show what \
they held then (at exit). A process is called PROGRAM.PID; one in another PID namespace \
PROGRAM.nsN.PID, with its ID in there.

Below the table stands who was refused first, when and how much, and the largest request that was \
refused; then the most memory that the kernel saw resident in one process, code and files included, \
so that what the account does not see is seen at once.

What a program maps by itself (mmap, sbrk), as Python, V8 and the JVM do with their heaps, is charged \
like its blocks as long as it is private and writable, touched or not; `mapped` shows it. A \
reservation without access is free until it becomes writable. Shared memory and files that are \
mapped to be read are not charged; the JSON document has them.

The account does not see what a program maps by a system call of its own, its threads' stacks, nor \
programs that the loader preloads nothing into (statically linked, set-user-ID, or of another \
architecture). A warning says so before such a program starts. Nor does it see programs that start \
where this process's /proc is not (in a chroot, or after `unshare --mount-proc`).";

const EXAMPLES: &str = "\
Examples:
  ledgerline run -- make -j8
  ledgerline run --by process -- ./build.sh
  ledgerline run --max 512M -- python3 job.py
  ledgerline run --max 512M --on-max kill --json account.json -- ./server --port 80
  ledgerline run --json - -- sort big.txt -o sorted.txt | jq '.groups[0].peak'";

const JSON_HELP: &str = "\
Also write the account to FILE as JSON; `-` is standard output.

The object has `unit`, `command`, `exit_code`, `signal` (a name or null), `wall_seconds`, `mode`, \
`ledger_bytes`, `max_resident` (the most bytes that the kernel saw resident in one process), \
`mistakes` (frees that matched no charge) and `groups`: one object for each row, \
the root `/` first, then depth-first, with `path`, `state`, `pid`, `current`, `peak`, `charges`, \
`uncharges`, `refused`, `max`, `high`, `max_events`, `high_events` and `at_exit`. `state` is live, \
exited (the process ended before the program did) or running (it still ran after that). Sizes are \
numbers of bytes; `max` and `high` are a number, or the string \"max\" where there is no limit, as \
in a cgroup's memory.max. `current` (at its end: `at_exit`) is `heap`, the blocks of malloc, and \
`mapped`, private memory that was mapped; `mapped_shared` and `mapped_file` are not part of it. \
`first_refused` is null, or the `size` of the first request that a row made itself and that was refused, \
with the `seconds` since the start; `largest_refused` is the size of the largest. `folded` is true for a \
process that has more threads or libraries by name than rows (254): its own row counts the rest.";

/// How often the command looks for processes that have ended: those that are not
/// its children end without telling it.
const IDLE: Duration = Duration::from_millis(50);
/// The same under a limit, where memory of ended processes stands in the way of
/// those that run.
const LIMITED: Duration = Duration::from_millis(5);

/// What `--by` takes.
fn by() -> impl TypedValueParser<Value = By> {
    one_of(By::ALL, By::name, |by| match by {
        By::Thread => "A row for each thread, below its process",
        By::Process => "A row for each process",
        By::Library => "A row for each shared library that allocates, below its process",
    })
}

/// What `--on-max` takes.
fn on_max() -> impl TypedValueParser<Value = OnMax> {
    one_of(OnMax::ALL, OnMax::name, |on_max| match on_max {
        OnMax::Enomem => "The allocation fails with ENOMEM",
        OnMax::Kill => "The process that asked is killed",
    })
}

/// An option that takes the name of one of `all`. (The preloaded library has these types, too, so they cannot derive
/// what clap wants.)
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
    help: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let values = all.map(|one| PossibleValue::new(name(one)).help(help(one)));
    PossibleValuesParser::new(values).try_map(move |chosen| {
        all.into_iter().find(|one| name(*one) == chosen).ok_or("not one of them")
    })
}

/// The options of `ledgerline run`.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    override_usage = "ledgerline run [OPTIONS] [--] <COMMAND> [ARGUMENT]..."
)]
pub struct RunArgs {
    /// Refuse memory beyond SIZE, all processes together: 512M, 2G, or max for no limit
    #[arg(long, value_name = "SIZE", default_value = "max", allow_hyphen_values = true)]
    pub max: String,

    /// Count an event when more than SIZE is held
    #[arg(long, value_name = "SIZE", default_value = "max", allow_hyphen_values = true)]
    pub high: String,

    /// What each row of the account stands for
    #[arg(long, value_parser = by(), default_value = By::Thread.name(), value_name = "WHAT")]
    by: By,

    /// What happens to an allocation that would go over --max
    #[arg(long, value_parser = on_max(), default_value = OnMax::Enomem.name(), value_name = "ACTION")]
    on_max: OnMax,

    /// Also write the account to FILE as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", long_help = JSON_HELP)]
    pub json: Option<OsString>,

    /// Print the account to FILE instead of standard error
    #[arg(long, value_name = "FILE")]
    account: Option<OsString>,

    /// The program and its arguments; the options of run come before it
    #[arg(trailing_var_arg = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs the program of `args`; the exit code is the program's, unless it
/// never ran.
pub fn main(args: &RunArgs) -> ExitCode {
    match run(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn run(args: &RunArgs) -> Result<u8, Failure> {
    // Everything that can be wrong with the command line is found before the
    // program starts: an account that could not be written after an hour's
    // work is worth less than a message now.
    let max = limit("--max", &args.max)?;
    let high = limit("--high", &args.high)?;
    let json = args.json.as_deref().map(|file| Target::check("--json", file)).transpose()?;
    let text = args.account.as_deref().map(|file| Target::check("--account", file)).transpose()?;
    let program = program::find(&args.command[0])?;
    let launch = Launch::new(program, &args.command, &library::ACCOUNT)?;

    let signals = Signals::hold()?;
    let (file, ledger) = ledger::new(max, high)?;
    if let Some(spot) = launch.blind {
        let path = launch.program.path.display().to_string();
        eprintln!("ledgerline: warning: {}: {spot}", printable(&path));
    }

    // The path leads through this process, which outlives the program: the
    // descriptor itself is closed on exec and need not survive in the child.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let living = Living::new();
    let namespace = living.namespace().map(|number| number.to_string());
    let order = Order {
        ledger: path.as_bytes(),
        by: args.by,
        on_max: args.on_max,
        namespace: namespace.as_deref().map(str::as_bytes),
    };
    let mode = ledger.mode().to_string();
    // All processes of one ledger update it in one way: the user's, or this one's.
    let percpu = OsStr::from_bytes(PERCPU.to_bytes());
    let percpu = std::env::var_os(percpu).is_none().then(|| (percpu, OsStr::new(&mode)));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let started = (now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unsigned_abs();
    let session = launch.start(order.write().into_iter().chain(percpu), signals)?;

    let main = session.main();
    let ended = session.watch(if max == Limit::MAX { IDLE } else { LIMITED }, || {
        // What the program itself held when it ended is the point of the
        // account, so its rows stay as they are.
        ledger.settle_dead(&|owner| owner == main || living.may(owner));
    })?;

    let mistakes = ledger.mistakes();
    let account = Account::new(
        &ledger,
        Ending {
            command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            status: ended.status,
            wall: ended.wall,
            mode,
            ledger_bytes: ledger.footprint().resident,
            started: Some(started),
            max_resident: Some(ended.max_resident),
            mistakes: Mistakes { underflows: mistakes.underflows, strays: mistakes.strays },
            running: &|owner| owner != main && living.may(owner),
            unseen: launch.blind.map(|spot| spot.to_string()),
        },
    );

    let mut written = match &text {
        Some(target) => target.write(render::text(&account, &Style::plain()).as_bytes()),
        None => {
            render::to_stderr(&account);
            Ok(())
        }
    };
    if let Some(target) = &json {
        written = written.and(target.write(crate::json::document(&account).as_bytes()));
    }
    ended.exit(written)
}

fn limit(option: &str, text: &str) -> Result<Limit, Failure> {
    text.parse().map_err(|error| Failure::usage(format!("{option}: {error}")))
}
