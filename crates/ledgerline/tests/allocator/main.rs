//! The tests of a program with its own allocator, which counts the requests of a thread, and charges a ledger once a test
//! enables it.

mod audit_allocator;
mod refusal;

use ledgerline::{Group, Ledger};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

thread_local! {
    /// How many blocks the thread has requested.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

static LEDGER: OnceLock<Ledger> = OnceLock::new();
/// The charged group; zero before there is one.
static CHARGED: AtomicU64 = AtomicU64::new(0);

struct Own;

/// The size of the header in front of each block. The header records whether the block was charged.
const HEADER: usize = 128;

fn group() -> Option<Group<'static>> {
    let raw = CHARGED.load(Relaxed);
    let id = ledgerline::GroupId::from_parts(raw as u32, (raw >> 32) as u16);
    (raw != 0).then(|| LEDGER.get().expect("made before").group(id))
}

fn with_header(layout: Layout) -> Layout {
    assert!(layout.align() <= HEADER);
    Layout::from_size_align(layout.size() + HEADER, HEADER).unwrap()
}

// SAFETY: blocks are the system's, behind a header.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the layout is not empty, and the block has room for the header.
        unsafe {
            let block = System.alloc(with_header(layout));
            let charged = group().is_some_and(|g| g.try_charge_units(layout.size() as u64).is_ok());
            block.write(u8::from(charged));
            block.add(HEADER)
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `alloc`.
        unsafe {
            let block = block.sub(HEADER);
            if block.read() == 1 {
                group().expect("it was charged").uncharge_units(layout.size() as u64);
            }
            System.dealloc(block, with_header(layout));
        }
    }
}

#[global_allocator]
static OWN: Own = Own;
