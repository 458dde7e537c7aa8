//! The number under which this process charges ledgers that it shares with others.

use crate::os::{Advice, memory};
use crate::sync::{AtomicU32, Ordering, are_calls_forbidden};

/// The process's number; zero before it attaches.
///
/// It is kept outside the ledgers, so that a ledger is read-only data to its users and the compiler may keep its fields
/// in registers across charges.
static ATTACHED: AtomicU32 = AtomicU32::new(0);

pub(crate) fn process() -> u32 {
    ATTACHED.load(Ordering::Relaxed)
}

pub(crate) fn attach(process: u32) {
    ATTACHED.store(process, Ordering::Relaxed);
    note_here();
}

/// Nonzero if this very process created a shared ledger or attached to one. A forked child inherits the number above, but
/// not this note: the kernel wipes the page in the child. Only the page's first word is used.
static HERE: Page = Page([const { AtomicU32::new(0) }; 1024]);

#[repr(C, align(4096))]
struct Page([AtomicU32; 1024]);

/// See [`HERE`].
pub(crate) fn is_here() -> bool {
    HERE.0[0].load(Ordering::Relaxed) != 0
}

/// Notes that this very process writes rows of shared ledgers, provided that the kernel wipes the note in children.
pub(crate) fn note_here() {
    static WIPED: AtomicU32 = AtomicU32::new(0);
    // Relaxed: at worst, a second thread asks the kernel once more.
    if WIPED.load(Ordering::Relaxed) == 0 && !are_calls_forbidden() {
        let page = &raw const HERE;
        // SAFETY: the advice concerns a page of ours alone; where pages are larger, the kernel refuses it.
        let done =
            unsafe { memory::advise(page as *mut u8, size_of::<Page>(), Advice::WipedInChildren) };
        WIPED.store(u32::from(done), Ordering::Relaxed);
    }
    HERE.0[0].store(WIPED.load(Ordering::Relaxed), Ordering::Relaxed);
}
