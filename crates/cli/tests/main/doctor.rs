//! `ledgerline doctor`: its output if the kernel, a filter of system calls or the environment lacks something.

use crate::held;
use crate::support::*;
use ledgerline::percpu::{Mode, detect};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns its output in JSON, and its exit status.
fn says(change: impl FnOnce(&mut Command)) -> (Value, i32) {
    let mut command = ledgerline();
    command.args(["doctor", "--json"]);
    change(&mut command);
    let output = command.output().expect("the command starts");
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    held::held("doctor", &report);
    (report, output.status.code().expect("it ends by itself"))
}

/// Returns the finding with a name: its state, the observation, and the improvement.
fn finding(report: &Value, what: &str) -> (String, String, String) {
    let all = report["findings"].as_array().expect("a list");
    let one = all.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{report:#}"));
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let change: Vec<_> = one["change"].as_array().expect("a list").iter().map(text).collect();
    (text(&one["state"]), text(&one["found"]), change.join("\n"))
}

/// Refuses system calls to the command and its children, with an error, like sandboxes do.
fn refuse(command: &mut Command, calls: &[libc::c_long], error: i32) {
    // load the call's number; for each: equal? the error; allow
    let mut filter = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        filter.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32));
    }
    filter.push(op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    // SAFETY: two system calls, which may be made between fork and exec; the filter lives in the closure.
    unsafe {
        command.pre_exec(move || {
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                    != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

fn op(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

#[test]
fn it_says_which_mode_the_library_is_in() {
    let (report, _) = says(|_| {});
    let (state, found, _) = finding(&report, "charges");
    let (fine, start) = match detect() {
        Mode::Rseq => ("fine", "restartable sequences, by "),
        Mode::Owned => ("slower", "columns that threads own"),
        Mode::Fallback => ("slower", "atomics"),
    };
    assert!(state == fine && found.starts_with(start), "{report:#}");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["system"]["kernel"].as_str().is_some_and(|name| name.starts_with("Linux ")));
}

#[test]
fn where_a_filter_refuses_membarrier_charges_are_slower_and_it_says_what_to_allow() {
    for error in [libc::EPERM, libc::ENOSYS] {
        let (report, code) = says(|command| refuse(command, &[libc::SYS_membarrier], error));
        let (state, found, change) = finding(&report, "charges");
        assert_eq!((&*state, code), ("slower", 0), "{report:#}");
        assert!(found.starts_with("atomics; no restartable sequences: "), "{found}");
        assert!(found.ends_with("no columns of threads: membarrier is refused"), "{found}");
        assert!(change.contains("allow the system call membarrier"), "{change}");
    }
}

#[test]
fn where_a_filter_refuses_rseq_threads_own_columns_and_it_says_what_to_allow() {
    if detect() != Mode::Rseq {
        eprintln!("skipped: no restartable sequences here");
        return;
    }
    let (report, code) = says(|command| refuse(command, &[libc::SYS_rseq], libc::ENOSYS));
    let (state, found, change) = finding(&report, "charges");
    assert_eq!((&*state, code), ("slower", 0), "{report:#}");
    assert!(found.starts_with("columns that threads own"), "{found}");
    assert!(change.contains("allow the system call rseq"), "{change}");
    let both = [libc::SYS_rseq, libc::SYS_membarrier];
    let (report, code) = says(|command| refuse(command, &both, libc::EPERM));
    assert_eq!(code, 0);
    assert!(finding(&report, "charges").1.starts_with("atomics; "), "{report:#}");
    // Programs are accounted nevertheless.
    let (_, run, _) = finding(&report, "run");
    assert!(run.contains("was accounted (mode fallback)"), "{report:#}");
}

#[test]
fn a_mode_that_the_environment_asks_for_is_named_with_what_asks() {
    let (report, code) = says(|command| _ = command.env("LEDGERLINE_PERCPU", "fallback"));
    let (state, found, change) = finding(&report, "charges");
    assert_eq!((&*state, code), ("slower", 0), "{report:#}");
    assert!(found.starts_with("atomics; ") && found.contains("LEDGERLINE_PERCPU"), "{found}");
    assert_eq!(change, "unset LEDGERLINE_PERCPU");
}

#[test]
fn a_run_that_cannot_account_is_missing_and_says_why() {
    let (report, code) = says(|command| _ = command.env("LEDGERLINE_PRELOAD", "/nowhere.so"));
    let (state, found, change) = finding(&report, "run");
    assert_eq!((&*state, code), ("missing", 1), "{report:#}");
    assert!(found.contains("/nowhere.so") && !change.is_empty(), "{report:#}");
}

#[test]
fn a_laboratory_that_is_installed_is_named_and_without_one_it_says_where_to_put_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lab = folder.path().join("ledgerline-lab");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others: Vec<_> =
        std::env::split_paths(&path).filter(|it| !it.join("ledgerline-lab").exists()).collect();
    let paths = std::env::join_paths([folder.path().to_owned()].into_iter().chain(others)).unwrap();
    let says = || says(|command| _ = command.env("PATH", &paths));
    let is_beside = std::path::Path::new(binary()).with_file_name("ledgerline-lab").exists();
    if !is_beside {
        let (report, code) = says();
        let (state, found, change) = finding(&report, "layout record");
        assert_eq!((&*state, code), ("slower", 0), "{report:#}");
        assert!(found.contains("neither beside this command nor in PATH"), "{found}");
        assert!(change.contains("install ledgerline-lab"), "{change}");
    }
    executable(&lab, b"#!/bin/sh\n");
    let (report, _) = says();
    let (state, found, change) = finding(&report, "layout record");
    if cfg!(all(target_env = "gnu", target_arch = "x86_64")) {
        assert_eq!((&*state, &*change), ("fine", ""), "{report:#}");
        assert!(is_beside || found == format!("by {}", lab.display()), "{found}");
    } else {
        assert_eq!((&*state, change.is_empty()), ("slower", false), "{report:#}");
    }
}

#[test]
fn the_table_says_the_same_in_plain_text() {
    let output = ledgerline().arg("doctor").env("LEDGERLINE_PERCPU", "owned").output().unwrap();
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("ledgerline ") && !text.contains('\u{1b}'), "{text}");
    let charges = text.lines().position(|line| line.starts_with("charges        slower   "));
    let below = charges.and_then(|at| text.lines().nth(at + 1)).unwrap_or_default();
    assert_eq!(below, "               change   unset LEDGERLINE_PERCPU", "{text}");
    for what in ["run", "layout record", "memory"] {
        assert!(text.lines().any(|line| line.starts_with(what)), "{text}");
    }
}
