//! A thread's cache, its own sections, and a drain that wants the units.

use super::model;
use crate::percpu::thread_cache::{self, ThreadCache};
use crate::percpu::word::{self, Cell};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// A thread with a thread cache, and the cell from which it fetches. Its fences are counted, like those of a `Cpu` in `mod.rs`.
struct Thread {
    fences: Mutex<u64>,
    thread_cache: ThreadCache,
    cell: Cell,
    /// The stock lock.
    lock: Mutex<()>,
}

const GROUP: u64 = 5;
const ID: u64 = word::empty(1);

impl Thread {
    fn new(in_thread_cache: i64, in_cell: u64) -> Arc<Thread> {
        let thread_cache = ThreadCache::new();
        thread_cache.open(GROUP, 1, 1, 8);
        assert!(thread_cache.change(in_thread_cache).is_some());
        let cell = Cell::new(word::empty(1) | in_cell, 8);
        Arc::new(Thread { fences: Mutex::new(0), thread_cache, cell, lock: Mutex::new(()) })
    }

    /// The twin of `thread_cache::take` and `thread_cache::put`.
    fn section(&self, delta: u64, put: bool) -> bool {
        loop {
            let armed = *self.fences.lock().unwrap();
            let Some(sum) = self.thread_cache.sum(delta, put) else { return false };
            let fences = self.fences.lock().unwrap();
            if *fences == armed {
                self.thread_cache.commit(sum);
                return true;
            }
        }
    }

    /// The twin of the drain: freezes the thread cache, fences, looks again. Afterwards the caller owns both words.
    fn drain(&self, fenced: bool) -> u64 {
        loop {
            self.thread_cache.freeze();
            if fenced {
                *self.fences.lock().unwrap() += 1;
            }
            if thread_cache::is_frozen(self.thread_cache.word()) {
                break;
            }
        }
        let (word, most) = self.thread_cache.close();
        assert_eq!(most, 8);
        thread_cache::units(word) + word::stock(self.cell.freeze())
    }

    /// Mirrors `stock::thread_caches::fetch`: moves two units from the cell to the thread cache.
    fn fetch(&self, locked: bool) {
        let held = locked.then(|| self.lock.try_lock());
        if matches!(held, Some(Err(_))) || thread_cache::is_frozen(self.thread_cache.word()) {
            return;
        }
        if self.cell.update(ID, word::CHARGE.wrapping_sub(2), false) {
            assert!(
                self.thread_cache.change(2).is_some() || !locked,
                "with the lock no other thread has frozen it"
            );
        }
    }
}

fn sections_against_a_drain(fenced: bool) {
    model(move || {
        let there = Thread::new(4, 0);
        let own = there.clone();
        let owner = thread::spawn(move || {
            let taken = 3 * u64::from(own.section(thread_cache::taken(3), false));
            let put = 2 * u64::from(own.section(thread_cache::put_back(2), true));
            taken.wrapping_sub(put)
        });
        let drained = there.drain(fenced);
        let net = owner.join().unwrap();
        let left = thread_cache::units(there.thread_cache.word());
        assert_eq!(drained.wrapping_add(left).wrapping_add(net), 4);
        assert!(thread_cache::is_frozen(there.thread_cache.word()), "closed for good");
    });
}

#[test]
fn a_drain_and_the_threads_own_sections_lose_no_unit() {
    sections_against_a_drain(true);
}

#[test]
#[should_panic(expected = "assertion")]
fn without_the_fence_units_of_a_thread_cache_are_lost_and_the_model_sees_it() {
    sections_against_a_drain(false);
}

/// A thread that drains before it refuses finds all idle units, in the cell or in the thread cache.
fn a_drain_beside_a_fetch(locked: bool) {
    model(move || {
        let there = Thread::new(1, 4);
        let own = there.clone();
        let owner = thread::spawn(move || own.fetch(locked));
        let drained = {
            let _held = there.lock.lock().unwrap();
            there.drain(true)
        };
        owner.join().unwrap();
        assert_eq!(drained, 5);
    });
}

#[test]
fn a_drain_beside_a_fetch_finds_every_idle_unit() {
    a_drain_beside_a_fetch(true);
}

#[test]
#[should_panic(expected = "assertion")]
fn without_the_lock_a_drain_misses_what_is_being_fetched_and_the_model_sees_it() {
    a_drain_beside_a_fetch(false);
}
