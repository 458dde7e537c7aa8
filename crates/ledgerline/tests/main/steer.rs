//! Limits that another thread or process sets: the notifications, the permissions, and the counts.

use crate::common::{fork, in_both_modes, ran_alone, wait};
use crate::support::LONG;
use ledgerline::{Charge, Events, Group, Ledger, Limit, OpenError, SetMaxError};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn memfd() -> File {
    // SAFETY: creates a new file; the name is NUL-terminated.
    unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let file = libc::memfd_create(c"ledger".as_ptr(), flags);
        assert!(file >= 0);
        File::from_raw_fd(file)
    }
}

/// Runs a closure in another process, which opens the ledger anew. The exit code shows whether it did not panic.
fn elsewhere(file: &File, act: impl FnOnce(&Ledger)) -> libc::pid_t {
    // SAFETY: the child makes plain calls and ends without returning.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let ledger = Ledger::open_in(file).unwrap();
                act(&ledger);
            }));
            libc::_exit(i32::from(ended.is_err()));
        }
        assert!(child > 0);
        child
    }
}

fn ended_well(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: waits for a child of this test.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the other process failed");
}

fn done_elsewhere(file: &File, act: impl FnOnce(&Ledger)) {
    ended_well(elsewhere(file, act));
}

fn limits(events: Option<Events>) -> Option<u64> {
    events.map(|events| events.limits)
}

#[test]
fn a_limit_that_is_set_counts_and_wakes_where_the_ledger_is_one_programs_own() {
    in_both_modes(
        "a_limit_that_is_set_counts_and_wakes_where_the_ledger_is_one_programs_own",
        || {
            let ledger = Ledger::new().unwrap();
            let tenant = ledger.root().create("tenant").unwrap();
            let query = tenant.create("query").unwrap();
            let other = ledger.root().create("other").unwrap();
            let [watch, others] = [tenant, other].map(|group| group.watch().unwrap());
            for (turn, set) in [
                |group: Group<'_>| group.set_max(Limit::units(900)).unwrap(),
                |group: Group<'_>| assert_eq!(group.set_max_now(Limit::units(800)), Ok(0)),
                |group: Group<'_>| group.set_high(Limit::units(700)),
                |group: Group<'_>| group.set_low(Limit::units(20)),
                |group: Group<'_>| group.set_min(Limit::units(10)),
            ]
            .into_iter()
            .enumerate()
            {
                std::thread::scope(|scope| drop(scope.spawn(|| set(query))));
                assert_eq!(limits(watch.wait(Some(LONG)).unwrap()), Some(turn as u64 + 1));
                set(query);
                assert_eq!(watch.look(), None, "it is what it was");
            }
            assert_eq!(others.look(), None);
            assert_eq!((query.local_events().limits, tenant.local_events().limits), (5, 0));
            // The counts of a group that is gone stay above it.
            query.destroy().unwrap();
            let next = tenant.create("next").unwrap();
            assert_eq!((next.events().limits, tenant.events().limits), (0, 5));
            assert_eq!(ledger.root().events().limits, 5);
        },
    );
}

#[test]
fn another_process_wakes_the_watches_of_the_group_and_those_above_and_no_other() {
    in_both_modes(
        "another_process_wakes_the_watches_of_the_group_and_those_above_and_no_other",
        || {
            let file = memfd();
            let ledger = Ledger::builder().create_in(&file).unwrap();
            let tenant = ledger.root().create("tenant").unwrap();
            let query = tenant.create("query").unwrap();
            let other = ledger.root().create("other").unwrap();
            tenant.set_low(Limit::units(1));
            let [root, above, own, beside] =
                [ledger.root(), tenant, query, other].map(|group| group.watch().unwrap());
            // A limit set before the watch is not reported.
            std::thread::sleep(Duration::from_millis(30));
            assert!([&root, &above, &own, &beside].iter().all(|watch| watch.look().is_none()));
            done_elsewhere(&file, |ledger| {
                let query = ledger.find("/tenant/query").unwrap();
                query.set_high(Limit::units(1000));
            });
            assert_eq!(limits(own.wait(Some(LONG)).unwrap()), Some(1));
            assert_eq!(limits(above.wait(Some(LONG)).unwrap()), Some(2));
            assert_eq!(limits(root.wait(Some(LONG)).unwrap()), Some(2));
            // A thread of this process notifies, too, once.
            query.set_max(Limit::units(5000)).unwrap();
            assert_eq!(limits(own.wait(Some(LONG)).unwrap()), Some(2));
            query.set_max(Limit::units(5000)).unwrap();
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!((limits(own.look()), limits(beside.look())), (None, None));
        },
    );
}

#[test]
fn no_change_of_many_is_lost_whoever_makes_it() {
    if ran_alone("no_change_of_many_is_lost_whoever_makes_it") {
        return;
    }
    const EACH: u64 = 300;
    let file = memfd();
    let ledger = Ledger::builder().create_in(&file).unwrap();
    let group = ledger.root().create("group").unwrap();
    let watch = ledger.root().watch().unwrap();
    let change = |group: Group<'_>, which: u64| {
        for turn in 1..=EACH {
            match which {
                0 => group.set_max(Limit::units(1000 + turn)).unwrap(),
                1 => group.set_high(Limit::units(turn)),
                _ => group.set_low(Limit::units(turn)),
            }
            if turn % 50 == 0 {
                std::thread::sleep(Duration::from_millis(6));
            }
        }
    };
    let others =
        [0, 1].map(|which| elsewhere(&file, move |it| change(it.find("/group").unwrap(), which)));
    std::thread::scope(|scope| {
        scope.spawn(|| change(group, 2));
        let mut seen = 0;
        while seen < 3 * EACH {
            let now = watch.wait(Some(LONG)).unwrap().expect("a change was lost").limits;
            // A look may see a change before the look that the change ends.
            assert!(now >= seen, "{now} after {seen}");
            seen = now;
        }
        assert_eq!(seen, 3 * EACH);
    });
    others.into_iter().for_each(ended_well);
    std::thread::sleep(Duration::from_millis(30));
    assert!(limits(watch.look()).is_none_or(|limits| limits == 3 * EACH));
    assert_eq!(watch.look(), None);
}

#[test]
fn a_task_that_waits_for_events_hears_of_a_limit() {
    if ran_alone("a_task_that_waits_for_events_hears_of_a_limit") {
        return;
    }
    use std::future::Future;
    use std::task::{Context, Poll, Wake};
    struct Told(std::sync::mpsc::SyncSender<()>);
    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            let _ = self.0.try_send(());
        }
    }
    let file = memfd();
    let ledger = Ledger::builder().create_in(&file).unwrap();
    let watch = ledger.root().watch().unwrap();
    let (sender, told) = std::sync::mpsc::sync_channel(1);
    let waker = Arc::new(Told(sender)).into();
    let mut context = Context::from_waker(&waker);
    let mut changed = std::pin::pin!(watch.changed());
    assert!(changed.as_mut().poll(&mut context).is_pending());
    done_elsewhere(&file, |ledger| ledger.root().set_min(Limit::units(3)));
    told.recv_timeout(LONG).unwrap();
    let Poll::Ready(events) = changed.as_mut().poll(&mut context) else { panic!("woken early") };
    assert_eq!(events.limits, 1);
}

#[test]
fn reclaimers_are_asked_when_another_process_sets_a_max_below_what_is_in_use() {
    if ran_alone("reclaimers_are_asked_when_another_process_sets_a_max_below_what_is_in_use") {
        return;
    }
    let file = memfd();
    let ledger = Box::leak(Box::new(Ledger::builder().create_in(&file).unwrap()));
    let tenant = ledger.root().create("tenant").unwrap();
    let cache = tenant.create("cache").unwrap();
    let pages: Arc<Mutex<Vec<Charge<'static>>>> = Arc::default();
    let made: Vec<_> = (0..10).map(|_| cache.try_charge(100).unwrap()).collect();
    pages.lock().unwrap().extend(made);
    let (evict, asked) = (pages.clone(), Arc::new(AtomicU64::new(0)));
    let asks = asked.clone();
    let _reclaimer = cache.add_reclaimer(0, move |need| {
        asks.fetch_add(1, SeqCst);
        let mut freed = 0;
        while let Some(page) = (freed < need).then(|| evict.lock().unwrap().pop()).flatten() {
            freed += page.units();
        }
        freed
    });
    // `set_max` refuses there, since that process has no reclaimers.
    done_elsewhere(&file, |ledger| {
        let tenant = ledger.find("/tenant").unwrap();
        assert!(matches!(tenant.set_max(Limit::units(400)), Err(SetMaxError::Busy { .. })));
    });
    assert_eq!((tenant.max(), asked.load(SeqCst)), (Limit::MAX, 0));
    done_elsewhere(&file, |ledger| {
        ledger.find("/tenant").unwrap().set_max_now(Limit::units(400)).unwrap();
    });
    let start = Instant::now();
    while tenant.precise() > 400 {
        assert!(start.elapsed() < LONG, "nobody was asked");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((tenant.precise(), pages.lock().unwrap().len()), (400, 4));
    // For a limit that this process sets, it reclaims itself, once.
    let runs = asked.load(SeqCst);
    assert_eq!(tenant.set_max_now(Limit::units(300)), Ok(0));
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(asked.load(SeqCst), runs + 1);
}

#[test]
fn only_its_maker_sets_limits_of_a_ledger_that_says_so() {
    if ran_alone("only_its_maker_sets_limits_of_a_ledger_that_says_so") {
        return;
    }
    let file = memfd();
    let ledger = Ledger::builder().steerable(false).create_in(&file).unwrap();
    let group = ledger.root().create("group").unwrap();
    group.set_max(Limit::units(1000)).unwrap();
    assert!(ledger.is_steerable());
    done_elsewhere(&file, |ledger| {
        assert!(!ledger.is_steerable());
        let group = ledger.find("/group").unwrap();
        assert_eq!(group.set_max(Limit::units(5)), Err(SetMaxError::ReadOnly));
        assert_eq!(group.set_max_now(Limit::units(5)), Err(SetMaxError::ReadOnly));
        group.set_high(Limit::units(5));
        group.set_low(Limit::units(5));
        group.set_min(Limit::units(5));
        let text = SetMaxError::ReadOnly.to_string();
        assert!(text.contains("made the ledger"), "{text}");
    });
    assert_eq!((group.max(), group.high()), (Limit::units(1000), Limit::MAX));
    assert_eq!((group.low(), group.min(), group.events().limits), (Limit::ZERO, Limit::ZERO, 1));
    group.set_max(Limit::units(2000)).unwrap();
    // Without that setting, any process that may write the file sets limits.
    let open = memfd();
    let _ledger = Ledger::builder().create_in(&open).unwrap();
    done_elsewhere(&open, |ledger| assert!(ledger.is_steerable()));
}

#[test]
fn a_file_that_may_only_be_read_says_so() {
    let file = memfd();
    let ledger = Ledger::builder().steerable(false).create_in(&file).unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    assert!(matches!(Ledger::open_in(&read_only), Err(OpenError::ReadOnly)));
    // SAFETY: a plain call on a descriptor of this test.
    let sealed =
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
    assert_eq!(sealed, 0);
    assert!(matches!(Ledger::open_in(&file), Err(OpenError::ReadOnly)));
    ledger.root().set_max(Limit::units(10)).unwrap();
    assert!(ledger.root().try_charge(11).is_err());
}

/// Waits until so many threads listen. A thread that is started or joined gets or loses its name a little later.
fn listeners(wanted: usize) {
    let count = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()
        };
        threads.filter_map(name).filter(|name| name.trim_end() == "ledgerline-hear").count()
    };
    let start = Instant::now();
    while count() != wanted {
        assert!(start.elapsed() < LONG, "{} threads listen and not {wanted}", count());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn one_thread_listens_from_the_first_watch_to_the_last_and_none_without_a_file() {
    in_both_modes(
        "one_thread_listens_from_the_first_watch_to_the_last_and_none_without_a_file",
        || {
            let own = Ledger::new().unwrap();
            let _watch = own.root().watch().unwrap();
            listeners(0);
            let file = memfd();
            let ledger = Ledger::builder().create_in(&file).unwrap();
            for _ in 0..3 {
                let first = ledger.root().watch().unwrap();
                let second = ledger.root().watch().unwrap();
                let reclaimer = ledger.root().add_reclaimer(0, |_| 0);
                listeners(1);
                drop((first, reclaimer));
                listeners(1);
                drop(second);
                listeners(0);
            }
        },
    );
}

#[test]
fn a_ledger_may_go_whose_watch_was_forgotten() {
    in_both_modes("a_ledger_may_go_whose_watch_was_forgotten", || {
        let file = memfd();
        for _ in 0..20 {
            let ledger = Ledger::open_in(&file)
                .or_else(|_| Ledger::builder().capacity(8).create_in(&file))
                .unwrap();
            std::mem::forget(ledger.root().watch().unwrap());
            listeners(1);
            drop(ledger);
            listeners(0);
        }
    });
}

#[test]
fn a_forked_child_listens_for_watches_of_its_own() {
    if ran_alone("a_forked_child_listens_for_watches_of_its_own") {
        return;
    }
    let file = memfd();
    let ledger = Ledger::builder().create_in(&file).unwrap();
    let inherited = ledger.root().watch().unwrap();
    // SAFETY: the child makes plain calls and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process, should it hang.
        unsafe { libc::alarm(110) };
        let heard = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(inherited);
            let watch = ledger.root().watch().unwrap();
            done_elsewhere(&file, |ledger| ledger.root().set_high(Limit::units(9)));
            assert_eq!(limits(watch.wait(Some(LONG)).unwrap()), Some(1));
            drop(watch);
        }));
        // SAFETY: ends the child here.
        unsafe { libc::_exit(i32::from(heard.is_err())) };
    }
    ended_well(child);
    assert_eq!(limits(inherited.wait(Some(LONG)).unwrap()), Some(1));
}

/// Another program repeatedly writes over the word on which the thread sleeps.
#[test]
fn a_word_that_is_written_over_delays_and_tells_of_nothing() {
    use std::os::unix::fs::FileExt;
    let file = memfd();
    let ledger = Ledger::builder().create_in(&file).unwrap();
    let group = ledger.root().create("group").unwrap();
    let watch = group.watch().unwrap();
    let mut header = [0; 4096];
    file.read_exact_at(&mut header, 0).unwrap();
    group.set_low(Limit::units(1));
    assert_eq!(limits(watch.wait(Some(LONG)).unwrap()), Some(1));
    let mut now = [0; 4096];
    file.read_exact_at(&mut now, 0).unwrap();
    let places: Vec<u64> = (0..4096u64)
        .step_by(4)
        .filter(|&at| header[at as usize..][..4] != now[at as usize..][..4])
        // The header's counts lie behind its words for rows and transfers.
        .filter(|&at| at >= 512)
        .collect();
    assert!((1..=2).contains(&places.len()), "the count alone has changed: {places:?}");
    let word = places[0];
    for value in [0u32, u32::MAX, 0x8000_0000, 7] {
        // The sleepers, too.
        for at in [word, word + 4] {
            file.write_all_at(&value.to_le_bytes(), at).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(watch.wait(Some(Duration::from_millis(50))).unwrap(), None);
    group.set_low(Limit::units(2));
    assert_eq!(limits(watch.wait(Some(LONG)).unwrap()), Some(2));
}

#[test]
fn a_forked_child_ends_a_ledger_whose_watches_its_parent_hears_by_a_thread() {
    const NAME: &str = "a_forked_child_ends_a_ledger_whose_watches_its_parent_hears_by_a_thread";
    in_both_modes(NAME, || {
        let file = memfd();
        let ledger = Ledger::builder().capacity(8).create_in(&file).unwrap();
        let tenant = ledger.root().create("tenant").unwrap();
        let watch = tenant.watch().unwrap();
        // SAFETY: the child ends the ledger like the parent, and never returns to code that borrows it.
        let child = fork(|| unsafe {
            drop(std::ptr::read(&raw const ledger));
            0
        });
        assert_eq!(wait(child), 0, "it waits for no thread that it does not have");
        tenant.set_max(Limit::units(5)).unwrap();
        let heard = watch.wait(Some(LONG)).unwrap();
        assert_eq!(limits(heard), Some(1), "the parent's thread goes on");
    });
}
