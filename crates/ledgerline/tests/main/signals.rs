//! Signal handlers charge: whatever the interrupted thread was doing, nothing is lost.

use crate::common::{Random, in_both_modes, unique};
use crate::support::seconds;
use ledgerline::{Charge, Group, GroupId, Ledger, Limit, Mistakes};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const GROUPS: usize = 4;
/// Charges that handlers make and other handlers return, on any thread.
const KEPT: usize = 64;

/// The ledger of the handlers: set once, before the first signal.
static LEDGER: OnceLock<Ledger> = OnceLock::new();
static IDS: [AtomicU64; GROUPS] = [const { AtomicU64::new(0) }; GROUPS];
/// How many handlers began, and ended.
static CAUGHT: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
/// The threads that are interrupted.
static THREADS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SLOTS: [AtomicU64; KEPT] = [const { AtomicU64::new(0) }; KEPT];

fn group(ledger: &Ledger, n: usize) -> Group<'_> {
    ledger.group(GroupId::from_parts(IDS[n % GROUPS].load(Relaxed) as u32, 1))
}

extern "C" fn handler(_: i32) {
    let Some(ledger) = LEDGER.get() else { return };
    let turn = CAUGHT.fetch_add(1, Relaxed);
    let mut random = Random::new(turn);
    // One pair within the handler, small (prepaid) or large (fetched).
    let here = group(ledger, turn as usize);
    let n = random.size(22);
    if here.try_charge_units(n).is_ok() {
        here.uncharge_units(n);
    }
    // One charge that another handler returns: the slot holds units and group.
    let units = random.size(13);
    let pick = random.below(GROUPS as u64);
    if group(ledger, pick as usize).charge_units(units).is_err() {
        // SAFETY: abort is async-signal-safe.
        unsafe { libc::abort() };
    }
    let slot = random.below(KEPT as u64) as usize;
    return_kept(ledger, SLOTS[slot].swap(units << 8 | pick, Relaxed));
    ENDED.fetch_add(1, Relaxed);
}

fn return_kept(ledger: &Ledger, kept: u64) {
    if kept >> 8 > 0 {
        group(ledger, (kept & 0xff) as usize).uncharge_units(kept >> 8);
    }
}

/// The work of the interrupted threads.
fn work<'l>(ledger: &'l Ledger, stop: &AtomicBool, seed: u64) {
    let mut random = Random::new(seed);
    let mut held: Vec<Charge<'l>> = Vec::new();
    while !stop.load(Relaxed) {
        let group = group(ledger, random.below(GROUPS as u64) as usize);
        match random.below(60) {
            0 => drop(group.drain()),
            1 => drop(group.set_max(Limit::units(random.size(24)))),
            2 => group.set_max(Limit::MAX).unwrap(),
            3 => {
                let made = group.create(&unique("short")).unwrap();
                let kept = made.try_charge(random.size(16));
                // Busy: a handler cannot destroy; but this is no handler.
                made.destroy().unwrap();
                drop(kept);
            }
            4 => held.clear(),
            // Not from a handler, as it may wait for the writers. Rarely, as a handler that interrupts a thread at the gate
            // waits until the reader gives up, without progress meanwhile.
            5 if random.one_in(100) => drop(group.precise()),
            6..20 if !held.is_empty() => {
                let pick = random.below(held.len() as u64) as usize;
                let moved = held.swap_remove(pick).transfer(group);
                held.push(moved.unwrap_or_else(|(charge, _)| charge));
            }
            20..30 => held.truncate(held.len() / 2),
            _ => held.extend(group.try_charge(random.size(18))),
        }
        held.truncate(100);
    }
}

/// Blocks the signal in the calling thread, so that it goes to the others.
fn blocked(block: bool) {
    // SAFETY: fills a signal set on the stack and sets the calling thread's mask from it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        let how = if block { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        assert_eq!(libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()), 0);
    }
}

fn install() {
    for signal in [libc::SIGALRM, libc::SIGUSR1] {
        // SAFETY: installs a handler that calls only async-signal-safe functions.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
        }
    }
}

#[test]
fn handlers_charge_and_uncharge_whatever_they_interrupt_and_nothing_is_lost() {
    in_both_modes(
        "handlers_charge_and_uncharge_whatever_they_interrupt_and_nothing_is_lost",
        || {
            let ledger = Ledger::builder().batch(4096).capacity(64).anonymous().unwrap();
            let ledger = LEDGER.get_or_init(|| ledger);
            let top = ledger.root().create("top").unwrap();
            for (n, id) in IDS.iter().enumerate() {
                let parent = if n % 2 == 0 { top } else { ledger.root() };
                id.store(u64::from(parent.create(&unique("g")).unwrap().id().index()), Relaxed);
            }
            blocked(true);
            install();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for (seed, thread) in THREADS.iter().enumerate() {
                    let stop = &stop;
                    scope.spawn(move || {
                        // SAFETY: pthread_self has no preconditions.
                        thread.store(unsafe { libc::pthread_self() } as u64, Relaxed);
                        blocked(false);
                        work(ledger, stop, seed as u64);
                        blocked(true);
                    });
                }
                while THREADS.iter().any(|thread| thread.load(Relaxed) == 0) {
                    std::thread::yield_now();
                }
                let start = Instant::now();
                let mut random = Random::new(1);
                // A storm: bursts at one thread, of two signals so that handlers are interrupted as well, then a pause in which
                // the thread makes progress. Never at the process: the harness has a thread that does not block them, and a
                // handler that is held up there would still run below.
                while start.elapsed() < seconds(1.5, 300.0) || CAUGHT.load(Relaxed) < 1_000 {
                    let thread = THREADS[random.below(3) as usize].load(Relaxed);
                    for _ in 0..random.below(30) {
                        let signal = [libc::SIGUSR1, libc::SIGALRM][random.below(2) as usize];
                        // SAFETY: the threads end after `stop` is set, below.
                        unsafe { libc::pthread_kill(thread as libc::pthread_t, signal) };
                    }
                    std::thread::sleep(std::time::Duration::from_micros(random.below(300)));
                }
                stop.store(true, Relaxed);
            });
            assert!(CAUGHT.load(Relaxed) >= 1_000);
            assert_eq!(CAUGHT.load(Relaxed), ENDED.load(Relaxed), "a handler is still at it");
            for slot in &SLOTS {
                return_kept(ledger, slot.swap(0, Relaxed));
            }
            assert_eq!(ledger.mistakes(), Mistakes::default());
            assert_eq!(ledger.root().precise(), 0);
            ledger.root().drain();
            let snapshot = ledger.snapshot();
            assert_eq!(snapshot.groups.len(), 2 + GROUPS);
            for group in &snapshot.groups {
                let estimate = ledger.group(group.id).approximate();
                assert_eq!((estimate.value, estimate.bound), (0, 0), "{}", group.path);
            }
            assert_eq!(snapshot.groups[0].charges, snapshot.groups[0].uncharges);
        },
    );
}
