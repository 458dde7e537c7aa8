//! Requests wait for room: none is forgotten, none overtakes, and none waits for an impossible amount.

use crate::common::{fork, in_both_modes, ran_alone, times, unique, wait};
use crate::support::tasks::{Crowd, block_on};
use crate::support::{LONG, limited};
use ledgerline::{
    CancelToken, Charge, ControlMode, Group, Ledger, Limit, Mistakes, Reason, Reclaimer, Request,
    Requested,
};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[test]
fn no_waiter_is_forgotten_and_no_limit_is_passed() {
    in_both_modes("no_waiter_is_forgotten_and_no_limit_is_passed", || {
        const MAX: u64 = 1000;
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", MAX);
        let granted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let (tenant, granted) = (&tenant, &granted);
                scope.spawn(move || {
                    let query = limited(*tenant, "query", 600);
                    for round in 0..times(2_000, 200_000) {
                        // Mostly more than half: one or two fit at a time.
                        let units = 1 + (round * 7919 + thread * 104_729) % 600;
                        let charge = query.request(units).wait(LONG).charge().expect("forgotten");
                        let in_use = granted.fetch_add(units, SeqCst) + units;
                        assert!(in_use <= MAX, "{in_use}");
                        if round % 64 == 0 {
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
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    in_both_modes("those_who_wait_are_served_in_the_order_in_which_they_came", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 100);
        let first = tenant.try_charge(100).unwrap();
        let served = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (served, tenant) = (&served, &tenant);
                let (told, thread) = channel();
                scope.spawn(move || {
                    // SAFETY: no preconditions.
                    told.send(unsafe { libc::gettid() }).unwrap();
                    // The first wants all. Those behind it, which want little, do not pass it.
                    let units = if number == 0 { 100 } else { 60 };
                    let charge = tenant.request(units).wait(LONG).charge().unwrap();
                    served.lock().unwrap().push(number);
                    drop(charge);
                });
                // It queues before it sleeps, and has no other reason to sleep.
                let stat = format!("/proc/self/task/{}/stat", thread.recv().unwrap());
                let sleeps = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
                while !sleeps() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            // A part is not enough for the first, and more than enough for the others.
            let mut first = first;
            let part = first.split(60).unwrap();
            drop(part);
            std::thread::sleep(Duration::from_millis(50));
            assert!(served.lock().unwrap().is_empty(), "{served:?}");
            drop(first);
        });
        assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn what_cannot_be_is_refused_at_once_and_what_is_not_in_time() {
    let ledger = Ledger::new().unwrap();
    let tenant = limited(ledger.root(), "tenant", 100);
    let group = limited(tenant, "group", 1000);
    let start = Instant::now();
    assert_eq!(group.request(101).wait(LONG).charge().unwrap_err().limit, 100);
    let _charge = group.try_charge(60).unwrap();
    let refused = group.request(41).wait(Duration::from_millis(30)).charge().unwrap_err();
    assert_eq!((refused.reason, refused.limit, refused.usage), (Reason::Limit, 100, 60));
    assert!(start.elapsed() >= Duration::from_millis(30) && start.elapsed() < LONG);
    drop(group.request(40).wait(LONG).charge().unwrap());
}

#[test]
fn a_raised_limit_and_a_destroyed_group_end_the_wait() {
    in_both_modes("a_raised_limit_and_a_destroyed_group_end_the_wait", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 100);
        let group = tenant.create(&unique("group")).unwrap();
        let _charge = tenant.try_charge(100).unwrap();
        let waits = |units| {
            let id = group.id();
            let ledger = &ledger;
            move || ledger.group(id).request(units).wait(LONG).charge().map(drop)
        };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(waits(50));
            std::thread::sleep(Duration::from_millis(50));
            tenant.set_max(Limit::units(150)).unwrap();
            waiter.join().unwrap().unwrap();
            let waiter = scope.spawn(waits(60));
            std::thread::sleep(Duration::from_millis(50));
            group.destroy().unwrap();
            assert_eq!(waiter.join().unwrap().unwrap_err().reason, Reason::Gone);
        });
    });
}

#[test]
fn one_who_is_full_elsewhere_next_waits_there() {
    in_both_modes("one_who_is_full_elsewhere_next_waits_there", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 100);
        let query = limited(tenant, "query", 50);
        let held = (query.try_charge(50).unwrap(), tenant.try_charge(50).unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| query.request(50).wait(LONG).charge().map(drop));
            std::thread::sleep(Duration::from_millis(50));
            // Now its own limit has room, and another group takes the tenant's at once.
            let other = {
                tenant.set_max(Limit::units(150)).unwrap();
                let other = tenant.try_charge(50).unwrap();
                drop(held.0);
                let _ = tenant.set_max(Limit::units(100));
                other
            };
            std::thread::sleep(Duration::from_millis(50));
            drop(held.1);
            drop(other);
            waiter.join().unwrap().unwrap();
        });
    });
}

/// Polls a request once, which makes it wait.
fn waiting<'l>(request: Request<'l>) -> Pin<Box<Requested<'l>>> {
    let mut request = Box::pin(request.into_future());
    let mut context = Context::from_waker(Waker::noop());
    assert!(request.as_mut().poll(&mut context).is_pending());
    request
}

#[test]
fn who_has_no_time_or_takes_no_room_is_not_kept_behind_others() {
    in_both_modes("who_has_no_time_or_takes_no_room_is_not_kept_behind_others", || {
        let ledger = Ledger::new().unwrap();
        let tenant = limited(ledger.root(), "tenant", 100);
        let [first, query, off] = ["first", "query", "off"].map(|name| limited(tenant, name, 90));
        let held = tenant.try_charge(50).unwrap();
        let _first = waiting(first.request(90).wait(LONG));
        let start = Instant::now();
        drop(query.request(10).charge().unwrap());
        drop(query.request(0).wait(LONG).charge().unwrap());
        off.set_mode(ControlMode::Off);
        drop(off.request(10).wait(LONG).charge().unwrap());
        assert_eq!(tenant.max_events() + query.max_events() + off.max_events(), 0);
        let never = query.request(91).wait(LONG).charge().unwrap_err();
        assert_eq!((&*never.group, never.limit), ("/tenant/query", 90));
        assert!(start.elapsed() < LONG / 2);
        // A request behind the first whose time is up takes the available units, and the full group refuses it.
        let patience = Duration::from_millis(30);
        let granted = query.request(50).wait(patience).charge().unwrap();
        let refused = query.request(41).wait(patience).charge().unwrap_err();
        assert_eq!((&*refused.group, refused.usage), ("/tenant/query", 50));
        let refused = query.request(40).wait(patience).charge().unwrap_err();
        assert_eq!((&*refused.group, refused.usage), ("/tenant", 100));
        assert_eq!((tenant.max_events(), query.max_events()), (1, 2));
        drop((held, granted));
    });
}

/// A cache that gives back the requested units.
struct Cache {
    group: Group<'static>,
    pages: Arc<Mutex<Vec<Charge<'static>>>>,
    _reclaimer: Reclaimer<'static>,
}

impl Cache {
    fn below(parent: Group<'static>) -> Cache {
        let group = parent.create(&unique("cache")).unwrap();
        let pages: Arc<Mutex<Vec<Charge<'_>>>> = Arc::default();
        let evict = pages.clone();
        let reclaimer = group.add_reclaimer(0, move |need| {
            let mut freed = 0;
            while freed < need {
                let Some(page) = evict.lock().unwrap().pop() else { break };
                freed += page.units();
            }
            freed
        });
        Cache { group, pages, _reclaimer: reclaimer }
    }

    fn fill(&self, units: u64) {
        for _ in 0..units {
            let page = self.group.try_charge(1).unwrap();
            self.pages.lock().unwrap().push(page);
        }
    }
}

#[test]
fn who_waits_behind_others_has_caches_asked_when_his_turn_comes_and_before_he_is_refused() {
    in_both_modes(
        "who_waits_behind_others_has_caches_asked_when_his_turn_comes_and_before_he_is_refused",
        || {
            let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
            let tenant = limited(ledger.root(), "tenant", 100);
            let query = tenant.create(&unique("query")).unwrap();
            let cache = Cache::below(tenant);
            let mut held = tenant.try_charge(50).unwrap();
            let first = waiting(query.request(60).wait(LONG));
            cache.fill(40);
            // Its time is up while it is behind the first.
            let start = Instant::now();
            drop(query.request(20).wait(Duration::from_millis(30)).charge().unwrap());
            assert_eq!(cache.group.precise(), 30);
            cache.fill(10);
            // It becomes the first.
            std::thread::scope(|scope| {
                let second = scope.spawn(|| query.request(20).wait(LONG).charge().map(drop));
                std::thread::sleep(Duration::from_millis(50));
                drop(first);
                second.join().unwrap().unwrap();
            });
            assert_eq!(cache.group.precise(), 30);
            // It is the first already, the cache fills up, and its time is up.
            let patience = Duration::from_millis(100);
            let mut first = waiting(query.request(60).wait(patience));
            assert_eq!(cache.group.precise(), 0, "all was asked for, and was not enough");
            drop(held.split(10).unwrap());
            cache.fill(60);
            std::thread::sleep(patience);
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(first.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
            assert!(start.elapsed() < LONG / 2);
            assert_eq!(ledger.mistakes(), Mistakes::default());
        },
    );
}

#[test]
fn nobody_is_cancelled_beside_a_full_cache_for_one_who_waits_behind_others() {
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
    let tenant = limited(ledger.root(), "tenant", 100);
    let [query, victim] = ["query", "victim"].map(|name| tenant.create(name).unwrap());
    let token = CancelToken::new();
    let _victim = victim.add_victim(&token);
    let _held = victim.try_charge(50).unwrap();
    let cache = Cache::below(tenant);
    let first = waiting(query.request(60).wait(LONG));
    cache.fill(40);
    let mut second = waiting(query.request(20).wait(LONG).oom());
    assert_eq!((cache.group.precise(), token.is_cancelled()), (30, false));
    // The first one's turn ends, and the second gets the returned units.
    drop(first);
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(second.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    assert!(!token.is_cancelled());
}

#[test]
fn hundreds_of_threads_wait_at_as_many_groups_and_all_are_served() {
    in_both_modes("hundreds_of_threads_wait_at_as_many_groups_and_all_are_served", || {
        let ledger = Ledger::new().unwrap();
        let groups: Vec<Group<'_>> =
            (0..300).map(|_| limited(ledger.root(), "group", 10)).collect();
        let charges: Vec<_> = groups.iter().map(|group| group.try_charge(10).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = groups
                .iter()
                .map(|group| scope.spawn(|| group.request(10).wait(LONG).charge().map(drop)))
                .collect();
            std::thread::sleep(Duration::from_millis(100));
            drop(charges);
            for waiter in waiters {
                waiter.join().unwrap().unwrap();
            }
        });
        assert_eq!((ledger.root().precise(), ledger.mistakes()), (0, Mistakes::default()));
    });
}

#[test]
fn hundreds_of_threads_in_one_queue_are_each_served_once() {
    if ran_alone("hundreds_of_threads_in_one_queue_are_each_served_once") {
        return;
    }
    let ledger = Ledger::new().unwrap();
    let tenant = limited(ledger.root(), "tenant", 100);
    let all = tenant.try_charge(100).unwrap();
    let served = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..300 {
            let (served, tenant) = (&served, &tenant);
            scope.spawn(move || {
                let charge = tenant.request(100).wait(LONG).charge().expect("refused");
                served.lock().unwrap().push(number);
                drop(charge);
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(served.lock().unwrap().is_empty());
        drop(all);
    });
    let mut served = served.into_inner().unwrap();
    served.sort_unstable();
    assert!(served.into_iter().eq(0..300));
    assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
}

/// Returns whether units that are returned below a group stay in the cells. They must not while a request waits there. Units
/// returned while the thread moves to another CPU may not stay either, so this tries often.
fn keeps_idle_units(group: Group<'_>) -> bool {
    (0..100).any(|_| {
        drop(group.try_charge(1000).unwrap());
        group.approximate().bound > 0
    })
}

#[test]
fn while_somebody_waits_nothing_lies_idle_and_afterwards_it_does_again() {
    in_both_modes("while_somebody_waits_nothing_lies_idle_and_afterwards_it_does_again", || {
        let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
        let tenant = limited(ledger.root(), "tenant", 1 << 20);
        assert!(keeps_idle_units(tenant));
        let held = tenant.try_charge(1 << 19).unwrap();
        let mut waits = std::pin::pin!(tenant.request(1 << 20).wait(LONG).into_future());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert!(!keeps_idle_units(tenant));
        drop(held);
        assert!(waits.as_mut().poll(&mut context).is_ready());
        assert!(keeps_idle_units(tenant));
    });
}

#[test]
fn a_forked_child_has_no_waiters_and_what_it_inherits_waits_anew() {
    in_both_modes("a_forked_child_has_no_waiters_and_what_it_inherits_waits_anew", || {
        let ledger = Ledger::builder().batch(4096).anonymous().unwrap();
        let tenant = limited(ledger.root(), "tenant", 1 << 20);
        let held = tenant.try_charge(1 << 20).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting =
            [(); 3].map(|()| Box::pin(tenant.request(1 << 20).wait(10 * LONG).into_future()));
        std::thread::scope(|scope| {
            // A thread is the first, and futures queue behind it.
            let thread = scope.spawn(|| tenant.request(1 << 20).wait(LONG).charge().map(drop));
            std::thread::sleep(Duration::from_millis(50));
            for future in &mut waiting {
                assert!(future.as_mut().poll(&mut context).is_pending());
            }
            let child = fork(|| {
                // Units come back, and there is no thread here to notify.
                tenant.uncharge_units(1 << 20);
                let [mut first, mut second, third] = waiting;
                drop(third);
                let Poll::Ready(Ok(charge)) = first.as_mut().poll(&mut context) else { return 1 };
                if second.as_mut().poll(&mut context).is_ready() {
                    return 2;
                }
                // It is in a queue of the child's, and a thread of the child's own wakes it.
                let mut crowd = Crowd::new();
                crowd.add(second);
                let served = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(50));
                        drop(charge);
                    });
                    crowd.next().1.map(drop)
                });
                if served.is_err() {
                    return 3;
                }
                // No waiter holds caps off any more.
                if !keeps_idle_units(tenant) {
                    return 4;
                }
                0
            });
            assert_eq!(wait(child), 0);
            drop(held);
            thread.join().unwrap().unwrap();
        });
        assert_eq!(ledger.mistakes(), Mistakes::default());
    });
}

#[test]
fn a_child_that_drops_what_it_inherits_takes_nothing_from_those_who_wait_in_a_file() {
    in_both_modes(
        "a_child_that_drops_what_it_inherits_takes_nothing_from_those_who_wait_in_a_file",
        || {
            let path = std::env::temp_dir().join(format!("ledgerline-wait-{}", std::process::id()));
            let mut options = std::fs::File::options();
            let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let ledger = Ledger::builder().batch(4096).capacity(64).create_in(&file).unwrap();
            let tenant = limited(ledger.root(), "tenant", 1 << 20);
            assert!(keeps_idle_units(tenant));
            let held = tenant.try_charge(1 << 19).unwrap();
            let mut context = Context::from_waker(Waker::noop());
            let mut waits = Box::pin(tenant.request(1 << 20).wait(LONG).into_future());
            assert!(waits.as_mut().poll(&mut context).is_pending());
            let child = fork(|| {
                // SAFETY: the child drops its copy, and never runs code that would drop it again.
                drop(unsafe { std::ptr::read(&raw const waits) });
                0
            });
            assert_eq!(wait(child), 0);
            assert!(!keeps_idle_units(tenant), "the parent waits still");
            drop(held);
            assert!(waits.as_mut().poll(&mut context).is_ready());
            assert!(keeps_idle_units(tenant));
        },
    );
}

#[test]
fn units_that_another_process_returns_serve_who_waits_here() {
    if ran_alone("units_that_another_process_returns_serve_who_waits_here") {
        return;
    }
    let path = std::env::temp_dir().join(format!("ledgerline-across-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let ledger = Ledger::builder().capacity(64).create_in(&file).unwrap();
    let tenant = limited(ledger.root(), "tenant", 100);
    tenant.try_charge_units(100).unwrap();
    let child = fork(|| {
        std::thread::sleep(Duration::from_millis(100));
        tenant.uncharge_units(50);
        // And again, for a task.
        std::thread::sleep(Duration::from_millis(200));
        tenant.uncharge_units(50);
        0
    });
    let start = Instant::now();
    let thread = tenant.request(50).wait(LONG).charge().unwrap();
    let task = block_on(tenant.request(50).wait(LONG).into_future()).unwrap();
    assert!(start.elapsed() < LONG / 2);
    assert_eq!(wait(child), 0);
    drop((thread, task));
    assert_eq!((tenant.precise(), ledger.mistakes()), (0, Mistakes::default()));
}
