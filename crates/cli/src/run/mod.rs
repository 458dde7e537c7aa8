//! `ledgerline run`: a program and all of its descendants, under one ledger.
//!
//! The flow: check everything that can be checked before the start; make a ledger in a memory file; start the program
//! with the preload library, which opens that file through `/proc` and charges every allocation; watch the processes
//! until the program has ended; print the account.

mod descendants;
mod fold;
mod help;
mod ledger;
mod living;
mod on_refusal;
mod outputs;
pub mod record;
mod resident;
mod titles;
mod unseen;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use ledger::Limits;
use ledgerline::{Ledger, Limit, NAME_MAX, container, name};
use ledgerline_protocol::blind::Blind;
use ledgerline_protocol::given::{self, Given};
use ledgerline_protocol::{By, Count, Item, MOST_BYTES, OnMax, Order, PERCPU, VOUCHED};

use crate::carried::ACCOUNT;
use crate::sizes;
use fold::Folded;
use help::{EXAMPLES, FEW_EXAMPLES, JSON_HELP};
pub use help::{LONG_ABOUT, MANUAL};
use ledgerline_run::account::model::{self, Account, Container, Mistakes, Processes};
use ledgerline_run::account::render::Extent;
use ledgerline_run::launch::{Failure, Launch, Signals, program};
use ledgerline_view::terminal::output::{printable, say};
use living::Living;
use on_refusal::OnRefusal;
use outputs::Outputs;
use resident::Resident;
use titles::Titles;
use unseen::Unseen;

/// The interval at which the command looks for ended processes: those that are not its children end without a
/// notification.
const IDLE: Duration = Duration::from_millis(50);
/// The interval under a limit, when memory of ended processes reduces the room of those that run.
const LIMITED: Duration = Duration::from_millis(5);

/// Parses the values of `--by`.
fn by() -> impl TypedValueParser<Value = By> {
    one_of(By::ALL, By::name, |by| match by {
        By::Thread => {
            "A row for each process, and below it one for each name that its threads have"
        }
        By::Process => "A row for each process",
        By::Library => "A row for each shared library that allocates, below its process",
    })
}

/// Parses the values of `--on-max`.
fn on_max() -> impl TypedValueParser<Value = OnMax> {
    one_of(OnMax::ALL, OnMax::name, |on_max| match on_max {
        OnMax::Enomem => "The allocation fails with ENOMEM",
        OnMax::Kill => "The process that asked is killed",
    })
}

/// Parses the values of `--count`.
fn counts() -> impl TypedValueParser<Value = Count> {
    one_of(Count::ALL, Count::name, |count| match count {
        Count::Mapped => {
            "Blocks of malloc and mappings, from the request on; nothing goes above --max"
        }
        Count::Resident => {
            "Memory that was touched, as the kernel counts it; --max refuses what is asked for once that is above it"
        }
    })
}

/// Parses the name of one of `all`. The preloaded library has these types, too, so they cannot derive clap's traits.
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
    after_help = FEW_EXAMPLES,
    after_long_help = EXAMPLES,
    override_usage = "ledgerline run [OPTIONS] [--] <COMMAND> [ARGUMENT]..."
)]
pub struct RunArgs {
    /// Refuse memory beyond SIZE (512M, 2G), all processes together
    ///
    /// `max` is no limit. A number alone is bytes.
    #[arg(long, value_name = "SIZE", default_value = "max", allow_hyphen_values = true)]
    pub max: String,

    /// Refuse blocks of malloc beyond SIZE
    ///
    /// It holds for all processes together, whatever they map by themselves.
    #[arg(long, value_name = "SIZE", default_value = "max", allow_hyphen_values = true)]
    pub max_heap: String,

    /// Memory that --max counts
    #[arg(long, value_parser = counts(), default_value = Count::Mapped.name(), value_name = "WHAT")]
    count: Count,

    /// Refuse before the container's limit has the kernel kill
    #[arg(long)]
    container: bool,

    /// Of each maximum, keep SIZE for small requests of processes that were refused; by default a 32nd, at most 1M
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, hide_short_help = true)]
    pub reserve: Option<String>,

    /// Count an event when more than SIZE is held
    #[arg(long, value_name = "SIZE", default_value = "max", allow_hyphen_values = true)]
    pub high: String,

    /// What each row of the account stands for
    #[arg(long, value_parser = by(), default_value = By::Thread.name(), value_name = "WHAT")]
    by: By,

    /// How many rows the account has at a time: each process that lives has one, and each of its threads or libraries by name
    #[arg(long, value_name = "COUNT", hide_short_help = true, default_value = ledger::ROWS, value_parser = clap::value_parser!(u32).range(ledger::ROWS_TAKEN))]
    rows: u32,

    /// The fate of a request beyond a maximum
    #[arg(long, value_parser = on_max(), default_value = OnMax::Enomem.name(), value_name = "ACTION")]
    on_max: OnMax,

    /// Fail (125) if a process is not accounted
    ///
    /// Programs keep the library if the executing process clears the environment.
    #[arg(long)]
    strict: bool,

    /// Run COMMAND by a shell when something is refused
    ///
    /// It runs at the first refusal, and at most once a minute after that. It finds the row in LEDGERLINE_REFUSED_ROW, _NAME and _PID; the bytes in _SIZE, _IN_USE and _LIMIT; the number of refusals
    /// in _TIMES. LEDGERLINE_RUN_PID is for `ledgerline show --pid`.
    #[arg(long, value_name = "COMMAND")]
    on_refusal: Option<OsString>,

    /// Say from where the first refused request of each row came
    #[arg(long)]
    stack: bool,

    /// Also write the account to FILE as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, long_help = JSON_HELP)]
    pub json: Option<OsString>,

    /// Print every row of the account, and every column
    #[arg(long)]
    all: bool,

    /// Print the account to FILE instead of standard error
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    account: Option<OsString>,

    #[command(flatten)]
    record: record::RecordArgs,

    /// The program and its arguments; the options of run come before it
    #[arg(
        trailing_var_arg = true,
        required = true,
        num_args = 1..,
        value_name = "COMMAND",
        hide_short_help = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// Runs the program of `args`. The exit code is the program's, unless it never ran.
pub fn main(args: &RunArgs) -> ExitCode {
    match run(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn run(args: &RunArgs) -> Result<u8, Failure> {
    // Every mistake in the command line is found before the program starts: a message now is worth more than an account
    // that cannot be written after an hour's work.
    let limits = limits(args)?;
    let outputs = Outputs::check(args)?;
    let program = program::find(&args.command[0])?;
    let launch = Launch::new(program, &args.command, &ACCOUNT)?;

    if args.strict
        && let Some(spot) = launch.blind
    {
        return Err(Failure::internal(format!(
            "--strict: {}: {spot}",
            launch.program.path.display()
        )));
    }
    let record = args.record.order(&args.command)?;
    let signals = Signals::hold()?;
    let unknown = |error: std::io::Error| {
        Failure::internal(format!("the ledger cannot be told from other files: {error}"))
    };
    let nonce = given::nonce().map_err(unknown)?;
    let (file, ledger) = ledger::new(&limits, nonce)?;
    let heap = ledger::heap(&limits, nonce)?;
    let of_heap = heap.as_ref().map(|(file, _)| file.as_raw_fd());
    let given = Given::of(nonce, file.as_raw_fd(), of_heap).map_err(unknown)?.to_string();
    if let Some(spot) = launch.blind {
        let path = launch.program.path.display().to_string();
        say(format_args!("ledgerline: warning: {}: {spot}", printable(&path)));
    }

    // Only root's programs become other users that only root can account.
    if let Some(folder) = launch.closed().filter(|_| rustix::process::geteuid().is_root()) {
        say(format_args!(
            "ledgerline: warning: the library lies in {}, which is closed to other users: what a process executes that has become \
             another user will not be accounted",
            printable(&folder.display().to_string())
        ));
    }

    // The path leads through this process, which outlives the program: the descriptor itself is closed on exec and need
    // not survive in the child.
    let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let (path, path_of_heap) = (path(&file), heap.as_ref().map(|(file, _)| path(file)));
    if !leads_to(&path, &file) {
        return Err(Failure::internal(format!(
            "{path} does not lead to this command's ledger, so no process could be accounted: /proc is not there, or that of \
             another namespace (in a namespace of process ids of its own: unshare --mount-proc)"
        )));
    }
    let record = record.map(|order| order.create(&path)).transpose()?;
    let living = Living::new();
    let namespace = living.namespace.map(|number| number.to_string());
    let kept = limits.reserve.to_string();
    // This command executes the program under no further filter.
    let filters = ledgerline_protocol::at_start().filters;
    let filters = filters.map(|number| format!("{number}{}", char::from(VOUCHED)));
    let cpus = ledgerline::percpu::possible_cpus().to_string();
    let order = Order {
        ledger: path.as_bytes(),
        given: Some(given.as_bytes()),
        heap: path_of_heap.as_deref().map(str::as_bytes),
        by: args.by,
        on_max: args.on_max,
        count: args.count,
        strict: args.strict,
        stack: args.stack,
        reserve: Some(kept.as_bytes()),
        namespace: namespace.as_deref().map(str::as_bytes),
        filters: filters.as_deref().map(str::as_bytes),
        cpus: Some(cpus.as_bytes()),
    };
    let mode = ledger.mode().to_string();
    // All processes of one ledger update it in one way: the user's choice, or this process's.
    let percpu = OsStr::from_bytes(PERCPU.to_bytes());
    let percpu = std::env::var_os(percpu).is_none().then(|| (percpu, OsStr::new(&mode)));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let started = (now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unsigned_abs();
    let mut escapes = args.strict.then(|| {
        let users =
            percpu.is_none().then(|| std::env::var_os(OsStr::from_bytes(PERCPU.to_bytes())));
        let users = users.flatten().map(|value| (PERCPU.to_bytes(), value.as_bytes().to_vec()));
        let ours = order.write().into_iter().chain(percpu);
        let ours = ours.map(|(name, value)| (name.as_bytes(), value.as_bytes().to_vec()));
        let strings = ours.chain(users).map(|(name, value)| [name, b"=", &value].concat());
        Unseen::new(strings, launch.library())
    });
    let session = launch.start(order.write().into_iter().chain(percpu), signals)?;

    let record = record.and_then(record::Sampler::start);
    let main = session.main();
    if let Some(spot) = launch.blind {
        name_blind(&ledger, &launch.program.path, main, spot);
    }
    let both = || [Some(&ledger), heap.as_ref().map(|(_, heap)| heap)].into_iter().flatten();
    let mut folded = Folded::new(&ledger);
    let mut titles = Titles::new();
    let mut on_refusal = args.on_refusal.as_deref().map(OnRefusal::new);
    let mut resident =
        (args.count == Count::Resident).then(|| Resident::new(&ledger, limits.max, limits.reserve));
    let with_rows = |account: Account, titles: &Titles| {
        let processes = Processes {
            running: &|owner| owner != main && living.may(owner),
            seen: &|asked, program, goes_on| titles.see(asked, program, goes_on),
            of_run: true,
        };
        account.with_rows(&ledger, &processes)
    };
    let now = |resident: &Option<Resident<'_>>, titles: &Titles| {
        let resident = resident.as_ref().map(Resident::state);
        with_rows(Account { resident, ..Account::default() }, titles)
    };
    let ended = session.watch(|| {
        // The account is about the program's holdings at its end, so its own rows are not settled.
        ledger.settle_dead(&|owner| owner == main || living.may(owner));
        folded.fold();
        let others = on_refusal.as_ref().map_or(&[][..], OnRefusal::sessions);
        if let Some(escapes) = &mut escapes {
            escapes.look(&ledger, others, |program, pid| {
                name_blind(&ledger, Path::new(program), pid, Blind::Unseen);
            });
        }
        titles.look(&ledger);
        if let Some((_, heap)) = &heap {
            ledger::tidy(heap, &|owner| living.may(owner));
        }
        let next = resident.as_mut().map(|resident| resident.look(others).min(IDLE));
        if let Some(on_refusal) = &mut on_refusal {
            on_refusal.look(both(), || now(&resident, &titles), false);
        }
        if let Some(next) = next {
            return next;
        }
        // `ledgerline set` may have given it a limit.
        let limited = limits.refuse() || ledger.root().max() != Limit::MAX;
        if limited { LIMITED } else { IDLE }
    })?;

    if let Some(record) = record {
        record.end(ended.status);
    }
    if let Some(on_refusal) = &mut on_refusal {
        on_refusal.look(both(), || now(&resident, &titles), true);
    }
    let mistakes = ledger.mistakes();
    let account = Account {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        status: ended.status,
        wall: ended.wall,
        mode,
        ledger_bytes: both().map(|ledger| ledger.footprint().resident).sum(),
        started: Some(started),
        max_resident: Some(ended.max_resident),
        mistakes: Some(Mistakes { underflows: mistakes.underflows, strays: mistakes.strays }),
        heap_peak: heap.as_ref().map(|(_, heap)| heap.root().peak().value),
        container: ledger.container().map(Container::from),
        resident: resident.as_ref().map(|resident| {
            let state = resident.state();
            // The kernel's own peak of one process, which may lie between two looks.
            model::Resident { peak: state.peak.max(ended.max_resident), ..state }
        }),
        ..Account::default()
    };
    let account = with_rows(account, &titles);

    let extent = if args.all { Extent::All } else { Extent::Folded };
    let code = ended.exit(outputs.write(&account, extent))?;
    if let Some(on_refusal) = on_refusal {
        on_refusal.wait();
    }
    // Each process that loads the library has a row, even if it allocates nothing.
    let unseen = !account.saw_any() && !account.damaged;
    let escaped = escapes.is_some_and(|escapes| escapes.any());
    if args.strict && (unseen || escaped || !account.not_accounted.is_empty()) {
        let why = "the account says which processes were not accounted";
        let why = if unseen { "no process was accounted" } else { why };
        return Err(Failure::internal(format!("--strict: {why}")));
    }
    Ok(code)
}

/// Returns whether a path leads to a file that is open in this process.
fn leads_to(path: &str, file: &File) -> bool {
    let of = |found: std::io::Result<Metadata>| found.ok().map(|it| (it.dev(), it.ino()));
    of(file.metadata()).is_some_and(|own| of(std::fs::metadata(path)) == Some(own))
}

/// Makes a row for a program that will make none itself.
fn name_blind(ledger: &Ledger, path: &Path, process: u32, why: Blind) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut name = name::escaped(&name).into_owned();
    let end = name.floor_char_boundary(NAME_MAX - 18);
    name.truncate(end);
    let made = ledger.create_for_process(&format!("{name}.{process}"), process);
    if let (Ok(row), Some(item)) = (made, ledger.item(Item::Blind.name())) {
        row.add_stat(item, why as i64);
    }
}

fn limit(option: &str, text: &str) -> Result<Limit, Failure> {
    let limit = sizes::limit(text).map_err(|error| Failure::usage(format!("{option}: {error}")))?;
    if limit.get().is_some_and(|units| units > MOST_BYTES) {
        let why = "is more than any machine holds; for no limit leave it out";
        return Err(Failure::usage(format!("{option}: {text} {why}")));
    }
    Ok(limit)
}

/// Parses the size of `--reserve`, which is not a limit.
fn kept(text: &str) -> Result<u64, Failure> {
    let size = ledgerline::size::parse(text).ok().flatten();
    size.ok_or_else(|| {
        Failure::usage(format!(
            "--reserve: '{}' is not a size; write it like 512K or 1M",
            printable(text)
        ))
    })
}

/// Returns the container's present limit, for settings that depend on its size.
fn contained(args: &RunArgs) -> Limit {
    let limits = if args.container { container::Limits::read() } else { Default::default() };
    limits.smallest().map_or(Limit::MAX, |bound| Limit::units(bound.bytes))
}

/// Returns the limits. The reserve for refused processes is a part of each.
fn limits(args: &RunArgs) -> Result<Limits, Failure> {
    let max = limit("--max", &args.max)?;
    let max_heap = limit("--max-heap", &args.max_heap)?;
    let least = [max, max_heap, contained(args)].iter().filter_map(|limit| limit.get()).min();
    let asked = args.reserve.as_deref().map(kept).transpose()?;
    let reserve = match (asked, least) {
        (Some(_), None) => {
            let why = "--reserve is a part of --max and --max-heap; give one of them, too";
            return Err(Failure::usage(why.to_owned()));
        }
        (Some(asked), Some(least)) if asked > least => {
            let why = "--reserve is a part of --max and --max-heap; give a size of at most that";
            return Err(Failure::usage(why.to_owned()));
        }
        (Some(asked), Some(_)) => asked,
        // With `kill` no refused process lives to need a reserve.
        (None, Some(_)) if args.on_max == OnMax::Kill => 0,
        // Without a limit: `ledgerline set` may add one later.
        (None, least) => least.map_or(1 << 20, |least| (least / 32).min(1 << 20)),
    };
    let (high, container) = (limit("--high", &args.high)?, args.container);
    if args.count == Count::Resident && container {
        let why = "--container counts what the kernel charges already; leave --count resident out";
        return Err(Failure::usage(why.to_owned()));
    }
    let count = args.count;
    Ok(Limits { max, max_heap, reserve, high, container, count, rows: args.rows })
}
