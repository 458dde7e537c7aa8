//! Rows have the names of their processes in `ps`, are below the processes that started them, and have the resident
//! size of their own process alone.

use crate::support::compiled::Compiled;
use crate::support::{self, account, groups, stderr};
use serde_json::Value;

/// A program whose children outlive it: one with a title, one with its own name.
const TITLES: &str = "#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int count, char **words) {
    int ready[2];
    if (pipe(ready)) return 9;
    char *end = words[count - 1] + strlen(words[count - 1]);
    for (int child = 0; child < 2; child++) {
        if (fork()) continue;
        for (int file = 0; file < 3; file++) close(file);
        char *volatile block = malloc(100000);
        if (!block) _exit(9);
        if (child) {
            prctl(PR_SET_NAME, \"io worker\");
        } else {
            memset(words[0], 0, end - words[0]);
            strcpy(words[0], \"server: reader\");
        }
        if (write(ready[1], \"x\", 1) != 1) _exit(9);
        sleep(60);
        _exit(0);
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1 || read(ready[0], &byte, 1) != 1) return 9;
    return 0; }";

#[test]
fn a_row_is_called_as_ps_shows_its_process_with_program_and_parent() {
    let Some(program) = Compiled::new(TITLES, &[]) else { return };
    let (output, account) = account(&[], &[program.path(), "--with", "room for a title"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let of = |name: &str| {
        let found: Vec<_> = groups(&account)
            .iter()
            .filter(|row| row["name"] == name && !row["program"].is_null())
            .collect();
        assert_eq!(found.len(), 1, "{name}: {account:#}");
        found[0].clone()
    };
    let (main, reader, worker) = (of("program"), of("server: reader"), of("io worker"));
    for child in [&reader, &worker] {
        // SAFETY: takes no pointers; the process is this test's.
        unsafe { libc::kill(child["pid"].as_i64().unwrap() as i32, libc::SIGKILL) };
        assert_eq!((&child["parent"], &child["program"]), (&main["pid"], &"program".into()));
    }
    let text = stderr(&output);
    let line = |start: &str| text.lines().any(|line| line.starts_with(start));
    assert!(line("`- program "), "{text}");
    assert!(line("   |- server: reader ") || line("   `- server: reader "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("group ") && line.contains(" program ")));
}

#[test]
fn what_a_process_executed_before_has_nothing_of_what_it_is_now() {
    let script = "exec env sh -c 'echo $$; read line'";
    let (mut run, pid, _lines) = support::started(&["sh", "-c", script]);
    let show = |more: &[&str]| {
        let mut show = support::ledgerline();
        let output = show.args(["show", "--pid", &pid]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&show(&["--json"])).unwrap();
    let rows: Vec<_> = groups(&json)
        .iter()
        .filter(|row| {
            row["pid"].as_u64() == pid.parse().ok()
                && row["path"].as_str().is_some_and(|path| path.matches('/').count() == 1)
        })
        .collect();
    assert!(rows.len() >= 2, "{json:#}");
    let (before, now): (Vec<&Value>, Vec<&Value>) =
        rows.into_iter().partition(|row| row["executed"] == true);
    assert!(before.iter().all(|row| row["resident"].is_null()), "{json:#}");
    let [now] = now[..] else { panic!("{json:#}") };
    assert!(now["resident"].as_u64() > Some(100 << 10), "{json:#}");
    // One line, with the earlier name.
    let tree = show(&[]);
    let lines: Vec<_> = tree.lines().filter(|line| line.contains(&pid)).collect();
    assert!(matches!(lines[..], [line] if line.contains("was sh")), "{tree}");
    drop(run.stdin.take());
    run.wait().unwrap();
}

/// A program that names itself, and waits for its standard input to end.
const WORKER: &str = "#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
int main(void) {
    char *volatile block = malloc(100000);
    prctl(PR_SET_NAME, \"io worker\");
    puts(block ? \"ready\" : \"\");
    fflush(stdout);
    return getchar() == 0; }";

#[test]
fn top_and_serve_call_a_process_as_ps_shows_it() {
    let Some(program) = Compiled::new(WORKER, &[]) else { return };
    let (mut run, _ready, _lines) = support::started(&["env", program.path()]);
    let pid = run.id().to_string();
    let top = ["top", "--once", "--interval", "0", "--json", &pid];
    let output = support::ledgerline().args(top).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let look: Value = serde_json::from_slice(&output.stdout).unwrap();
    let groups = look["groups"].as_array().expect("a list");
    let named: Vec<_> = groups
        .iter()
        .filter(|group| group["name"].as_str().is_some_and(|name| name.starts_with("io worker.")))
        .collect();
    let [worker] = named[..] else { panic!("{look:#}") };
    assert_eq!(worker["program"], "program", "{look:#}");
    // The row of its earlier program keeps that name.
    assert!(
        groups.iter().any(|group| group["name"] == format!("env.{}", worker["pid"])),
        "{look:#}"
    );
    drop(run.stdin.take());
    run.wait().unwrap();
}

#[test]
fn a_number_without_a_unit_is_no_limit_that_a_program_could_start_with() {
    for option in ["--max", "--max-heap", "--high"] {
        let output = support::run(&[option, "512", "--", "true"]);
        let text = stderr(&output);
        assert!(
            !output.status.success() && text.contains(": 512 is 512 bytes; write 512M"),
            "{text}"
        );
    }
}
