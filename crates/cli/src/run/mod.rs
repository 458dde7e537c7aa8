//! `ledgerline run`: a program, and everything it starts, under one ledger.
//!
//! The flow: check all that can be checked before anything starts; make a
//! ledger in a memory file; start the program with the preload library, which
//! opens that file through `/proc` and charges every allocation; watch the
//! processes until the program has ended; print the account.

mod fold;
mod ledger;
mod living;
mod outputs;
pub mod record;
mod titles;

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
use ledgerline_protocol::{By, Item, MOST_BYTES, OnMax, Order, PERCPU, VOUCHED};

use crate::carried::ACCOUNT;
use crate::sizes;
use fold::Folded;
use ledgerline_run::account::model::{Account, Container, Mistakes, Processes};
use ledgerline_run::account::render::Extent;
use ledgerline_run::launch::{Failure, Launch, Signals, program};
use ledgerline_view::terminal::output::{one_line, printable, say};
use living::Living;
use outputs::Outputs;
use titles::Titles;

/// What `ledgerline run --help` says first.
pub const LONG_ABOUT: &str = "\
Run a program and print who held its memory.

The program and every process that it starts are charged to one ledger, without being recompiled: \
a library that is preloaded charges each allocation to a row for the process, the thread or the \
shared library that asked. When the program has ended, the account is printed as a tree on \
standard error; the program's standard output stays clean. The exit code is the program's own, \
or 128 plus the signal that killed it.

The page of the manual (`ledgerline man DIR`, then `man DIR/ledgerline-run.1`) says how to read the account, what \
counts, who is not accounted, and what each field of --json means.";

/// What the page of the manual says in its place.
pub const MANUAL: &str = "\
Run a program and print who held its memory.

The program and every process that it starts are charged to one ledger, without being recompiled: \
a library that is preloaded charges each allocation to a row for the process, the thread or the \
shared library that asked. When the program has ended, the account is printed as a tree on \
standard error; the program's standard output stays clean. The exit code is the program's own, \
or 128 plus the signal that killed it.

The first line answers: how the program ended, the peak, the limit, how often it refused, and which process held most. \
Below it the processes stand as a tree, each below the one that started it, with its threads (or libraries). A process is called \
what ps shows: its title, if it gave itself one, else its name, else its program; `pid`, `parent` and `program` say which one it \
is. What a process executes one after the other is one line (`was bash -> env`). Processes of one program that ended, below one \
parent, share a line (`cc x30`), with the largest of their peaks and resident sizes and the sums of the rest; what never held 1 % of the \
root's peak stands together in one. Some twenty lines are printed; --all prints each row, and the columns parent, program, mapped \
and charges.

`peak` is the most that a row held, `share` that peak as a share of the root's (peaks of neighbours need not coincide, so shares \
may add up to more than 100 %), `at end` what it held when its process, or the program, ended, and `refused` how many \
charges a limit refused. `resident` is the most that the kernel saw in the row's process, code and files \
included, so that what the account does not see is seen at once. It is known of processes that ended by \
themselves, not of those that a signal killed; below 8M it may be what the process had before it executed \
its program. In paths (JSON, `show`) a process is PROGRAM.PID; one in another PID namespace \
PROGRAM.nsN.PID, with its ID in there. Where more than a hundred processes have ended, those with the \
smaller peaks share a row for each PROGRAM. Titles are looked up four times a second: a process that lives shorter is called as its \
program.

With --max-heap the blocks of malloc have a limit of their own, whatever is mapped; --max holds for the sum \
of both. (Each block is then charged twice, which takes some twenty nanoseconds more.)

A program that is refused needs a little memory to say so. So a part of each limit is kept (--reserve): after \
its first refusal a process may have a quarter of that in requests of up to 16K, and anew when it was \
not refused for a second. All that is charged together stays within the limits. Nothing is kept with \
`--on-max kill`.

With --container the limit is that of the container, which the kernel would kill for: the smallest of \
memory.max and memory.high (cgroup v2) or memory.limit_in_bytes (v1) of this command's cgroup and those above it, \
and of the machine's memory, less a margin of a sixteenth (4M at least, 512M at most); also when it changes. The \
row (untracked) has what the kernel charges there and no row has: stacks, code, page tables, shared and untracked \
memory, what allocators keep, this command itself, other programs in the cgroup, and page cache up to a sixteenth of the limit. It is measured \
4 to 200 times a second and takes from the room, so that malloc fails before the kernel kills. --max goes with it: \
the smaller one holds, and what is untracked counts for both. Memory that is charged and not touched yet hides as \
much that is untracked.

With --record what each row held over time is kept in a file, for `ledgerline report`: a thread of this command looks \
--record-every, beside the program, and appends what changed. The file has at most --record-size: when it would get longer, what is older \
becomes coarser, and of very many rows those with the smallest peaks are left out. It can be read while the run goes on, and \
when this command was killed, up to the last look. (Not after a power cut.) A full disk is said once; the run goes on, and so does the \
recording when there is room again.

Below the table stands who was refused first, how much it asked for, when, and how much of the limit was in use; whether more was \
resident in a process than the limit allows to be charged; and the most that the kernel saw resident in any one process.

Every process under `run` may write to the ledger, by mistake too. A row that makes no sense any more is \
called damaged, none of its numbers is shown, and a line below the table says so; then the other rows may be \
wrong, too, since a number that was written over and still makes sense cannot be told from a true one. A \
program whose own row was written over goes on without being accounted.

What a program maps by itself (mmap, sbrk), as Python, V8 and the JVM do with their heaps, is charged \
like its blocks as long as it is private and writable, touched or not; `mapped` shows it. A \
reservation without access is free until it becomes writable. So are the tables of a ledger that a program embeds \
itself, which are reserved as a whole and hardly touched. Shared memory and files that are \
mapped to be read are not charged; the JSON document has them.

A line names the processes that were not accounted, and why: statically linked; set-user-ID, or with \
other rights that they would gain; of another architecture or C library (glibc and musl are served, musl on x86-64); built with a sanitizer, which \
runs as it does plain; executed with a cleared environment, as another user, under a seccomp filter, or in a root without \
/proc; with a malloc of their own that passes no request on (what that maps is \
charged); with an allocator that does not tell how large its blocks are; with libraries in a second namespace (dlmopen) or bound to \
themselves (RTLD_DEEPBIND), which call another malloc than everybody else; with too little address space for the library and the ledger (`ulimit -v`); with no row left (--rows); or with a run of their own, a `ledgerline run` \
within this one, whose account and limits hold for them alone. \
Under a limit the process says so itself at once, where it finds out. With --strict that is a failure, and programs keep the library where whoever executes them clears the environment.

A program that starts where another /proc is mounted (`unshare --mount-proc`), in another root, or in a user namespace \
of its own (`bwrap --unshare-all`), has two or three descriptors that it would not have plain, from 1000 on: they lead to the ledger.

The account does not see what a program maps by a system call of its own, its threads' stacks, what the kernel lets a \
mapping with MAP_GROWSDOWN grow by, nor what \
programs that are not accounted start in their turn without the environment that they got.

A process that puts itself under a seccomp filter stays charged and limited, but the library makes no \
system call for it any more, since the filter might kill it for that: threads that start then are \
charged to the row of the process, --on-max kill ends it by an illegal instruction without a word, and \
a refusal has no time. Programs that it executes then are not accounted. Filters that this command is \
itself under, as in most containers, change nothing.

A program can see that it runs under this command: in its environment (LD_PRELOAD, LEDGERLINE_…), in its \
mappings, and by its orphans, whose parent is this process and not process 1.

The library that is preloaded lies in this command. A run makes a file of it in /var/tmp, else in /dev/shm, /tmp or \
the folder that TMPDIR names: in the first where files may be executed and nobody else can exchange them. (The first \
three also must be open to all users, since programs change theirs.) The file goes with the run. While processes of the \
run outlive it, the file stays, and a later run of the same user removes it. A sandbox that hides the file has the \
loader complain, and what runs in there is not seen. LEDGERLINE_PRELOAD names a file to be preloaded instead.

With --json the account is an object. The object has `unit`, `command`, `exit_code`, `signal` (a name or null), `wall_seconds`, `mode`, \
`ledger_bytes`, `max_resident` (the most bytes that the kernel saw resident in one process), \
`heap_peak` (the most bytes of blocks in all processes together; null without --max-heap), \
`mistakes` (frees that matched no charge), `not_accounted` (a list of `program`, `reason` and \
`processes`; the program may be null), `damaged`, `container` and `groups`: one object for each row, \
the root `/` first, then depth-first, with `path`, `name` (what ps calls the process), `program`, `state`, `pid`, `parent` (the ID of the process that started it, or null), `executed` (whether it executed another program, which has a row of its own),  `current`, `peak`, `charges`, \
`uncharges`, `refused`, `refused_heap` (those of the refused that --max-heap refused), `max`, `max_heap`, `high`, \
`max_events`, `high_events` and `at_exit`. `state` is live, \
exited (the process ended before the program did), running (it still ran after that) or damaged (a \
program wrote over the row, whose other fields are null then; `damaged` of the whole says that this \
happened anywhere, and `mistakes` is null where that was written over). Sizes are \
numbers of bytes; `max`, `max_heap` and `high` are a number, or the string \"max\" where there is no limit, as \
in a cgroup's memory.max. `current` (at its end: `at_exit`) is `heap`, the blocks of malloc, and \
`mapped`, private memory that was mapped; `mapped_shared` and `mapped_file` are not part of it, nor is \
`mapped_forgotten`, what was mapped in more pieces than there is room to follow (some 74 000), and is not charged. \
`first_refused` is null, or the `size` of the first request that a row made itself and that was refused, \
with the `seconds` since the start (null under a seccomp filter) and `in_use`, what was in use then; `largest_refused` is the size of the largest. `folded` is true for a \
process that has more threads or libraries by name than rows (254): its own row counts the rest. \
`processes` is 0, or how many ended processes a program's row stands for; its `pid` is 0. `spared` is \
how many requests the reserve served, which are not among the `refused`. `resident` is the most bytes that \
the kernel saw resident in the process, or null where that is not known. `container` is null without \
--container; else it has `limit` (a number, or \"max\" where there is none) and `source`, whose limit that is; \
`kernel`, what the kernel charged against it at the end, or null; `untracked`, how much of \
that no row had; `pressure`, how often the kernel told that memory was short; and `watched`, where that is heard.";

const FEW_EXAMPLES: &str = "\
Examples:
  ledgerline run -- make -j8
  ledgerline run --max 512M -- python3 job.py";

const EXAMPLES: &str = "\
Examples:
  ledgerline run -- make -j8
  ledgerline run --by process -- ./build.sh
  ledgerline run --max 512M -- python3 job.py
  ledgerline run --strict --max 2G -- ./pipeline.sh
  ledgerline run --container -- ./server                 in a container, or under systemd-run -p MemoryMax=1G
  ledgerline run --max 512M --on-max kill --json account.json -- ./server --port 80
  ledgerline run --by process --record build.rec -- make -j8      then: ledgerline report build.rec -o build.html
  ledgerline run --json - -- sort big.txt -o sorted.txt | jq '.groups[0].peak'";

const JSON_HELP: &str = "\
Also write the account to FILE as JSON; `-` is standard output.

docs/schemas/account.v1.json and the page of the manual describe the fields.";

/// How often the command looks for processes that have ended: those that are not
/// its children end without telling it.
const IDLE: Duration = Duration::from_millis(50);
/// The same under a limit, where memory of ended processes stands in the way of
/// those that run.
const LIMITED: Duration = Duration::from_millis(5);

/// What `--by` takes.
fn by() -> impl TypedValueParser<Value = By> {
    one_of(By::ALL, By::name, |by| match by {
        By::Thread => {
            "A row for each process, and below it one for each name that its threads have"
        }
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

    /// What happens to a request beyond a maximum
    #[arg(long, value_parser = on_max(), default_value = OnMax::Enomem.name(), value_name = "ACTION")]
    on_max: OnMax,

    /// Fail (125) if a process is not accounted
    ///
    /// Programs keep the library where whoever executes them clears the environment.
    #[arg(long)]
    strict: bool,

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
    let title: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let record = args.record.order(one_line(&title.join(" ")))?;
    let signals = Signals::hold()?;
    let (file, ledger) = ledger::new(&limits)?;
    let heap = ledger::heap(&limits)?;
    if let Some(spot) = launch.blind {
        let path = launch.program.path.display().to_string();
        say(format_args!("ledgerline: warning: {}: {spot}", printable(&path)));
    }

    // The path leads through this process, which outlives the program: the
    // descriptor itself is closed on exec and need not survive in the child.
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
    // (The program is executed by this command, which puts it under none.)
    let filters = ledgerline_protocol::at_start().filters;
    let filters = filters.map(|number| format!("{number}{}", char::from(VOUCHED)));
    let cpus = ledgerline::percpu::possible_cpus().to_string();
    let order = Order {
        ledger: path.as_bytes(),
        heap: path_of_heap.as_deref().map(str::as_bytes),
        by: args.by,
        on_max: args.on_max,
        strict: args.strict,
        stack: args.stack,
        reserve: Some(kept.as_bytes()),
        namespace: namespace.as_deref().map(str::as_bytes),
        filters: filters.as_deref().map(str::as_bytes),
        cpus: Some(cpus.as_bytes()),
    };
    let mode = ledger.mode().to_string();
    // All processes of one ledger update it in one way: the user's, or this one's.
    let percpu = OsStr::from_bytes(PERCPU.to_bytes());
    let percpu = std::env::var_os(percpu).is_none().then(|| (percpu, OsStr::new(&mode)));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let started = (now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unsigned_abs();
    let session = launch.start(order.write().into_iter().chain(percpu), signals)?;

    let record = record.and_then(record::Sampler::start);
    let main = session.main();
    if let Some(spot) = launch.blind {
        name_blind(&ledger, &launch.program.path, main, spot);
    }
    let mut folded = Folded::new(&ledger);
    let mut titles = Titles::new();
    let ended = session.watch(|| {
        // What the program itself held when it ended is the point of the
        // account, so its rows stay as they are.
        ledger.settle_dead(&|owner| owner == main || living.may(owner));
        folded.fold();
        titles.look(&ledger);
        if let Some((_, heap)) = &heap {
            ledger::tidy(heap, &|owner| living.may(owner));
        }
        // (`ledgerline set` may have given it a limit.)
        let limited = limits.refuse() || ledger.root().max() != Limit::MAX;
        if limited { LIMITED } else { IDLE }
    })?;

    if let Some(record) = record {
        record.end(ended.status);
    }
    let both = || [Some(&ledger), heap.as_ref().map(|(_, heap)| heap)].into_iter().flatten();
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
        ..Account::default()
    };
    let account = account.with_rows(
        &ledger,
        &Processes {
            running: &|owner| owner != main && living.may(owner),
            seen: &|asked, program, goes_on| titles.see(asked, program, goes_on),
            of_run: true,
        },
    );

    let extent = if args.all { Extent::All } else { Extent::Folded };
    let code = ended.exit(outputs.write(&account, extent))?;
    // (Each process that loads the library has a row, also one that allocates nothing.)
    let unseen = !account.saw_any() && !account.damaged;
    if args.strict && (unseen || !account.not_accounted.is_empty()) {
        let why = "the account says which processes were not accounted";
        let why = if unseen { "no process was accounted" } else { why };
        return Err(Failure::internal(format!("--strict: {why}")));
    }
    Ok(code)
}

/// Whether a path leads to a file that is open here.
fn leads_to(path: &str, file: &File) -> bool {
    let of = |found: std::io::Result<Metadata>| found.ok().map(|it| (it.dev(), it.ino()));
    of(file.metadata()).is_some_and(|own| of(std::fs::metadata(path)) == Some(own))
}

/// Makes a row for the program, which will make none itself.
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

/// The size of `--reserve`, which is no limit.
fn kept(text: &str) -> Result<u64, Failure> {
    let size = ledgerline::size::parse(text).ok().flatten();
    size.ok_or_else(|| {
        Failure::usage(format!(
            "--reserve: '{}' is not a size; write it like 512K or 1M",
            printable(text)
        ))
    })
}

/// The container's limit as it is now, for what depends on its size.
fn contained(args: &RunArgs) -> Limit {
    let limits = if args.container { container::Limits::read() } else { Default::default() };
    limits.smallest().map_or(Limit::MAX, |bound| Limit::units(bound.bytes))
}

/// What of the limits is kept for those who were refused is a part of each.
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
        // Nobody is left to say anything.
        (None, Some(_)) if args.on_max == OnMax::Kill => 0,
        // (Where there is no limit, `ledgerline set` may give it one.)
        (None, least) => least.map_or(1 << 20, |least| (least / 32).min(1 << 20)),
    };
    let (high, container) = (limit("--high", &args.high)?, args.container);
    Ok(Limits { max, max_heap, reserve, high, container, rows: args.rows })
}
