//! `ledgerline run --max-heap`: blocks of malloc have a limit of their own.

use crate::support::{account, check, groups, number, python, run, stderr};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Python with malloc and mmap at hand. Its own objects come from arenas that it maps.
const HEAD: &str = "import ctypes, mmap, os, subprocess, sys
m = ctypes.CDLL(None).malloc; m.restype = ctypes.c_void_p; m.argtypes = [ctypes.c_size_t]
def fill(size):
 n = 0
 while m(size): n += 1
 return n * size >> 20
def map(mib): return mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
";

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn peaks(account: &Value) -> (u64, u64) {
    (number(account, "heap_peak"), number(&groups(account)[0], "peak"))
}

#[test]
fn blocks_meet_their_limit_while_mappings_go_on_and_the_account_says_so() {
    let Some(python) = python() else { return };
    let script = format!(
        "{HEAD}print(fill(65536)); held = map(64); print(len(held) >> 20)
sys.stdout.flush(); os._exit(0)"
    );
    let (output, account) = account(&["--max-heap", "32M"], &[python, "-c", &script]);
    assert!(output.status.success(), "{}", stderr(&output));
    check(&account);
    let numbers: Vec<u64> = said(&output).lines().map(|line| line.parse().unwrap()).collect();
    assert!((27..=31).contains(&numbers[0]) && numbers[1] == 64, "{numbers:?}");
    let root = &groups(&account)[0];
    assert_eq!((number(root, "max_heap"), &root["max"]), (32 * MIB, &"max".into()));
    let (heap, all) = peaks(&account);
    assert!(heap <= 32 * MIB && heap > 30 * MIB && all > 95 * MIB, "{heap} {all}");
    // The row has both, and distinguishes them.
    let process = &groups(&account)[1];
    assert!(number(process, "heap") <= 32 * MIB && number(process, "mapped") >= 64 * MIB);
    let refused = number(process, "refused");
    assert!(refused > 0 && refused == number(process, "refused_heap"), "{process}");
    assert_eq!((number(root, "refused"), number(root, "max_events")), (refused, 0), "{root}");
    assert!(stderr(&output).contains("max-heap 32M refused "), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(
        text.contains(") asked for 64.") && text.contains(" of 32.0 MiB were in use."),
        "{text}"
    );
}

#[test]
fn both_limits_hold_and_each_says_what_it_refused() {
    let Some(python) = python() else { return };
    // Mappings up to the limit of both, then blocks; then the mappings go, and blocks have their own limit.
    let script = format!(
        "{HEAD}held = []
try:
 while True: held.append(map(1))
except OSError: pass
print(fill(65536) < 2)
for each in held: each.close()
print(fill(65536))"
    );
    let options = ["--max", "64M", "--max-heap", "24M", "--reserve", "0"];
    let (output, account) = account(&options, &[python, "-c", &script]);
    assert!(output.status.success(), "{}", stderr(&output));
    check(&account);
    let (heap, all) = peaks(&account);
    assert!(heap <= 24 * MIB && heap > 23 * MIB, "{heap}");
    assert!(all <= 64 * MIB && all > 62 * MIB, "{all}");
    assert!(said(&output).starts_with("True\n2"), "{}", said(&output));
    let text = stderr(&output);
    assert!(
        text.contains("max 64M refused ") && text.contains(", max-heap 24M refused "),
        "{text}"
    );
}

#[test]
fn all_processes_have_one_limit_and_those_that_ended_take_nothing_of_it() {
    let Some(python) = python() else { return };
    // Several hundred processes that end while they hold blocks; then one that takes everything, beside its parent.
    let child = format!("{HEAD}print(fill(65536))");
    let script = format!(
        "{HEAD}\
for _ in range(60): subprocess.run(['sh', '-c', 'true; /bin/true; /bin/true; /bin/true'])
held = m(12 << 20)
print(subprocess.run([sys.executable, '-c', {child:?}], stdout=subprocess.PIPE, text=True).stdout)
print(fill(65536))"
    );
    let (output, account) = account(&["--max-heap", "32M"], &[python, "-c", &script]);
    assert!(output.status.success(), "{}", stderr(&output));
    check(&account);
    let numbers: Vec<u64> =
        said(&output).split_whitespace().map(|line| line.parse().unwrap()).collect();
    assert!((13..=19).contains(&numbers[0]), "the child beside 12M: {numbers:?}");
    assert!((13..=19).contains(&numbers[1]), "the parent after it: {numbers:?}");
    let (heap, _) = peaks(&account);
    assert!(heap <= 32 * MIB && heap > 30 * MIB, "{heap}");
    assert_eq!(account["not_accounted"].as_array().map(Vec::len), Some(0), "{account:#}");
}

#[test]
fn it_can_kill_and_says_that_it_was_this_limit() {
    let Some(python) = python() else { return };
    let script = format!("{HEAD}held = map(64); m(48 << 20); print('alive')");
    let options = ["--max-heap", "32M", "--on-max", "kill"];
    let (output, account) = account(&options, &[python, "-c", &script]);
    assert_eq!(output.status.code(), Some(137), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let text = stderr(&output);
    assert!(text.contains(": max-heap 32.0M: "), "{text}");
    assert_eq!(number(&groups(&account)[0], "refused_heap"), 1, "{account:#}");
}

#[test]
fn the_reserve_is_within_it() {
    let Some(python) = python() else { return };
    let script = format!("{HEAD}fill(4000); print(fill(100) * 10)");
    let spared = |reserve: &str| {
        let options = ["--max-heap", "64M", "--reserve", reserve];
        let (_, account) = account(&options, &[python, "-c", &script]);
        assert!(number(&account, "heap_peak") <= 64 * MIB, "{account:#}");
        assert_eq!(number(&groups(&account)[0], "max_heap"), 64 * MIB);
        number(&groups(&account)[0], "spared")
    };
    // A quarter of 4M in chunks of 112 bytes.
    assert!(spared("4M") >= 9_000);
    assert_eq!(spared("0"), 0);
}

#[test]
fn without_it_nothing_is_said_of_it() {
    let (output, account) = account(&[], &["true"]);
    assert!(account["heap_peak"].is_null() && groups(&account)[0]["max_heap"] == "max");
    assert!(!stderr(&output).contains("malloc took"), "{}", stderr(&output));
    let output = run(&["--max-heap", "lots", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--max-heap: "), "{}", stderr(&output));
}
