//! The thread that hears of limits which other processes change, and acts on it (`listener.rs` has the protocol).

use crate::control::listener::{LONGEST, PACE, count};
use crate::control::{events, reclaim, wait_queue};
use crate::ledger::Ledger;
use crate::table::id::GroupId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// The thread.
pub(crate) fn run(ledger: &Ledger, mut key: u32, stop: &AtomicBool) {
    let listener = &ledger.control().listener;
    let mut heard = listener.of_others(key);
    while !stop.load(Ordering::Relaxed) {
        let now = count(ledger).key();
        if now == key {
            count(ledger).wait_for_any_process(key, Instant::now() + LONGEST);
            continue;
        }
        key = now;
        events::wake_changed(ledger);
        let of_others = listener.of_others(key);
        if of_others.wrapping_sub(heard).cast_signed() > 0 {
            heard = of_others;
            follow(ledger);
        }
        if !stop.load(Ordering::Relaxed) {
            thread::sleep(PACE);
        }
    }
}

/// Does what a setter in this process does beside the change, after another process changed limits: a group that is above
/// its max is brought down by the reclaimers, and who waits for what is too much now learns of it.
fn follow(ledger: &Ledger) {
    wait_queue::tell_below(ledger, GroupId::ROOT);
    for id in ledger.control().reclaimers.groups() {
        let group = ledger.group(id);
        let counter = &group.row().counter;
        let max = counter.max();
        if group.exists() && counter.usage() > max {
            reclaim::above(group, max, &reclaim::Clock::start(ledger));
        }
    }
}
