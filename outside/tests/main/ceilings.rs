//! Nothing is limited to 64: tests the 65th, and the ten thousandth.

use ledgerline::{Charge, Group, Ledger, Limit, Refused};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(300);

type Waiting<'l> = Pin<Box<dyn Future<Output = Result<Charge<'l>, Refused>> + 'l>>;

/// Counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future with a waker of its own.
struct Task<'l> {
    future: Waiting<'l>,
    woken: Arc<Woken>,
    seen: usize,
}

impl<'l> Task<'l> {
    fn new(group: Group<'l>, units: u64) -> Task<'l> {
        let future = Box::pin(group.request(units).wait(PATIENCE).into_future());
        let mut task = Task { future, woken: Arc::default(), seen: 0 };
        assert!(task.poll().is_none(), "there is no room yet");
        task
    }

    fn poll(&mut self) -> Option<Charge<'l>> {
        self.seen = self.woken.0.load(SeqCst);
        let waker: Waker = self.woken.clone().into();
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(charge) => Some(charge.expect("it is served")),
            Poll::Pending => None,
        }
    }

    fn was_woken(&self) -> bool {
        self.woken.0.load(SeqCst) != self.seen
    }
}

/// Polls woken tasks until all are served, and drops their charges at once.
fn serve(mut tasks: Vec<Task<'_>>) {
    let until = Instant::now() + PATIENCE;
    while !tasks.is_empty() {
        assert!(Instant::now() < until, "{} are still waiting", tasks.len());
        tasks.retain_mut(|task| !task.was_woken() || task.poll().is_none());
        std::thread::yield_now();
    }
}

#[test]
fn ten_thousand_groups_may_each_have_somebody_waiting() {
    let ledger = Ledger::new().unwrap();
    let groups: Vec<Group<'_>> =
        (0..10_000).map(|n| ledger.root().create(&n.to_string()).unwrap()).collect();
    let held: Vec<Charge<'_>> = groups
        .iter()
        .map(|group| {
            group.set_max(Limit::units(100)).unwrap();
            group.try_charge(100).unwrap()
        })
        .collect();
    let tasks: Vec<Task<'_>> = groups.iter().map(|&group| Task::new(group, 60)).collect();
    drop(held);
    serve(tasks);
    assert_eq!(ledger.root().precise(), 0);
}

#[test]
fn a_thousand_threads_may_reclaim_at_a_time() {
    const THREADS: usize = 1000;
    let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
    let inside = Arc::new(AtomicUsize::new(0));
    let groups: Vec<Group<'_>> = (0..THREADS)
        .map(|n| {
            let tenant = ledger.root().create(&n.to_string()).unwrap();
            tenant.set_max(Limit::units(100)).unwrap();
            tenant
        })
        .collect();
    let reclaimers: Vec<_> = groups
        .iter()
        .map(|&tenant| {
            let cache = tenant.create("cache").unwrap();
            let held = std::sync::Mutex::new(Some(cache.try_charge(100).unwrap()));
            let inside = inside.clone();
            cache.add_reclaimer(0, move |need| {
                inside.fetch_add(1, SeqCst);
                // Waits until all are inside at once, within a time limit.
                let until = Instant::now() + Duration::from_secs(60);
                while inside.load(SeqCst) < THREADS && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop(held.lock().unwrap().take());
                need
            })
        })
        .collect();
    std::thread::scope(|scope| {
        let charging: Vec<_> = groups
            .iter()
            .map(|&tenant| {
                let thread = std::thread::Builder::new().stack_size(256 << 10);
                thread.spawn_scoped(scope, move || tenant.try_charge(60).map(drop)).unwrap()
            })
            .collect();
        for thread in charging {
            thread.join().unwrap().unwrap();
        }
    });
    assert_eq!(inside.load(SeqCst), THREADS);
    drop(reclaimers);
}

/// Returns the seconds that each of the first futures takes to be served, one after the other, at one group with
/// `waiting` waiters: the best of short stretches.
fn serving(waiting: usize) -> f64 {
    let ledger = Ledger::new().unwrap();
    let group = ledger.root().create("tenant").unwrap();
    group.set_max(Limit::units(100)).unwrap();
    let held = group.try_charge(100).unwrap();
    let mut tasks: Vec<Task<'_>> = (0..waiting).map(|_| Task::new(group, 100)).collect();
    tasks.reverse();
    drop(held);
    let stretch = |_| {
        let start = Instant::now();
        for mut task in tasks.split_off(tasks.len() - 100).into_iter().rev() {
            while !task.was_woken() {
                std::thread::yield_now();
            }
            while task.poll().is_none() {
                std::thread::yield_now();
            }
        }
        start.elapsed().as_secs_f64() / 100.0
    };
    (0..9).map(stretch).fold(f64::MAX, f64::min)
}

#[test]
fn serving_one_costs_the_same_however_long_the_queue() {
    // In turns, and the best of stretches that are equally short: other load on the machine affects both alike.
    let mut best = [f64::MAX; 2];
    for _ in 0..5 {
        for (waiting, best) in [1000, 20_000].into_iter().zip(&mut best) {
            *best = best.min(serving(waiting));
        }
    }
    let [short, long] = best;
    assert!(long < 4.0 * short, "{short:.2e} s among 1 000, {long:.2e} s among 20 000");
}

#[test]
fn a_refusal_does_not_pay_for_reclaimers_of_others() {
    let tenant = || {
        let ledger: &'static Ledger = Box::leak(Box::new(Ledger::new().unwrap()));
        let tenant = ledger.root().create("tenant").unwrap();
        tenant.set_max(Limit::units(100)).unwrap();
        tenant
    };
    let tenants = [tenant(), tenant()];
    let others = tenants[1].ledger().root().create("others").unwrap();
    let _theirs: Vec<_> =
        (0..2000).map(|n| others.create(&n.to_string()).unwrap().add_reclaimer(0, |_| 0)).collect();
    // In turns, and the best of many short rounds: other load on the machine affects both alike.
    let mut best = [f64::MAX; 2];
    for _ in 0..300 {
        for (tenant, best) in tenants.iter().zip(&mut best) {
            let start = Instant::now();
            for _ in 0..200 {
                tenant.try_charge(101).unwrap_err();
            }
            *best = best.min(start.elapsed().as_secs_f64() / 200.0);
        }
    }
    let [alone, among] = best;
    assert!(among < 3.0 * alone, "{alone:.2e} s alone, {among:.2e} s among 2 000 reclaimers");
}
