//! The options, limits and accounts of `ledgerline run`, with real programs.

use crate::support;
use crate::support::*;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

#[test]
fn what_cannot_run_says_so_in_one_line() {
    let notes = scratch("notes.txt");
    std::fs::write(&notes, "not a program\n").unwrap();
    let notes = notes.to_str().unwrap();
    let unwritable = "/nonexistent/account.json";
    let new = scratch("new");
    let new = new.to_str().unwrap();
    for (arguments, code, says) in [
        (&["--max", "-1", "true"][..], 2, "--max: '-1' is negative"),
        (&["--max", "12Q", "true"], 2, "--max: '12Q' is not a size"),
        (&["--max", "", "true"], 2, "--max: a size is missing"),
        (&["--max", "99999999999G", "true"], 2, "--max: '99999999999G' is too large"),
        (&["--max", "100P", "true"], 2, "--max: 100P is more than any machine holds"),
        (&["--max=1.5", "true"], 2, "--max: '1.5' is not a size"),
        (&["--max=5MB", "true"], 2, "write 5M or 5MiB"),
        (&["--reserve", "1M", "true"], 2, "--reserve is a part of --max"),
        (&["--max", "1M", "--reserve", "2M", "true"], 2, "--reserve is a part of --max"),
        (&["--max", "1M", "--reserve", "some", "true"], 2, "--reserve: 'some' is not a size"),
        (&["--max", "1M", "--reserve=-1", "true"], 2, "--reserve: '-1' is not a size"),
        (&["--max", "1M", "--reserve", "max", "true"], 2, "--reserve: 'max' is not a size"),
        (&["--high", "lots", "true"], 2, "--high: 'lots' is not a size"),
        (&["--container", "--count", "resident", "true"], 2, "leave --count resident out"),
        (&["--json", unwritable, "true"], 2, "cannot be written"),
        (&["--json", "/", "true"], 2, "cannot be written"),
        (&["--account", unwritable, "true"], 2, "cannot be written"),
        (&["--json", notes, "--account", notes, "true"], 2, "--json and --account name one file"),
        (&["--json", notes, "--record", notes, "true"], 2, "--json and --record name one file"),
        (&["--account", new, "--record", new, "true"], 2, "--account and --record name one file"),
        (&["--", "no-such-program-anywhere"], 127, "is not in PATH"),
        (&["./no/such/program"], 127, "does not exist"),
        (&[notes], 126, "cannot be executed"),
        (&["/"], 126, "cannot be executed"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        let message = stderr(&output);
        assert!(
            message.starts_with("ledgerline: ") && message.contains(says),
            "{arguments:?}: {message}"
        );
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    std::fs::remove_file(notes).unwrap();
}

#[test]
fn a_wrong_option_shows_the_usage() {
    for (arguments, says) in [
        (&["--bogus", "true"][..], "--bogus"),
        (&[], "COMMAND"),
        (&["--max", "1M"], "COMMAND"),
        (&["--by", "moon", "true"], "moon"),
        (&["--on-max", "cry", "true"], "cry"),
        (&["--count", "sheep", "true"], "sheep"),
        (&["--max"], "--max"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let text = |arguments: &[&str]| {
        let output = ledgerline().args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(text(&[]).contains("Usage: ledgerline"));
    assert_eq!(text(&["--version"]), concat!("ledgerline ", env!("CARGO_PKG_VERSION"), "\n"));
    let (short, long) = (text(&["run", "-h"]), text(&["run", "--help"]));
    for help in [&short, &long] {
        assert!(help.contains("ledgerline run --max 512M -- python3 job.py"), "{help}");
    }
    assert!(long.contains("`max` is no limit. A number alone is bytes"), "{long}");
    assert!(short.lines().count() <= 30, "{short}");
    assert!(short.lines().count() < long.lines().count());
}

#[test]
fn the_account_can_go_elsewhere() {
    let output = run(&["--json", "-", "true"]);
    let account = serde_json::from_slice(&output.stdout).unwrap();
    check(&account);

    let file = scratch("account.txt");
    let output = run(&["--account", file.to_str().unwrap(), "--", "sh", "-c", "echo mine >&2"]);
    assert_eq!(stderr(&output), "mine\n");
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .starts_with("ledgerline: sh -c 'echo mine >&2': exit 0 after ")
    );
    std::fs::remove_file(file).unwrap();

    // An existing file is replaced as a whole.
    let file = scratch("old.json");
    std::fs::write(&file, "x".repeat(100_000)).unwrap();
    let output = run(&["--json", file.to_str().unwrap(), "true"]);
    assert!(output.status.success());
    check(&serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn real_programs_have_sane_accounts() {
    let source = scratch("hello.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n")
        .unwrap();
    let object = scratch("hello.o");
    let (source, object) = (source.to_str().unwrap(), object.to_str().unwrap());
    for program in [
        &["python3", "-c", "import json, threading; print(json.dumps(list(range(1000))))"][..],
        &["sort", "/etc/passwd"],
        &["gcc", "-O1", "-c", source, "-o", object],
        &["git", "--version"],
        &["perl", "-e", "my @a = map { $_ x 10 } 1..10000; print scalar @a"],
        &["node", "-e", "console.log([...Array(1000).keys()].length)"],
    ] {
        if !have(program[0]) {
            continue;
        }
        for by in ["thread", "process", "library"] {
            let (output, account) = account(&["--by", by], program);
            assert_eq!(output.status.code(), Some(0), "{program:?}: {}", stderr(&output));
            check(&account);
            assert!(
                groups(&account).len() > 1,
                "{program:?} by {by} left no row: {}",
                stderr(&output)
            );
            assert!(number(&groups(&account)[0], "charges") > 0, "{program:?}");
            assert_eq!(account["command"][0], program[0]);
            assert_eq!(account["exit_code"], 0);
            assert!(account["signal"].is_null());
        }
    }
    for file in [source, object] {
        let _ = std::fs::remove_file(file);
    }
}

/// Its objects lie in arenas that it maps by itself.
const OBJECTS: &str = "\
x = [(i, str(i)) for i in range(400000)]
print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])";

#[test]
fn objects_in_arenas_of_pythons_own_show_in_the_peak() {
    let Some(python) = python() else { return };
    let (output, account) = account(&[], &[python, "-c", OBJECTS]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // The kernel's resident peak, with the program's code.
    let resident: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let (peak, resident) = (number(&groups(&account)[0], "peak"), resident << 10);
    assert!(peak > resident - 20 * MIB && peak < resident + 5 * MIB, "{peak} of {resident}");
    let kernel = account["max_resident"].as_u64().expect("it has ended");
    assert!(kernel.abs_diff(resident) < 2 * MIB, "{kernel} of {resident}");
    let process = &groups(&account)[1];
    assert_eq!(
        number(process, "heap") + number(process, "mapped"),
        number(process, "current"),
        "{process}"
    );
}

#[test]
fn a_limit_holds_for_objects_in_arenas_of_pythons_own() {
    let Some(python) = python() else { return };
    let (output, account) = account(&["--max", "32M"], &[python, "-c", OBJECTS]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("MemoryError"), "{}", stderr(&output));
    let root = &groups(&account)[0];
    assert!(number(root, "peak") <= 32 * MIB && number(root, "refused") > 0, "{root}");
    // The requests of the only process, and its only thread.
    let asked = |group: &serde_json::Value| number(group, "refused");
    assert!(groups(&account).iter().all(|group| asked(group) == asked(root)), "{account:#}");
}

#[test]
fn a_known_allocation_shows_in_the_peak() {
    let Some(python) = python() else { return };
    let peak = |script: &str| {
        let (output, account) = account(&[], &[python, "-c", script]);
        assert!(output.status.success(), "{}", stderr(&output));
        check(&account);
        number(&groups(&account)[0], "peak")
    };
    let bare = peak("pass");
    let full = peak("held = bytearray(64 << 20)");
    let grown = full.saturating_sub(bare);
    // The variation between runs, and idle stock, are far below three percent of it.
    assert!(
        (64 * MIB * 97 / 100..=64 * MIB * 103 / 100).contains(&grown),
        "64 MiB more raised the peak from {bare} by {grown}"
    );
}

#[test]
fn a_limit_refuses() {
    let Some(python) = python() else { return };
    let script = "try:\n held = bytearray(256 << 20)\nexcept MemoryError:\n print('refused')";
    let (output, account) = account(&["--max", "128M"], &[python, "-c", script]);
    assert_eq!(output.stdout, b"refused\n", "{}", stderr(&output));
    assert!(output.status.success());
    check(&account);
    let root = &groups(&account)[0];
    assert_eq!(number(root, "max"), 128 * MIB);
    assert!(number(root, "refused") > 0 && number(root, "max_events") > 0, "{root}");
    assert!(number(root, "peak") <= 128 * MIB, "{root}");
    assert!(stderr(&output).contains("max 128M refused "), "{}", stderr(&output));
    // The size, the process and the time of the requests.
    let asked: Vec<_> =
        groups(&account).iter().filter(|group| !group["first_refused"].is_null()).collect();
    assert_eq!(asked.len(), 1, "{account:#}");
    let size = number(asked[0], "largest_refused");
    assert!((256 * MIB..257 * MIB).contains(&size), "{}", asked[0]);
    assert_eq!(asked[0]["first_refused"]["size"], size);
    let seconds = asked[0]["first_refused"]["seconds"].as_f64().unwrap();
    assert!(seconds <= account["wall_seconds"].as_f64().unwrap() + 0.002, "{account:#}");
    let text = stderr(&output);
    let line = text.lines().find(|line| line.starts_with("First refused: python3 (")).expect(&text);
    assert!(
        line.contains(") asked for 256.0 MiB at ") && line.ends_with(" of 128.0 MiB were in use.")
    );
    assert!(text.lines().next().unwrap().contains(" of 128.0M, refused once; python3 ("), "{text}");
}

#[test]
fn a_limit_can_kill() {
    let Some(python) = python() else { return };
    let script = "held = bytearray(256 << 20); print('alive')";
    let (output, account) =
        account(&["--max", "128M", "--on-max", "kill"], &[python, "-c", script]);
    assert_eq!(output.status.code(), Some(137), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    assert_eq!(account["exit_code"], 137);
    assert_eq!(account["signal"], "SIGKILL");
    assert!(number(&groups(&account)[0], "max_events") > 0);
    check(&account);
}

/// Returns whether this user can make namespaces of process ids here.
fn namespaces() -> bool {
    let made = std::process::Command::new("unshare").args(["-pf", "true"]).output();
    made.is_ok_and(|made| made.status.success())
}

#[test]
fn a_process_in_another_namespace_is_charged_and_refused_and_harms_nobody() {
    let Some(python) = python() else { return };
    if !namespaces() {
        return eprintln!("left out: no namespace of process ids can be made");
    }
    // A holder of memory outside must survive a refusal inside, where its process id belongs to no process.
    let inside = "held = bytearray(60 << 20)\n\
        import subprocess, time\n\
        subprocess.run(['true'])\n\
        time.sleep(0.3)\n\
        more = bytearray(20 << 20)\n\
        try: bytearray(90 << 20)\n\
        except MemoryError: print('refused inside', flush=True)\n";
    let outside = "import subprocess, sys, time\n\
        held = bytearray(60 << 20)\n\
        subprocess.run(['unshare', '-pf', sys.executable, '-c', sys.argv[1]], check=True)\n\
        time.sleep(0.3)\n\
        try: bytearray(140 << 20)\n\
        except MemoryError: print('refused outside', flush=True)\n\
        more = bytearray(100 << 20)\n\
        print('room again')\n";
    let (output, account) =
        account(&["--max", "200M", "--by", "process"], &[python, "-c", outside, inside]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "refused inside\nrefused outside\nroom again\n", "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    check(&account);
    let nested: Vec<_> = groups(&account)
        .iter()
        .filter(|group| group["path"].as_str().unwrap().contains(".ns"))
        .collect();
    // Python, and its child; both have ended, as the supervisor sees them.
    assert!(nested.len() >= 2 && nested.iter().all(|row| row["state"] == "exited"), "{account:#}");
    assert!(nested.iter().any(|row| number(row, "peak") > 80 * MIB), "{account:#}");
    assert!(number(&groups(&account)[0], "peak") <= 200 * MIB, "{account:#}");
}

#[test]
fn a_process_that_ended_earlier_gives_back_what_it_held() {
    let Some(python) = python() else { return };
    // The child is killed while it holds 64 MiB; its parent then lives long enough for that to be noticed, and holds 16
    // MiB at its own end.
    let script = "import os, signal, subprocess, sys, time\n\
        if len(sys.argv) > 1:\n\
        \x20held = bytearray(64 << 20)\n\
        \x20os.kill(os.getpid(), signal.SIGKILL)\n\
        subprocess.run([sys.executable, __file__, 'child'])\n\
        held = bytearray(16 << 20)\n\
        time.sleep(0.3)\n\
        os._exit(3)\n";
    let file = scratch("family.py");
    std::fs::write(&file, script).unwrap();
    let (output, account) = account(&["--by", "process"], &[python, file.to_str().unwrap()]);
    std::fs::remove_file(file).unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    check(&account);
    let held: Vec<u64> = groups(&account)
        .iter()
        .filter(|group| group["state"] == "exited")
        .map(|group| number(group, "at_exit"))
        .collect();
    assert!(held.iter().any(|&held| (64 * MIB..80 * MIB).contains(&held)), "{account:#}");
    let root = &groups(&account)[0];
    assert!((16 * MIB..60 * MIB).contains(&number(root, "current")), "{root}");
    assert!(number(root, "peak") >= 64 * MIB, "{root}");
    // It is below the process that started it, with its holding.
    let text = stderr(&output);
    assert!(text.lines().any(|line| line.starts_with("   `- python3 ")), "{text}");
}

#[test]
fn a_missing_preload_library_says_what_to_do() {
    let output = ledgerline()
        .args(["run", "true"])
        .env("LEDGERLINE_PRELOAD", "/nonexistent.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).starts_with("ledgerline: LEDGERLINE_PRELOAD names"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_terminal_gets_lines_and_colour() {
    if !have("script") {
        return;
    }
    let show = |name: &str, value: &str| {
        let command = format!("{} run true", support::binary());
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        script.env_remove("NO_COLOR").env(name, value).stdin(Stdio::null());
        String::from_utf8_lossy(&script.output().unwrap().stdout).into_owned()
    };
    let full = show("TERM", "xterm");
    assert!(full.contains("└─ ") && full.contains("\x1b["), "{full}");
    let dumb = show("TERM", "dumb");
    assert!(dumb.contains("`- ") && !dumb.contains('\x1b'), "{dumb}");
    let grey = show("NO_COLOR", "1");
    assert!(grey.contains("└─ ") && !grey.contains('\x1b'), "{grey}");
    let ascii = show("LC_ALL", "C");
    assert!(ascii.contains("`- ") && ascii.contains("\x1b["), "{ascii}");
}

#[test]
fn beside_each_peak_stands_what_the_kernel_saw_in_the_process() {
    let Some(python) = python() else { return };
    // The first holds 50 MiB and starts a small one by a call that shares its memory; another ends at once; the last is
    // killed.
    let script = format!(
        "{python} -c 'import subprocess; x = bytearray(50 << 20); subprocess.run([\"/bin/true\"])'
         {python} -c 'import os; x = bytearray(20 << 20); os._exit(0)'
         {python} -c 'import os; os.kill(os.getpid(), 9)'; :"
    );
    let (output, account) = account(&["--by", "process"], &["sh", "-c", &script]);
    let resident: Vec<Option<u64>> =
        groups(&account)[1..].iter().map(|row| row["resident"].as_u64()).collect();
    let within = |low: u64, high: u64| {
        let range = low * MIB..high * MIB;
        resident.iter().flatten().filter(|bytes| range.contains(bytes)).count()
    };
    assert_eq!((within(50, 90), within(20, 50)), (1, 1), "{resident:?}");
    // The shell, and its children: without the resident size of their grandparent.
    assert_eq!((within(1, 20), resident.iter().filter(|one| one.is_none()).count()), (2, 1));
    assert!(stderr(&output).contains("  resident"), "{}", stderr(&output));
}

#[test]
fn the_limit_is_told_as_it_was_asked_for_and_the_reserve_is_within_it() {
    let Some(python) = python() else { return };
    // Blocks of 4000 until one is refused; then small ones, until the reserve is used up.
    let script = "import ctypes; m = ctypes.CDLL(None).malloc; m.restype = ctypes.c_void_p; n = 0
while m(4000): pass
while m(100): n += 1
print(n)";
    let spared = |reserve: &str| {
        let options = ["--max", "64M", "--reserve", reserve];
        let (output, account) = account(&options, &[python, "-c", script]);
        let root = &groups(&account)[0];
        assert_eq!(number(root, "max"), 64 * MIB);
        assert!(number(root, "peak") <= 64 * MIB, "{account:#}");
        let said = String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().unwrap();
        (said, number(root, "spared"))
    };
    // A quarter of 4M in chunks of 112 bytes, and the rest of a page.
    let (said, counted) = spared("4M");
    assert!((9_000..9_500).contains(&said) && counted >= 9_000, "{said} {counted}");
    let (said, counted) = spared("0");
    assert!(said < 100 && counted == 0, "{said} {counted}");
}

#[test]
fn with_stack_it_is_said_from_where_the_first_refused_request_came() {
    let Some(python) = python() else { return };
    let program = [python, "-c", "x = bytearray(40 << 20)"];
    let output = run(&[&["--stack", "--max", "20M", "--"][..], &program].concat());
    let said = stderr(&output);
    assert!(said.contains(" bytes for /python") && said.contains("asked for by\n"), "{said}");
    assert!(said.contains("libc.so") && said.contains("__libc_start_main"), "{said}");
    let output = run(&[&["--max", "20M", "--"][..], &program].concat());
    assert!(!stderr(&output).contains("asked for by"), "{}", stderr(&output));
}
