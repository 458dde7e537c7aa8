//! Processes: each has its own account, however it was made.

use crate::support::{Account, account, chunk, compiled, have, live, modes, numbers};
use ledgerline::GroupState;
use std::path::Path;

#[test]
fn a_child_frees_what_it_inherited_from_nobodys_account() {
    let program = compiled!("fork.c");
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let env = [("LEDGERLINE_PERCPU", *mode), ("LEDGERLINE_BY", by)];
            let (_, bare) = account(&program, &["none"], &env);
            for how in ["fork", "raw", "deep"] {
                let (said, rows) = account(&program, &[how], &env);
                let child = rows.row(&format!("fork.{}", numbers(&said)[0]));
                // Blocks that it reallocated are its own from then on.
                let truth = 50 * chunk(3000) + 200 * chunk(5000);
                assert_eq!((child.current, live(child)), (truth, 250), "{how} {env:?}");
                let (parent, alone) = (rows.processes()[0], bare.processes()[0]);
                assert_eq!(parent.current, alone.current, "{how} {env:?}");
                assert_eq!(live(parent), live(alone), "{how} {env:?}");
                assert_eq!(parent.charges, alone.charges + 500, "{how} {env:?}");
            }
        }
    }
}

#[test]
fn children_do_not_wait_for_threads_that_they_do_not_have() {
    let program = compiled!("crowd.c");
    for mode in modes() {
        let (_, rows) = account(&program, &["fork", "200"], &[("LEDGERLINE_PERCPU", mode)]);
        let (parent, children) = (rows.processes()[0], &rows.processes()[1..]);
        assert_eq!(children.len(), 200, "{mode}");
        for child in children {
            assert_eq!(
                (child.current, live(child)),
                (100 * chunk(1000), 100),
                "{mode}: {child:#?}"
            );
        }
        // The parent's threads freed all of theirs.
        assert!(parent.current < 20_000, "{mode}: {parent:#?}");
        for row in rows.0.groups.iter().filter(|row| row.name.starts_with('w')) {
            assert_eq!((row.current, live(row)), (0, 0), "{mode}: {row:#?}");
        }
    }
}

#[test]
fn at_a_limit_children_do_not_wait_either() {
    let program = compiled!("crowd.c");
    for mode in modes() {
        // The earlier children are settled when the next ones ask.
        let account = Account::limited(4 << 20);
        account.run(&program, &["fork", "200"]).env("LEDGERLINE_PERCPU", mode).well();
        let rows = account.rows();
        assert_eq!(rows.processes().len(), 201, "{mode}");
        let exited = rows.processes().iter().filter(|row| row.state == GroupState::Exited).count();
        assert!(exited > 100, "{mode}: {exited}");
        assert!(rows.root().peak.value <= 4 << 20, "{mode}: {:#?}", rows.root());
    }
}

#[test]
fn programs_are_spawned_while_threads_allocate() {
    let program = compiled!("crowd.c");
    if !have("true") {
        return;
    }
    for mode in modes() {
        let (_, rows) = account(&program, &["spawn", "90"], &[("LEDGERLINE_PERCPU", mode)]);
        let parent = rows.processes()[0];
        assert!(parent.path.starts_with("/crowd.") && parent.current < 20_000, "{parent:#?}");
        for row in rows.0.groups.iter().filter(|row| row.name.starts_with('w')) {
            assert_eq!((row.current, live(row)), (0, 0), "{mode}: {row:#?}");
        }
        let crowds = rows.processes().iter().filter(|row| row.path.starts_with("/crowd.")).count();
        assert_eq!(crowds, 1, "a child that only executes has no row: {:?}", rows.paths());
    }
}

#[test]
fn a_program_that_becomes_another_leaves_a_settled_row() {
    let program = compiled!("exec.c");
    for mode in modes() {
        let (_, rows) = account(&program, &["70", "20", "5"], &[("LEDGERLINE_PERCPU", mode)]);
        let [first, second, third] = rows.processes()[..] else { panic!("{:?}", rows.paths()) };
        assert_eq!(
            (&first.path, first.owner),
            (&second.path.replace(&second.name, &first.name), second.owner)
        );
        for (row, blocks) in [(first, 70), (second, 20)] {
            assert_eq!((row.state, row.current), (GroupState::Exited, 0), "{mode}: {row:#?}");
            assert!(
                (blocks * chunk(10_000)..blocks * chunk(10_000) + 20_000).contains(&row.at_exit)
            );
        }
        assert_eq!(third.state, GroupState::Live);
        assert!((5 * chunk(10_000)..5 * chunk(10_000) + 20_000).contains(&third.current));
        assert_eq!(rows.root().current, third.current, "{mode}");
    }
}

#[test]
fn a_shell_that_becomes_a_program_leaves_a_settled_row() {
    let program = compiled!("exec.c");
    if !have("sh") {
        return;
    }
    let script = format!("exec '{}' 7", program.display());
    let (_, rows) = account(Path::new("/bin/sh"), &["-c", &script], &[]);
    let [shell, exec] = rows.processes()[..] else { panic!("{:?}", rows.paths()) };
    assert!(
        shell.path.starts_with("/sh.") && exec.path.starts_with("/exec."),
        "{:?}",
        rows.paths()
    );
    assert_eq!(shell.path.rsplit('.').next(), exec.path.rsplit('.').next());
    assert_eq!((shell.state, exec.state), (GroupState::Exited, GroupState::Live));
    assert!(exec.current >= 7 * chunk(10_000));
}
