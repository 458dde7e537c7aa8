//! The last error of each thread, with its names and numbers.
//!
//! A refusal of [`ledgerline_try_charge_units`](crate::charge::ledgerline_try_charge_units) is kept as numbers and
//! made a sentence on request, so that a refusal allocates nothing. Other texts are kept in a page of memory that a
//! thread gets from the system at its first such error, and gives back at its end. The library may be loaded by
//! `dlopen` into the remaining room of the C library for thread-locals. So its thread-locals are only a pointer and a
//! text of one line. A thread that gets no page keeps as much of a text as fits into that line.

use ledgerline::Refusal;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::fmt::{self, Write};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The longest text that is kept; a path of 32 names fits.
const LENGTH: usize = 2560;
/// The longest text without a page.
const LINE: usize = 120;

struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

type Page = Text<LENGTH>;

thread_local! {
    // Constants without destructors: the last error can be set and read until the thread's last instruction.
    static REFUSAL: Cell<Option<(u64, Refusal)>> = const { Cell::new(None) };
    /// Null before the first text. Atomic only for the thread's signal handlers.
    static PAGE: AtomicPtr<Page> = const { AtomicPtr::new(null_mut()) };
    static SHORT: UnsafeCell<Text<LINE>> = const { UnsafeCell::new(Text { bytes: [0; LINE], length: 0 }) };
}

impl<const N: usize> Text<N> {
    fn get(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.length.min(N)]).into_owned()
    }
}

impl<const N: usize> Write for Text<N> {
    /// Takes as many whole characters as fit.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = text.floor_char_boundary(N - self.length);
        self.bytes[self.length..self.length + room].copy_from_slice(&text.as_bytes()[..room]);
        self.length += room;
        Ok(())
    }
}

/// Returns the thread's page, and gets it from the system if there is none yet; null if the system has none.
/// Async-signal-safe: it makes a system call and uses no heap.
fn page() -> *mut Page {
    PAGE.with(|kept| {
        // Relaxed, here and below: the thread and its handlers run one after the other.
        let page = kept.load(Ordering::Relaxed);
        if !page.is_null() {
            return page;
        }
        // SAFETY: asks for fresh memory. It is all zeros, which is a text of length zero.
        let fresh = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                null_mut(),
                size_of::<Page>(),
                access,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if fresh == libc::MAP_FAILED {
            return null_mut();
        }
        match kept.compare_exchange(null_mut(), fresh.cast(), Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => {
                give_back_at_end(fresh);
                fresh.cast()
            }
            Err(handlers) => {
                // A signal handler got one meanwhile.
                // SAFETY: it was made here, and nothing else has seen it.
                unsafe { libc::munmap(fresh, size_of::<Page>()) };
                handlers
            }
        }
    })
}

const NO_KEY: u64 = u64::MAX;
/// The key of the C library whose destructor gives pages back.
static KEY: AtomicU64 = AtomicU64::new(NO_KEY);

/// Makes the key when the library is loaded, so that no signal handler has to.
extern "C" fn make_key() {
    let mut key = 0;
    // SAFETY: writes the key; the destructor stays, since the library is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(give_back)) } == 0 {
        // Relaxed: no other data depends on the number.
        KEY.store(u64::from(key), Ordering::Relaxed);
    }
}

#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = make_key;

/// Registers the page for the end of the thread. Without a key, the page stays after the thread has ended.
fn give_back_at_end(page: *mut c_void) {
    let key = KEY.load(Ordering::Relaxed);
    if key != NO_KEY {
        // SAFETY: the key was made.
        unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, page) };
    }
}

/// Called at the end of a thread that has a page. A later error of the thread gets another page.
unsafe extern "C" fn give_back(page: *mut c_void) {
    PAGE.with(|kept| kept.store(null_mut(), Ordering::Relaxed));
    // SAFETY: the page of this thread, to which nothing points now (guarded by `tests/programs/crowded.c`).
    unsafe { libc::munmap(page, size_of::<Page>()) };
}

/// Keeps a text.
pub(crate) fn set(text: fmt::Arguments<'_>) {
    REFUSAL.set(None);
    let page = page();
    SHORT.with(|short| {
        // SAFETY: both are the thread's own, and nothing below comes back here: `text` has only numbers, texts and
        // paths. A signal handler in between may mix two texts, which are only bytes.
        match unsafe { page.as_mut() } {
            Some(page) => keep(page, text),
            // SAFETY: as above.
            None => keep(unsafe { &mut *short.get() }, text),
        }
    });
}

fn keep<const N: usize>(kept: &mut Text<N>, text: fmt::Arguments<'_>) {
    kept.length = 0;
    let _always_ok = kept.write_fmt(text);
}

/// Keeps a refusal as numbers. Async-signal-safe.
pub(crate) fn set_refusal(ledger: u64, refusal: Refusal) {
    REFUSAL.set(Some((ledger, refusal)));
}

/// A last error.
pub(crate) enum Last {
    /// Empty if there was none.
    Text(String),
    /// A refusal in the ledger of that number.
    Refusal(u64, Refusal),
}

pub(crate) fn get() -> Last {
    if let Some((ledger, refusal)) = REFUSAL.get() {
        return Last::Refusal(ledger, refusal);
    }
    let page = PAGE.with(|kept| kept.load(Ordering::Relaxed));
    // SAFETY: the thread's own; copied at once.
    Last::Text(match unsafe { page.as_ref() } {
        Some(page) => page.get(),
        // SAFETY: as above.
        None => SHORT.with(|short| unsafe { (*short.get()).get() }),
    })
}
