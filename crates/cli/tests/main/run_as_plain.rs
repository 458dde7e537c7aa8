//! A program under `ledgerline run` ends, prints, receives signals and outlives others like it does without.

use crate::support::*;

#[test]
fn the_exit_code_is_the_programs() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -SEGV $$", 139),
    ] {
        let output = run(&["--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", stderr(&output));
    }
    let output = run(&["sh", "-c", "kill -SEGV $$"]);
    assert!(stderr(&output).contains("killed by SIGSEGV"), "{}", stderr(&output));
}

#[test]
fn standard_output_stays_clean_and_input_arrives() {
    let output = run(&["--", "printf", r"one\000two\377"]);
    assert_eq!(output.stdout, b"one\0two\xff");
    let input = scratch("input");
    std::fs::write(&input, "b\na\n").unwrap();
    let output = ledgerline()
        .args(["run", "sort"])
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"a\nb\n");
    let account = stderr(&output);
    assert!(account.starts_with("ledgerline: sort: exit 0 after "), "{account}");
    assert!(account.is_ascii() && !account.contains('\x1b'), "a pipe gets plain text: {account}");
    std::fs::remove_file(input).unwrap();
}

#[test]
fn a_signal_is_passed_on_and_the_account_is_printed() {
    // No shell: some catch SIGINT until they have executed the program, and pass it on to no process.
    let file = scratch("ready");
    std::fs::write(&file, "ready\n").unwrap();
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130), (libc::SIGHUP, 129)] {
        let (child, line, _lines) = started(&["tail", "-f", file.to_str().expect("text")]);
        assert_eq!(line, "ready");
        // SAFETY: kill takes no pointers; the child has not been waited for,
        // so its process id is still its own.
        assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}: {}", output.status, stderr(&output));
        assert!(stderr(&output).contains("killed by SIG"), "{}", stderr(&output));
        assert!(stderr(&output).contains("The ledger itself took"), "{}", stderr(&output));
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_program_that_answers_a_signal_is_not_cut_short() {
    let script = "trap 'echo answered; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let (mut child, line, mut lines) = started(&["sh", "-c", script]);
    assert_eq!(line, "ready");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) }, 0);
    assert_eq!(lines.next().unwrap().unwrap(), "answered");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn signals_that_mean_something_to_the_program_alone_reach_it_and_lose_no_account() {
    let Some(python) = python() else { return };
    let real_time = libc::SIGRTMIN() + 3;
    let script = "import signal, sys, time\n\
        def answer(number, frame): print(number, flush=True)\n\
        for number in map(int, sys.argv[1:]): signal.signal(number, answer)\n\
        print('ready', flush=True)\n\
        while True: time.sleep(0.05)";
    let numbers = [libc::SIGALRM, libc::SIGWINCH, libc::SIGURG, libc::SIGCONT, real_time];
    let words = numbers.map(|number| number.to_string());
    let program: Vec<&str> =
        [python, "-c", script].into_iter().chain(words.iter().map(String::as_str)).collect();
    let (child, line, mut lines) = started(&program);
    assert_eq!(line, "ready");
    // SAFETY: kill takes no pointers; the child has not been waited for, here and below.
    let send = |number| unsafe { libc::kill(child.id().cast_signed(), number) };
    for (number, word) in numbers.into_iter().zip(&words) {
        assert_eq!(send(number), 0);
        assert_eq!(lines.next().unwrap().unwrap(), *word);
    }
    assert_eq!(send(libc::SIGTERM), 0);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert!(stderr(&output).contains("The ledger itself took"), "{}", stderr(&output));
}

#[test]
fn a_stop_stops_both_and_a_continuation_resumes_both() {
    let (mut child, line, _) = started(&["sh", "-c", "echo $$; exec sleep 60"]);
    let both = [child.id().cast_signed(), line.parse().unwrap()];
    let state = |process: i32| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        text[text.rfind(')').unwrap() + 2..].chars().next().unwrap()
    };
    let until = |stopped: bool| {
        let start = std::time::Instant::now();
        while both.iter().any(|&process| (state(process) == 'T') != stopped) {
            assert!(start.elapsed().as_secs() < 60, "stopped: {stopped}, {:?}", both.map(state));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    // SAFETY: kill takes no pointers; the child has not been waited for, here and below.
    let send = |number| unsafe { libc::kill(both[0], number) };
    send(libc::SIGTSTP);
    until(true);
    send(libc::SIGCONT);
    until(false);
    send(libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_closed_descriptor_stays_closed() {
    let command = ledgerline().get_program().to_owned();
    let shell = |script: &str| {
        let mut shell = std::process::Command::new("sh");
        let output = shell.args(["-c", script, "sh"]).arg(&command).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let plain = shell("/bin/echo hi >&-");
    assert_eq!(plain.0, Some(1), "{}", plain.1);
    let (code, said) = shell("\"$1\" run -- /bin/echo hi >&-");
    assert!(said.starts_with(&plain.1), "{said}");
    assert_eq!(code, plain.0, "{said}");
    let plain = shell("/bin/cat <&-");
    assert_eq!(plain.0, Some(1), "{}", plain.1);
    let (code, said) = shell("\"$1\" run -- /bin/cat <&-");
    assert!(code == plain.0 && said.starts_with(&plain.1), "{said}");
}

#[test]
fn a_short_address_space_leaves_room_for_the_program_or_is_named() {
    let command = ledgerline().get_program().to_owned();
    let shell = |script: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(&command).output().unwrap()
    };
    let output = shell("ulimit -v 850000; \"$1\" run -- sh -c 'echo $(echo fine)'");
    assert_eq!(output.stdout, b"fine\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("`- sh "), "{}", stderr(&output));
    assert!(!stderr(&output).contains("not accounted"), "{}", stderr(&output));
    // The limit was set after the ledger was made, which has its full size.
    let output = shell("\"$1\" run -- sh -c 'ulimit -v 40000; exec sleep 0'");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let why = "sleep (too little address space)";
    assert!(stderr(&output).contains(why), "{}", stderr(&output));
}

#[test]
fn the_account_takes_no_more_of_the_address_space_than_its_rows() {
    let output = ledgerline().args(["run", "--", "cat", "/proc/self/maps"]).output().unwrap();
    let maps = String::from_utf8(output.stdout).unwrap();
    let ranges = maps.lines().filter(|line| line.contains("/memfd:ledgerline"));
    let bytes = ranges.map(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).unwrap());
        end - start
    });
    let mapped: usize = bytes.sum();
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = possible.trim().rsplit(['-', ',']).next().unwrap();
    // One more is for threads without a column of their CPU.
    let columns = last.parse::<usize>().unwrap() + 2;
    // 16 Ki rows: each row's single part, and its part in each column. With two CPUs that is 26 MiB.
    let most = (13 + 5 * columns) << 20;
    assert!(mapped > 1 << 20 && mapped <= most, "{mapped} of {most}, {columns} columns:\n{maps}");
    // The whole cost that a program sees, with the library and its tables. With two CPUs that is 52 MiB.
    let size = |words: &[&str]| {
        let mut command = ledgerline();
        if words.is_empty() {
            command = std::process::Command::new("cat");
        }
        let output = command.args(words).arg("/proc/self/status").output().unwrap();
        let status = String::from_utf8(output.stdout).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmSize:")).expect("a size");
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    };
    let taken = size(&["run", "--", "cat"]) - size(&[]);
    assert!(taken > mapped && taken <= most + (26 << 20), "{taken}, of which {mapped} the ledger");
}

#[test]
fn what_still_runs_is_named_and_not_waited_for() {
    let started = std::time::Instant::now();
    let (output, account) = account(
        &[],
        &[
            "sh",
            "-c",
            "sleep 60 >/dev/null 2>&1 & until [ -e /proc/$!/exe ] && \
                 readlink /proc/$!/exe | grep -qv sh$; do :; done; sleep 1",
        ],
    );
    assert!(started.elapsed().as_secs() < 30, "waited for an orphan");
    let running: Vec<_> =
        groups(&account).iter().filter(|group| group["state"] == "running").collect();
    for group in &running {
        let pid = i32::try_from(number(group, "pid")).unwrap();
        // SAFETY: kill takes no pointers; this is the sleep from above, which is unknown to the other tests.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    assert!(!running.is_empty(), "{account:#}");
    assert!(stderr(&output).contains("still running"), "{}", stderr(&output));
}

#[test]
fn what_outlives_the_run_goes_on_without_a_word() {
    let (go, said, done) = (scratch("go"), scratch("said"), scratch("done"));
    let script = format!(
        "(until [ -e '{0}' ]; do sleep 0.02; done; /bin/echo out; ls / >/dev/null; echo x >'{2}') \
         >'{1}' 2>&1 & true",
        go.display(),
        said.display(),
        done.display()
    );
    let output = run(&["--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    std::fs::write(&go, "").unwrap();
    let start = std::time::Instant::now();
    while !done.exists() {
        assert!(start.elapsed().as_secs() < 60, "the orphan does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "out\n");
    for file in [go, said, done] {
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn the_users_own_preload_stays() {
    let output = ledgerline()
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .unwrap();
    let seen = String::from_utf8_lossy(&output.stdout);
    assert!(seen.ends_with(".so:libm.so.6\n") && seen.contains("/ledgerline-preload-"), "{seen}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_static_program_runs_with_a_warning() {
    let program = scratch("static");
    executable(&program, &static_program());
    let output = run(&["--max", "1M", program.to_str().unwrap()]);
    std::fs::remove_file(&program).unwrap();
    assert_eq!(output.status.code(), Some(42), "{}", stderr(&output));
    let message = stderr(&output);
    assert!(
        message.starts_with("ledgerline: warning: ") && message.contains("statically linked"),
        "{message}"
    );
    assert!(message.contains("No allocation was seen: "), "{message}");
}
