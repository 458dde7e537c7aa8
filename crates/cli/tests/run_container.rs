//! `ledgerline run --container`, in a real cgroup: the program is refused before the kernel kills. This is a separate
//! program: samples must keep up, and the other tests of the command would compete for the CPU.

#[path = "../../../tests/support/cgroup.rs"]
mod cgroup;
#[path = "main/support/mod.rs"]
mod support;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use cgroup::Cgroup;
use serde_json::Value;
use support::*;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 96 * MIB;
const MARGIN: u64 = LIMIT / 16;

/// Takes shared memory that no account has, and then more blocks than fit; each page is written. It takes half a GiB a
/// second: samples promise to keep up with twice as much.
const GREEDY: &str = "\
import mmap, sys, time
shared = mmap.mmap(-1, 24 << 20)
for at in range(0, 24 << 20, 4096):
    shared[at] = 1
    if at % (1 << 20) == 0:
        time.sleep(0.002)
held = []
try:
    for _ in range(200):
        held.append(b'x' * (1 << 20))
        time.sleep(0.002)
except MemoryError:
    count = len(held)
    held = None
    print('refused after', count)
    sys.exit(3)
";

/// Far more than any program here takes: the longest works for half a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// A kernel that kills does so as soon as the program asks for too much.
const TO_KILL: Duration = Duration::from_secs(8);

/// Runs a program under `run` with options, in the cgroup; its account is in the file. Prints a line and returns `None`
/// if the kernel neither kills nor refuses: while it can reclaim a page of a file, which the program reads again at
/// once, it kills no process.
fn run_in(
    cgroup: &Cgroup,
    patience: Duration,
    options: &[&str],
    program: &[&str],
) -> Option<Output> {
    let mut command = ledgerline();
    command.arg("run").args(options).arg("--").args(program);
    cgroup.enter(&mut command);
    // Its own process group, so that all of it can be ended.
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts in its cgroup");
    let group = child.id() as i32;
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().expect("it is waited for")));
    let output = ended.recv_timeout(patience).ok();
    if output.is_none() {
        eprintln!("skipped: the kernel takes pages back without end, and kills nobody");
        // SAFETY: a signal to the group that was started above, whose first process may have been waited for by now.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    output
}

fn row<'a>(account: &'a Value, path: &str) -> &'a Value {
    let row = groups(account).iter().find(|group| group["path"] == path);
    row.unwrap_or_else(|| panic!("no {path} in {account:#}"))
}

#[test]
fn a_program_that_the_kernel_would_kill_is_refused_memory_instead() {
    let (Some(python), Some(cgroup)) = (python(), Cgroup::new(LIMIT)) else { return };
    let program = [python, "-c", GREEDY];
    let file = scratch("account.json");
    let json = file.to_str().unwrap();

    // Without it: killed, even with a --max as low as the container's.
    let low = (LIMIT - MARGIN).to_string();
    for options in [&["--json", json][..], &["--json", json, "--max", &low]] {
        let before = cgroup.killed();
        let Some(output) = run_in(&cgroup, TO_KILL, options, &program) else { return };
        // The kernel chooses the victim: mostly the program, and run reports that; or else run itself.
        let died = output.status.code() == Some(128 + libc::SIGKILL)
            || output.status.signal() == Some(libc::SIGKILL);
        assert!(died, "{options:?}: {:?}\n{}", output.status, stderr(&output));
        assert!(cgroup.killed() > before, "{options:?}: it was not the kernel");
    }

    // If the supervisor gets no CPU for a tenth of a second, its samples do not keep up.
    let (mut before, mut output) = (0, None);
    for _ in 0..3 {
        before = cgroup.killed();
        output = run_in(&cgroup, PATIENCE, &["--json", json, "--container"], &program);
        if cgroup.killed() == before {
            break;
        }
    }
    let output = output.expect("it ran");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}{}", stderr(&output));
    assert_eq!(cgroup.killed(), before);
    let account: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    check(&account);
    let (root, row) = (row(&account, "/"), row(&account, "/(untracked)"));
    assert!(number(root, "refused") > 0, "{account:#}");
    assert_eq!(number(root, "max"), LIMIT - MARGIN, "{account:#}");
    assert!(number(root, "peak") * 100 >= LIMIT * 85, "{account:#}");
    assert!(number(row, "peak") >= 24 * MIB, "{account:#}");
    let container = &account["container"];
    assert_eq!(container["limit"], LIMIT);
    assert!(container["source"].as_str().unwrap().contains(cgroup.folder.to_str().unwrap()));
    let text = stderr(&output);
    assert!(
        text.contains("(untracked)") && text.contains("The container's limit: 96.0M"),
        "{text}"
    );
}

#[test]
fn the_smaller_of_max_and_the_containers_limit_holds() {
    let (Some(python), Some(cgroup)) = (python(), Cgroup::new(LIMIT)) else { return };
    let file = scratch("account.json");
    for (max, holds) in [("64M", 64 * MIB), ("1G", LIMIT - MARGIN)] {
        let options = ["--json", file.to_str().unwrap(), "--container", "--max", max];
        let small = [python, "-c", "print('small')"];
        let output = run_in(&cgroup, PATIENCE, &options, &small).expect("a small program ends");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = std::fs::read_to_string(&file).unwrap();
        let account: Value = serde_json::from_str(&text).unwrap();
        check(&account);
        assert_eq!(number(row(&account, "/"), "max"), holds, "{account:#}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_limit_that_changes_while_the_program_runs_holds_within_a_moment() {
    let (Some(python), Some(cgroup)) = (python(), Cgroup::new(4 * LIMIT)) else { return };
    // It asks for more and more, slowly, until it is refused; the limit is lowered as soon as it runs.
    let program = "\
import sys, time
print('runs', flush=True)
sys.stdin.readline()
time.sleep(3)
held = []
try:
    while True:
        held.append(b'x' * (1 << 20))
except MemoryError:
    count = len(held)
    held = None
    print(count)
";
    let mut command = ledgerline();
    command.args(["run", "--container", "--", python, "-c", program]);
    cgroup.enter(&mut command);
    use std::io::{BufRead, BufReader, Read, Write};
    let pipe = std::process::Stdio::piped;
    let mut child = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    cgroup.set_limit(LIMIT);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut said = String::new();
    lines.read_to_string(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    assert_eq!(cgroup.killed(), 0);
    let blocks: u64 = said.trim().parse().unwrap();
    assert!((10..LIMIT / MIB).contains(&blocks), "{blocks} blocks");
}
