//! `ledgerline run --count resident`: the limit counts what was touched; and `--on-refusal`, which tells a command.

use crate::support::compiled::Compiled;
use crate::support::*;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

/// Requests memory, and touches it, as its words say.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *mapped(size_t mib) {
    char *at = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Takes touched blocks of a MiB until one is refused; returns how many it got. */
static int fill(char **last, int most) {
    int got = 0;
    for (char *block; got < most && (block = malloc(1 << 20)); got++) {
        memset(block, 1, 1 << 20);
        *(char **)block = *last;
        *last = block;
    }
    return got;
}

static void empty(char **last) {
    while (*last) {
        char *next = *(char **)*last;
        free(*last);
        *last = next;
    }
}

int main(int count, char **arguments) {
    char *last = NULL;
    const char *what = arguments[1];
    if (!strcmp(what, "reserve")) {
        char *at = mapped(4096);
        if (!at) return puts("refused"), 1;
        memset(at, 1, 20 << 20);
        return printf("reserved, then %d\n", fill(&last, 20)), 0;
    }
    if (!strcmp(what, "grow")) {
        int first = fill(&last, 4000);
        empty(&last);
        /* Returned memory is not resident any more, and may be requested again. */
        int again = 0;
        for (int turn = 0; turn < 4000 && again < 20; turn++) {
            again += fill(&last, 20 - again);
            usleep(1000);
        }
        return printf("%d %d\n", first, again), 0;
    }
    if (!strcmp(what, "share")) {
        char *at = mapped(60);
        memset(at, 1, 60 << 20);
        for (int child = 0; child < 4; child++) {
            if (fork() == 0) {
                int got = 0;
                /* Past some looks. */
                for (int turn = 0; turn < 20; turn++, usleep(20000)) got += fill(&last, 1) + at[turn << 20];
                _exit(got == 40 ? 0 : 9);
            }
        }
        int status, wrong = 0;
        while (wait(&status) > 0) wrong |= status;
        return printf("%d\n", wrong), 0;
    }
    if (!strcmp(what, "until")) {
        while (access(arguments[2], F_OK) != 0) usleep(5000);
        printf("%d\n", fill(&last, count > 3 ? atoi(arguments[3]) : 4000));
        return 0;
    }
    return 2;
}
"#;

fn compiled() -> Compiled {
    Compiled::new(SOURCE, &[]).expect("the tests need a C compiler")
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_reservation_costs_nothing_until_it_is_touched() {
    let program = compiled();
    let words = [program.path(), "reserve"];
    let (output, account) = account(&["--count", "resident", "--max", "100M"], &words);
    assert_eq!(said(&output), "reserved, then 20", "{}", stderr(&output));
    check(&account);
    let root = &groups(&account)[0];
    assert_eq!((&account["count"], number(root, "max")), (&"resident".into(), 100 * MIB));
    assert_eq!((number(root, "refused"), number(root, "max_events")), (0, 0), "{root}");
    let peak = number(&account, "resident_peak");
    assert!(peak <= 100 * MIB && number(root, "resident") == peak, "{peak}");
    let text = stderr(&output);
    assert!(text.contains(" resident of 100.0M, nothing refused"), "{text}");

    let (output, account) = crate::support::account(&["--max", "100M"], &words);
    assert_eq!(said(&output), "refused");
    assert_eq!((&account["count"], &account["resident_peak"]), (&"mapped".into(), &().into()));
    let text = stderr(&output);
    assert!(text.contains("--count resident counts what is touched."), "{text}");
}

#[test]
fn what_is_asked_for_above_the_limit_is_refused_and_what_was_given_back_may_be_had_again() {
    let program = compiled();
    let options = ["--count", "resident", "--max", "64M"];
    let (output, account) = account(&options, &[program.path(), "grow"]);
    let words: Vec<u64> = said(&output).split(' ').map(|word| word.parse().unwrap()).collect();
    // A look that is late by hundreds of milliseconds lets a block through.
    assert!((40..=90).contains(&words[0]) && words[1] == 20, "{words:?}: {}", stderr(&output));
    check(&account);
    let root = &groups(&account)[0];
    assert!(number(root, "refused") >= 1, "{root}");
    let text = stderr(&output);
    assert!(text.contains(" of 64.0 MiB were resident."), "{text}");
    let row = groups(&account).iter().find(|row| row["first_refused"].is_object());
    let in_use = number(&row.expect("a row was refused")["first_refused"], "in_use");
    assert!(in_use > 64 * MIB, "{in_use}");
}

#[test]
fn what_forked_processes_share_counts_once() {
    let program = compiled();
    // 60 MiB and 4 times 20 MiB: with the shared part in each it were 380.
    let options = ["--count", "resident", "--max", "200M"];
    let (output, account) = account(&options, &[program.path(), "share"]);
    assert_eq!(said(&output), "0", "{}", stderr(&output));
    assert_eq!(number(&groups(&account)[0], "refused"), 0, "{}", stderr(&output));
}

#[test]
fn a_limit_that_is_set_meanwhile_holds_and_observers_see_the_users_limit() {
    let program = compiled();
    let go = scratch("go");
    let mut run = ledgerline();
    run.args(["run", "--count", "resident", "--max", "900M", "--", program.path(), "until"]);
    let run = run.arg(&go).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = run.id().to_string();
    let show = |max: &str| {
        let found = || {
            let show = ledgerline().args(["show", "--pid", &pid, "/", "memory.max"]).output();
            said(&show.unwrap()) == max
        };
        // The run begins, and takes a new limit over at its next look.
        (0..2000)
            .any(|_| found() || (std::thread::sleep(std::time::Duration::from_millis(5)), false).1)
    };
    assert!(show(&(900 * MIB).to_string()), "the limit is told as the user gave it");
    let set = ledgerline().args(["set", "--pid", &pid, "/", "max=64M"]).output().unwrap();
    assert!(set.status.success(), "{}", stderr(&set));
    assert!(show(&(64 * MIB).to_string()));
    std::fs::write(&go, "").unwrap();
    let output = run.wait_with_output().unwrap();
    std::fs::remove_file(go).unwrap();
    let blocks: u64 = said(&output).parse().unwrap();
    assert!((40..=90).contains(&blocks), "{blocks}: {}", stderr(&output));
}

#[test]
fn a_program_whose_supervisor_was_killed_goes_on_without_a_wait_for_each_request() {
    let program = compiled();
    let go = scratch("go");
    let mut run = ledgerline();
    run.args(["run", "--count", "resident", "--max", "40M", "--", program.path(), "until"]);
    let mut run =
        run.arg(&go).arg("300").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = run.id().to_string();
    let is_there = || {
        let show = ledgerline().args(["show", "--pid", &pid]).output().unwrap();
        said(&show).contains("program")
    };
    while !is_there() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    std::fs::write(&go, "").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut run.stdout.take().unwrap(), &mut text).unwrap();
    std::fs::remove_file(go).unwrap();
    assert_eq!(text, "300\n", "the last look decides");
}

#[test]
fn a_command_is_told_of_the_first_refusal() {
    let program = compiled();
    let told = scratch("told");
    let command = format!(
        "echo \"$LEDGERLINE_REFUSED_NAME $LEDGERLINE_REFUSED_SIZE $LEDGERLINE_REFUSED_LIMIT $LEDGERLINE_RUN_PID\" >>{}; echo heard",
        told.display()
    );
    for (count, limit) in [("mapped", 40 * MIB), ("resident", 48 * MIB)] {
        let max = limit.to_string();
        let options = ["--count", count, "--max", &max, "--strict", "--on-refusal", &command];
        let (output, _) = account(&options, &[program.path(), "grow"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        // The program is refused more than once.
        let text = std::fs::read_to_string(&told).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!((text.lines().count(), words.len()), (1, 4), "{text}");
        assert_eq!((words[0], words[2]), ("program", &*max), "{text}");
        assert!(words[1].parse::<u64>().unwrap() >= MIB, "{text}");
        // Its output is not in the program's.
        assert!(!said(&output).contains("heard") && stderr(&output).contains("heard\n"));
        std::fs::remove_file(&told).unwrap();
    }
    // A request that is granted after all is no refusal.
    let options = ["--count", "resident", "--max", "900M", "--on-refusal", &command];
    account(&options, &[program.path(), "reserve"]);
    assert!(!told.exists());
}
