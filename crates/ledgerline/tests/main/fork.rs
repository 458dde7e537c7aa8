//! An embedded ledger and `fork`: the child's copy is consistent.

use crate::common::{Random, Run, fork, in_both_modes, in_modes, times, unique, wait};
use ledgerline::{CancelToken, Charge, ControlMode, Group, Ledger, Limit, Reclaimer};
use std::os::fd::FromRawFd;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

/// A tree that other threads use.
struct Busy<'l> {
    root: Group<'l>,
    parents: [Group<'l>; 2],
    leaves: [Group<'l>; 4],
}

impl<'l> Busy<'l> {
    fn new(ledger: &'l Ledger) -> Self {
        let root = ledger.root();
        let parents = ["a", "b"].map(|name| root.create(name).unwrap());
        let leaf = |n: usize| parents[n / 2].create(&unique("leaf")).unwrap();
        parents[0].set_max(Limit::units(1 << 20)).unwrap();
        Busy { root, parents, leaves: [leaf(0), leaf(1), leaf(2), leaf(3)] }
    }

    /// Charges, uncharges, drains, moves, creates and destroys until the end.
    fn work(&self, stop: &AtomicBool, seed: u64) {
        let mut random = Random::new(seed);
        let mut held: Vec<Charge<'l>> = Vec::new();
        while !stop.load(Relaxed) {
            let leaf = self.leaves[random.below(4) as usize];
            match random.below(40) {
                0 => drop(held.drain(..)),
                1 => drop(leaf.drain()),
                2 => {
                    let made = leaf.create(&unique("short")).unwrap();
                    held.extend(made.try_charge(random.size(12)));
                    made.destroy().unwrap();
                }
                3 => {
                    if let Some(charge) = held.pop() {
                        held.push(charge.transfer(leaf).unwrap_or_else(|(charge, _)| charge));
                    }
                }
                4..20 if !held.is_empty() => {
                    let pick = random.below(held.len() as u64) as usize;
                    drop(held.swap_remove(pick));
                }
                _ => held.extend(leaf.try_charge(random.size(15))),
            }
            held.truncate(40);
        }
    }

    /// Checks the tree in a child. Returns zero if all is well.
    fn inspect(&self) -> i32 {
        // No other thread runs: two readings are equal, and nothing is in flight.
        let all = [self.root, self.parents[0], self.parents[1]];
        for (code, group) in all.iter().chain(&self.leaves).enumerate() {
            let usage = group.precise();
            let estimate = group.approximate();
            if usage != group.precise()
                || usage > estimate.value
                || usage < estimate.value - estimate.bound
            {
                return 10 + code as i32;
            }
        }
        let sum = |groups: &[Group<'_>]| -> u64 { groups.iter().map(|g| g.precise()).sum() };
        for (code, parent) in self.parents.iter().enumerate() {
            // Destroyed groups that were still charged are only in the parent's number.
            if parent.precise() < sum(&self.leaves[2 * code..][..2]) {
                return 20 + code as i32;
            }
        }
        if self.root.precise() != sum(&self.parents) {
            return 22;
        }
        self.exercise()
    }

    /// Checks that the child's ledger works, to the last unit: no lock, reservation or cap was left behind.
    fn exercise(&self) -> i32 {
        for (code, leaf) in self.leaves.iter().enumerate() {
            let before = leaf.precise();
            for n in 1..200 {
                match leaf.charge_units(n) {
                    Ok(()) => leaf.uncharge_units(n),
                    Err(_) => return 30 + code as i32,
                }
            }
            if leaf.precise() != before {
                return 40 + code as i32;
            }
        }
        // Exactly the rest below a limit can be charged, and not a unit more.
        let [parent, other] = self.parents;
        let usage = parent.precise();
        if parent.set_max(Limit::units(usage + 1_000)).is_err() {
            return 50;
        }
        if self.leaves[0].try_charge_units(1_000).is_err() {
            return 51;
        }
        if self.leaves[1].try_charge_units(1).is_ok() || parent.precise() != usage + 1_000 {
            return 52;
        }
        let Ok(made) = other.create(&unique("child")) else { return 53 };
        if made.try_charge_units(5).is_err() || made.destroy().map(|s| s.leftover) != Ok(5) {
            return 54;
        }
        0
    }
}

#[test]
fn a_forked_child_has_a_whole_ledger_whatever_the_threads_were_at() {
    in_both_modes("a_forked_child_has_a_whole_ledger_whatever_the_threads_were_at", || {
        let ledger = Ledger::builder().batch(4096).capacity(4096).anonymous().unwrap();
        let busy = Busy::new(&ledger);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (busy, stop) = (&busy, &stop);
                scope.spawn(move || busy.work(stop, seed));
            }
            let failed = (0..times(200, 20_000)).find_map(|round| {
                let code = wait(fork(|| busy.inspect()));
                (code != 0).then_some((round, code))
            });
            stop.store(true, Relaxed);
            assert_eq!(failed, None, "round and code of the child");
        });
        assert_eq!(busy.inspect(), 0, "the parent goes on");
        // `inspect` leaves 1005 units.
        busy.leaves[0].uncharge_units(1_000);
        assert_eq!((busy.root.precise(), ledger.mistakes().underflows), (5, 0));
    });
}

/// For children of a process whose ledger lies in a file, where no handler is registered before it is needed. They are forked
/// beside threads that use a feature, and use it as well.
fn fork_beside(test: &str, act: impl Fn(Group<'_>) + Sync) {
    in_modes(test, &[Run::Natural], || {
        // SAFETY: creates a new file, and owns its descriptor.
        let file = unsafe {
            let file = libc::memfd_create(c"ledger".as_ptr(), libc::MFD_CLOEXEC);
            std::fs::File::from_raw_fd(file)
        };
        let ledger = Ledger::builder().capacity(4096).create_in(&file).unwrap();
        let own = ledger.attach_process("parent", std::process::id()).unwrap();
        let fill = |group: Group<'_>| {
            group.set_max(Limit::units(10)).is_ok() && group.try_charge_units(10).is_ok()
        };
        assert!(fill(own));
        let stop = AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        act(own);
                    }
                });
            }
            // And beside the program's own threads, which start and end: the standard library has locks for that, too.
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    std::thread::spawn(|| ()).join().unwrap();
                }
            });
            let failed = (0..times(60, 2_000)).find_map(|round| {
                std::thread::sleep(Duration::from_micros(300));
                let code = wait(fork(|| {
                    let id = std::process::id();
                    let Ok(group) = ledger.attach_process("child", id) else { return 1 };
                    if !fill(group) {
                        return 2;
                    }
                    act(group);
                    0
                }));
                (code != 0).then_some((round, code))
            });
            stop.store(true, Relaxed);
            failed
        });
        assert_eq!(failed, None, "round and code of the child");
    });
}

#[test]
fn a_forked_child_of_a_ledger_in_a_file_can_add_reclaimers() {
    fork_beside("a_forked_child_of_a_ledger_in_a_file_can_add_reclaimers", |group| {
        drop(group.add_reclaimer(0, |_| 0));
    });
}

#[test]
fn a_forked_child_of_a_ledger_in_a_file_can_add_victims() {
    fork_beside("a_forked_child_of_a_ledger_in_a_file_can_add_victims", |group| {
        drop(group.add_victim(&CancelToken::new()));
    });
}

#[test]
fn a_forked_child_of_a_ledger_in_a_file_can_set_modes() {
    fork_beside("a_forked_child_of_a_ledger_in_a_file_can_set_modes", |group| {
        group.set_mode(ControlMode::Enforce);
    });
}

/// Touched memory in small pages: a fork copies their tables.
fn ballast(size: usize) -> &'static [u8] {
    // SAFETY: a new mapping of this process, never unmapped; advised about and filled before use.
    unsafe {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let base = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        libc::madvise(base, size, libc::MADV_NOHUGEPAGE);
        std::ptr::write_bytes(base.cast::<u8>(), 1, size);
        std::slice::from_raw_parts(base.cast(), size)
    }
}

/// A fork takes longer the more memory a process has, and the threads must wait that long.
#[test]
fn a_slow_fork_is_waited_for() {
    in_both_modes("a_slow_fork_is_waited_for", || {
        let ballast = ballast(times(192 << 20, 2 << 30) as usize);
        let ledger = Ledger::builder().batch(4096).capacity(4096).anonymous().unwrap();
        let busy = Busy::new(&ledger);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (busy, stop) = (&busy, &stop);
                scope.spawn(move || busy.work(stop, seed));
            }
            // Two threads fork at once.
            let busy = &busy;
            let forks = move |rounds: u64| {
                (0..rounds).find_map(|round| {
                    let code = wait(fork(|| busy.inspect()));
                    (code != 0).then_some((round, code))
                })
            };
            let other = scope.spawn(move || forks(times(12, 500)));
            let here = forks(times(12, 500));
            let there = other.join().unwrap();
            stop.store(true, Relaxed);
            assert_eq!((here, there), (None, None), "round and code of the child");
        });
        assert_eq!(busy.inspect(), 0);
        // And the gate is open again: no thread waits for a fork that is over.
        let waited = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let group = busy.parents[1].create(&unique("slow")).unwrap();
                // Each charge takes the slow path: the cell would have to hold more than it may.
                for _ in 0..20_000 {
                    group.try_charge_units(1 << 32).unwrap();
                    group.uncharge_units(1 << 32);
                }
                waited.store(1, Relaxed);
            });
        });
        assert_eq!((waited.into_inner(), ballast.len() & 0xfff), (1, 0));
    });
}

/// Returns a ledger with a limit that is fully used.
fn full() -> (&'static Ledger, Group<'static>) {
    let ledger: &'static Ledger =
        Box::leak(Box::new(Ledger::builder().capacity(64).anonymous().unwrap()));
    let group = ledger.root().create("full").unwrap();
    group.set_max(Limit::units(10)).unwrap();
    group.try_charge_units(10).unwrap();
    (ledger, group)
}

#[test]
fn a_forked_child_does_not_wait_for_a_reclaimer_in_which_another_thread_was() {
    let test = "a_forked_child_does_not_wait_for_a_reclaimer_in_which_another_thread_was";
    in_modes(test, &[Run::Natural], || {
        let (_, group) = full();
        let stay = |inside: &'static AtomicBool, leave: &'static AtomicBool| {
            group.add_reclaimer(0, move |_| {
                inside.store(true, Relaxed);
                while !leave.load(Relaxed) {
                    std::thread::yield_now();
                }
                0
            })
        };
        static INSIDE: AtomicBool = AtomicBool::new(false);
        static LEAVE: AtomicBool = AtomicBool::new(false);
        let reclaimer = stay(&INSIDE, &LEAVE);
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(group.try_charge(1).is_err()));
            while !INSIDE.load(Relaxed) {
                std::thread::yield_now();
            }
            let child = fork(|| {
                // It is not asked again, but another one is.
                if group.try_charge(1).is_ok() || reclaimer.report().runs != 1 {
                    return 1;
                }
                // SAFETY: this process has its own copy, which it does not use otherwise.
                drop(unsafe { std::ptr::read(&raw const reclaimer) });
                let _other = group.add_reclaimer(0, move |need| {
                    group.uncharge_units(need);
                    need
                });
                if group.try_charge(1).is_err() { 2 } else { 0 }
            });
            let code = wait(child);
            LEAVE.store(true, Relaxed);
            assert_eq!(code, 0);
        });
    });
}

/// The thread that forks continues in the child, inside the calls that it was in. Other threads wait for it there.
#[test]
fn a_forked_child_waits_for_the_reclaimer_in_which_it_was_forked() {
    let test = "a_forked_child_waits_for_the_reclaimer_in_which_it_was_forked";
    in_modes(test, &[Run::Natural], || {
        static RECLAIMER: Mutex<Option<Reclaimer<'static>>> = Mutex::new(None);
        static TAKEN_OUT: AtomicBool = AtomicBool::new(false);
        static CHILD: AtomicBool = AtomicBool::new(false);
        let (_, group) = full();
        let reclaimer = group.add_reclaimer(0, |_| {
            // SAFETY: the child starts a thread of the standard library, whose locks are free: no other thread is there.
            let child = unsafe { libc::fork() };
            if child != 0 {
                assert_eq!(wait(child), 0);
                return 0;
            }
            // SAFETY: kills this process if it hangs.
            unsafe { libc::alarm(30) };
            CHILD.store(true, Relaxed);
            let begun = std::sync::Arc::new(AtomicBool::new(false));
            let begins = begun.clone();
            std::thread::spawn(move || {
                let reclaimer = RECLAIMER.lock().unwrap().take();
                begins.store(true, Relaxed);
                drop(reclaimer);
                TAKEN_OUT.store(true, Relaxed);
            });
            while !begun.load(Relaxed) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            if TAKEN_OUT.load(Relaxed) {
                // SAFETY: ends this process.
                unsafe { libc::_exit(3) };
            }
            0
        });
        *RECLAIMER.lock().unwrap() = Some(reclaimer);
        assert!(group.try_charge(1).is_err());
        if CHILD.load(Relaxed) {
            while !TAKEN_OUT.load(Relaxed) {
                std::thread::yield_now();
            }
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
    });
}

#[test]
fn a_forked_child_can_use_the_tokens_that_other_threads_use() {
    let token = CancelToken::new();
    fork_beside("a_forked_child_can_use_the_tokens_that_other_threads_use", |group| {
        let _victim = group.add_victim(&token);
        for _ in 0..100 {
            let mut waits = pin!(token.cancelled());
            assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    });
}
