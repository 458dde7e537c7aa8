//! The integration tests share this: processes of their own, all per-CPU modes, randomness.
//!
//! The mode is chosen once a process, and the gate, the stock lock and signal handlers are the
//! process's too. So a test here runs its body in a fresh process for each mode: the test binary
//! starts itself again for that one test.

#![allow(dead_code, reason = "every test binary uses a part of this")]

#[path = "../../../../tests/support/cases.rs"]
pub mod cases;
pub mod control;
#[path = "../../../../tests/support/seed.rs"]
pub mod seed;
pub mod tasks;

pub use seed::long;

use ledgerline::percpu::{self, Mode};
use ledgerline::{Group, Ledger, LedgerBuilder, Limit, Mistakes};
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says, in the process that runs a test's body, in which mode it runs.
const MODE: &str = "LEDGERLINE_TEST_MODE";
/// Far more than any body takes: who passes it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than any wait takes: who passes it was forgotten.
pub const LONG: Duration = Duration::from_secs(100);

/// How a process is made to choose its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// As this machine is: sections if it has them.
    Natural,
    /// `LEDGERLINE_PERCPU=owned`: threads own columns.
    Owned,
    /// `LEDGERLINE_PERCPU=fallback`.
    Fallback,
    /// glibc registers no thread: as `Owned`, without being told.
    Unregistered,
}

impl Run {
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

/// Runs the body in a process of its own in each mode: with sections, and without them in both ways that there are. `test`
/// is the test's own name.
pub fn in_both_modes(test: &str, body: impl FnOnce()) {
    in_modes(test, &[Run::Natural, Run::Owned, Run::Fallback], body);
}

/// As [`in_both_modes`], and also where glibc does not register threads.
pub fn in_all_modes(test: &str, body: impl FnOnce()) {
    let all = [Run::Natural, Run::Owned, Run::Fallback, Run::Unregistered];
    // (musl registers none of them, so that there is nothing to switch off.)
    in_modes(test, if cfg!(target_env = "musl") { &all[..3] } else { &all }, body);
}

/// Runs the body in a process of its own, once a mode.
pub fn in_modes(test: &str, runs: &[Run], body: impl FnOnce()) {
    if let Ok(mode) = std::env::var(MODE) {
        match percpu::detect() {
            // (A kernel without `membarrier` has the fallback for all.)
            Mode::Fallback => {}
            Mode::Owned => assert_ne!(mode, Run::Fallback.name()),
            Mode::Rseq => assert_eq!(mode, Run::Natural.name()),
        }
        body();
        return;
    }
    for &run in runs {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        run.adjust(&mut command);
        let (success, text) = watch(command);
        assert!(success, "{test}, {}:\n{text}", run.name());
        assert!(text.contains("1 passed"), "{test} did not run:\n{text}");
    }
}

/// Runs a command to its end, and kills it when it hangs.
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

/// A group that may use so much.
pub fn limited<'l>(parent: Group<'l>, name: &str, max: u64) -> Group<'l> {
    let group = parent.create(name).unwrap();
    group.set_max(Limit::units(max)).unwrap();
    group
}

/// How often: in every CI run, and in a long one.
pub fn times(ci: u64, in_long: u64) -> u64 {
    if long() { in_long } else { ci }
}

/// How long: in every CI run, and in a long one.
pub fn seconds(ci: f64, in_long: f64) -> Duration {
    Duration::from_secs_f64(if long() { in_long } else { ci })
}

/// Small, fast, seeded (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// From a test's own fixed seed, or in a long run from a new one.
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

    /// One of so many.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// A size between 1 and 2^bits, small ones as likely as large ones.
    pub fn size(&mut self, bits: u64) -> u64 {
        let shift = self.below(bits + 1);
        1 + self.below(1 << shift)
    }
}

/// The CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: the call fills the mask on the stack, which is plain bits.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Moves the calling thread.
pub fn pin(cpus: &[usize]) {
    // SAFETY: the call reads a mask on the stack, which is plain bits.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
    }
}

/// Forks; the child runs `body` (which must not rely on what other threads held: no printing, no
/// heap) and exits with what it returns.
pub fn fork(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` alone and then `_exit`s; it takes no lock of another thread.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork");
        if child == 0 {
            // A child that hangs is a failure, too.
            libc::alarm(60);
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(code.unwrap_or(99));
        }
        child
    }
}

/// Waits for a child; what it exited with, or minus the signal that ended it.
pub fn wait(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process and writes its status to the stack.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Whether a process exists.
pub fn alive(pid: u32) -> bool {
    // SAFETY: signal 0 asks only whether the process exists.
    unsafe { libc::kill(pid as i32, 0) == 0 }
}

pub fn own_pid() -> u32 {
    std::process::id()
}

/// A file in memory, for a ledger.
pub fn memfd() -> File {
    // SAFETY: makes a file of its own; the name is NUL-terminated.
    unsafe {
        let file = libc::memfd_create(c"ledger".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0);
        File::from_raw_fd(file)
    }
}

/// A ledger that is audited.
pub fn audited() -> Ledger {
    audited_builder().anonymous().unwrap()
}

pub fn audited_builder() -> LedgerBuilder {
    Ledger::builder().capacity(64).audit(true)
}

/// Underflows, strays, and what the audit found.
pub fn mistakes(ledger: &Ledger) -> [u64; 3] {
    let Mistakes { underflows, strays, audited, .. } = ledger.mistakes();
    [underflows, strays, audited]
}
