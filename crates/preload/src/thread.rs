//! The calling thread's row, in a thread-local word that costs one instruction to find.
//!
//! `thread_local!` in a shared library calls `__tls_get_addr` for the address each time. A library that is present when
//! the program starts may use the initial-exec model instead, where the offset from the thread pointer is a constant in
//! the global offset table. Stable Rust has no switch for it, so the variables are declared in assembly, and read and
//! written by one file per architecture.

/// The words that a thread has.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Word {
    /// The cell of the thread's slot, to be compared with a span's (shadow.rs); [`NO_CELL`] before it
    /// has one.
    Cell = 0,
    /// Not zero while this library itself is at work: its allocations are not charged.
    Busy = 8,
    /// The address that called `operator new`; malloc uses it as its own caller.
    Caller = 16,
    /// The slot that the thread is charged to; zero before it has one. A forked child inherits the number, but its
    /// process has no row in that slot until it gets its own.
    Slot = 24,
    /// The same if blocks have no header, and the allocator is asked for their sizes.
    AskedSlot = 32,
    /// The cell of that slot, as a span's entry has it; [`NO_CELL`] before it has one.
    AskedCell = 40,
}

/// No cell, and none of the other values of a span's entry.
pub(crate) const NO_CELL: usize = 2;

// One set per thread, in the order of [`Word`].
std::arch::global_asm!(
    ".pushsection .tdata, \"awT\", @progbits",
    ".balign 8",
    ".hidden ledgerline_thread_words",
    ".globl ledgerline_thread_words",
    ".type ledgerline_thread_words, @tls_object",
    ".size ledgerline_thread_words, 48",
    "ledgerline_thread_words:",
    ".quad {no_cell}, 0, 0, 0, 0, {no_cell}",
    ".popsection",
    no_cell = const NO_CELL,
);

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as words;
#[cfg(target_arch = "x86_64")]
use x86_64 as words;

/// The place of the words, the same in all threads: for [`cell`].
pub(crate) use words::place;

/// [`Word::Cell`] of the calling thread, for a caller that keeps the [`place`]. The value at place zero is no cell.
pub(crate) use words::cell;

pub(crate) use words::{get, set};

/// Makes the thread find its row anew, since it has a new name.
pub(crate) fn forget_slot() {
    set(Word::Slot, 0);
    set(Word::AskedSlot, 0);
    set(Word::Cell, NO_CELL);
    set(Word::AskedCell, NO_CELL);
}

/// While this lives, the thread's allocations are not charged.
pub(crate) struct Busy(());

impl Busy {
    /// Returns whether the thread is busy.
    pub(crate) fn is_entered() -> bool {
        get(Word::Busy) != 0
    }

    /// Marks the thread busy; `None` if it is already.
    pub(crate) fn enter() -> Option<Busy> {
        (get(Word::Busy) == 0).then(|| {
            set(Word::Busy, 1);
            Busy(())
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        set(Word::Busy, 0);
    }
}

/// Returns the calling thread's name as the kernel has it. It may be any bytes, and is cut after the fifteenth, even in
/// the middle of a letter.
pub(crate) fn name(into: &mut [u8; 16]) -> &[u8] {
    // SAFETY: the kernel writes at most 16 bytes, a zero among them. A direct system call, since `prctl` is one of this
    // library's own symbols.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_NAME, into.as_mut_ptr()) };
    let length = into.iter().position(|&byte| byte == 0).unwrap_or(into.len());
    &into[..length]
}

/// Returns the calling thread's id without a call: the C library stores it in a mutex that checks for errors.
pub(crate) fn id_without_a_call() -> Option<u32> {
    #[cfg(target_env = "gnu")]
    {
        /// The beginning of glibc's mutex, which its initialisers make a part of its interface.
        #[repr(C)]
        struct Mutex {
            lock: libc::c_int,
            count: libc::c_uint,
            owner: libc::c_int,
        }
        let mut mutex = libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
        let place = &raw mut mutex;
        // SAFETY: a local mutex, which is locked and unlocked without waiting; it is larger than its beginning.
        let owner = unsafe {
            if libc::pthread_mutex_lock(place) != 0 {
                return None;
            }
            let owner = (*place.cast::<Mutex>()).owner;
            libc::pthread_mutex_unlock(place);
            owner
        };
        u32::try_from(owner).ok().filter(|&id| id != 0)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}
