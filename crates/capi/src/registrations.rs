//! The registrations of C by number: reclaimers, watches, tokens, victims.
//!
//! A number is an entry's place in a list and a serial number, which repeats only after 2^31 registrations. The list
//! is locked for a few instructions, never while other code of the library or the caller runs; a fork waits for it.

use crate::failure::{Outcome, fail};
use crate::types::ledgerline_code_t::LEDGERLINE_ERROR_HANDLE;
use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// A registered object. Its `end` waits for everything that dropping it must wait for.
pub(crate) trait Registered: Any + Send + Sync {
    /// Its name in a sentence.
    const WHAT: &'static str;
}

/// Ends a registration: waits for calls into C that are under way.
type End = Box<dyn FnOnce() + Send>;

struct Entry {
    number: u64,
    /// The ledger's number; zero if it belongs to none.
    ledger: u64,
    it: Arc<dyn Any + Send + Sync>,
    end: End,
}

#[derive(Default)]
struct List {
    places: Vec<Option<Entry>>,
    free: Vec<u32>,
    serial: u32,
}

static LIST: Mutex<List> =
    Mutex::new(List { places: Vec::new(), free: Vec::new(), serial: 0x51ed_2701 });

/// Locked over a fork, so that the child does not find it locked by a thread that it does not have.
struct OverFork(UnsafeCell<Option<MutexGuard<'static, List>>>);

// SAFETY: only the handlers touch it, in the thread that forks, while it holds the lock.
unsafe impl Sync for OverFork {}

static OVER_FORK: OverFork = OverFork(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let held = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock is held from here to `after_fork`.
    unsafe { *OVER_FORK.0.get() = Some(held) };
}

extern "C" fn after_fork() {
    // SAFETY: this thread, or the one that it was copied from, locked it in `before_fork`.
    drop(unsafe { (*OVER_FORK.0.get()).take() });
}

fn list() -> MutexGuard<'static, List> {
    static GUARDED: Once = Once::new();
    // SAFETY: the handlers are plain functions of a library that is never unloaded (`build.rs`).
    GUARDED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork));
    });
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a short action, for which a fork waits.
pub(crate) fn briefly<T>(act: impl FnOnce() -> T) -> T {
    let _held = list();
    act()
}

/// Registers an object of a ledger (zero for none), and returns its number.
pub(crate) fn add<T: Registered>(ledger: u64, it: T, end: impl FnOnce() + Send + 'static) -> u64 {
    let it: Arc<dyn Any + Send + Sync> = Arc::new(it);
    let end = Box::new(end);
    let mut list = list();
    let place = list.free.pop().unwrap_or_else(|| {
        list.places.push(None);
        u32::try_from(list.places.len() - 1).expect("memory ends before")
    });
    // Never zero: odd, so it repeats after 2^31 others.
    list.serial = list.serial.wrapping_add(2) | 1;
    let number = u64::from(list.serial) << 32 | u64::from(place);
    list.places[place as usize] = Some(Entry { number, ledger, it, end });
    number
}

fn find(list: &List, number: u64) -> Option<&Entry> {
    let entry = list.places.get(number as u32 as usize)?.as_ref()?;
    (entry.number == number).then_some(entry)
}

#[cold]
fn none<T: Registered>(number: u64) -> crate::failure::Failure {
    let why = format_args!("{number:#x} is no {} of this library, or was taken out", T::WHAT);
    fail(LEDGERLINE_ERROR_HANDLE, why)
}

/// Returns a share of the object of that number.
pub(crate) fn get<T: Registered>(number: u64) -> Outcome<Arc<T>> {
    let it = find(&list(), number).map(|entry| entry.it.clone());
    it.and_then(|it| it.downcast::<T>().ok()).ok_or_else(|| none::<T>(number))
}

/// Takes out the object of that number. Drops it while no lock is held.
pub(crate) fn take_out<T: Registered>(number: u64) -> Outcome {
    let entry = {
        let mut list = list();
        let place = number as u32;
        match find(&list, number) {
            Some(entry) if entry.it.is::<T>() => {
                list.free.push(place);
                list.places[place as usize].take()
            }
            _ => None,
        }
    };
    entry.map(end).ok_or_else(|| none::<T>(number))
}

/// Takes out all objects of a ledger.
pub(crate) fn take_out_of(ledger: u64) {
    let mut entries = Vec::new();
    let mut list = list();
    for place in 0..list.places.len() {
        if list.places[place].as_ref().is_some_and(|entry| entry.ledger == ledger) {
            entries.extend(list.places[place].take());
            list.free.push(place as u32);
        }
    }
    drop(list);
    entries.into_iter().for_each(end);
}

fn end(entry: Entry) {
    // First out of the library's own list, so that no other thread finds it; then this waits for those that found it
    // before.
    drop(entry.it);
    (entry.end)();
}
