//! `ledgerline layout record`: runs a program that was compiled with probes, and reports which threads touch which
//! field.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use ledgerline_advise::recording::plan::{Heap, Plan, Request};
use ledgerline_advise::recording::program::Program;
use ledgerline_advise::recording::{VARIABLE, profile, read, report};
use ledgerline_layout::Error;
use ledgerline_layout::pick::{named, pick};

use super::build;
use crate::carried::RECORDER;
use ledgerline_run::launch::{Failure, Launch, Signals, Status, Target, program};
use ledgerline_view::terminal::folder;

pub(super) const LONG_ABOUT: &str = "\
Run a program and count who reads and writes which field, how often, and which fields together.

The program is compiled with the probes that gcc and clang put in for their thread sanitizer, and linked with \
libledgerline_record.so instead of the sanitizer. --build does both while makefiles stay as they are: the shell runs the \
command with wrappers for cc, gcc, g++, c++, clang and clang++ (also gcc-12 and x86_64-linux-gnu-gcc) first in PATH, and \
for what CC and CXX name. What is up to date is not compiled again, so clean first. The library is put into \
$XDG_DATA_HOME/ledgerline (~/.local/share/ledgerline), where programs find it without ledgerline, too. Give cmake a \
folder of its own to build in: it remembers the wrappers. A build that fails ends record with its exit code. Without \
--build, --save-library writes the library; LEDGERLINE_RECORD_LIBRARY names another.

Threads run in parallel, and atomic operations are told from plain \
ones. The recorder sees neither code that was compiled without probes (the C library but for its locks, assembly) nor \
what lies on the stack.

An object is a global variable of a wanted type, a block of the heap of its size, or what the program says is one \
(lab/record/include/ledgerline_record.h). With --operation, counts are per call of that function, and the profile \
says which fields the same calls touch: give it if you want advice. The recorder does not see calls that were inlined; \
__attribute__((noinline)) keeps them.

The counts are printed on standard error when the program has ended; -o writes them as a profile for \
`layout show`, `layout diff` and `layout advise`. Times are estimates: what the probes cost was measured and is taken \
off, but not the optimizations that they keep the compiler from. The exit code is the program's own, or 128 plus the \
signal that killed it; 125 when recording failed.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout record --type item --build 'make clean && make -j2' -- ./server
  ledgerline layout record --build 'cmake -B probes && cmake --build probes' -- probes/server
  ledgerline layout record --build './configure && make'     only builds, with probes

  ledgerline layout record --save-library libledgerline_record.so
  gcc -g -O2 -fsanitize=thread -c server.c
  gcc server.o -o server -L . -lledgerline_record -lpthread
  ledgerline layout record --type page_counter --operation charge -o s.toml -- ./server
  ledgerline layout record -- ./server             all types, all accesses
  ledgerline layout record --json - -- ./server | jq '.types[] | .name, .fields'
  ledgerline layout record --of ./plugin.so --type cache -- python3 job.py

  With clang and without --build, add where it compiles: -mllvm -tsan-instrument-read-before-write
  gcc expands some calls of memcpy and memset, which are then not seen; to see them:
  -Dmemcpy=__tsan_memcpy -Dmemmove=__tsan_memmove -Dmemset=__tsan_memset";

/// The exit code if the program succeeded and nothing was recorded.
const NOTHING: u8 = 125;

/// Which blocks of the heap are objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Blocks {
    /// None: globals, and what the program says
    None,
    /// Those of a type's size (rounded up, where they are aligned), and calloc with elements of it
    Exact,
    /// Those of a multiple of it, too
    Arrays,
}

/// The options of `ledgerline layout record`.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    override_usage = "ledgerline layout record [OPTIONS] [--] <PROGRAM> [ARGUMENT]...\n       \
                      ledgerline layout record --build <COMMAND>"
)]
pub struct RecordArgs {
    /// Names or patterns of types [default: all that the program has]
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,

    /// A function whose calls are the operations; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    operation: Vec<String>,

    /// Write what was found as a profile; `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<OsString>,

    /// Also write what was found as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<OsString>,

    /// The file with probes, if it is not PROGRAM itself: a library, or what a script runs
    #[arg(long, value_name = "FILE")]
    of: Option<PathBuf>,

    /// Blocks of the heap that are taken for objects by their size
    #[arg(long, value_enum, value_name = "WHICH", default_value = "exact")]
    heap: Blocks,

    /// Take only blocks that this function allocates; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    site: Vec<String>,

    /// Build with probes before, by a shell's command
    #[arg(long, value_name = "COMMAND")]
    build: Option<OsString>,

    /// Only write the library that programs with probes are linked with to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, exclusive = true)]
    save_library: Option<OsString>,

    /// The program and its arguments; the options of record come before it
    #[arg(
        trailing_var_arg = true,
        required_unless_present_any = ["save_library", "build"],
        num_args = 1..,
        value_name = "PROGRAM",
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// Records the program of `args`. The exit code is the program's, unless it never ran or a file could not be written.
pub fn main(args: &RecordArgs) -> ExitCode {
    match record(args) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

impl RecordArgs {
    /// Returns whether an option is given that needs a program.
    fn asks(&self) -> bool {
        !self.types.is_empty()
            || !self.operation.is_empty()
            || !self.site.is_empty()
            || self.output.is_some()
            || self.json.is_some()
            || self.of.is_some()
    }
}

fn failure(error: impl Display) -> Failure {
    Failure::internal(format!("layout record: {error}"))
}

fn record(args: &RecordArgs) -> Result<u8, Failure> {
    if args.command.is_empty() && args.save_library.is_none() && args.asks() {
        return Err(Failure::usage(
            "layout record: there is no program to record; name it after the options: -- PROGRAM"
                .to_owned(),
        ));
    }
    if let Some(file) = &args.save_library {
        let target = Target::check("--save-library", file)?;
        return target.write(RECORDER.bytes()?).map(|()| 0);
    }
    // All errors that can be known are found before the program starts. Those that do not depend on the build are found
    // before the build.
    let output = args.output.as_deref().map(|file| Target::check("--output", file)).transpose()?;
    let json = args.json.as_deref().map(|file| Target::check("--json", file)).transpose()?;
    if args.output.is_some() && args.output == args.json {
        return Err(Failure::usage(
            "--output and --json go to one place: name another for one of them".to_owned(),
        ));
    }
    let built = match &args.build {
        Some(command) => match build::build(command)? {
            Ok(built) => Some(built),
            Err(code) => return Ok(code),
        },
        None => None,
    };
    let Some(name) = args.command.first() else {
        build::say(build::NEXT);
        return Ok(0);
    };
    let target = program::find(name)?;
    let file = args.of.clone().unwrap_or_else(|| target.path.clone());
    let how = built.as_ref().map(|built| build::advice(built, &file));
    let program = Program::open(&file, how.as_deref()).map_err(failure)?;
    let plan = plan(args, &file, &program).map_err(|error| failure(error.in_file(&file)))?;
    let launch = Launch::new(target, &args.command, &RECORDER)?;
    if args.of.is_some()
        && let Some(spot) = launch.blind.filter(|spot| spot.breaks_preload())
    {
        return Err(failure(format_args!("{}: {spot}", launch.program.path.display())));
    }
    let folder = folder::make("record").map_err(|error| {
        failure(format_args!(
            "no folder for counts: {error}; set TMPDIR to one that can be written"
        ))
    })?;
    plan.write(folder.path())
        .map_err(|error| failure(format_args!("the plan cannot be written: {error}")))?;

    let variables = [(OsStr::new(VARIABLE), folder.path().as_os_str())];
    let session = launch.start(variables, Signals::hold()?)?;
    let ended = session.watch(|| Duration::from_millis(50))?;

    let recordings = read::read(folder.path(), &plan).map_err(failure)?;
    let recorded = profile::profile(&plan, &recordings);
    let mut text = heading(args, &plan, ended.status, ended.wall, recordings.len());
    text.push_str(&report::text(&plan, &recordings, &recorded, &|at| program.function_at(at)));
    if recorded.types.is_empty() {
        text.push_str(&nothing(&plan, &recordings));
    }
    build::say(&text);
    let mut written = match &output {
        Some(output) if !recorded.types.is_empty() => {
            output.write(recorded.profile.to_toml().as_bytes())
        }
        _ => Ok(()),
    };
    if let Some(target) = &json {
        let value = report::json(&plan, &recordings, &recorded);
        written = written.and(target.write(super::line_of(&value).as_bytes()));
    }
    drop(folder);
    let code = ended.exit(written)?;
    Ok(if code == 0 && recorded.types.is_empty() { NOTHING } else { code })
}

fn plan(args: &RecordArgs, file: &Path, program: &Program) -> Result<Plan, Error> {
    let types = super::types(file, &[])?;
    let picked = if args.types.is_empty() { named(types) } else { pick(types, &args.types)? };
    let heap = match args.heap {
        Blocks::None => Heap::None,
        Blocks::Exact => Heap::Exact,
        Blocks::Arrays => Heap::Arrays,
    };
    let request = Request { operations: args.operation.clone(), sites: args.site.clone(), heap };
    Plan::new(program, types, &picked, &request)
}

fn heading(
    args: &RecordArgs,
    plan: &Plan,
    status: Status,
    wall: Duration,
    processes: usize,
) -> String {
    let name: String = args.command[0].to_string_lossy().escape_debug().collect();
    let ending = match (status, status.signal()) {
        (Status::Exited(code), _) => format!("exit {code}"),
        (Status::Killed(_), signal) => format!("killed by {}", signal.unwrap_or_default()),
    };
    let per = if plan.operations.is_empty() {
        "no operation named".to_owned()
    } else {
        format!("operations: {}", plan.operations.join(", "))
    };
    let processes = if processes == 1 { String::new() } else { format!(", {processes} processes") };
    format!("ledgerline: {name}: {ending}, {:.3} s{processes}; {per}\n", wall.as_secs_f64())
}

/// Explains why a recording may be empty.
fn nothing(plan: &Plan, recordings: &[read::Recording]) -> String {
    let touched = recordings
        .iter()
        .any(|recording| recording.threads.iter().any(|thread| !thread.tables.is_empty()));
    let advice = if recordings.is_empty() {
        "the program did not load the library (link it with -lledgerline_record), or the library has said why it \
         could not"
            .to_owned()
    } else if touched {
        format!(
            "no call of {} touched an object: all calls may be inlined (__attribute__((noinline))), or it is called \
             by none of the threads",
            plan.operations.join(", ")
        )
    } else {
        "no object was touched: objects on the stack or in pools, and blocks larger than the type, are not found (say where they lie \
         with LEDGERLINE_OBJECT), and other types may be meant (--type)"
            .to_owned()
    };
    format!("Nothing was recorded, and no profile is written; {advice}.\n")
}
