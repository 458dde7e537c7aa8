//! Processes that `ledgerline run` cannot account are named, and run like they do without it.

use crate::support::compiled::{Compiled, SMALL, one, told};
use crate::support::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

#[test]
fn programs_that_cannot_be_seen_are_counted_with_their_reason() {
    for (options, reason) in [
        (&["-static"][..], "statically linked"),
        (&["-fsanitize=address"], "a sanitizer"),
        (&["-fsanitize=thread"], "a sanitizer"),
    ] {
        let Some(program) = Compiled::new(SMALL, options) else { continue };
        let path = program.path();
        // Alone, from a shell that continues, from one that becomes it, and 150 times.
        for (script, processes) in [
            (None, 1),
            (Some(format!("{path}; :")), 1),
            (Some(format!("exec {path}")), 1),
            (Some(format!("i=0; while [ $i -lt 150 ]; do {path}; i=$((i+1)); done; :")), 150),
        ] {
            let words = match &script {
                Some(script) => vec!["sh", "-c", script],
                None => vec![path],
            };
            let (output, account) = account(&[], &words);
            let code = if script.as_ref().is_none_or(|s| s.starts_with("exec")) { 7 } else { 0 };
            assert_eq!(output.status.code(), Some(code), "{options:?} {}", stderr(&output));
            assert_eq!(told(&account), one("program", reason, processes), "{options:?} {script:?}");
            let text = stderr(&output);
            let line = text.lines().find(|line| line.starts_with("Not accounted: "));
            let line = line.unwrap_or_else(|| panic!("{text}"));
            assert!(line.contains("program (") && line.contains(reason), "{line}");
            // The table has nothing that looks like an account of it.
            assert!(!text.contains("program."), "{text}");
        }
    }
    // A program whose sanitizer replaces no allocator is seen.
    if let Some(program) = Compiled::new(SMALL, &["-fsanitize=undefined"]) {
        let (_, account) = account(&[], &[program.path()]);
        assert_eq!(told(&account), []);
    }
}

#[test]
fn a_sanitized_program_finds_its_mistake_as_it_does_plain_and_its_children_are_seen() {
    let source = "#include <stdlib.h>
int main(int n, char **v) { if (n > 1) return system(v[1]) ? 1 : 0;
char *volatile p = malloc(10); free(p); return p[3]; }";
    let Some(program) = Compiled::new(source, &["-g", "-fsanitize=address"]) else { return };
    let plain = Command::new(program.path()).output().unwrap();
    let output = run(&["--", program.path()]);
    assert_eq!(output.status.code(), plain.status.code());
    assert!(stderr(&output).contains("heap-use-after-free"), "{}", stderr(&output));
    let by_shell = run(&["--", "sh", "-c", &format!("{} true; echo $?", program.path())]);
    assert_eq!(by_shell.stdout, b"0\n", "{}", stderr(&by_shell));
}

#[test]
fn a_program_with_a_malloc_of_its_own_is_named_and_what_that_maps_is_charged() {
    let source = "#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
static char *at, *end;
void *malloc(size_t n) {
    n = (n + 31) & ~15ul;
    if (!at || at + n > end) {
        size_t size = n > 1 << 20 ? n : 1 << 20;
        at = mmap(0, size, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) { at = 0; return 0; }
        end = at + size;
    }
    char *p = at; at += n; return p;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) {
    char *q = malloc(n);
    if (q && p) for (size_t i = 0; i < n && (char *)p + i < end; i++) q[i] = ((char *)p)[i];
    return q;
}
int main(void) { char *volatile p = malloc(30 << 20); puts(p ? \"got it\" : \"refused\"); return 0; }";
    let Some(program) = Compiled::new(source, &["-rdynamic"]) else { return };
    let (output, account_) = account(&[], &[program.path()]);
    assert_eq!(output.stdout, b"got it\n", "{}", stderr(&output));
    assert_eq!(told(&account_), one("program", "a malloc of its own", 1));
    assert!(account_["groups"][0]["peak"].as_u64().unwrap() > 30 << 20, "{account_}");
    let (output, _) = account(&["--max", "20M"], &[program.path()]);
    assert_eq!(output.stdout, b"refused\n", "{}", stderr(&output));
}

#[test]
fn a_second_namespace_is_named_at_a_limit_at_once_and_strict_fails() {
    let source = "#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
int main(void) {
    void *libc = dlmopen(LM_ID_NEWLM, \"libc.so.6\", RTLD_NOW);
    void *(*there)(unsigned long) = libc ? (void *(*)(unsigned long))dlsym(libc, \"malloc\") : 0;
    char *block = there ? there(100 << 20) : 0;
    if (block) memset(block, 1, 100 << 20);
    return block ? 0 : 9; }";
    let Some(program) = Compiled::new(source, &["-ldl"]) else { return };
    let reason = "a second namespace (dlmopen)";
    let (output, account_) = account(&[], &[program.path()]);
    assert_eq!((output.status.code(), told(&account_)), (Some(0), one("program", reason, 1)));
    let (output, account_) = account(&["--max", "50M"], &[program.path()]);
    assert_eq!((output.status.code(), told(&account_)), (Some(0), one("program", reason, 1)));
    let first = stderr(&output).lines().next().unwrap_or_default().to_owned();
    let told_at_once =
        ": a second namespace (dlmopen): not accounted, so the limit may not hold for it";
    assert!(first.starts_with("ledgerline: program.") && first.ends_with(told_at_once), "{first}");
    let output = run(&["--strict", "--max", "50M", "--", program.path()]);
    assert_ne!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_cleared_environment_is_named_and_with_strict_it_is_not_cleared_of_the_library() {
    let Some(program) = Compiled::new(SMALL, &[]) else { return };
    let script = format!("env -i {}; :", program.path());
    let (_, cleared) = account(&[], &["sh", "-c", &script]);
    assert_eq!(told(&cleared), one("program", "environment cleared", 1));
    let (output, kept) = account(&["--strict"], &["sh", "-c", &script]);
    assert_eq!((output.status.code(), told(&kept)), (Some(0), vec![]), "{}", stderr(&output));
    let row = groups(&kept).iter().find(|row| row["path"].as_str().unwrap().contains("/program."));
    assert!(row.is_some_and(|row| row["peak"].as_u64() >= Some(5_000_000)), "{kept}");
}

/// Values with which the library would not account the process, or by other rules.
const CHANGES: [&str; 7] = [
    "LEDGERLINE_CPUS=100000",
    "LEDGERLINE_HEAP=/etc/passwd",
    "LEDGERLINE_RUN=0",
    "LEDGERLINE_PERCPU=none",
    "LEDGERLINE_BY=process",
    "--unset=LEDGERLINE_LEDGER",
    "--unset=LEDGERLINE_PERCPU",
];

#[test]
fn a_process_whose_variables_of_the_run_were_changed_is_named_and_with_strict_it_has_the_runs_own()
{
    let Some(program) = Compiled::new(SMALL, &[]) else { return };
    for change in CHANGES {
        let words = ["env", change, program.path()];
        let (output, changed) = account(&[], &words);
        assert_eq!(output.status.code(), Some(7), "{change}: {}", stderr(&output));
        assert_eq!(told(&changed), one("program", "environment cleared", 1), "{change}");
        assert!(
            stderr(&output).starts_with("ledgerline: env"),
            "no complaint: {}",
            stderr(&output)
        );
        let (output, kept) = account(&["--strict"], &words);
        assert_eq!((output.status.code(), told(&kept)), (Some(7), vec![]), "{}", stderr(&output));
        let row =
            groups(&kept).iter().find(|row| row["path"].as_str().unwrap().contains("/program."));
        assert!(row.is_some_and(|row| row["peak"].as_u64() >= Some(5_000_000)), "{kept}");
    }
}

/// It executes itself by its own system call, which the library does not see.
const ESCAPES: &str = "#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **words) {
    if (count == 1) { char c; write(1, \"escaped\\n\", 8); return read(0, &c, 1) < 0; }
    char *own[] = {words[0], 0}, *none[] = {0};
    if (!strcmp(words[1], \"cleared\")) return syscall(SYS_execve, words[0], own, none);
    for (char **at = environ; *at; at++)
        if (!strncmp(*at, \"LEDGERLINE_CPUS=\", 16)) *at = \"LEDGERLINE_CPUS=100000\";
    return syscall(SYS_execve, words[0], own, environ);
}";

#[test]
fn strict_fails_for_a_process_that_escaped_by_a_system_call_of_its_own() {
    let Some(program) = Compiled::new(ESCAPES, &[]) else { return };
    for how in ["cleared", "changed"] {
        let mut run = ledgerline();
        run.args([
            "run",
            "--strict",
            "--",
            "sh",
            "-c",
            "\"$0\" \"$1\"; exit 0",
            program.path(),
            how,
        ]);
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = run.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(run.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "escaped\n", "{how}");
        // The supervisor looks several times before it reports that.
        let named = || {
            let id = run.id().to_string();
            let shown = ledgerline().args(["show", "--json", "--pid", &id]).output().unwrap();
            String::from_utf8_lossy(&shown.stdout).contains("without the library")
        };
        let start = std::time::Instant::now();
        while !named() {
            assert!(start.elapsed().as_secs() < 60, "{how}: it is never found");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        drop(run.stdin.take());
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{how}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("program (without the library)"), "{how}: {said}");
    }
}

#[test]
fn strict_fails_where_a_process_is_not_accounted_before_the_start_if_that_is_known() {
    let Some(program) = Compiled::new(SMALL, &["-static"]) else { return };
    let output = run(&["--strict", "--", program.path()]);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert!(stderr(&output).contains("--strict: "), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "it did not run: {}", stderr(&output));
    let script = format!("{}; echo went on", program.path());
    let output = run(&["--strict", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert_eq!(output.stdout, b"went on\n");
    assert!(stderr(&output).ends_with("which processes were not accounted\n"));
    let output = run(&["--strict", "--", "sh", "-c", "echo well; true; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn a_program_with_too_little_address_space_is_named_and_runs_as_plain() {
    let Some(program) = Compiled::new(SMALL, &[]) else { return };
    // Kilobytes: too little for the library; enough for it, but not for the program's own libraries behind it; for
    // both, but not for the ledger.
    let limits = match cfg!(target_arch = "aarch64") {
        true => [40_000, 53_000, 54_000, 60_000],
        false => [20_000, 27_500, 28_500, 40_000],
    };
    for limit in limits {
        let script = format!("(ulimit -v {limit}; exec {}); echo $?", program.path());
        let (output, account) = account(&[], &["sh", "-c", &script]);
        assert_eq!(output.stdout, b"7\n", "{limit}: {}", stderr(&output));
        assert_eq!(told(&account), one("program", "too little address space", 1), "{limit}");
        assert!(stderr(&output).contains("program (too little address space)"));
        assert!(stderr(&output).starts_with("ledgerline: sh"), "{limit}: {}", stderr(&output));
    }
}

#[test]
fn a_program_of_another_user_is_named_and_told_nothing() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 || !have("setpriv") {
        eprintln!("skipped: only root becomes somebody else, by setpriv");
        return;
    }
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/echo", "hi"];
    let (output, account) = account(&[], &words);
    assert_eq!(output.stdout, b"hi\n", "{}", stderr(&output));
    assert_eq!(told(&account), one("echo", "another user", 1));
    assert!(stderr(&output).starts_with("ledgerline: setpriv"), "{}", stderr(&output));
}

#[test]
fn strict_is_a_failure_where_no_process_loads_the_library() {
    let mut run = ledgerline();
    run.args(["run", "--strict", "/bin/true"]).env("LEDGERLINE_PRELOAD", "/etc/passwd");
    let output = run.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert!(stderr(&output).contains("--strict: no process was accounted"), "{}", stderr(&output));
}

/// Returns words that start a program with another `/proc`, if this user and this machine can do that.
fn elsewhere(script: &str) -> Option<Vec<String>> {
    let words = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script];
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 || !have("unshare") {
        eprintln!("skipped: only root goes elsewhere, by unshare");
        return None;
    }
    let plain = Command::new(words[0]).args(&words[1..5]).args(["-c", ":"]).output().unwrap();
    if !plain.status.success() {
        eprintln!("skipped: {}", stderr(&plain));
        return None;
    }
    Some(words.map(str::to_owned).to_vec())
}

fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

#[test]
fn a_program_that_starts_where_another_proc_is_mounted_is_accounted_and_limited() {
    let Some(python) = python() else { return };
    let script = format!(
        "/bin/true; echo $$; ls /proc/self/fd | grep -Ec '^(100|20)[0-9]$'; {python} -c 'x = bytearray(30 << 20)'; \
         {python} -c 'x = bytearray(130 << 20)' 2>&1 | tail -1"
    );
    let Some(owned) = elsewhere(&script) else { return };
    for (options, descriptors) in
        [(&["--max", "100M"][..], 2), (&["--max", "100M", "--max-heap", "90M"], 3)]
    {
        let (output, account) = account(options, &words(&owned));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text, format!("1\n{descriptors}\nMemoryError\n"), "{}", stderr(&output));
        assert_eq!(told(&account), []);
        assert_eq!(account["mistakes"]["strays"], 0, "{account:#}");
        // Each is a process of its own namespace, which is not the run's.
        let paths: Vec<&str> =
            groups(&account).iter().map(|group| group["path"].as_str().unwrap()).collect();
        for program in ["/sh.ns", "/python3"] {
            assert!(paths.iter().any(|path| path.starts_with(program)), "{program}: {paths:?}");
        }
        let largest = groups(&account)
            .iter()
            .filter(|group| group["path"].as_str().unwrap().starts_with("/python3"))
            .map(|group| group["peak"].as_u64().unwrap())
            .max();
        assert!(largest.is_some_and(|peak| peak > 30 << 20), "{account:#}");
    }
}

/// Its `/proc` shows other processes, with ids that may be those of another run.
#[test]
fn a_run_that_its_own_proc_does_not_lead_to_starts_nothing() {
    let Some(mut owned) = elsewhere(&format!("{} run -- echo started", binary())) else {
        return;
    };
    owned.retain(|word| word != "--mount-proc");
    let output = Command::new(&owned[0]).args(&owned[1..]).output().unwrap();
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(125), &b""[..]),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("unshare --mount-proc"), "{}", stderr(&output));
}

/// A search for the run of such a process finds it.
#[test]
fn a_process_where_another_proc_is_mounted_leads_to_its_run() {
    let Some(owned) = elsewhere("echo started; read line") else { return };
    let mut run = ledgerline();
    run.arg("run").arg("--").args(&owned).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = run.stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    // The shell is the grandchild of the run: the child of `unshare`, which is the run's child.
    let child = |pid: u32| -> u32 {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.split_whitespace().next().expect("a child").parse().unwrap()
    };
    let shell = child(child(run.id()));
    let shown =
        ledgerline().args(["show", "--json", "--pid", &shell.to_string()]).output().unwrap();
    let account: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
    let is_shell = |group: &Value| group["path"].as_str().unwrap().starts_with("/sh.ns");
    assert!(groups(&account).iter().any(is_shell), "{}", stderr(&shown));
    drop(run.stdin.take());
    run.wait().unwrap();
}

/// Its second thread holds memory when the first one has ended, so the process looks like a zombie.
const HEADLESS: &str = r#"#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_t first;

static void *stay(void *block) {
    if (!block || pthread_join(first, NULL)) exit(1);
    puts("held");
    fflush(stdout);
    sleep(60);
    return NULL;
}

int main(void) {
    pthread_t second;
    first = pthread_self();
    if (pthread_create(&second, NULL, stay, malloc(60 << 20))) return 1;
    pthread_exit(NULL);
}"#;

#[test]
fn what_a_process_there_holds_stays_its_own_when_its_first_thread_has_ended() {
    let (Some(python), Some(headless)) = (python(), Compiled::new(HEADLESS, &["-pthread"])) else {
        return;
    };
    // The supervisor looks every 50 ms or more often.
    let script = format!(
        "mkfifo {0}.said; {0} >{0}.said & read line <{0}.said; echo $line; sleep 0.5; \
         {python} -c 'x = bytearray(50 << 20)' 2>&1 | tail -1; kill $!",
        headless.path()
    );
    let Some(owned) = elsewhere(&script) else { return };
    let (output, _) = account(&["--max", "100M"], &words(&owned));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "held\nMemoryError\n", "{}", stderr(&output));
}

#[test]
fn a_program_that_closes_what_leads_to_the_ledger_is_the_last_that_is_accounted() {
    let Some(python) = python() else { return };
    let close = "-c 'import os; os.closerange(3, 5000); os.execv(\"/bin/sh\", \
                 [\"sh\", \"-c\", \"echo $$; exec /bin/true\"])'";
    let Some(owned) = elsewhere(&format!("exec {python} {close}")) else { return };
    let (output, account) = account(&["--max", "100M"], &words(&owned));
    assert_eq!(output.stdout, b"1\n", "{}", stderr(&output));
    assert_eq!(told(&account), one("sh", "another root or /proc", 1));
    assert!(stderr(&output).starts_with("ledgerline: unshare"), "{}", stderr(&output));
}

#[test]
fn a_program_in_another_root_is_accounted_where_that_has_a_proc_and_named_where_it_has_none() {
    let root = scratch("root");
    let script = |proc: &str| {
        format!(
            "set -e; mount -t tmpfs none {root}; mkdir {root}/proc; \
             for folder in bin lib lib64 sys usr; do mkdir {root}/$folder; mount --rbind /$folder {root}/$folder; done; \
             {proc}; exec chroot {root} /bin/sh -c '/bin/true; echo $$'",
            root = root.display()
        )
    };
    std::fs::create_dir(&root).unwrap();
    for (proc, is_accounted) in [
        ("mount -t proc none $ROOT/proc", true),
        (":", false),
        ("mount -t proc none $ROOT/proc; umount -l $ROOT/sys", true),
        // The number of CPUs cannot be read there.
        (
            "mount -t proc none $ROOT/proc; umount -l $ROOT/sys; mount --bind /dev/null $ROOT/proc/softirqs",
            true,
        ),
    ] {
        let proc = proc.replace("$ROOT", root.to_str().unwrap());
        let Some(owned) = elsewhere(&script(&proc)) else { break };
        let plain = Command::new(&owned[0]).args(&owned[1..]).output().unwrap();
        if plain.stdout != b"1\n" {
            eprintln!("skipped: {}", stderr(&plain));
            break;
        }
        let (output, account) = account(&["--max", "100M"], &words(&owned));
        assert_eq!(output.stdout, b"1\n", "{}", stderr(&output));
        assert!(stderr(&output).starts_with("ledgerline: unshare"), "{}", stderr(&output));
        if is_accounted {
            assert_eq!(told(&account), []);
        } else {
            assert_eq!(told(&account), one("sh", "another root or /proc", 1));
        }
    }
    std::fs::remove_dir(&root).unwrap();
}

/// `away HOW PROGRAM`: executes a program in a new user namespace, made in that way.
const AWAY: &str = r#"#define _GNU_SOURCE
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char **words;
static char stack[1 << 16] __attribute__((aligned(16)));
static int go(void *mark) { if (mark == stack) execv(words[0], words); return 71; }

int main(int argc, char **argv) {
    (void)argc;
    int flags = CLONE_NEWUSER | SIGCHLD, child = -1, status;
    words = argv + 2;
    if (!strcmp(argv[1], "unshare") && !unshare(CLONE_NEWUSER)) child = fork();
    if (!strcmp(argv[1], "syscall unshare") && !syscall(SYS_unshare, CLONE_NEWUSER)) child = fork();
    if (!strcmp(argv[1], "clone")) child = clone(go, stack + sizeof stack, flags, stack);
    if (!strcmp(argv[1], "syscall clone")) child = syscall(SYS_clone, flags, 0, 0, 0, 0);
    if (!strcmp(argv[1], "syscall clone3")) {
        struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
        child = syscall(SYS_clone3, &args, sizeof args);
    }
    if (!child) return go(stack);
    if (child < 0 || waitpid(child, &status, 0) < 0) return 72;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 73;
}"#;

#[test]
fn a_program_in_a_user_namespace_of_its_own_is_accounted_and_limited() {
    let (Some(away), Some(small)) = (Compiled::new(AWAY, &[]), Compiled::new(SMALL, &[])) else {
        return;
    };
    for how in ["unshare", "syscall unshare", "clone", "syscall clone", "syscall clone3"] {
        let words = [away.path(), how, small.path()];
        let plain = Command::new(words[0]).args(&words[1..]).status().unwrap();
        if plain.code() == Some(72) {
            eprintln!("skipped: {how}: this machine makes no user namespace so");
            continue;
        }
        assert_eq!(plain.code(), Some(7), "{how}");
        let (output, account) = account(&["--max", "4M"], &words);
        assert_eq!(told(&account), [], "{how}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(9), "{how}: {}", stderr(&output));
    }
}

#[test]
fn a_program_in_bubblewraps_sandbox_is_accounted_and_limited() {
    let Some(small) = Compiled::new(SMALL, &[]) else { return };
    // Without /sys, like in most chroots.
    let folder = Path::new(small.path()).parent().unwrap().to_str().unwrap();
    let sandbox = format!(
        "bwrap --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --dev /dev --proc /proc \
         --ro-bind {folder} {folder} --unshare-all --die-with-parent"
    );
    let words: Vec<&str> = sandbox.split(' ').chain([small.path()]).collect();
    let plain = have("bwrap").then(|| Command::new(words[0]).args(&words[1..]).output().unwrap());
    if plain.as_ref().is_none_or(|output| output.status.code() != Some(7)) {
        eprintln!("skipped: no sandbox: {:?}", plain.map(|output| stderr(&output)));
        return;
    }
    let (output, account) = account(&["--max", "4M"], &words);
    assert_eq!(told(&account), [], "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
}

/// Returns the output of `doors` without and with `run`, and the list of processes that were not accounted.
fn doors(how: &str, program: &Path, options: &[&str], pass: bool) -> (String, String, Value) {
    let folder = program.parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let words = [program.to_str().unwrap(), how, program.to_str().unwrap()];
    let mut plain = Command::new(words[0]);
    plain.args(&words[1..]).env("PATH", &path).env("X", "inherited");
    let file = scratch("doors.json");
    let mut run = ledgerline();
    run.arg("run").args(options).arg("--json").arg(&file).arg("--").args(words);
    run.env("PATH", &path).env("X", "inherited");
    if pass {
        run.env("PASS", "1");
    }
    let said = |mut command: Command| {
        let output = command.output().unwrap();
        let errors = stderr(&output);
        let errors = errors.lines().filter(|line| line.contains(" error") || line.contains(": "));
        let errors = errors.take_while(|line| !line.starts_with("ledgerline")).collect::<Vec<_>>();
        format!(
            "{}{}{:?}",
            String::from_utf8_lossy(&output.stdout),
            errors.join("\n"),
            output.status
        )
    };
    let both = (said(plain), said(run));
    let document = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    (both.0, both.1, serde_json::from_str(&document).unwrap())
}

#[test]
fn every_door_to_another_program_passes_its_words_and_its_environment_on() {
    let Some(program) = Compiled::new(include_str!("../programs/doors.c"), &[]) else { return };
    let own = ["execve", "execvpe", "execle", "execle-short", "fexecve", "execveat"];
    let own = own.into_iter().chain(["execveat-empty", "spawn", "vfork"]);
    let inherited = ["execv", "execvp", "execl", "execl-short", "execl-six", "execlp", "spawnp"];
    let all = own.map(|how| (how, true)).chain(inherited.map(|how| (how, false)));
    for (how, has_own) in all {
        let (plain, ran, account) = doors(how, &program.0, &[], false);
        assert!(plain.contains("X="), "{how}: {plain}");
        assert_eq!(plain, ran, "{how}");
        let expected = if has_own { one("program", "environment cleared", 1) } else { vec![] };
        assert_eq!(told(&account), expected, "{how}");
        // If the environment is passed on, and with strict, no process escapes.
        for (options, pass) in [(&[][..], true), (&["--strict"], false)] {
            let (_, ran, account) = doors(how, &program.0, options, pass);
            assert_eq!(
                (plain.as_str(), told(&account)),
                (ran.as_str(), vec![]),
                "{how} {options:?}"
            );
            let charges = account["groups"][0]["charges"].as_u64().unwrap();
            assert!(charges >= 2, "{how} {options:?}: {account}");
        }
    }
}

#[test]
fn an_exec_that_fails_fails_as_it_does_plain_and_leaves_no_row() {
    let Some(program) = Compiled::new(include_str!("../programs/doors.c"), &[]) else { return };
    for options in [&[][..], &["--strict"]] {
        let (plain, ran, account) = doors("nothing", &program.0, options, false);
        assert!(plain.contains("No such file") && plain.contains("Permission denied"), "{plain}");
        assert_eq!((plain, told(&account)), (ran, vec![]), "{options:?}");
    }
}
