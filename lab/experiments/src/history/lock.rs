//! The spinlock of Linux 2.6.25 to 4.1: tickets, served in order.

use std::sync::atomic::{AtomicU16, Ordering};

/// Turns for which a waiter spins before it yields its CPU. The kernel need not yield, since the holder of a spinlock
/// runs there.
const SPINS: u32 = 1 << 12;

/// A lock of two adjacent half-words.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct TicketLock {
    next: AtomicU16,
    serving: AtomicU16,
}

/// The lock is held while this lives.
pub(super) struct Held<'a>(&'a TicketLock);

impl TicketLock {
    #[inline(always)]
    pub(super) fn lock(&self) -> Held<'_> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut spins = 0;
        // Acquire: pairs with the Release in `drop` that served this ticket, and so sees the writes of the previous
        // holder.
        while self.serving.load(Ordering::Acquire) != ticket {
            spins += 1;
            if spins % SPINS == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Held(self)
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Only the holder writes this word, so the addition need not be atomic.
        let ticket = self.0.serving.load(Ordering::Relaxed);
        self.0.serving.store(ticket.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_at_a_time_holds_it_beyond_the_last_ticket() {
        let (lock, word) = (TicketLock::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..30_000 {
                        let _held = lock.lock();
                        // A load and a store: an addition would be lost if two threads were inside.
                        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(word.into_inner(), 90_000, "more than a half-word's tickets");
    }
}
