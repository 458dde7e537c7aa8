//! A program overwrites the ledger of a run: nothing hangs, nothing crashes, and the account reports it.

#[path = "../../../../tests/support/scribble.rs"]
mod scribble;

use crate::seed;
use crate::support::*;
use scribble::{Memory, Parts};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A run that takes this long hangs.
const HANGS: Duration = Duration::from_secs(100);

/// Starts itself and Python repeatedly for some milliseconds; prints the children that a signal ended.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static unsigned long next(unsigned long *state) {
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return *state >> 33;
}

/* Allocates and frees; what is refused is done without. Each block keeps what was written to it. */
static void *work(void *seed) {
    unsigned long state = (unsigned long)seed;
    char *blocks[500] = {0};
    size_t sizes[500] = {0};
    for (int step = 0; step < 4000; step++) {
        int at = next(&state) % 500;
        for (size_t byte = 0; blocks[at] && byte < sizes[at]; byte += 512)
            if (blocks[at][byte] != (char)at) abort();
        switch (next(&state) % 8) {
        case 0: {
            size_t size = 4096 * (1 + next(&state) % 64);
            void *map = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (map != MAP_FAILED) munmap(map, size);
            break;
        }
        case 1: {
            size_t size = 1 + next(&state) % 100000;
            char *grown = realloc(blocks[at], size);
            if (grown) {
                blocks[at] = grown;
                sizes[at] = size;
                memset(grown, at, size);
            }
            break;
        }
        default:
            free(blocks[at]);
            sizes[at] = 1 + next(&state) % (next(&state) % 16 ? 2000 : 200000);
            blocks[at] = malloc(sizes[at]);
            if (blocks[at]) memset(blocks[at], at, sizes[at]);
            else sizes[at] = 0;
        }
    }
    for (int at = 0; at < 500; at++) free(blocks[at]);
    return 0;
}

static int job(unsigned long seed) {
    pthread_t threads[3];
    int made = 0;
    while (made < 3 && pthread_create(&threads[made], 0, work, (void *)(seed + made)) == 0) made++;
    work((void *)(seed + 3));
    pid_t child = fork();
    if (child == 0) {
        work((void *)(seed + 4));
        _exit(0);
    }
    for (int at = 0; at < made; at++) pthread_join(threads[at], 0);
    int status = 0;
    if (child > 0) waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : 0;
}

int main(int count, char **arguments) {
    unsigned long seed = strtoul(arguments[1], 0, 10);
    if (count == 2) return job(seed);
    long end = now() + strtol(arguments[2], 0, 10);
    int running = 0, bad = 0;
    while (now() < end || running > 0) {
        while (running < 3 && now() < end) {
            char text[32];
            snprintf(text, sizeof text, "%lu", ++seed);
            pid_t child = fork();
            if (child == 0) {
                if (seed % 3 == 0 && arguments[3][0])
                    execl(arguments[3], arguments[3], "-c", arguments[4], NULL);
                execl(arguments[0], arguments[0], text, NULL);
                _exit(errno == ENOMEM ? 0 : 3);
            }
            if (child > 0) running++;
        }
        int status = 0;
        pid_t ended = wait(&status);
        if (ended > 0) {
            running--;
            if (WIFSIGNALED(status)) {
                printf("%d was ended by signal %d\n", (int)ended, WTERMSIG(status));
                bad = 1;
            } else if (WEXITSTATUS(status) > 100) {
                printf("a child of %d was ended by signal %d\n", (int)ended, WEXITSTATUS(status) - 100);
                bad = 1;
            }
        }
    }
    return bad;
}
"#;

/// Python code that may be refused memory, and report it. It avoids `threading`, whose starter waits until the thread
/// runs, for ever if the thread was refused its first memory. An interpreter that ends while such a thread still
/// reports that may abort, so the process ends in another way.
const PYTHON: &str = "\
import _thread, os
def work(end=None):
    try:
        for turn in range(4):
            x = [(i, str(i)) for i in range(20000)]
            y = bytearray(3 << 20)
    except MemoryError:
        pass
    finally:
        if end: end.release()
try:
    ends = []
    for thread in range(2):
        end = _thread.allocate_lock()
        end.acquire()
        _thread.start_new_thread(work, (end,))
        ends.append(end)
    work()
    for end in ends: end.acquire(timeout=5)
except (MemoryError, RuntimeError):
    pass
os._exit(0)
";

/// Small, fast, seeded (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// Returns the compiled program; `None` without a compiler.
fn program() -> Option<&'static Path> {
    static PROGRAM_FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compiled = || {
        if !have("cc") {
            return None;
        }
        let (source, program) = (scratch("damaged.c"), scratch("damaged"));
        std::fs::write(&source, PROGRAM).unwrap();
        let options = ["-O1", "-pthread", "-o"];
        let output = Command::new("cc").args(options).arg(&program).arg(&source).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        std::fs::remove_file(source).unwrap();
        Some(program)
    };
    PROGRAM_FILE.get_or_init(compiled).as_deref()
}

/// Returns the ledger of a running run, once it exists.
fn ledger_of(run: &mut Child) -> Option<File> {
    loop {
        let folder = std::fs::read_dir(format!("/proc/{}/fd", run.id())).ok()?;
        let is_ledger = |path: &PathBuf| {
            path.read_link()
                .is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:ledgerline-"))
        };
        let found = folder.flatten().map(|entry| entry.path()).find(is_ledger);
        let file = found.and_then(|path| File::options().read(true).write(true).open(path).ok());
        // The ledger is complete once its first bytes are written.
        let mut start = [0; 8];
        if let Some(mut file) = file
            && file.read_exact(&mut start).is_ok()
            && &start == b"LEDGLINE"
        {
            return Some(file);
        }
        if run.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a command, which leads a process group, and ends the group if it hangs.
fn finish(mut child: Child, what: &str) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > HANGS {
            let threads = threads_of(child.id());
            // SAFETY: signals the group of a child that was not waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait().unwrap();
            panic!("{what} hangs:\n{threads}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the state of every thread of a process group: its program, its state, the function of the kernel that it
/// sleeps in, and its system call with the registers.
fn threads_of(group: u32) -> String {
    let mut lines = String::new();
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let folder = process.path();
        // Behind the name in brackets: the state, the parent, the group.
        let stat = read(folder.join("stat"));
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or("").split_ascii_whitespace().take(3).collect();
        if fields.get(2).and_then(|of| of.parse().ok()) != Some(group) {
            continue;
        }
        let command = read(folder.join("cmdline")).replace('\0', " ");
        let command: String = command.chars().take(150).collect();
        lines += &format!("{:?} {command} ({})\n", folder, fields.join(" "));
        for thread in std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten() {
            let [wchan, syscall] = ["wchan", "syscall"].map(|name| read(thread.path().join(name)));
            lines += &format!("    {:?} {wchan} {}\n", thread.file_name(), syscall.trim());
        }
    }
    lines
}

/// Runs the program while words of its ledger are overwritten: all at once, or, with 0, repeatedly.
fn run_damaged(seed: u64, words: u64) {
    let (Some(program), Some(python)) = (program(), python()) else { return };
    let what = format!("seed {seed} ({words} words)");
    let [json, said, told, errors, show_errors] =
        ["json", "out", "told", "errors", "shown"].map(|name| scratch(&format!("damaged.{name}")));
    let by = ["thread", "process", "library"][seed as usize % 3];
    let mut command = ledgerline();
    command.args(["run", "--by", by, "--json"]).arg(&json).arg("--account").arg(&said);
    if seed % 2 == 1 {
        command.args(["--max", "2G"]);
    }
    let time = if seed::long() { "3000" } else { "1200" };
    command.arg("--").arg(program).args([&(seed * 1000).to_string(), time, python, PYTHON]);
    // Files, since a pipe without a reader would fill up.
    command.stdout(File::create(&told).unwrap()).stderr(File::create(&errors).unwrap());
    let mut run = command.process_group(0).spawn().expect("the command starts");
    let start = Instant::now();
    let mut random = Random(seed);
    if let Some(file) = ledger_of(&mut run) {
        let parts = Parts::of(&file);
        let memory = Memory::whole(&file, parts);
        let kinds = parts.kinds();
        let mut scribble = |words: u64| {
            for _ in 0..words {
                memory.scribble(kinds[random.below(kinds.len() as u64) as usize], &mut random);
            }
        };
        std::thread::sleep(Duration::from_millis(200 + seed * 37 % 300));
        assert!(file.set_len(4096).is_err(), "{what}: nobody may make it shorter");
        scribble(words);
        let mut shown = Vec::new();
        while run.try_wait().unwrap().is_none() && start.elapsed() < HANGS {
            if words == 0 {
                scribble(10);
            }
            let mut show = ledgerline();
            show.args(["show", "--pid", &run.id().to_string()]);
            show.args(if shown.len() % 2 == 0 { &["--json"][..] } else { &[] });
            show.stdout(Stdio::null()).stderr(File::create(&show_errors).unwrap());
            shown.push(show.process_group(0).spawn().unwrap());
            // At most two at the same time; each ends.
            while shown.len() > 2 {
                let code = finish(shown.remove(0), &format!("{what}: show")).code();
                let read = || std::fs::read_to_string(&show_errors).unwrap();
                assert!(matches!(code, Some(0 | 1)), "{what}: {code:?} {}", read());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        for child in shown {
            finish(child, &format!("{what}: show"));
        }
    }
    let status = finish(run, &what);
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    assert_eq!(status.code(), Some(0), "{what}: {}\n{}", read(&told), read(&errors));
    let text = std::fs::read_to_string(&said).unwrap();
    assert!(text.starts_with("ledgerline: "), "{what}: {text}");
    let account: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    // Among this many words at least one is impossible.
    if words >= 1000 {
        assert_eq!(account["damaged"], true, "{what}: {text}");
        assert!(text.contains("The ledger is damaged"), "{what}: {text}");
    }
    for group in groups(&account) {
        // A number that does not exist is not reported as a fact.
        for field in ["current", "peak", "at_exit", "charges", "mapped", "heap", "refused"] {
            let number = &group[field];
            assert_eq!(number.is_null(), group["state"] == "damaged", "{what}: {group}");
            assert!(number.as_u64().unwrap_or(0) <= 1 << 56, "{what}: {group}");
        }
    }
    for file in [json, said, told, errors, show_errors] {
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn programs_go_on_and_the_account_is_printed_when_a_few_words_are_written_over() {
    for seed in seed::seeds(0, 2, 50) {
        println!("seed {seed}");
        run_damaged(seed, 20);
    }
}

#[test]
fn programs_go_on_and_the_account_is_printed_when_many_words_are_written_over() {
    for seed in seed::seeds(100, 2, 50) {
        println!("seed {seed}");
        run_damaged(seed, 2000);
    }
}

#[test]
fn programs_go_on_and_the_account_is_printed_while_words_are_written_over() {
    for seed in seed::seeds(200, 2, 50) {
        println!("seed {seed}");
        run_damaged(seed, 0);
    }
}
