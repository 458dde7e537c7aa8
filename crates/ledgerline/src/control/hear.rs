//! The thread that receives limit changes of other processes and acts on them (`listener.rs` has the protocol).

use crate::control::listener::{LONGEST, PACE, count};
use crate::control::{events, reclaim, wait_queue};
use crate::ledger::Ledger;
use crate::table::id::GroupId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Runs the thread's loop.
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

/// Does after another process's change of limits what a setter in this process does: brings a group above its max
/// down by its reclaimers, and notifies waiters whose requests are now too large.
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
