//! Resident pages of owners are exact with many writers and counted for the right owner, in both per-CPU modes.

use crate::common::{Random, fork, in_both_modes, wait};
use crate::support::{allowed_cpus, in_all_modes, pin};
use ledgerline::stat::rss::{Gone, Kind, Mistakes, Owner, OwnerId, Pages, SharedOwner, Table};
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering::Relaxed};
use std::sync::mpsc;

fn pages(file: i64, anon: i64, swap: i64, shmem: i64) -> Pages {
    Pages { file, anon, swap, shmem }
}

/// The simple count: an atomic for each kind.
#[derive(Default)]
struct Oracle([AtomicI64; 4]);

impl Oracle {
    fn add(&self, kind: Kind, n: i64) {
        self.0[kind as usize].fetch_add(n, Relaxed);
    }

    fn pages(&self) -> Pages {
        std::array::from_fn(|kind| self.0[kind].load(Relaxed)).into()
    }
}

#[test]
fn what_threads_on_all_cpus_add_is_what_is_read() {
    in_all_modes("what_threads_on_all_cpus_add_is_what_is_read", || {
        const OWNERS: usize = 5;
        let table = Table::new(OWNERS as u32).unwrap();
        let owners: [(SharedOwner<'_>, Oracle); OWNERS] = std::array::from_fn(|n| {
            let (owner, oracle) = (table.register().unwrap(), Oracle::default());
            // Its counts from the time as a single owner are kept.
            owner.add(Kind::Shmem, n as i64);
            oracle.add(Kind::Shmem, n as i64);
            (owner.share(), oracle)
        });
        let cpus = allowed_cpus();
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (table, owners, cpus) = (&table, &owners, &cpus);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..60_000 {
                        let (owner, oracle) = &owners[random.below(OWNERS as u64) as usize];
                        let kind = Kind::ALL[random.below(4) as usize];
                        let n = random.below(1000) as i64 - 480;
                        if random.one_in(1000) {
                            pin(&[cpus[random.below(cpus.len() as u64) as usize]]);
                        }
                        match random.below(1000) {
                            0..20 => table.add_to(owner.id(), kind, n).unwrap(),
                            _ => owner.add(kind, n),
                        }
                        oracle.add(kind, n);
                        if random.one_in(1000) {
                            owner.read();
                        }
                    }
                });
            }
        });
        for (owner, oracle) in &owners {
            assert_eq!(owner.read(), oracle.pages());
            assert_eq!(table.read(owner.id()), Ok(oracle.pages()));
        }
        for (owner, oracle) in owners {
            assert_eq!(owner.unregister(), oracle.pages());
        }
    });
}

#[test]
fn a_reader_is_off_by_no_more_than_what_moves_while_it_reads() {
    in_both_modes("a_reader_is_off_by_no_more_than_what_moves_while_it_reads", || {
        let table = Table::new(1).unwrap();
        let owner = table.register().unwrap().share();
        let (begun, done) = (AtomicI64::new(0), AtomicI64::new(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        begun.fetch_add(3, std::sync::atomic::Ordering::SeqCst);
                        owner.add(Kind::Anon, 3);
                        done.fetch_add(3, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..20_000 {
                let least = done.load(std::sync::atomic::Ordering::SeqCst);
                let read = owner.read().anon;
                let most = begun.load(std::sync::atomic::Ordering::SeqCst);
                assert!(least <= read && read <= most, "{least} <= {read} <= {most}");
            }
            stop.store(true, Relaxed);
        });
        assert_eq!(owner.read().anon, done.into_inner());
    });
}

#[test]
fn a_read_looks_at_the_cpus_that_ran_the_owner() {
    in_both_modes("a_read_looks_at_the_cpus_that_ran_the_owner", || {
        let table = Table::new(4).unwrap();
        let single = table.register().unwrap();
        single.add(Kind::Anon, 5);
        let owner = single.share();
        assert_eq!(owner.cpus(), 0, "a single thread has its words in the row");
        owner.add(Kind::Anon, 5);
        owner.add(Kind::File, 5);
        // Two if the thread moved between the two updates; normally one.
        assert!((1..=2).contains(&owner.cpus()));
        let mut seen = owner.cpus();
        std::thread::scope(|scope| {
            for cpu in allowed_cpus() {
                let owner = &owner;
                scope.spawn(move || {
                    pin(&[cpu]);
                    owner.add(Kind::Anon, 1);
                });
            }
        });
        assert!(owner.cpus() >= seen);
        seen = owner.cpus();
        assert!(seen <= allowed_cpus().len().max(1) + 1);
        // The next owner of the row starts with no CPUs.
        drop(owner);
        let next = table.register().unwrap().share();
        assert_eq!((next.cpus(), next.read()), (0, Pages::default()));
    });
}

#[test]
fn single_owners_touch_no_cell() {
    const OWNERS: u32 = 10_000;
    let table = Table::new(OWNERS).unwrap();
    let owners: Vec<Owner<'_>> = (0..OWNERS).map(|_| table.register().unwrap()).collect();
    for owner in &owners {
        owner.add(Kind::Anon, 32);
    }
    assert_eq!(table.owners().map(|(_, pages)| pages.anon).sum::<i64>(), 32 * i64::from(OWNERS));
    let most = (u64::from(OWNERS) + 1) * (128 + 8) + 3 * 4096;
    assert!(table.resident() <= most, "{} bytes for {OWNERS} owners", table.resident());
    assert!(table.register().is_err(), "full");
}

#[test]
fn the_rows_of_a_table_are_reused_and_never_shared() {
    in_both_modes("the_rows_of_a_table_are_reused_and_never_shared", || {
        let table = Table::new(8).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for turn in 0..5000i64 {
                        // Four threads with two each: there is always a row.
                        let (first, second) =
                            (table.register().unwrap(), table.register().unwrap());
                        assert_eq!(first.read(), Pages::default());
                        first.add(Kind::Swap, turn);
                        let second = second.share();
                        assert_eq!(second.read(), Pages::default());
                        second.add(Kind::File, -turn);
                        table.add_to(second.id(), Kind::Anon, 7).unwrap();
                        let first = if random.one_in(2) {
                            first.unregister()
                        } else {
                            let first = first.share();
                            first.add(Kind::Shmem, 1);
                            let left = first.unregister();
                            assert_eq!(left.shmem, 1);
                            pages(0, 0, left.swap, 0)
                        };
                        assert_eq!(first, pages(0, 0, turn, 0));
                        assert_eq!(second.unregister(), pages(-turn, 7, 0, 0));
                    }
                });
            }
        });
        assert_eq!(table.owners().count(), 0);
        let negative = table.mistakes().negative;
        assert_eq!(negative, 4 * 4999, "each shared owner but the first ended below nothing");
    });
}

#[test]
fn a_name_of_an_owner_that_has_gone_is_refused() {
    let table = Table::new(1).unwrap();
    let owner = table.register().unwrap();
    let old = owner.id();
    assert_eq!(table.add_to(old, Kind::Anon, 2), Ok(()));
    assert_eq!(owner.unregister(), pages(0, 2, 0, 0));
    assert_eq!((table.read(old), table.add_to(old, Kind::Anon, 2)), (Err(Gone), Err(Gone)));
    let next = table.register().unwrap();
    assert_ne!(next.id(), old, "the row is the same, the owner is not");
    assert_eq!((table.read(old), table.add_to(old, Kind::Anon, 2)), (Err(Gone), Err(Gone)));
    assert_eq!(table.read(next.id()), Ok(Pages::default()));
    // A name from another, larger table.
    let large = Table::new(9).unwrap();
    let all: Vec<Owner<'_>> = (0..9).map(|_| large.register().unwrap()).collect();
    assert_eq!(table.read(all[8].id()), Err(Gone));
    assert_eq!(table.add_to(all[8].id(), Kind::Anon, 1), Err(Gone));
}

/// Another thread keeps adding to the last named owner while that owner ends.
#[test]
fn what_others_add_reaches_the_owner_they_meant_or_nobody() {
    let table = Table::new(2).unwrap();
    let (name, names) = mpsc::channel::<OwnerId>();
    let accepted = AtomicI64::new(0);
    let mut left = 0;
    std::thread::scope(|scope| {
        let (table, accepted) = (&table, &accepted);
        scope.spawn(move || {
            let mut last = None;
            loop {
                match names.try_recv() {
                    Ok(id) => last = Some(id),
                    Err(mpsc::TryRecvError::Disconnected) => return,
                    Err(mpsc::TryRecvError::Empty) => {}
                }
                if last.is_some_and(|id| table.add_to(id, Kind::Anon, 1).is_ok()) {
                    accepted.fetch_add(1, Relaxed);
                }
            }
        });
        for turn in 0..20_000 {
            let owner = table.register().unwrap();
            name.send(owner.id()).unwrap();
            if turn % 64 == 0 {
                std::thread::yield_now();
            }
            left += owner.unregister().anon;
        }
        drop(name);
    });
    assert_eq!(accepted.into_inner(), left);
}

/// Owner `n` has either nothing or `n` of two kinds; an accepted read returns one of the two.
#[test]
fn a_read_never_mixes_an_owner_with_the_next_of_its_row() {
    in_both_modes("a_read_never_mixes_an_owner_with_the_next_of_its_row", || {
        let table = Table::new(1).unwrap();
        let current: Mutex<Option<(OwnerId, i64)>> = Mutex::new(None);
        let (stop, accepted) = (AtomicBool::new(false), AtomicI64::new(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let Some((id, n)) = *current.lock().unwrap() else { continue };
                    // The owner may end at any moment from here on.
                    for _ in 0..8 {
                        let Ok(read) = table.read(id) else { break };
                        let swap = read.swap == 0 || read.swap == n;
                        let anon = read.anon == 0 || read.anon == n;
                        assert!(swap && anon, "{read:?} of owner {n}");
                        accepted.fetch_add(1, Relaxed);
                    }
                }
            });
            // Until it was read often enough, or was read wrong.
            let goes_on =
                |n: &i64| *n < 40_000 || accepted.load(Relaxed) < 1000 && !reader.is_finished();
            for n in (1..).take_while(goes_on) {
                let owner = table.register().unwrap();
                *current.lock().unwrap() = Some((owner.id(), n));
                owner.add(Kind::Swap, n);
                let owner = owner.share();
                owner.add(Kind::Anon, n);
                assert_eq!(owner.unregister(), pages(0, n, n, 0));
            }
            stop.store(true, Relaxed);
        });
    });
}

/// An owner of either sort, and its expected counts.
enum Either<'t> {
    Single(Owner<'t>),
    Shared(SharedOwner<'t>),
}

impl Either<'_> {
    fn add(&self, kind: Kind, n: i64) {
        match self {
            Either::Single(owner) => owner.add(kind, n),
            Either::Shared(owner) => owner.add(kind, n),
        }
    }

    fn id(&self) -> OwnerId {
        match self {
            Either::Single(owner) => owner.id(),
            Either::Shared(owner) => owner.id(),
        }
    }

    fn unregister(self) -> Pages {
        match self {
            Either::Single(owner) => owner.unregister(),
            Either::Shared(owner) => owner.unregister(),
        }
    }
}

proptest! {
    #![proptest_config(crate::common::cases::few(file!(), 256))]

    #[test]
    fn a_table_holds_what_a_list_of_arrays_holds(
        steps in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), 0usize..4, any::<i32>()), 0..300),
    ) {
        const CAPACITY: u32 = 4;
        let table = Table::new(CAPACITY).unwrap();
        let mut owners: Vec<(Either<'_>, [i64; 4])> = Vec::new();
        let mut gone: Vec<OwnerId> = Vec::new();
        for (step, index, kind, n) in steps {
            if step == 0 || owners.is_empty() {
                match table.register() {
                    Ok(owner) => owners.push((Either::Single(owner), [0; 4])),
                    Err(full) => prop_assert_eq!(full.capacity as usize, owners.len()),
                }
                continue;
            }
            let at = index.index(owners.len());
            match step {
                1 => {
                    let (owner, oracle) = owners.swap_remove(at);
                    gone.push(owner.id());
                    prop_assert_eq!(owner.unregister(), Pages::from(oracle));
                }
                2 => {
                    let (owner, oracle) = owners.swap_remove(at);
                    let owner = match owner {
                        Either::Single(owner) => Either::Shared(owner.share()),
                        shared => shared,
                    };
                    owners.push((owner, oracle));
                }
                3 => {
                    table.add_to(owners[at].0.id(), Kind::ALL[kind], n.into()).unwrap();
                    owners[at].1[kind] += i64::from(n);
                }
                _ => {
                    owners[at].0.add(Kind::ALL[kind], n.into());
                    owners[at].1[kind] += i64::from(n);
                }
            }
            for id in &gone {
                prop_assert_eq!(table.read(*id), Err(Gone));
                prop_assert_eq!(table.add_to(*id, Kind::Anon, 1), Err(Gone));
            }
            for (owner, oracle) in &owners {
                prop_assert_eq!(table.read(owner.id()), Ok(Pages::from(*oracle)));
            }
            prop_assert_eq!(table.owners().count(), owners.len());
        }
    }
}

#[test]
fn updates_past_what_a_word_holds_are_clamped_and_counted() {
    in_both_modes("updates_past_what_a_word_holds_are_clamped_and_counted", || {
        const MOST: i64 = 1 << 46;
        let table = Table::new(2).unwrap();
        let (single, shared) = (table.register().unwrap(), table.register().unwrap().share());
        single.add(Kind::File, i64::MAX);
        shared.add(Kind::File, i64::MIN);
        assert_eq!((single.read().file, shared.read().file), (MOST, -MOST));
        assert_eq!(table.mistakes(), Mistakes { clamped: 2, negative: 0 });
        assert_eq!(shared.read().negative(), Some(Kind::File));
        // The words fill up, then those for others, and then the value is clamped: it never wraps.
        let mut last = (0, 0);
        for _ in 0..300_000 {
            single.add(Kind::Anon, MOST);
            shared.add(Kind::Anon, -MOST);
            let now = (single.read().anon, shared.read().anon);
            assert!(now.0 >= last.0 && now.1 <= last.1, "{last:?}, then {now:?}");
            last = now;
        }
        assert_eq!(last.0, i64::MAX);
        assert!(last.1 <= -(1 << 62), "63 bits a CPU, and 48 for others: {}", last.1);
        assert!(table.mistakes().clamped > 2);
        let end = shared.unregister();
        assert_eq!(end.negative(), Some(Kind::File));
        assert_eq!(table.mistakes().negative, 1);
    });
}

#[test]
fn tables_of_a_size_that_cannot_be_are_refused() {
    for capacity in [0, 1 << 24, u32::MAX] {
        let error = Table::new(capacity).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{capacity}");
    }
    assert_eq!(Table::new((1 << 24) - 1).unwrap().register().unwrap().read(), Pages::default());
    let table = Table::new(1).unwrap();
    let _owner = table.register().unwrap();
    assert_eq!(table.register().unwrap_err().to_string(), "the table is full with 1 owners");
}

static SINGLE: AtomicPtr<Owner<'static>> = AtomicPtr::new(std::ptr::null_mut());
static SHARED: AtomicPtr<SharedOwner<'static>> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicI64 = AtomicI64::new(0);

extern "C" fn adds(_: i32) {
    // SAFETY: both pointers are to leaked owners; the handler runs on the one thread that uses the first.
    unsafe {
        (*SINGLE.load(Relaxed)).add(Kind::Anon, 10);
        (*SHARED.load(Relaxed)).add(Kind::Anon, 10);
    }
    HANDLED.fetch_add(1, Relaxed);
}

#[test]
fn a_signal_handler_adds_between_two_additions_and_nothing_is_lost() {
    let name = "a_signal_handler_adds_between_two_additions_and_nothing_is_lost";
    in_both_modes(name, || {
        let table: &'static Table = Box::leak(Box::new(Table::new(2).unwrap()));
        let single = Box::leak(Box::new(table.register().unwrap()));
        let shared = Box::leak(Box::new(table.register().unwrap().share()));
        SINGLE.store(single, Relaxed);
        SHARED.store(shared, Relaxed);
        // SAFETY: installs a handler that does only async-signal-safe things; names this thread.
        let thread = unsafe {
            libc::signal(libc::SIGUSR1, adds as *const () as usize);
            // It is a number, or with musl an address.
            libc::pthread_self() as usize
        };
        let mut added = 0;
        std::thread::scope(|scope| {
            // To this very thread, since only it uses the single owner.
            let signals = scope.spawn(move || {
                for turn in 1..=300 {
                    // SAFETY: signals a thread that joins this one.
                    let sent =
                        unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR1) };
                    assert_eq!(sent, 0);
                    while HANDLED.load(Relaxed) < turn {
                        std::thread::yield_now();
                    }
                }
            });
            while !signals.is_finished() {
                for _ in 0..1000 {
                    // SAFETY: leaked owners, used only by this thread and its handler.
                    unsafe {
                        (*SINGLE.load(Relaxed)).add(Kind::Anon, 1);
                        (*SHARED.load(Relaxed)).add(Kind::Anon, 1);
                    }
                    added += 1;
                }
            }
        });
        let expected = added + 10 * HANDLED.load(Relaxed);
        let read: Vec<i64> = table.owners().map(|(_, pages)| pages.anon).collect();
        assert_eq!(read, [expected, expected]);
    });
}

#[test]
fn a_forked_child_counts_for_itself() {
    in_both_modes("a_forked_child_counts_for_itself", || {
        let table = Table::new(3).unwrap();
        let (single, shared) = (table.register().unwrap(), table.register().unwrap().share());
        single.add(Kind::Anon, 5);
        std::thread::scope(|scope| {
            scope.spawn(|| shared.add(Kind::Anon, 7));
        });
        shared.add(Kind::Anon, 1);
        let child = fork(|| {
            if (single.read().anon, shared.read().anon) != (5, 8) {
                return 1;
            }
            single.add(Kind::Anon, 100);
            shared.add(Kind::Anon, 100);
            let Ok(own) = table.register() else { return 2 };
            own.add(Kind::File, 1);
            if own.unregister() != pages(1, 0, 0, 0) {
                return 3;
            }
            match (single.read().anon, shared.read().anon) == (105, 108) {
                true => 0,
                false => 4,
            }
        });
        single.add(Kind::Anon, 1);
        assert_eq!(wait(child), 0);
        assert_eq!((single.unregister().anon, shared.unregister().anon), (6, 8));
    });
}
