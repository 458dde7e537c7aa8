//! The order of a section's loads on machines that do not guarantee it (`percpu/README.md`, O2 to O4).
//!
//! One word decides whether another may be used: limits and a difference, a tag and a sum, a charge word and its cap. A
//! stealer closes the first, fences, takes from the second, and opens the first again.

use super::model;
use crate::sync::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Block {
    /// Same as in [`Cpu`](super::Cpu).
    fences: Mutex<u64>,
    open: AtomicU64,
    sum: AtomicU64,
}

impl Block {
    /// The twin of a section: loads the first word in the given order, and then the second.
    fn add(&self, order: Ordering) -> bool {
        loop {
            let armed = *self.fences.lock().unwrap();
            if self.open.load(order) == 0 {
                return false;
            }
            let sum = self.sum.load(Ordering::Relaxed) + 1;
            let fences = self.fences.lock().unwrap();
            if *fences == armed {
                self.sum.swap(sum, Ordering::Relaxed);
                return true;
            }
        }
    }

    /// The twin of a stealer.
    fn take(&self) -> u64 {
        self.open.store(0, Ordering::SeqCst);
        *self.fences.lock().unwrap() += 1;
        let taken = self.sum.swap(0, Ordering::Relaxed);
        self.open.store(1, Ordering::Release);
        taken
    }
}

fn added_while_taken(order: Ordering) {
    model(move || {
        let block = Arc::new(Block {
            fences: Mutex::new(0),
            open: AtomicU64::new(1),
            sum: AtomicU64::new(2),
        });
        let other = block.clone();
        let adder = thread::spawn(move || u64::from(other.add(order)));
        let taken = block.take();
        let added = adder.join().unwrap();
        assert_eq!(taken + block.sum.load(Ordering::Relaxed), 2 + added);
    });
}

#[test]
fn what_was_taken_is_not_stored_again_by_a_section_that_loads_in_order() {
    added_while_taken(Ordering::Acquire);
}

#[test]
#[should_panic(expected = "assertion")]
fn without_that_order_it_is_and_the_model_sees_it() {
    added_while_taken(Ordering::Relaxed);
}
