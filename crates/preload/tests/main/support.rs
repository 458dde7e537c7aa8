//! Compiles C programs, runs them with the library preloaded, and reads the account that they leave.

#[path = "../../../../tests/support/have.rs"]
mod have;
#[path = "../../../../tests/support/library.rs"]
mod library;
#[path = "../../../../tests/support/tested.rs"]
#[expect(dead_code, reason = "the tests of the command use the rest")]
mod tested;

pub use have::have;
use ledgerline::percpu::{self, Mode};
use ledgerline::{GroupSnapshot, Ledger, Limit, Mistakes, Snapshot};
use ledgerline_protocol::{Given, Item, Which, given};
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Far more than any program takes: one that exceeds it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// Variables that influence an account or the C library: no run inherits them.
const OURS: [&str; 14] = [
    "LEDGERLINE_RUN",
    "LEDGERLINE_HEAP",
    "LEDGERLINE_STACK",
    "LD_PRELOAD",
    "LEDGERLINE_RESERVE",
    "LEDGERLINE_LEDGER",
    "LEDGERLINE_BY",
    "LEDGERLINE_ON_MAX",
    "LEDGERLINE_COUNT",
    "LEDGERLINE_PERCPU",
    "LEDGERLINE_FILTERS",
    "LEDGERLINE_CPUS",
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
];

/// Returns the library, or another that was built for the same tests: one for musl, which programs for glibc cannot
/// load.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os(OTHER_LIBRARY) {
        Some(path) => path.into(),
        None => library::built("ledgerline-preload", &[], "libledgerline_preload.so"),
    })
}

/// The variable that names another library (`ci/platforms`).
pub const OTHER_LIBRARY: &str = "LEDGERLINE_TEST_PRELOAD";

/// A compiled program in its own folder, which is removed on drop.
pub struct Program(PathBuf);

impl std::ops::Deref for Program {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A leftover lies in the target folder and is no reason to fail a test.
        let _ = std::fs::remove_dir_all(self.0.parent().expect("its folder"));
    }
}

/// Compiles a source from `programs/`, a `plugin` to a shared library; `None` without a compiler.
pub fn compile(source: &str) -> Option<Program> {
    compile_with(if source.ends_with(".cc") { "g++" } else { "cc" }, source, &[])
}

/// Like [`compile`], but with a given compiler, which may be missing, and more options.
pub fn compile_with(compiler: &str, source: &str, options: &[&str]) -> Option<Program> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !have(compiler) {
        return None;
    }
    // One folder per call: tests do not wait for each other, and the program keeps its name.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    std::fs::create_dir_all(&folder).expect("a folder for the program");
    let (stem, _) = source.split_once('.').expect("a source has an extension");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-Wall", "-Werror", "-fno-builtin", "-pthread"]);
    let output = if stem.contains("plugin") {
        command.args(["-shared", "-fPIC"]);
        folder.join(format!("lib{stem}.so"))
    } else {
        folder.join(stem)
    };
    command.arg("-o").arg(&output);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source));
    command.args(options);
    assert!(command.arg("-ldl").status().expect("it runs").success(), "{source} does not compile");
    Some(Program(output))
}

/// Compiles a source, or ends the test if there is no compiler.
macro_rules! compiled {
    ($source:literal) => {
        match $crate::support::compile($source) {
            Some(program) => program,
            None => return,
        }
    };
}
pub(crate) use compiled;

/// Returns the ways to update cells that this machine has.
pub fn modes() -> &'static [&'static str] {
    match percpu::detect() {
        Mode::Rseq => &["rseq", "fallback"],
        Mode::Owned => &["owned", "fallback"],
        Mode::Fallback => &["fallback"],
    }
}

fn memory_file(name: &CStr) -> File {
    // SAFETY: the name is NUL-terminated; the result is a new descriptor, or an error.
    unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let descriptor = libc::memfd_create(name.as_ptr(), flags);
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        File::from_raw_fd(descriptor)
    }
}

/// The nonce of all ledgers of these tests.
const NONCE: u128 = 7;

/// Makes a file for a ledger, and the ledger.
fn ledger_file(which: Which, make: impl FnOnce(&File) -> Ledger) -> (File, Ledger) {
    let file = memory_file(&given::name(which, NONCE));
    let ledger = make(&file);
    // SAFETY: seals a file of this program's own.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, given::SEALS) };
    assert_eq!(sealed, 0, "{}", std::io::Error::last_os_error());
    (file, ledger)
}

fn path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// A ledger that programs are charged to.
pub struct Account {
    file: File,
    pub ledger: Ledger,
    /// The second ledger, if blocks have their own limit.
    heap: Option<(File, Ledger)>,
}

impl Account {
    pub fn new() -> Account {
        let builder = Ledger::builder().capacity(4096).items(&Item::NAMES);
        let (file, ledger) =
            ledger_file(Which::Ledger, |file| builder.create_in(file).expect("a ledger"));
        Account { file, ledger, heap: None }
    }

    pub fn limited(max: u64) -> Account {
        let account = Account::new();
        account.ledger.root().set_max(Limit::units(max)).expect("nothing is in use");
        account
    }

    /// Makes an account with a limit for blocks alone, beside one for everything or none.
    pub fn with_heap(max: Option<u64>, max_heap: u64) -> Account {
        let builder = Ledger::builder().capacity(4096);
        let (file, heap) =
            ledger_file(Which::Heap, |file| builder.create_in(file).expect("a ledger"));
        heap.root().set_max(Limit::units(max_heap)).expect("nothing is in use");
        let account = max.map_or_else(Account::new, Account::limited);
        Account { heap: Some((file, heap)), ..account }
    }

    /// Returns the second ledger, after checking that no program has made a mistake in it either.
    pub fn heap(&self) -> &Ledger {
        let (_, heap) = self.heap.as_ref().expect("there is one");
        assert_eq!(heap.mistakes(), Mistakes::default());
        heap
    }

    pub fn path(&self) -> String {
        path(&self.file)
    }

    /// Prepares a program that is charged here, by thread and in the machine's preferred mode.
    pub fn run(&self, program: &Path, arguments: &[&str]) -> Run {
        let heap = self.heap.as_ref().map_or(String::new(), |(file, _)| path(file));
        let of_heap = self.heap.as_ref().map(|(file, _)| file.as_raw_fd());
        let given = Given::of(NONCE, self.file.as_raw_fd(), of_heap).expect("files");
        Run::bare(program, arguments)
            .env("LEDGERLINE_HEAP", &heap)
            .env("LD_PRELOAD", library().to_str().expect("a path in UTF-8"))
            .env("LEDGERLINE_LEDGER", &self.path())
            .env("LEDGERLINE_RUN", &given.to_string())
            .env("LEDGERLINE_PERCPU", modes()[0])
            .env("LEDGERLINE_CPUS", &ledgerline::percpu::possible_cpus().to_string())
            .env(
                "LEDGERLINE_FILTERS",
                &ledgerline_protocol::at_start().filters.unwrap_or(0).to_string(),
            )
    }

    /// Returns the ledger's rows, after checking that no program has made a mistake.
    pub fn rows(&self) -> Rows {
        assert_eq!(self.ledger.mistakes(), Mistakes::default());
        let rows = Rows(self.ledger.snapshot());
        assert!(!rows.0.damaged, "nobody wrote over the ledger: {rows:#?}");
        for row in &rows.0.groups {
            assert!(row.charges >= row.uncharges && row.peak.value >= row.current, "{row:#?}");
        }
        rows
    }
}

/// Runs a program in its own account, checks that it succeeds, and returns its output and its account.
pub fn account(program: &Path, arguments: &[&str], env: &[(&str, &str)]) -> (String, Rows) {
    let account = Account::new();
    let run = env.iter().fold(account.run(program, arguments), |run, (n, v)| run.env(n, v));
    (run.well(), account.rows())
}

/// A program that is about to run.
pub struct Run(Command);

/// The results of a program.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A running program, killed on drop.
pub struct Running {
    pub child: Child,
    stdout: File,
    stderr: File,
}

impl Run {
    /// Prepares a program without the library.
    pub fn bare(program: &Path, arguments: &[&str]) -> Run {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        for name in OURS {
            command.env_remove(name);
        }
        Run(command)
    }

    pub fn env(mut self, name: &str, value: &str) -> Run {
        self.0.env(name, value);
        self
    }

    pub fn without(mut self, name: &str) -> Run {
        self.0.env_remove(name);
        self
    }

    pub fn start(mut self) -> Running {
        let (stdout, stderr) = (memory_file(c"stdout"), memory_file(c"stderr"));
        self.0.stdout(stdout.try_clone().expect("a descriptor"));
        self.0.stderr(stderr.try_clone().expect("a descriptor"));
        Running { child: self.0.spawn().expect("the program starts"), stdout, stderr }
    }

    /// Runs it, with any status at its end.
    pub fn end(self) -> Ended {
        self.start().end()
    }

    /// Runs it and checks that it succeeds without complaints. Returns its output.
    pub fn well(self) -> String {
        let ended = self.end();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:#?}");
        ended.stdout
    }
}

impl Running {
    /// Waits for its first output.
    pub fn said(&mut self) -> String {
        let start = Instant::now();
        loop {
            let text = contents(&mut self.stdout);
            if text.ends_with('\n') {
                return text;
            }
            assert!(start.elapsed() < PATIENCE && self.child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn end(mut self) -> Ended {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("it is a child of ours") {
                Some(status) => break status,
                None if start.elapsed() > PATIENCE => {
                    let text = contents(&mut self.stderr);
                    panic!("the program hangs: {}{text}", contents(&mut self.stdout));
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        Ended { status, stdout: contents(&mut self.stdout), stderr: contents(&mut self.stderr) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The whole group is killed, which `bare` made: a program that hangs may have children.
            // SAFETY: the child was not waited for, so the number is still its own.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }
}

fn contents(file: &mut File) -> String {
    // Opened anew: the program writes at the position of the first descriptor.
    let mut text = String::new();
    let mut copy = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("ours");
    copy.read_to_string(&mut text).expect("text");
    text
}

/// The rows of a ledger, the root first.
#[derive(Debug)]
pub struct Rows(pub Snapshot);

impl Rows {
    pub fn root(&self) -> &GroupSnapshot {
        &self.0.groups[0]
    }

    /// Returns the rows right below the root: the processes.
    pub fn processes(&self) -> Vec<&GroupSnapshot> {
        self.0.groups.iter().filter(|row| row.depth == 1).collect()
    }

    /// Returns the rows with a name.
    pub fn named(&self, name: &str) -> Vec<&GroupSnapshot> {
        self.0.groups.iter().filter(|row| row.name == name).collect()
    }

    /// Returns the only row with a name.
    pub fn row(&self, name: &str) -> &GroupSnapshot {
        match self.named(name)[..] {
            [row] => row,
            _ => panic!("not one row {name}: {:?}", self.paths()),
        }
    }

    pub fn paths(&self) -> Vec<&str> {
        self.0.groups.iter().map(|row| row.path.as_str()).collect()
    }
}

/// Returns charges without their uncharge: the live blocks.
pub fn live(row: &GroupSnapshot) -> u64 {
    row.charges - row.uncharges
}

/// Returns glibc's size of a chunk for a request, by its documentation and not by its headers: a word more, rounded up
/// to 16, at least 32; above the threshold whole pages.
pub fn chunk(size: u64) -> u64 {
    let chunk = ((size + 8 + 15) & !15).max(32);
    if size < 128 << 10 { chunk } else { (chunk + 8).next_multiple_of(4096) }
}

/// Returns the numbers in a text.
pub fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
