//! Shared by the test binaries: separate processes, all per-CPU modes, randomness.
//!
//! The mode is chosen once a process, and the gate, the stock lock and signal handlers belong to the process, too. So a test
//! that depends on one of them runs its body in a fresh process, one for each mode if the mode matters: the test binary starts
//! itself again for that one test. The other tests of a binary are threads of one process.

#[path = "../../../../tests/support/cases.rs"]
pub mod cases;
#[path = "../../../../tests/support/seed.rs"]
pub mod seed;

pub use seed::long;

use ledgerline::percpu::{self, Mode};
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::panic::Location;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The mode, set in the process that runs a test's body.
const MODE: &str = "LEDGERLINE_TEST_MODE";
/// The name of the test, set in the process that runs its body alone.
const ALONE: &str = "LEDGERLINE_TEST_ALONE";
/// Far more than any body takes. A body that exceeds it hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// How a process selects its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// The machine's default: sections if it has them.
    Natural,
    /// `LEDGERLINE_PERCPU=owned`: threads own columns.
    Owned,
    /// `LEDGERLINE_PERCPU=fallback`.
    Fallback,
    /// glibc registers no thread: like `Owned`, but without the variable.
    Unregistered,
}

impl Run {
    pub const ALL: [Run; 4] = [Run::Natural, Run::Owned, Run::Fallback, Run::Unregistered];

    fn name(self) -> &'static str {
        match self {
            Run::Natural => "natural",
            Run::Owned => "owned",
            Run::Fallback => "fallback",
            Run::Unregistered => "unregistered",
        }
    }

    fn adjust(self, command: &mut Command) {
        command.env_remove("LEDGERLINE_PERCPU").env_remove("GLIBC_TUNABLES");
        match self {
            Run::Natural => {}
            Run::Owned | Run::Fallback => {
                command.env("LEDGERLINE_PERCPU", self.name());
            }
            Run::Unregistered => {
                command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
            }
        }
        command.env(MODE, self.name());
    }
}

/// Returns the harness's path of a test of the calling file, which is a module of the binary.
#[track_caller]
fn path_of(test: &str) -> String {
    let file = Path::new(Location::caller().file()).file_stem().expect("a file");
    format!("{}::{test}", file.display())
}

/// Returns a command that starts this test binary again, for one test of the calling file.
#[track_caller]
pub fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", &path_of(test), "--nocapture", "--test-threads=1"]);
    command
}

/// Runs the calling test in its own process, and returns whether it did. Returns `false` in that process, where the body
/// continues. `test` is the test's own name.
#[track_caller]
pub fn ran_alone(test: &str) -> bool {
    let path = path_of(test);
    if std::env::var(ALONE).is_ok_and(|alone| alone == path) {
        return false;
    }
    let mut command = again(test);
    command.env(ALONE, &path);
    // The output may name parts that were skipped.
    print!("{}", run(command, &path));
    true
}

/// Runs the body in its own process in each mode: with sections, and without them in both ways. `test` is the test's own
/// name.
#[track_caller]
pub fn in_both_modes(test: &str, body: impl FnOnce()) {
    in_modes(test, &[Run::Natural, Run::Owned, Run::Fallback], body);
}

/// Runs the body in its own process, once a mode.
#[track_caller]
pub fn in_modes(test: &str, runs: &[Run], body: impl FnOnce()) {
    if let Ok(mode) = std::env::var(MODE) {
        let run = Run::ALL.into_iter().find(|run| run.name() == mode).expect("a mode");
        match percpu::detect() {
            // A kernel without `membarrier` has the fallback for all.
            Mode::Fallback => {}
            Mode::Owned => assert_ne!(run, Run::Fallback),
            Mode::Rseq => assert_eq!(run, Run::Natural),
        }
        body();
        return;
    }
    for &how in runs {
        let mut command = again(test);
        how.adjust(&mut command);
        run(command, &format!("{}, {}", path_of(test), how.name()));
    }
}

/// Runs a command that must pass one test. Returns its output.
fn run(command: Command, what: &str) -> String {
    let (success, text) = watch(command);
    assert!(success, "{what}:\n{text}");
    assert!(text.contains("1 passed"), "{what} did not run:\n{text}");
    text
}

/// Runs a command to its end, and kills it if it hangs.
fn watch(mut command: Command) -> (bool, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary starts");
    let readers = [
        drain_pipe(child.stdout.take().expect("piped")),
        drain_pipe(child.stderr.take().expect("piped")),
    ];
    let success = finish(&mut child);
    let text = readers.map(|reader| reader.join().expect("read")).concat();
    match success {
        Some(success) => (success, text),
        None => (false, format!("{text}\nhung for {PATIENCE:?} and was killed (a deadlock?)")),
    }
}

fn drain_pipe(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn finish(child: &mut Child) -> Option<bool> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE || long() {
        if let Some(status) = child.try_wait().expect("own child") {
            return Some(status.success());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Returns the number of repetitions: in every CI run, or in a long one.
pub fn times(ci: u64, in_long: u64) -> u64 {
    if long() { in_long } else { ci }
}

/// A small, fast, seeded generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Starts from a test's own fixed seed, or in a long run from a new one.
    pub fn new(fixed: u64) -> Random {
        Random(seed::seed(fixed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// Forks. The child runs `body` and exits with its result. `body` must not rely on locks that other threads held: no printing,
/// no heap.
pub fn fork(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` alone and then `_exit`s; it takes no lock of another thread.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork");
        if child == 0 {
            // A child that hangs must fail, too.
            libc::alarm(60);
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(code.unwrap_or(99));
        }
        child
    }
}

/// Waits for a child. Returns its exit code, or minus the signal that ended it.
pub fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process and writes its status to the stack.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

pub fn own_pid() -> u32 {
    std::process::id()
}

/// Returns a file in memory, for a ledger.
pub fn memfd() -> File {
    // SAFETY: creates a new file; the name is NUL-terminated.
    unsafe {
        let file = libc::memfd_create(c"ledger".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0);
        File::from_raw_fd(file)
    }
}

/// Returns a name that no other group has.
pub fn unique(name: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{name}.{}", NUMBER.fetch_add(1, Relaxed))
}
