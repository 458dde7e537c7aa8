//! `ledgerline top` on a terminal, as a user drives it: keys, sizes, signals, and the terminal afterwards.

use crate::support;
use crate::support::tmux::Tmux;
use ledgerline::{Ledger, Limit};
use std::fs::File;
use std::path::Path;

const M: u64 = 1 << 20;

/// A ledger with fixed numbers: batches of one unit leave next to no idle stock, which would count into the peaks.
fn ledger(folder: &Path) -> Ledger {
    let path = folder.join("server.ledger");
    let file = File::options().read(true).write(true).create_new(true).open(path).expect("a file");
    let ledger =
        Ledger::builder().batch(1).items(&["rows_read"]).create_in(&file).expect("a ledger");
    let root = ledger.root();
    root.set_max(Limit::units(1024 * M)).unwrap();
    let acme = root.create("acme").unwrap();
    let bolt = root.create("bolt").unwrap();
    bolt.set_max(Limit::units(410 * M)).unwrap();
    bolt.set_high(Limit::units(500 * M));
    bolt.set_low(Limit::units(16 * M));
    for (group, name, size) in [(&acme, "q1", 100), (&acme, "q2", 200), (&bolt, "q3", 400)] {
        let query = group.create(name).unwrap();
        query.try_charge_units(size * M).unwrap();
        query.add_stat(ledger.item("rows_read").unwrap(), size as i64);
    }
    bolt.try_charge_units(100 * M).unwrap_err();
    root.create("cone").unwrap();
    ledger
}

/// No look after the first one, so that the screen stays unchanged.
const TOP: &str = "$LEDGERLINE top --interval 3600 server.ledger";

/// Checks that the terminal is restored: the settings, and the screen on which the shell writes.
fn as_before(tmux: &Tmux, before: &str, name: &str) {
    let after = tmux.settings(name);
    assert_eq!(after, before);
    assert!(!tmux.is_drawn_on());
}

#[test]
fn keys_sort_fold_filter_and_choose_and_the_terminal_is_as_before_afterwards() {
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let _ledger = ledger(tmux.folder());
    let before = tmux.settings("before");
    tmux.line(&format!("{TOP}; echo \"status $?\""));
    tmux.shows("top-start.txt");
    assert!(tmux.is_drawn_on());
    tmux.keys(&["<"]);
    tmux.shows("top-sorted.txt");
    tmux.keys(&["-", "Down", "Down", "Enter"]);
    tmux.shows("top-folded.txt");
    tmux.keys(&["Enter", "+", "/", "q", "1"]);
    tmux.shows("top-typing.txt");
    tmux.keys(&["Enter"]);
    tmux.shows("top-filtered.txt");
    tmux.keys(&["Escape"]);
    tmux.resize(60, 8);
    tmux.shows("top-resized.txt");
    tmux.resize(110, 20);
    tmux.keys(&["t", ">", "r"]);
    tmux.shows("top-flat.txt");
    tmux.keys(&["q"]);
    tmux.wait_for("the end", |screen| screen.contains("status 0"));
    as_before(&tmux, &before, "after");
}

#[test]
fn the_terminal_is_as_before_after_a_panic_which_is_told_there() {
    if support::tested::is_optimised() {
        eprintln!("skipped: a release build has no panic to ask for");
        return;
    }
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let _ledger = ledger(tmux.folder());
    let before = tmux.settings("before");
    tmux.line(&format!("LEDGERLINE_TOP_PANIC=1 {TOP}; echo \"status $?\""));
    let screen = tmux.wait_for("the end", |screen| screen.contains("status 101"));
    assert!(screen.contains("LEDGERLINE_TOP_PANIC is set"), "{screen}");
    as_before(&tmux, &before, "after");
}

#[test]
fn the_terminal_is_as_before_after_a_signal_which_still_ends_the_program() {
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let _ledger = ledger(tmux.folder());
    let before = tmux.settings("before");
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        // Another shell executes it, so that its id is known.
        tmux.line(&format!("sh -c 'echo $$ > pid; exec {TOP}'"));
        tmux.wait_for("the screen", |screen| screen.contains("q quit") && screen.contains("bolt"));
        assert!(tmux.is_drawn_on());
        let pid = std::fs::read_to_string(tmux.folder().join("pid")).unwrap();
        let killed = std::process::Command::new("kill").args(["-s", signal, pid.trim()]).status();
        assert!(killed.unwrap().success());
        tmux.wait_for_shell();
        // After SIGINT a shell skips the rest of the line.
        tmux.line("echo status $?");
        tmux.wait_for("the end", |screen| screen.contains(&format!("status {status}")));
        as_before(&tmux, &before, &format!("after-{signal}"));
    }
}

#[test]
fn a_stopped_job_gives_the_terminal_back_and_draws_itself_again_when_it_goes_on() {
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let _ledger = ledger(tmux.folder());
    let before = tmux.settings("before");
    tmux.line(TOP);
    tmux.shows("top-start.txt");
    for (round, stop) in ["C-z", "signal"].into_iter().enumerate() {
        if stop == "C-z" {
            tmux.keys(&["C-z"]);
        } else {
            let output = std::process::Command::new("sh")
                .args(["-c", "kill -s TSTP $(cat pid)"])
                .current_dir(tmux.folder())
                .status();
            assert!(output.unwrap().success());
        }
        tmux.wait_for("the shell", |screen| screen.contains("Stopped"));
        as_before(&tmux, &before, &format!("stopped-{round}"));
        tmux.line("jobs -p > pid; clear; fg");
        tmux.shows("top-start.txt");
        assert!(tmux.is_drawn_on());
    }
    tmux.keys(&["q"]);
    tmux.wait_for_shell();
    as_before(&tmux, &before, "after");
}

#[test]
fn what_is_no_job_of_a_shell_cannot_be_stopped_for_good() {
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let _ledger = ledger(tmux.folder());
    tmux.line(&format!("exec {TOP}"));
    tmux.shows("top-start.txt");
    tmux.keys(&["C-z"]);
    tmux.keys(&["<"]);
    tmux.shows("top-sorted.txt");
}

#[test]
fn when_the_program_ends_the_last_look_stays_until_the_reader_quits() {
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let (mut run, line, _) = support::started(&["sh", "-c", "echo started; read line"]);
    assert_eq!(line, "started");
    tmux.line(&format!("$LEDGERLINE top --interval 0.1 {}; echo \"status $?\"", run.id()));
    tmux.wait_for("a process", |screen| screen.contains(" sh."));
    drop(run.stdin.take());
    run.wait().expect("the run ends");
    let screen = tmux.wait_for("the end", |screen| screen.contains("ENDED: this is the last look"));
    assert!(screen.contains(" sh."), "{screen}");
    tmux.keys(&["q"]);
    tmux.wait_for("the shell", |screen| screen.contains("status 0"));
}

#[test]
fn without_a_ledger_the_reader_chooses_one_and_goes_back_to_the_list() {
    let Some(tmux) = Tmux::start(110, 60) else { return };
    let (mut run, line, _) = support::started(&["sh", "-c", "echo started; read line"]);
    assert_eq!(line, "started");
    tmux.line("$LEDGERLINE top; echo \"status $?\"");
    let ours = format!("(run {})", run.id());
    let is_list = |screen: &str| screen.contains("ledgers that run") && screen.contains(&ours);
    tmux.wait_for("the list", is_list);
    // Other ledgers may come and go: line by line to the test's own.
    for _ in 0..200 {
        let screen = tmux.coloured_screen();
        let line = |what: &dyn Fn(&str) -> bool| screen.lines().position(what);
        let chosen = line(&|line| line.contains("[7m") || line.contains(";7m"));
        let wanted = line(&|line| line.contains(&ours));
        match chosen.zip(wanted) {
            Some((chosen, wanted)) if chosen == wanted => break,
            Some((chosen, wanted)) => tmux.keys(&[if chosen < wanted { "Down" } else { "Up" }]),
            None => (),
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    tmux.keys(&["Enter"]);
    let screen = tmux.wait_for("the ledger", |screen| screen.contains(" sh."));
    assert!(screen.lines().next().unwrap().contains(&ours), "{screen}");
    tmux.keys(&["Escape"]);
    tmux.wait_for("the list", is_list);
    tmux.keys(&["q"]);
    tmux.wait_for("the shell", |screen| screen.contains("status 0"));
    drop(run.stdin.take());
    run.wait().expect("the run ends");
}

#[test]
fn there_are_no_colours_where_they_were_declined() {
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let _ledger = ledger(tmux.folder());
    // A group near its max is magenta, the sixth of sixteen, and marked.
    let coloured = |screen: &str| screen.contains("\x1b[38;5;5m");
    for (environment, colours) in [("", true), ("NO_COLOR=1 ", false)] {
        tmux.line(&format!("clear; {environment}{TOP}"));
        tmux.wait_for("the screen", |screen| screen.contains("q quit") && screen.contains("! "));
        let screen = tmux.coloured_screen();
        assert_eq!(coloured(&screen), colours, "{screen:?}");
        assert!(colours || !screen.contains("38;5"), "{screen:?}");
        tmux.keys(&["q"]);
        tmux.wait_for_shell();
    }
}

#[test]
fn a_terminal_that_shows_lines_alone_is_refused_with_what_to_do() {
    let Some(tmux) = Tmux::start(110, 20) else { return };
    let _ledger = ledger(tmux.folder());
    tmux.line(&format!("TERM=dumb {TOP}; echo \"status $?\""));
    let screen = tmux.wait_for("the end", |screen| screen.contains("status 1"));
    assert!(screen.contains("--once prints one look as a table"), "{screen}");
}
