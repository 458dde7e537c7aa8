//! Futures wait: they are served in order, may be dropped at any time, and are woken by units, by events and by time.

use crate::common::{Random, in_both_modes, ran_alone, times, unique};
use crate::support::tasks::{Crowd, block_on};
use crate::support::{LONG, limited};
use ledgerline::{Charge, Group, GroupId, Ledger, Mistakes, Reason, Requested};
use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

/// Longer than a test waits for a task: a task that only its timeout wakes fails the test.
const FOREVER: Duration = LONG.saturating_mul(10);

/// A task that waits in a queue.
type Waiting<'l> = std::pin::Pin<Box<ledgerline::Requested<'l>>>;

#[test]
fn no_task_is_forgotten_among_tasks_and_threads() {
    in_both_modes("no_task_is_forgotten_among_tasks_and_threads", || {
        const MAX: u64 = 1000;
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", MAX);
        let granted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..8u64 {
                let (tenant, granted) = (&tenant, &granted);
                scope.spawn(move || {
                    let query = limited(*tenant, "query", 600);
                    for round in 0..times(500, 50_000) {
                        let units = 1 + (round * 7919 + number * 104_729) % 600;
                        let request = query.request(units).wait(LONG);
                        let charge = if number % 3 == 0 {
                            request.charge().expect("a thread was forgotten")
                        } else {
                            block_on(request.into_future()).expect("a task was forgotten")
                        };
                        let in_use = granted.fetch_add(units, SeqCst) + units;
                        assert!(in_use <= MAX, "{in_use}");
                        if round % 8 == 0 {
                            std::thread::yield_now();
                        }
                        granted.fetch_sub(units, SeqCst);
                        drop(charge);
                    }
                    query.destroy().unwrap();
                });
            }
        });
        assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

#[test]
fn tasks_are_served_in_the_order_in_which_they_came_and_one_that_is_dropped_is_passed() {
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
    let tenant = limited(ledger.root(), "tenant", 100);
    let all = tenant.try_charge(100).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut polled = |units| {
        let mut request = Box::pin(tenant.request(units).wait(LONG).into_future());
        assert!(request.as_mut().poll(&mut context).is_pending());
        request
    };
    let (first, second, third) = (polled(60), polled(100), polled(10));
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let serve = |number: u32, request: Waiting<'static>| {
            let served = &served;
            scope.spawn(move || {
                let charge = block_on(request);
                served.lock().unwrap().push((number, charge.is_ok()));
                std::thread::sleep(Duration::from_millis(20));
                drop(charge);
            })
        };
        // The first gives up: those behind it are not held up by it.
        drop(first);
        let third = serve(3, third);
        let second = serve(2, second);
        std::thread::sleep(Duration::from_millis(50));
        assert!(served.lock().unwrap().is_empty());
        drop(all);
        second.join().unwrap();
        third.join().unwrap();
    });
    assert_eq!(served.into_inner().unwrap(), [(2, true), (3, true)]);
    assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

#[test]
fn a_task_is_refused_when_its_time_is_up_or_no_waiting_helps() {
    let ledger = Ledger::new().unwrap();
    let tenant = limited(ledger.root(), "tenant", 100);
    let all = tenant.try_charge(100).unwrap();
    let start = Instant::now();
    let patience = Duration::from_millis(60);
    let refused = block_on(tenant.request(1).wait(patience).into_future()).unwrap_err();
    assert!(start.elapsed() >= patience);
    assert_eq!((refused.reason, refused.limit), (Reason::Limit, 100));
    let never = block_on(tenant.request(101).wait(LONG).into_future()).unwrap_err();
    assert_eq!(never.requested, 101);
    let at_once = block_on(tenant.request(1).into_future()).unwrap_err();
    assert_eq!(at_once.usage, 100);
    // The group ends during the wait.
    let part = tenant.create("part").unwrap();
    let gone = std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| block_on(part.request(1).wait(LONG).into_future()).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        part.destroy().unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(gone.reason, Reason::Gone);
    drop(all);
    // A future that is never polled charges nothing and holds up no other.
    drop(tenant.request(100).wait(LONG).into_future());
    block_on(tenant.request(100).wait(LONG).into_future()).map(drop).unwrap();
}

#[test]
fn a_task_that_watches_sees_the_count_that_woke_it() {
    in_both_modes("a_task_that_watches_sees_the_count_that_woke_it", || {
        let rounds = times(500, 50_000);
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 1000);
        let query = limited(tenant, "query", 10);
        let told = AtomicU64::new(0);
        let watch = tenant.watch().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    query.try_charge_units(11).unwrap_err();
                    let end = Instant::now() + LONG;
                    while told.load(SeqCst) < round {
                        assert!(Instant::now() < end, "the task was not woken");
                        std::hint::spin_loop();
                    }
                }
            });
            for round in 1..=rounds {
                let events = block_on(watch.changed());
                assert_eq!(events.max, round);
                told.store(round, SeqCst);
            }
        });
    });
}

/// Creates so many groups with room for one unit, each of which is taken.
fn full_groups(ledger: &Ledger, count: usize) -> Vec<(Group<'_>, Option<Charge<'_>>)> {
    let full = |_| {
        let group = limited(ledger.root(), "group", 1);
        (group, Some(group.try_charge(1).unwrap()))
    };
    (0..count).map(full).collect()
}

#[test]
fn ten_thousand_groups_have_waiting_tasks_and_all_are_served() {
    in_both_modes("ten_thousand_groups_have_waiting_tasks_and_all_are_served", || {
        let ledger = Ledger::new().unwrap();
        let mut groups = full_groups(&ledger, 10_000);
        let mut crowd = Crowd::new();
        for (group, _) in &groups {
            crowd.add(group.request(1).wait(FOREVER));
        }
        let mut random = Random::new(1);
        for place in (1..groups.len()).rev() {
            groups.swap(place, random.below(place as u64 + 1) as usize);
        }
        let mut served = vec![false; groups.len()];
        for hundred in groups.chunks_mut(100) {
            hundred.iter_mut().for_each(|(_, held)| drop(held.take()));
            for _ in 0..100 {
                let (number, charge) = crowd.next();
                drop(charge.expect("refused"));
                assert!(!std::mem::replace(&mut served[number], true));
            }
        }
        // Units returned to another group woke no task.
        assert_eq!((crowd.polls, crowd.woken()), (10_000, Vec::new()));
        assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

/// Returns the CPU time of the calling thread, which excludes other load of the machine.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the given structure.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the median of several quotients of two times.
fn ratio(mut of: impl FnMut() -> Duration, mut by: impl FnMut() -> Duration) -> f64 {
    let mut ratios: Vec<f64> = (0..5).map(|_| of().as_secs_f64() / by().as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Returns the time to serve one of so many waiters in a queue, which returns its unit at once.
fn serving_a_queue(length: usize) -> Duration {
    let ledger = Ledger::new().unwrap();
    let mut groups = full_groups(&ledger, 1);
    let (group, held) = &mut groups[0];
    let mut crowd = Crowd::new();
    for _ in 0..length {
        crowd.add(group.request(1).wait(FOREVER));
    }
    let start = thread_time();
    drop(held.take());
    for number in 0..length {
        let (served, charge) = crowd.next();
        assert_eq!(served, number);
        drop(charge.unwrap());
    }
    (thread_time() - start) / length as u32
}

#[test]
fn serving_one_costs_the_same_however_long_the_queue_is() {
    if ran_alone("serving_one_costs_the_same_however_long_the_queue_is") {
        return;
    }
    let longer = ratio(|| serving_a_queue(20_000), || serving_a_queue(1_000));
    assert!(longer < 3.0, "{longer} times as long in a queue that is 20 times as long");
}

/// Returns the time to serve one of so many groups' only waiters, one after the other.
fn serving_groups(count: usize) -> Duration {
    let ledger = Ledger::new().unwrap();
    let mut groups = full_groups(&ledger, count);
    let mut crowd = Crowd::new();
    for (group, _) in &groups {
        crowd.add(group.request(1).wait(FOREVER));
    }
    let start = thread_time();
    for (number, (_, held)) in groups.iter_mut().enumerate() {
        drop(held.take());
        let (served, charge) = crowd.next();
        assert_eq!(served, number);
        drop(charge.unwrap());
    }
    (thread_time() - start) / count as u32
}

#[test]
fn serving_a_group_costs_the_same_however_many_others_have_waiters() {
    if ran_alone("serving_a_group_costs_the_same_however_many_others_have_waiters") {
        return;
    }
    let longer = ratio(|| serving_groups(10_000), || serving_groups(1_000));
    assert!(longer < 3.0, "{longer} times as long among ten times as many");
}

#[test]
fn tasks_are_dropped_anywhere_in_a_long_queue_and_the_others_keep_their_order() {
    in_both_modes(
        "tasks_are_dropped_anywhere_in_a_long_queue_and_the_others_keep_their_order",
        || {
            let ledger = Ledger::new().unwrap();
            let tenant = limited(ledger.root(), "tenant", 100);
            let all = tenant.try_charge(100).unwrap();
            let mut crowd = Crowd::new();
            for _ in 0..2_000 {
                crowd.add(tenant.request(100).wait(FOREVER));
            }
            let mut random = Random::new(7);
            let mut left: Vec<usize> = (0..2_000).collect();
            for _ in 0..900 {
                crowd.drop(left.remove(1 + random.below(left.len() as u64 - 1) as usize));
            }
            assert_eq!(crowd.woken(), [], "who leaves behind the first calls nobody");
            crowd.drop(left.remove(0));
            assert_eq!(crowd.woken(), [left[0]], "the first has left");
            assert!(crowd.poll(left[0]).is_none());
            drop(all);
            while !left.is_empty() {
                let (served, charge) = crowd.next();
                assert_eq!(served, left.remove(0));
                // While it is served, some more of those behind it go.
                for _ in 0..random.below(3).min(left.len() as u64) {
                    crowd.drop(left.remove(random.below(left.len() as u64) as usize));
                }
                drop(charge.unwrap());
            }
            assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
        },
    );
}

#[test]
fn who_waits_behind_others_is_told_when_its_group_is_gone_and_the_others_are_left_alone() {
    in_both_modes(
        "who_waits_behind_others_is_told_when_its_group_is_gone_and_the_others_are_left_alone",
        || {
            let ledger = Ledger::new().unwrap();
            let tenant = limited(ledger.root(), "tenant", 100);
            let held = tenant.try_charge(100).unwrap();
            let groups = [0; 4].map(|_| tenant.create(&unique("query")).unwrap());
            let mut crowd: Crowd<Requested<'_>> = Crowd::new();
            let waits = groups.map(|group| crowd.add(group.request(60).wait(FOREVER)));
            groups[2].destroy().unwrap();
            let (ended, refused) = crowd.next();
            assert_eq!((ended, refused.unwrap_err().reason), (waits[2], Reason::Gone));
            assert_eq!(crowd.woken(), []);
            // And the first.
            groups[0].destroy().unwrap();
            let (ended, refused) = crowd.next();
            assert_eq!((ended, refused.unwrap_err().reason), (waits[0], Reason::Gone));
            drop(held);
            for expected in [waits[1], waits[3]] {
                let (served, charge) = crowd.next();
                assert!(served == expected && charge.is_ok(), "{served}");
            }
            assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
        },
    );
}

#[test]
fn who_waits_at_a_group_that_is_gone_ends_and_holds_up_nobody_at_the_next_of_its_row() {
    in_both_modes(
        "who_waits_at_a_group_that_is_gone_ends_and_holds_up_nobody_at_the_next_of_its_row",
        || {
            let ledger = Ledger::builder().capacity(2).anonymous().unwrap();
            let old = limited(ledger.root(), "old", 100);
            let held = old.try_charge(100).unwrap();
            let mut crowd: Crowd<Requested<'_>> = Crowd::new();
            let gone = [0; 3].map(|_| crowd.add(old.request(1).wait(FOREVER)));
            old.destroy().unwrap();
            drop(held);
            // All were notified; the first and the last are not polled.
            let mut told = Vec::new();
            while told.len() < gone.len() {
                told.extend(crowd.woken());
            }
            told.sort_unstable();
            assert_eq!(told, gone);
            assert_eq!(crowd.poll(gone[1]).unwrap().unwrap_err().reason, Reason::Gone);
            let new = limited(ledger.root(), "new", 100);
            assert_eq!(
                (new.id().index(), new.exists(), old.exists()),
                (old.id().index(), true, false)
            );
            let held = new.try_charge(100).unwrap();
            let waits = crowd.add(new.request(1).wait(FOREVER));
            drop(held);
            let (served, charge) = crowd.next();
            assert_eq!((served, charge.map(|charge| charge.units()).ok()), (waits, Some(1)));
            // A task that comes late also finds its group gone, and takes no other's place.
            assert_eq!(old.request(1).wait(LONG).charge().unwrap_err().reason, Reason::Gone);
            for late in [gone[0], gone[2]] {
                assert_eq!(crowd.poll(late).unwrap().unwrap_err().reason, Reason::Gone);
            }
            let again = new.try_charge(100).unwrap();
            let waits = crowd.add(new.request(1).wait(FOREVER));
            drop(again);
            assert_eq!(crowd.next().0, waits);
            assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
        },
    );
}

/// A waker of a broken executor.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("in a waker");
    }
}

#[test]
fn a_waker_that_panics_is_nobody_elses_trouble() {
    let ledger = Ledger::builder().capacity(2).anonymous().unwrap();
    let old = limited(ledger.root(), "old", 100);
    let held = old.try_charge(100).unwrap();
    let waker = Waker::from(Arc::new(Panics));
    let mut context = Context::from_waker(&waker);
    let mut polled = || {
        let mut request = Box::pin(old.request(50).wait(FOREVER).into_future());
        assert!(request.as_mut().poll(&mut context).is_pending());
        request
    };
    // A waiter that leaves calls the next one, and continues.
    let (first, second, third) = (polled(), polled(), polled());
    drop(first);
    // So does the first waiter at the row's next group, which calls those that are still waiting.
    old.destroy().unwrap();
    drop(held);
    let new = limited(ledger.root(), "new", 100);
    assert_eq!(new.id().index(), old.id().index());
    let held = new.try_charge(100).unwrap();
    let patience = Duration::from_millis(20);
    assert_eq!(new.request(50).wait(patience).charge().unwrap_err().usage, 100);
    drop(held);
    // It left nothing behind that would hold up the next.
    let mut context = Context::from_waker(Waker::noop());
    let mut waits = std::pin::pin!(new.request(50).wait(FOREVER).into_future());
    assert!(waits.as_mut().poll(&mut context).is_ready());
    drop((second, third));
    assert_eq!((new.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

/// The handler's objects: the ledger, the group's row, and the units that it returns (0: none are held).
static LEDGER: OnceLock<Ledger> = OnceLock::new();
static ROW: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);

extern "C" fn returns_units(_: libc::c_int) {
    let units = HELD.swap(0, SeqCst);
    if let Some(ledger) = LEDGER.get()
        && units > 0
    {
        let id = GroupId::from_parts(ROW.load(SeqCst) as u32, 1);
        ledger.group(id).uncharge_units(units);
    }
}

#[test]
fn units_that_a_signal_handler_returns_wake_the_task_that_it_interrupted() {
    in_both_modes("units_that_a_signal_handler_returns_wake_the_task_that_it_interrupted", || {
        let ledger = LEDGER.get_or_init(|| Ledger::new().unwrap());
        let tenant = limited(ledger.root(), "tenant", 100);
        assert_eq!(tenant.id(), GroupId::from_parts(tenant.id().index(), 1));
        ROW.store(tenant.id().index().into(), SeqCst);
        // SAFETY: installs a handler that calls only async-signal-safe functions.
        let me = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = returns_units as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
            // It is a number, or with musl an address.
            libc::pthread_self() as usize
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(3);
                while !stop.load(SeqCst) {
                    // At any step of the waiter: taking its place, setting its alarm, leaving.
                    for _ in 0..random.below(3_000) {
                        std::hint::spin_loop();
                    }
                    // SAFETY: the thread lives until this one has been joined.
                    unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR1) };
                }
            });
            for _ in 0..times(1_000, 300_000) {
                tenant.try_charge_units(100).unwrap();
                HELD.store(100, SeqCst);
                let charge = block_on(tenant.request(100).wait(FOREVER).into_future());
                drop(charge.expect("forgotten"));
            }
            stop.store(true, SeqCst);
        });
        assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}
