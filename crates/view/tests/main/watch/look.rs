//! A look agrees with the view of a ledger's program, and writes nothing.

use ledgerline::{Ledger, Limit};
use ledgerline_protocol::Item;
use ledgerline_view::watch::{Source, State, Tempo};
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

struct Made {
    file: File,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn made() -> Made {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ledger");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    Made { file, path, _folder: folder }
}

#[test]
fn a_look_needs_a_readable_file_alone_and_leaves_it_as_it_was() {
    let made = made();
    let ledger = Ledger::builder().capacity(64).items(&["rows"]).create_in(&made.file).unwrap();
    let acme = ledger.root().create("acme").unwrap();
    acme.set_max(Limit::units(1 << 20)).unwrap();
    let query = acme.create("q1").unwrap();
    query.charge_units(4096).unwrap();
    query.add_stat(ledger.item("rows").unwrap(), 7);
    query.add_reclaimed(5);
    query.try_charge(1 << 21).unwrap_err();
    std::fs::set_permissions(&made.path, Permissions::from_mode(0o400)).unwrap();

    let source = Source::open(&made.path).unwrap();
    let written = || std::fs::metadata(&made.path).unwrap().modified().unwrap();
    let before = written();
    let look = source.look();
    assert_eq!(before, written());
    let paths: Vec<&str> = look.rows.iter().map(|row| row.path.as_str()).collect();
    assert_eq!(paths, ["/", "/acme", "/acme/q1"]);
    assert_eq!((look.parents(), look.damaged, look.steady), (vec![0, 0, 1], false, true));
    let acme = &look.rows[1];
    assert_eq!(
        (acme.current, acme.max, acme.counts.refused, acme.counts.max_events),
        (4096, Some(1 << 20), 1, 1)
    );
    for row in &look.rows {
        assert_eq!(
            (row.counts.reclaimed, row.counts.charges, row.counts.refused),
            (5, 1, 1),
            "{}",
            row.path
        );
        assert!(row.items.len() == 1 && &*row.items[0].0 == "rows" && row.items[0].1 == 7);
    }
    // Rates use this clock, which always advances; the wall clock may not.
    let mut tempo = Tempo::new();
    tempo.rates(&look);
    query.charge_units(4096).unwrap();
    let later = source.look();
    assert!(later.clock > look.clock);
    assert!(tempo.rates(&later)[2].growth > 0.0);
    assert_eq!(source.view().read().unwrap().statistics.events(0).max, 1);
}

#[test]
fn a_run_is_told_by_its_users_limits_and_what_its_programs_felt() {
    let made = made();
    let ledger = Ledger::builder().capacity(64).items(&Item::NAMES).create_in(&made.file).unwrap();
    let root = ledger.root();
    let add = |item: Item, n: i64| root.add_stat(ledger.item(item.name()).unwrap(), n);
    root.set_max(Limit::units((1 << 20) - 4096)).unwrap();
    add(Item::Reserved, 4096);
    for _ in 0..3 {
        root.try_charge(1 << 21).unwrap_err();
    }
    add(Item::Spared, 1);
    add(Item::RefusedHeap, 5);
    let process = ledger.attach_process("sort.4711", 4711).unwrap();
    process.charge_units(100).unwrap();

    let source = Source::open(&made.path).unwrap();
    let look = source.look();
    assert!(source.is_run());
    assert_eq!((look.root().max, look.root().counts.refused), (Some(1 << 20), 7));
    let row = &look.rows[1];
    assert_eq!((row.pid, &*row.program, row.state), (4711, "sort", State::Live));
    ledger.settle_dead(&|_| false);
    let row = &source.look().rows[1];
    assert_eq!((row.state, row.current), (State::Exited, 100));
}

#[test]
fn no_number_of_a_damaged_row_is_told() {
    let made = made();
    let ledger = Ledger::builder().capacity(64).items(&["rows"]).create_in(&made.file).unwrap();
    let groups = ["a", "b"].map(|name| ledger.root().create(name).unwrap());
    for group in groups {
        group.charge_units(4096).unwrap();
    }
    let source = Source::open(&made.path).unwrap();
    // This is the usage of row 1: `table/row.rs`.
    made.file.write_all_at(&(1u64 << 60).to_le_bytes(), 4096 + 256 + 8).unwrap();
    let look = source.look();
    assert!(look.damaged);
    let row = &look.rows[1];
    assert_eq!((row.state, &*row.path, row.items.len()), (State::Damaged, "/a", 0));
    let numbers =
        [row.current, row.peak, row.counts.charges, row.counts.uncharges, row.counts.refused];
    assert_eq!((numbers, row.max, row.high), ([0; 5], None, None));
    assert_eq!((look.rows[2].state, look.rows[2].current), (State::Live, 4096));

    std::mem::forget(ledger);
    made.file.set_len(5000).unwrap();
    let look = source.look();
    assert!(look.damaged && look.rows.len() == 1 && look.root().state == State::Damaged);
    let error = source.try_look().unwrap_err();
    assert!(error.starts_with(made.path.to_str().unwrap()), "{error}");
}

#[test]
fn what_is_no_ledger_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let error = |path: &std::path::Path| Source::open(path).unwrap_err();
    assert_eq!(error(folder.path()), format!("{} is not a file", folder.path().display()));
    assert!(error(&path).contains("cannot be opened: No such file"), "{}", error(&path));
    std::fs::write(&path, [7; 9000]).unwrap();
    assert_eq!(error(&path), format!("{} is not a ledger", path.display()));
    std::fs::write(&path, b"").unwrap();
    assert_eq!(error(&path), format!("{} is not a ledger", path.display()));
}
