//! The calling thread's row, in a thread-local word that costs one instruction to find.
//!
//! `thread_local!` in a shared library asks `__tls_get_addr` for the address each time. A library
//! that is there when the program starts may use the initial-exec model instead, where the offset
//! from the thread pointer is a constant in the global offset table; stable Rust has no switch for
//! it, so the variables are declared in assembly, and read and written by a file for each architecture.

/// What a thread remembers.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Word {
    /// The cell of the thread's slot, to be compared with a span's (shadow.rs); [`NO_CELL`] before it
    /// has one.
    Cell = 0,
    /// Not zero while this library itself is at work: what it allocates is not charged.
    Busy = 8,
    /// The address that called `operator new`; malloc takes it for its own caller.
    Caller = 16,
    /// The slot in which the thread is charged; zero before it has one. (A forked child inherits the
    /// number, but its process has no row in that slot until it gets one of its own.)
    Slot = 24,
    /// The same where blocks bear no header, and the allocator is asked for their sizes.
    AskedSlot = 32,
    /// The cell of that slot, as a span's entry has it; [`NO_CELL`] before it has one.
    AskedCell = 40,
}

/// No cell, and nothing that a span's entry may hold instead of one.
pub(crate) const NO_CELL: usize = 2;

// One of them for each thread, in the order of [`Word`].
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

/// Where the words lie, seen from any thread: for [`cell`].
pub(crate) use words::place;

/// [`Word::Cell`] of the calling thread, for a caller that keeps the [`place`]. What lies at place zero
/// is no cell.
pub(crate) use words::cell;

pub(crate) use words::{get, set};

/// The thread finds its row anew: it has a new name.
pub(crate) fn forget_slot() {
    set(Word::Slot, 0);
    set(Word::AskedSlot, 0);
    set(Word::Cell, NO_CELL);
    set(Word::AskedCell, NO_CELL);
}

/// While this lives, the thread's allocations are not charged.
pub(crate) struct Busy(());

impl Busy {
    /// Whether the thread is busy.
    pub(crate) fn is_entered() -> bool {
        get(Word::Busy) != 0
    }

    /// `None` if the thread is busy already.
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

/// The calling thread's name as the kernel has it. It may be any bytes, and is cut after the fifteenth, even in
/// the middle of a letter.
pub(crate) fn name(into: &mut [u8; 16]) -> &[u8] {
    // SAFETY: the kernel writes at most 16 bytes, a zero among them. (The system call itself: `prctl`
    // is one of our own symbols.)
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_NAME, into.as_mut_ptr()) };
    let length = into.iter().position(|&byte| byte == 0).unwrap_or(into.len());
    &into[..length]
}

/// The calling thread's id, which the C library knows by itself: it notes it in a mutex that checks for errors.
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
        // SAFETY: a mutex that nobody else knows, which is locked and unlocked without waiting; it is larger than its
        // beginning.
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
