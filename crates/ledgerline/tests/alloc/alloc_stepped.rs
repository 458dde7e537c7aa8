//! Signal handlers between any two instructions of an allocation. The first works in another group, so that the thread's cache
//! becomes that group's; the second works in the first group again. It uses the trap flag of x86-64, and an underlying
//! allocator that a signal handler may call.

use crate::common::ran_alone;
use ledgerline::{Alloc, Group, Ledger, Mistakes};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Hands out the places of an arena in turn.
struct Turn(UnsafeCell<[u8; 1 << 20]>, AtomicUsize);

// SAFETY: no code looks into the blocks, and few are live at a time.
unsafe impl Sync for Turn {}

// SAFETY: as above; all blocks lie inside the arena.
unsafe impl GlobalAlloc for &Turn {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        let at = self.1.fetch_add(128, Relaxed) % (1 << 19);
        // SAFETY: the arena is twice as large.
        unsafe { self.0.get().cast::<u8>().add(at).add(self.0.get().align_offset(16)) }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

static TURN: Turn = Turn(UnsafeCell::new([0; 1 << 20]), AtomicUsize::new(0));
static ALLOC: Alloc<&Turn> = Alloc::new(&TURN);

/// The thread's group, and the handlers' other group.
static GROUPS: OnceLock<[Group<'static>; 2]> = OnceLock::new();
static STEPS: AtomicUsize = AtomicUsize::new(0);
static FIRST: AtomicUsize = AtomicUsize::new(0);
static SECOND: AtomicUsize = AtomicUsize::new(0);

const LAYOUT: Layout = Layout::new::<[u64; 6]>();

/// Makes enough pairs for the thread's cache to become the group's.
fn work(group: Group<'static>) {
    group.scope(|| {
        for _ in 0..600 {
            // SAFETY: the size is not zero, and the block is freed at once.
            unsafe { ALLOC.dealloc(black_box(ALLOC.alloc(LAYOUT)), LAYOUT) };
        }
    });
}

extern "C" fn stepped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let [group, other] = *GROUPS.get().expect("the test set it");
    let step = STEPS.fetch_add(1, Relaxed) + 1;
    if step == FIRST.load(Relaxed) {
        work(other);
    }
    if step == SECOND.load(Relaxed) {
        work(group);
    }
    if step >= SECOND.load(Relaxed) {
        // SAFETY: the kernel's context of this signal, from which the thread continues.
        unsafe {
            let context = &mut *context.cast::<libc::ucontext_t>();
            context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !0x100;
        }
    }
}

/// Runs `work` with a trap after each of its instructions.
#[inline(never)]
fn step_through<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the trap flag is set and cleared; its handler is installed.
    unsafe {
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        let done = work();
        std::arch::asm!("pushfq", "and qword ptr [rsp], 0xfffffffffffffeff", "popfq");
        done
    }
}

#[test]
fn handlers_between_any_two_instructions_label_no_block_with_another_group() {
    if ran_alone("handlers_between_any_two_instructions_label_no_block_with_another_group") {
        return;
    }
    let ledger = Ledger::builder().capacity(8).anonymous().unwrap().into_static();
    let [group, other] = ["group", "other"].map(|name| ledger.root().create(name).unwrap());
    assert!(GROUPS.set([group, other]).is_ok());
    // SAFETY: the handler makes only calls that are allowed in one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction =
            stepped as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
    }
    // A section with a trap inside would restart for ever, so its step ends with the second handler.
    for freed in [false, true] {
        for first in 1..90 {
            for second in first + 1..first + 4 {
                work(group);
                // SAFETY: the size is not zero.
                let make = || group.scope(|| unsafe { ALLOC.alloc(LAYOUT) });
                let block = freed.then(make);
                STEPS.store(0, Relaxed);
                FIRST.store(first, Relaxed);
                SECOND.store(second, Relaxed);
                let block = match block {
                    // SAFETY: it was made above.
                    Some(block) => step_through(|| unsafe {
                        ALLOC.dealloc(block, LAYOUT);
                        std::ptr::null_mut()
                    }),
                    // SAFETY: the size is not zero.
                    None => group.scope(|| step_through(|| unsafe { ALLOC.alloc(LAYOUT) })),
                };
                let live = [group.precise(), other.precise()];
                if !block.is_null() {
                    // SAFETY: it was made above.
                    unsafe { ALLOC.dealloc(block, LAYOUT) };
                }
                let left = [group.precise(), other.precise()];
                let held = if block.is_null() { 0 } else { LAYOUT.size() as u64 };
                assert_eq!((live, left), ([held, 0], [0, 0]), "{first} and {second}, {freed}");
            }
        }
    }
    assert_eq!(ledger.mistakes(), Mistakes::default());
    for ended in [group, other].map(|group| group.destroy().unwrap()) {
        assert_eq!((ended.charges, ended.leftover), (ended.uncharges, 0));
    }
}
