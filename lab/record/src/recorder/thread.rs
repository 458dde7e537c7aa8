//! The calling thread's counts.
//!
//! A thread-local word has the place of the thread's block. The block and its tables lie in the recording.

use crate::format::{self, Shape, header, table, thread as block};
use crate::recorder::arena;
use crate::recorder::local::{self, BLOCK};
use crate::recorder::lock::Lock;
use crate::recorder::plan::{Plan, Type};
use std::arch::asm;

/// Words in the recording that belong to the calling thread alone: its block, a table, a row.
#[derive(Clone, Copy)]
pub(crate) struct Words(*mut u64);

impl Words {
    /// Returns the words at an offset that was handed out to this thread (R1, R2).
    #[inline(always)]
    pub(crate) fn at(offset: usize) -> Words {
        Words(arena::at(offset))
    }

    /// Returns their offset.
    pub(crate) fn offset(self) -> usize {
        self.0 as usize - arena::at(0) as usize
    }

    #[inline(always)]
    pub(crate) fn get(self, word: usize) -> u64 {
        // SAFETY: R1, R2; `word` lies in the words that were handed out, by `format`'s sizes.
        unsafe { *self.0.add(word) }
    }

    #[inline(always)]
    pub(crate) fn set(self, word: usize, value: u64) {
        // SAFETY: as above.
        unsafe { *self.0.add(word) = value }
    }

    #[inline(always)]
    pub(crate) fn add(self, word: usize, value: u64) {
        self.set(word, self.get(word).wrapping_add(value));
    }

    /// Adds by one instruction, since a signal handler that interrupts it may also add to the word.
    #[inline(always)]
    pub(crate) fn add_at_once(self, word: usize, value: u64) {
        // SAFETY: as above.
        unsafe {
            asm!(
                "add qword ptr [{at}], {value}",
                at = in(reg) self.0.add(word),
                value = in(reg) value,
                options(nostack),
            );
        }
    }

    /// Returns the 16-bit numbers that are packed from a word on.
    #[inline(always)]
    pub(crate) fn small(self, word: usize, index: usize) -> u16 {
        (self.get(word + index / 4) >> (index % 4 * 16)) as u16
    }

    #[inline(always)]
    pub(crate) fn set_small(self, word: usize, index: usize, value: u16) {
        let (word, shift) = (word + index / 4, index % 4 * 16);
        let others = self.get(word) & !(0xffff << shift);
        self.set(word, others | u64::from(value) << shift);
    }
}

/// Returns the calling thread's block, if it has one.
#[inline(always)]
pub(crate) fn existing() -> Option<Words> {
    let at = local::get::<BLOCK>();
    // One is not an address. It stands for a thread for which there was no room.
    (at > 1).then_some(Words(at as *mut u64))
}

/// Returns the calling thread's block. The caller is busy.
#[inline(always)]
pub(crate) fn own(plan: &Plan) -> Option<Words> {
    existing().or_else(|| make(plan))
}

#[cold]
fn make(plan: &Plan) -> Option<Words> {
    if local::get::<BLOCK>() == 1 {
        return None;
    }
    let lock = Lock::take();
    let number = arena::get(header::THREADS) as usize;
    let words = block::TABLES + plan.types.len();
    let offset = if number < format::MOST_THREADS { arena::allocate(words) } else { None };
    let Some(offset) = offset else {
        arena::add(header::THREADS_LOST, 1);
        local::set::<BLOCK>(1);
        return None;
    };
    let own = Words::at(offset);
    // SAFETY: the kernel writes 16 bytes, the last a zero; both calls are of this thread.
    unsafe {
        own.set(block::ID, libc::syscall(libc::SYS_gettid) as u64);
        libc::prctl(libc::PR_GET_NAME, own.0.add(block::NAME));
    }
    own.set(block::NUMBER, number as u64);
    arena::set(header::FIRST_THREAD + number, offset as u64);
    arena::set(header::THREADS, number as u64 + 1);
    drop(lock);
    measure(own, block::FIRST);
    measure(own, block::LAST);
    local::set::<BLOCK>(own.0 as usize);
    Some(own)
}

/// Notes the CPU time and the counts of the thread so far.
#[cold]
pub(crate) fn measure(own: Words, at: usize) {
    // SAFETY: the call writes the structure.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now);
        now
    };
    own.set(at, now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    for (word, from) in [block::OPERATIONS, block::PROBES, block::COUNTED].into_iter().enumerate() {
        own.set(at + 1 + word, own.get(from));
    }
}

/// Returns whether the thread is measured at a count: each power of two, later each 65 536th.
#[inline(always)]
pub(crate) fn due(count: u64) -> bool {
    count & (count - 1) == 0 || count & 0xffff == 0
}

/// A thread's counts for a type.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) words: Words,
    pub(crate) shape: Shape,
}

impl Table {
    /// Returns the table of a type; `None` if there is no room. The caller is busy.
    #[inline(always)]
    pub(crate) fn of(own: Words, index: usize, ty: &Type) -> Option<Table> {
        let offset = own.get(block::TABLES + index) as usize;
        let offset = if offset == 0 { Self::make(own, index, ty.shape)? } else { offset };
        Some(Table { words: Words::at(offset), shape: ty.shape })
    }

    #[cold]
    fn make(own: Words, index: usize, shape: Shape) -> Option<usize> {
        let lock = Lock::take();
        let offset = arena::allocate(shape.table());
        let outside = arena::allocate(shape.row());
        drop(lock);
        let (offset, outside) = (offset?, outside?);
        let table = Words::at(offset);
        table.set(table::FIRST_ROW, outside as u64);
        table.set(table::USED, 1);
        table.set(table::TYPE, index as u64);
        own.set(block::TABLES + index, offset as u64);
        Some(offset)
    }

    /// Returns an existing row of the table.
    #[inline(always)]
    pub(crate) fn row(self, index: usize) -> Words {
        Words::at(self.words.get(table::FIRST_ROW + index) as usize)
    }

    /// Returns a new row; `None` if there is no room.
    pub(crate) fn make_row(self, index: usize) -> Option<Words> {
        let lock = Lock::take();
        let offset = arena::allocate(self.shape.row())?;
        drop(lock);
        self.words.set(table::FIRST_ROW + index, offset as u64);
        Some(Words::at(offset))
    }
}

/// Clears the block of a child's thread, which then starts anew.
pub(crate) fn forget() {
    local::set::<BLOCK>(0);
}
