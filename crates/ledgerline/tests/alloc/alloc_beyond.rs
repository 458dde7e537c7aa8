//! An underlying allocator whose addresses have more bits than those of a process.

use crate::common::again;
use ledgerline::{Alloc, Ledger};
use std::alloc::{GlobalAlloc, Layout};
use std::os::unix::process::ExitStatusExt;

/// Returns addresses that it never touches.
struct Beyond;

const FIRST: usize = 1 << 47;

// SAFETY: no block is ever touched here.
unsafe impl GlobalAlloc for Beyond {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        std::ptr::without_provenance_mut(FIRST)
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}

    unsafe fn realloc(&self, _: *mut u8, _: Layout, _: usize) -> *mut u8 {
        std::ptr::without_provenance_mut(FIRST)
    }
}

static ALLOC: Alloc<Beyond> = Alloc::new(Beyond);

const WAYS: [&str; 5] = ["nobody", "charged", "large", "nobody's large", "grown"];

fn go(way: &str) {
    let ledger = Ledger::new().unwrap().into_static();
    let [small, large] = [64, 1 << 20].map(|size| Layout::from_size_align(size, 16).unwrap());
    // SAFETY: the sizes are not zero; the blocks are made up and never touched.
    unsafe {
        match way {
            "nobody" => ALLOC.alloc(small),
            "charged" => ledger.root().scope(|| ALLOC.alloc(small)),
            "large" => ledger.root().scope(|| ALLOC.alloc(large)),
            "nobody's large" => ALLOC.alloc(large),
            _ => ALLOC.realloc(std::ptr::without_provenance_mut(FIRST - 64), small, 128),
        };
    }
}

#[test]
fn a_block_beyond_the_addresses_of_a_process_stops_it() {
    const WAY: &str = "LEDGERLINE_TEST_WAY";
    if let Ok(way) = std::env::var(WAY) {
        return go(&way);
    }
    for way in WAYS {
        let output = again("a_block_beyond_the_addresses_of_a_process_stops_it")
            .env(WAY, way)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{way}: {said}");
        assert!(said.contains("a block at 0x800000000000: more than 47 bits"), "{way}: {said}");
    }
}
