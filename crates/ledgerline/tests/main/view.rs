//! A view sees the same values as the program, changes nothing and harms nothing.

use crate::common::{in_both_modes, memfd, ran_alone, times};
use ledgerline::{Group, GroupId, Ledger, Limit, View};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const ITEMS: [&str; 3] = ["rows_read", "spills", "sorts"];

/// Opens the same file read-only.
fn read_only(file: &File) -> File {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Destroy(usize),
    Charge(usize, u64),
    Uncharge(usize),
    Refused(usize),
    Count(usize, usize, i64),
    Reclaim(usize, u64),
    /// The program itself reads, which moves the cells' sums.
    Stat(usize),
    Move(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let any = any::<u16>().prop_map(usize::from);
    prop_oneof![
        3 => any.clone().prop_map(Step::Create),
        1 => any.clone().prop_map(Step::Destroy),
        10 => (any.clone(), 1u64..200_000).prop_map(|(g, n)| Step::Charge(g, n)),
        6 => any.clone().prop_map(Step::Uncharge),
        1 => any.clone().prop_map(Step::Refused),
        8 => (any.clone(), 0usize..3, -1000i64..1000).prop_map(|(g, i, n)| Step::Count(g, i, n)),
        1 => (any.clone(), 0u64..1 << 40).prop_map(|(g, n)| Step::Reclaim(g, n)),
        1 => any.clone().prop_map(Step::Stat),
        2 => any.prop_map(Step::Move),
    ]
}

/// Does the steps, in a few threads' columns if there are any.
fn play<'l>(ledger: &'l Ledger, steps: &[Step]) {
    let mut groups: Vec<Group<'l>> = vec![ledger.root()];
    let mut charges = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let group = |g: usize| groups[g % groups.len()];
        match *step {
            Step::Create(parent) => groups.extend(group(parent).create(&format!("g{number}"))),
            Step::Destroy(g) if g % groups.len() != 0 => {
                if group(g).destroy().is_ok() {
                    groups.swap_remove(g % groups.len());
                }
            }
            Step::Destroy(_) => {}
            Step::Charge(g, units) => charges.extend(group(g).try_charge(units)),
            Step::Uncharge(charge) if !charges.is_empty() => {
                drop(charges.swap_remove(charge % charges.len()));
            }
            Step::Uncharge(_) => {}
            Step::Refused(g) => assert!(group(g).try_charge(1 << 50).is_err()),
            Step::Count(g, item, n) => {
                group(g).add_stat(ledger.item(ITEMS[item]).unwrap(), n);
            }
            Step::Reclaim(g, units) => group(g).add_reclaimed(units),
            Step::Stat(g) => drop(group(g).stat()),
            Step::Move(g) if !charges.is_empty() => {
                drop(charges.pop().unwrap().transfer(group(g)));
            }
            Step::Move(_) => {}
        }
    }
    std::mem::forget(charges);
}

#[test]
fn a_view_says_what_the_ledger_says_though_nothing_was_collected() {
    in_both_modes("a_view_says_what_the_ledger_says_though_nothing_was_collected", || {
        let mut runner = TestRunner::new(crate::common::cases::few_or_many(file!(), 60, 5000));
        let strategy = (prop::collection::vec(steps(), 1..120), any::<bool>());
        runner
            .run(&strategy, |(steps, flows)| {
                let file = memfd();
                let builder = Ledger::builder().capacity(600).items(&ITEMS).flows(flows);
                let ledger = builder.create_in(&file).unwrap();
                ledger.root().set_max(Limit::units(1 << 40)).unwrap();
                let view = View::open(read_only(&file)).unwrap();
                assert_eq!(view.item_names(), ITEMS);
                // Twice: the second time over the remains of the first one in the copy.
                for half in [&steps[..steps.len() / 2], &steps[steps.len() / 2..]] {
                    play(&ledger, half);
                    let before = view.read().unwrap();
                    prop_assert_eq!(&before.snapshot, &ledger.snapshot());
                    prop_assert_eq!(&view.snapshot().unwrap(), &before.snapshot);
                    prop_assert_eq!(before.mistakes, ledger.mistakes());
                    prop_assert!(before.snapshot.steady && before.statistics.steady());
                    prop_assert!(!before.snapshot.damaged);
                    compare(&ledger, &before);
                    // Counts that were collected meanwhile are not counted twice.
                    compare(&ledger, &view.read().unwrap());
                }
                Ok(())
            })
            .unwrap();
    });
}

fn compare(ledger: &Ledger, reading: &ledgerline::Reading) {
    for (place, group) in reading.snapshot.groups.iter().enumerate() {
        let handle = ledger.group(group.id);
        let stat = handle.stat();
        assert!(reading.statistics.names().eq(stat.lines.iter().map(|line| line.name.as_str())));
        for (number, line) in stat.lines.iter().enumerate() {
            let found = reading.statistics.own(place, number);
            assert_eq!((found, &line.name), (line.own, &line.name), "{}", group.path);
            let found = reading.statistics.subtree(place, number);
            assert_eq!((found, &line.name), (line.subtree, &line.name), "{}", group.path);
            assert_eq!(reading.statistics.line(&line.name), Some(number));
        }
        assert_eq!(reading.statistics.events(place), handle.events(), "{}", group.path);
        assert_eq!(reading.statistics.local_events(place), handle.local_events());
    }
}

#[test]
fn a_view_of_many_rows_says_what_the_ledger_says() {
    let file = memfd();
    let ledger = Ledger::builder().capacity(5000).items(&ITEMS).create_in(&file).unwrap();
    let item = ledger.item("spills").unwrap();
    for n in 0..1000u64 {
        let tenant = ledger.root().create(&format!("t{n}")).unwrap();
        let query = tenant.create("q").unwrap();
        query.charge_units(n + 1).unwrap();
        query.add_stat(item, n as i64);
        if n % 3 == 0 {
            query.uncharge_units(n + 1);
            query.destroy().unwrap();
        }
    }
    let view = View::open(read_only(&file)).unwrap();
    let reading = view.read().unwrap();
    assert_eq!(reading.snapshot, ledger.snapshot());
    let line = reading.statistics.line("spills").unwrap();
    assert_eq!(reading.statistics.subtree(0, line), (0..1000).sum::<i64>());
    compare(&ledger, &reading);
    assert!(view.groups_at_most().unwrap() as usize >= reading.snapshot.groups.len());
    assert_eq!(view.capacity(), 5000);
    let footprint = view.footprint().unwrap();
    assert!(footprint.resident >= 4096 && footprint.resident < footprint.reserved);
}

#[test]
fn a_view_needs_no_right_to_write_and_writes_nothing() {
    let file = memfd();
    let ledger = Ledger::builder().capacity(100).create_in(&file).unwrap();
    ledger.root().create("q").unwrap().charge_units(1000).unwrap();
    let bytes = || {
        let mut bytes = vec![0; 64 << 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (bytes, file.metadata().unwrap().blocks())
    };
    let before = bytes();
    let reader = read_only(&file);
    assert!(reader.write_at(b"x", 0).is_err(), "it may only be read");
    let view = View::open(reader).unwrap();
    for _ in 0..3 {
        assert_eq!(view.read().unwrap().snapshot.groups[0].current, 1000);
    }
    assert!(before == bytes());
}

#[test]
fn a_view_of_an_ended_program_reads_on() {
    let file = memfd();
    let ledger = Ledger::builder().capacity(100).create_in(&file).unwrap();
    ledger.root().create("q").unwrap().charge_units(1000).unwrap();
    let view = View::open(read_only(&file)).unwrap();
    drop(ledger);
    let snapshot = view.snapshot().unwrap();
    assert_eq!((&*snapshot.groups[1].path, snapshot.groups[1].current), ("/q", 1000));
}

#[test]
fn a_file_that_becomes_shorter_is_an_error_and_kills_nobody() {
    if ran_alone("a_file_that_becomes_shorter_is_an_error_and_kills_nobody") {
        return;
    }
    let file = memfd();
    let ledger = Ledger::builder().capacity(2000).create_in(&file).unwrap();
    for n in 0..1000 {
        ledger.root().create(&format!("g{n}")).unwrap().charge_units(100).unwrap();
    }
    // The process that has it mapped must no longer touch it.
    std::mem::forget(ledger);
    let size = file.metadata().unwrap().len();
    let view = View::open(read_only(&file)).unwrap();
    for length in [5000, 100, 0, 4096, size / 2] {
        file.set_len(length).unwrap();
        match view.read() {
            // Rows and columns may lie in the half that is left, and are zeros by now.
            Ok(reading) => assert!(length == size / 2 && reading.snapshot.damaged),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{length}"),
        }
        assert!(View::open(read_only(&file)).is_err());
    }
    // While it is being read, too.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                for length in [size, 300_000, 4096, size] {
                    file.set_len(length).unwrap();
                }
            }
        });
        for _ in 0..times(300, 30_000) {
            let _ = view.read();
        }
        stop.store(true, Relaxed);
    });
}

/// A row that goes to another group between two parts of a reading is left out: no group has another's limit.
#[test]
fn a_view_tells_no_group_what_is_anothers() {
    let file = memfd();
    let ledger = Ledger::builder().capacity(8).create_in(&file).unwrap();
    let view = View::open(read_only(&file)).unwrap();
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1.. {
                let group = ledger.root().create(&format!("{n}")).unwrap();
                group.set_max(Limit::units(n)).unwrap();
                group.charge_units(n).unwrap();
                made.store(n, Relaxed);
                group.uncharge_units(n);
                group.destroy().unwrap();
                if stop.load(Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..times(3000, 300_000) {
            for group in view.snapshot().unwrap().groups.iter().skip(1) {
                let n: u64 = group.name.parse().unwrap();
                let max = [Limit::MAX, Limit::units(n)];
                assert!(max.contains(&group.max), "{group:?}");
                assert!(group.charges <= 1, "{group:?}");
            }
        }
        stop.store(true, Relaxed);
    });
    assert!(made.load(Relaxed) > 10);
}

/// How many charges of a CPU may be seen twice, or not yet: those that it is just about to fold.
const FOLDED: u64 = 127;

/// While threads charge, no group holds less than was charged before, or more than is charged in the end.
#[test]
fn a_view_beside_writers_stays_between_what_was_and_what_will_be() {
    let slack = FOLDED * std::thread::available_parallelism().unwrap().get() as u64;
    let file = memfd();
    let ledger = Ledger::builder().capacity(100).items(&ITEMS).create_in(&file).unwrap();
    let view = View::open(read_only(&file)).unwrap();
    let item = ledger.item("sorts").unwrap();
    let groups: Vec<Group<'_>> =
        (0..4).map(|n| ledger.root().create(&format!("g{n}")).unwrap()).collect();
    let mut last: HashMap<GroupId, (u64, i64)> = HashMap::new();
    std::thread::scope(|scope| {
        for group in &groups {
            scope.spawn(move || {
                for _ in 0..50_000 {
                    group.add_stat(item, 1);
                    group.charge_units(64).unwrap();
                }
            });
        }
        for _ in 0..200 {
            let reading = view.read().unwrap();
            let line = reading.statistics.line("sorts").unwrap();
            for (place, group) in reading.snapshot.groups.iter().enumerate() {
                let now = (group.charges, reading.statistics.subtree(place, line));
                let before = last.insert(group.id, now).unwrap_or_default();
                let slack = if place == 0 { 4 * slack } else { slack };
                assert!(now.0 + 2 * slack >= before.0 && now.1 >= before.1, "{before:?} {now:?}");
                let most = if place == 0 { 200_000 } else { 50_000 };
                assert!(now.0 <= most + slack && now.1 <= most as i64, "{now:?}");
                // `docs/races.md`: off by the units that cells fetched or returned meanwhile, at most the possible idle units.
                let idle = group.peak.bound;
                assert!(group.current <= 64 * most + idle, "{group:?}");
            }
        }
    });
    let reading = view.read().unwrap();
    let root = &reading.snapshot.groups[0];
    assert_eq!((root.current, root.charges), (4 * 50_000 * 64, 4 * 50_000));
}

/// Checks the kernel's copy on which `table/copy.rs` relies: words stay whole if the copy has the same offset in its page as the
/// part of the file. The processor's block copy tears words if the destination alone crosses a page whose translation was just
/// dropped. So another thread makes this process drop its translations all the time.
#[test]
fn the_kernel_copies_words_whole_to_where_they_lie_alike_in_their_pages() {
    if ran_alone("the_kernel_copies_words_whole_to_where_they_lie_alike_in_their_pages") {
        return;
    }
    let file = memfd();
    file.set_len(1 << 16).unwrap();
    let words = (1 << 16) / 8;
    // SAFETY: maps a file of our own, for as long as the test runs.
    let mapped = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        let mapped = libc::mmap(std::ptr::null_mut(), 1 << 16, access, libc::MAP_SHARED, fd, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        std::slice::from_raw_parts(mapped.cast::<AtomicU64>(), words)
    };
    /// Also if an assertion fails: otherwise the writer continues, and the test hangs.
    struct Stops<'s>(&'s AtomicBool);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            for turn in 0.. {
                let value = if turn % 2 == 0 { u64::MAX } else { 0 };
                mapped.iter().for_each(|word| word.store(value, Relaxed));
                if stop.load(Relaxed) {
                    return;
                }
            }
        });
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                // SAFETY: maps pages of this thread's own, touches them, and unmaps them.
                unsafe {
                    let access = libc::PROT_READ | libc::PROT_WRITE;
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    let own = libc::mmap(std::ptr::null_mut(), 1 << 16, access, flags, -1, 0);
                    assert_ne!(own, libc::MAP_FAILED);
                    own.cast::<u8>().write(1);
                    assert_eq!(libc::munmap(own, 1 << 16), 0);
                }
            }
        });
        let reader = read_only(&file);
        let mut room = vec![0u64; words + 512];
        let page = room.as_ptr().align_offset(4096);
        let copy = &mut room[page..][..words];
        let mut changed = 0;
        let enough = times(2000, 100_000);
        for turn in 0..100 * enough {
            if turn >= enough {
                if changed > 0 {
                    break;
                }
                // Other threads have the CPU that the writer needs.
                std::thread::yield_now();
            }
            // SAFETY: as many bytes as the words have; any bytes are valid words.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(copy.as_mut_ptr().cast(), 1 << 16) };
            reader.read_exact_at(bytes, 0).unwrap();
            assert!(copy.iter().all(|&word| word == 0 || word == u64::MAX));
            changed += u32::from(copy.contains(&0) && copy.contains(&u64::MAX));
        }
        assert!(changed > 0, "the writer was never seen in the middle");
    });
}
