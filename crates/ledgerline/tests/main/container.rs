//! A ledger that follows its container, in a made-up system of files: the test writes the kernel's numbers.
//! `container_cgroup.rs` has a real cgroup.

use crate::common::{Run, fork, in_both_modes, in_modes, memfd, ran_alone, unique, wait};
use crate::support::{LONG, audited_builder, mistakes};
use ledgerline::container::{Settings, Source, Status, UNTRACKED};
use ledgerline::{Charge, Group, Ledger, LedgerBuilder, Limit, Reason};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A system with one cgroup of version 2.
struct System(PathBuf);

impl System {
    fn new(max: u64, current: u64) -> System {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("ledgerline-container-{}-{number}", std::process::id());
        let system = System(std::env::temp_dir().join(name));
        let mount = "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n";
        system.write("proc/self/mountinfo", mount);
        system.write("proc/self/cgroup", "0::/job\n");
        system.write("cg/job/memory.events", "low 0\nhigh 0\nmax 0\noom 0\n");
        system.write("cg/job/memory.stat", "anon 0\n");
        system.max(max);
        system.current(current);
        system
    }

    /// Replaces a file in one step, as the kernel does, so that no reader sees half of it.
    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        let new = path.with_extension("new");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    fn max(&self, bytes: u64) {
        self.write("cg/job/memory.max", &bytes.to_string());
    }

    fn current(&self, bytes: u64) {
        self.write("cg/job/memory.current", &bytes.to_string());
    }

    fn settings(&self) -> Settings {
        Settings::new().system(&self.0).margin(MIB)
    }

    fn ledger(&self) -> Ledger {
        builder().container_with(self.settings().by_hand()).anonymous().unwrap()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn builder() -> LedgerBuilder {
    Ledger::builder().capacity(64)
}

/// Takes one sample. No units lie idle, so that the sums are exact.
fn once(ledger: &Ledger) -> Status {
    ledger.root().drain();
    ledger.update_container().expect("it has a container")
}

/// Takes samples until the held untracked memory is forgotten, and the row has the number of the last sample.
fn update(ledger: &Ledger) -> Status {
    let mut now = None;
    until("what was untracked is forgotten", || {
        let status = once(ledger);
        let tracked = ledger.root().precise() - row(ledger).precise();
        let holds =
            status.kernel.is_none_or(|kernel| status.untracked == kernel.saturating_sub(tracked));
        now = Some(status);
        holds
    });
    now.expect("there was one")
}

fn row(ledger: &Ledger) -> Group<'_> {
    ledger.root().child(UNTRACKED).expect("the container's row")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what} did not come to hold");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the number of threads of this process that follow a container.
fn followers() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    // The alarms' thread stays.
    let own =
        |name: &String| name.starts_with("ledgerline") && !name.starts_with("ledgerline-alar");
    names.filter(own).count()
}

#[test]
fn the_roots_max_is_the_kernels_limit_less_the_margin_also_when_that_changes() {
    in_both_modes(
        "the_roots_max_is_the_kernels_limit_less_the_margin_also_when_that_changes",
        || {
            let system = System::new(64 * MIB, 0);
            let ledger = system.ledger();
            let root = ledger.root();
            assert_eq!(root.max(), Limit::units(63 * MIB));
            let now = ledger.container().unwrap();
            assert_eq!(now.limit.unwrap().source, Source::Max(system.0.join("cg/job")));

            system.write("cg/job/memory.high", &(32 * MIB).to_string());
            let now = update(&ledger);
            assert_eq!((now.max, root.max()), (Limit::units(31 * MIB), Limit::units(31 * MIB)));
            assert_eq!(now.limit.unwrap().source, Source::High(system.0.join("cg/job")));

            // A limit below the usage applies at once, and the usage stays.
            let query = root.create("q").unwrap();
            let held = query.try_charge(30 * MIB).unwrap();
            system.current(30 * MIB);
            system.max(16 * MIB);
            update(&ledger);
            assert_eq!(root.max(), Limit::units(15 * MIB));
            let refused = query.try_charge(1).unwrap_err();
            assert_eq!((&*refused.group, refused.reason), ("/", Reason::Limit));
            drop(held);
            update(&ledger);
            assert!(query.try_charge(14 * MIB).is_err(), "the kernel has not got it back yet");
            system.current(0);
            update(&ledger);
            assert!(query.try_charge(14 * MIB).is_ok());

            system.write("cg/job/memory.high", "max");
            system.write("cg/job/memory.max", "max");
            update(&ledger);
            assert_eq!(root.max(), Limit::MAX);
            assert_eq!(ledger.container().unwrap().limit, None);
            assert_eq!(mistakes(&ledger), [0; 3]);
        },
    );
}

#[test]
fn what_the_kernel_charges_and_nobody_charged_takes_room_from_the_others() {
    in_both_modes("what_the_kernel_charges_and_nobody_charged_takes_room_from_the_others", || {
        let system = System::new(65 * MIB, 10 * MIB);
        let ledger = system.ledger();
        let (root, row) = (ledger.root(), row(&ledger));
        assert_eq!((row.precise(), root.precise()), (10 * MIB, 10 * MIB));
        let query = root.create("q").unwrap();
        let held = query.try_charge(20 * MIB).unwrap();

        // Charged and not touched yet: untracked memory is hidden.
        let now = update(&ledger);
        assert_eq!((now.untracked, now.untouched, row.precise()), (0, 10 * MIB, 0));
        // Touched, beside untracked memory.
        system.current(50 * MIB);
        let now = update(&ledger);
        assert_eq!((now.untracked, now.untouched), (30 * MIB, 0));
        assert_eq!((row.precise(), root.precise()), (30 * MIB, 50 * MIB));
        let refused = query.try_charge(15 * MIB).unwrap_err();
        assert_eq!(refused.to_string(), "/ is full: 15.0M requested, 50.0M of max 64.0M in use");
        assert!(query.try_charge(14 * MIB).is_ok());

        // Page cache does not count beyond a sixteenth of the limit.
        const CACHE: u64 = 65 * MIB / 16;
        system.write(
            "cg/job/memory.stat",
            &format!("inactive_file {}\nactive_file 0", CACHE + 25 * MIB),
        );
        assert_eq!(update(&ledger).untracked, 5 * MIB);
        assert_eq!(root.precise(), 25 * MIB);
        // More than the limit allows is still charged, and leaves no room for others.
        system.current(95 * MIB);
        assert_eq!(update(&ledger).untracked, 50 * MIB);
        assert_eq!(root.precise(), 70 * MIB);
        assert!(query.try_charge(1).is_err());
        drop(held);
        assert_eq!(row.precise(), 50 * MIB);
        assert_eq!(mistakes(&ledger), [0; 3]);
    });
}

#[test]
fn the_threads_follow_what_changes_and_end_with_the_ledger() {
    in_both_modes("the_threads_follow_what_changes_and_end_with_the_ledger", || {
        let system = System::new(64 * MIB, MIB);
        for round in 0..20 {
            let ledger = builder().container_with(system.settings()).anonymous().unwrap();
            until("both threads", || followers() == 2);
            if round == 0 {
                system.current(9 * MIB);
                until("the row", || row(&ledger).precise() == 9 * MIB);
                system.max(32 * MIB);
                until("the limit", || ledger.root().max() == Limit::units(31 * MIB));
                // The old number is held for a moment, and then dropped.
                system.current(2 * MIB);
                until("the row's fall", || row(&ledger).precise() == 2 * MIB);
                // Moved to another cgroup.
                system.write("cg/other/memory.max", &(8 * MIB).to_string());
                system.write("cg/other/memory.current", "0");
                system.write("proc/self/cgroup", "0::/other\n");
                until("the other cgroup", || ledger.root().max() == Limit::units(7 * MIB));
                let told = || ledger.container().unwrap().watched.join("; ");
                until("its events", || told().contains("cg/other/memory.events"));
            }
            drop(ledger);
            // The thread is joined, so it is gone with the ledger, except for the kernel's last step.
            until("no thread", || followers() == 0);
        }
    });
}

/// Creates a cache of so many MiB, and its reclaimer.
fn cache(ledger: &Ledger, mib: u64) -> (Arc<Mutex<Vec<u64>>>, Group<'_>) {
    let group = ledger.root().create("cache").unwrap();
    let pages = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..mib {
        group.try_charge_units(MIB).unwrap();
        pages.lock().unwrap().push(MIB);
    }
    (pages, group)
}

#[test]
fn when_memory_is_short_the_reclaimers_are_asked() {
    in_both_modes("when_memory_is_short_the_reclaimers_are_asked", || {
        let system = System::new(65 * MIB, 0);
        let ledger: &'static Ledger = Box::leak(Box::new(system.ledger()));
        let (pages, group) = cache(ledger, 40);
        let evict = pages.clone();
        let asked = Arc::new(AtomicU64::new(0));
        let wanted = asked.clone();
        let _reclaimer = group.add_reclaimer(0, move |need| {
            wanted.fetch_add(need, Relaxed);
            let mut freed = 0;
            while freed < need
                && let Some(page) = evict.lock().unwrap().pop()
            {
                group.uncharge_units(page);
                freed += page;
            }
            freed
        });
        system.current(40 * MIB);
        once(ledger);
        assert_eq!((asked.load(Relaxed), group.precise()), (0, 40 * MIB), "there is room");

        // The row takes the root 6 MiB above its max: the cache gives way without any charge.
        system.current(70 * MIB);
        let now = once(ledger);
        assert_eq!((asked.load(Relaxed), group.precise()), (6 * MIB, 34 * MIB));
        assert_eq!((now.reclaimed, now.pressure), (6 * MIB, 0));
        system.current(34 * MIB);
        once(ledger);
        assert_eq!(asked.load(Relaxed), 6 * MIB);

        // The kernel reports that the cgroup met its high: the margin is requested.
        system.write("cg/job/memory.events", "low 0\nhigh 3\nmax 0\noom 0\n");
        let now = once(ledger);
        assert_eq!((now.pressure, now.reclaimed), (1, 7 * MIB));
        assert_eq!(group.precise(), 33 * MIB);
        assert_eq!(once(ledger).pressure, 1, "once for each time");
        // A program may also ask by itself.
        assert_eq!(ledger.root().reclaim(3 * MIB), 3 * MIB);
        assert_eq!(group.precise(), 30 * MIB);
    });
}

#[test]
fn whoever_gives_memory_back_to_the_kernel_may_say_so_from_a_reclaimer() {
    in_both_modes("whoever_gives_memory_back_to_the_kernel_may_say_so_from_a_reclaimer", || {
        let system = Arc::new(System::new(65 * MIB, 60 * MIB));
        let ledger: &'static Ledger = Box::leak(Box::new(system.ledger()));
        let row = row(ledger);
        let files = system.clone();
        let _reclaimer = row.add_reclaimer(-1, move |_need| {
            // Memory that the allocator kept.
            ledger.release_untracked(|| files.current(20 * MIB))
        });
        let query = ledger.root().create(&unique("q")).unwrap();
        let held = query.try_charge(30 * MIB).unwrap();
        assert_eq!((row.precise(), ledger.root().precise()), (20 * MIB, 50 * MIB));
        drop(held);
    });
}

#[test]
fn the_smaller_of_the_kernels_limit_and_the_programs_holds_less_the_reserve() {
    let system = System::new(65 * MIB, 0);
    let ledger = |settings: Settings| {
        builder().container_with(settings.by_hand()).anonymous().unwrap().root().max()
    };
    let mib = |mib: u64| Limit::units(mib * MIB);
    assert_eq!(ledger(system.settings().at_most(mib(70))), mib(64));
    assert_eq!(ledger(system.settings().at_most(mib(20))), mib(20));
    assert_eq!(ledger(system.settings().at_most(mib(20)).reserve(MIB)), mib(19));
    assert_eq!(ledger(system.settings().reserve(2 * MIB)), mib(62));
    let none = Settings::new().system("/nonexistent");
    assert_eq!(ledger(none.clone()), Limit::MAX);
    assert_eq!(ledger(none.at_most(mib(3))), mib(3));
}

#[test]
fn the_limit_that_leaves_the_least_room_binds_each_by_its_own_measure() {
    let system = System::new(65 * MIB, 4 * MIB);
    // A larger limit further up, below which others use more.
    system.write("cg/memory.max", &(100 * MIB).to_string());
    system.write("cg/memory.current", &(80 * MIB).to_string());
    let ledger = system.ledger();
    let now = ledger.container().unwrap();
    assert_eq!(now.limit.unwrap().source, Source::Max(system.0.join("cg")));
    assert_eq!((now.max, now.untracked), (Limit::units(99 * MIB), 80 * MIB));
    // The others free memory.
    system.write("cg/memory.current", &(9 * MIB).to_string());
    let now = update(&ledger);
    assert_eq!(now.limit.unwrap().source, Source::Max(system.0.join("cg/job")));
    assert_eq!((now.max, now.untracked), (Limit::units(64 * MIB), 4 * MIB));
    assert_eq!(ledger.root().precise(), 4 * MIB);
}

#[test]
fn a_limit_of_each_process_does_not_bind_a_ledger_of_several() {
    let system = System::new(65 * MIB, 4 * MIB);
    system.write("proc/self/limits", "Max address space 33554432 33554432 bytes\n");
    system.write("proc/self/statm", "0 0 0 0 0 0 0\n");
    system.write("proc/meminfo", &format!("MemTotal: {} kB\n", 48 * 1024));
    let source = |ledger: &Ledger| ledger.container().unwrap().limit.unwrap().source;
    assert_eq!(source(&system.ledger()), Source::AddressSpace);
    let settings = system.settings().by_hand();
    let ledger = builder().container_with(settings).create_in(&memfd()).unwrap();
    assert_eq!(source(&ledger), Source::Machine);
    assert_eq!(ledger.container().unwrap().kernel, None, "nobody knows what they all have");
}

#[test]
fn an_audit_finds_nothing_wrong_with_the_row() {
    in_both_modes("an_audit_finds_nothing_wrong_with_the_row", || {
        let system = System::new(64 * MIB, 0);
        let ledger =
            audited_builder().container_with(system.settings().by_hand()).anonymous().unwrap();
        for mib in [3, 9, 1, 0, 5, 2, 70, 1] {
            system.current(mib * MIB);
            update(&ledger);
            assert_eq!(row(&ledger).precise(), mib * MIB);
        }
        assert_eq!(mistakes(&ledger), [0; 3]);
        assert!(ledger.audit_report().wrong.is_empty());
    });
}

#[test]
fn a_row_that_the_program_destroyed_is_missed_by_nobody() {
    let system = System::new(64 * MIB, 5 * MIB);
    let ledger = system.ledger();
    assert_eq!(row(&ledger).destroy().unwrap().leftover, 5 * MIB);
    system.current(9 * MIB);
    system.max(32 * MIB);
    once(&ledger);
    assert_eq!(ledger.root().max(), Limit::units(31 * MIB));
    system.current(0);
    until("its charge's end", || {
        once(&ledger);
        ledger.root().precise() == 0
    });
}

#[test]
fn a_forked_child_goes_on_without_the_threads() {
    in_modes("a_forked_child_goes_on_without_the_threads", &[Run::Natural], || {
        let system = System::new(64 * MIB, 5 * MIB);
        for _ in 0..10 {
            let ledger = builder().container_with(system.settings()).anonymous().unwrap();
            let mut ledger = Some(ledger);
            let child = fork(|| {
                let ledger = ledger.take().unwrap();
                let samples = ledger.container().unwrap().samples;
                let later = ledger.update_container().unwrap();
                let held = ledger.root().try_charge(MIB).is_ok();
                // It ends here, without threads to join.
                drop(ledger);
                i32::from(!(held && later.samples == samples))
            });
            assert_eq!(wait(child), 0);
        }
    });
}

#[test]
fn the_last_share_may_be_dropped_by_a_reclaimer_that_a_thread_of_it_runs() {
    let name = "the_last_share_may_be_dropped_by_a_reclaimer_that_a_thread_of_it_runs";
    in_both_modes(name, || {
        let system = System::new(64 * MIB, 0);
        let ledger = builder().container_with(system.settings()).anonymous().unwrap();
        let ledger = Arc::new(ledger);
        let group = ledger.owned_root().create("cache").unwrap();
        let held = group.try_charge(MIB).unwrap();
        let shares = Arc::new(Mutex::new(Some((ledger.clone(), held, group.clone()))));
        let done = Arc::new(AtomicU32::new(0));
        let (theirs, told) = (shares.clone(), done.clone());
        std::mem::forget(group.group().add_reclaimer(0, move |_| {
            until("no other share", || {
                theirs.lock().unwrap().as_ref().is_some_and(|it| Arc::strong_count(&it.0) == 3)
            });
            drop(theirs.lock().unwrap().take());
            told.store(1, Relaxed);
            MIB
        }));
        drop((ledger, group));
        // Above its max: the thread asks.
        system.current(80 * MIB);
        until("the last share's end", || done.load(Relaxed) == 1);
        until("both threads' end", || followers() == 0);
    });
}

#[test]
fn this_very_process_is_followed_as_it_is() {
    if ran_alone("this_very_process_is_followed_as_it_is") {
        return;
    }
    let ledger = Ledger::builder().container().anonymous().unwrap();
    let now = ledger.container().unwrap();
    assert!(now.limit.is_some() && now.untracked > 0 && now.kernel > Some(0), "{now:?}");
    assert_eq!(row(&ledger).precise(), now.untracked);
    let charge: Charge<'_> = ledger.root().try_charge(1).unwrap();
    drop(charge);
    assert!(Path::new("/proc/self/task").exists());
}
