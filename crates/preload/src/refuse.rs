//! What happens when a limit says no.

use crate::process::{self, Item, STATE};
use crate::say::write;
use crate::text::Text;
use ledgerline::{Group, Refusal};
use ledgerline_protocol::{Identity, OnMax};
use std::sync::atomic::Ordering;

/// Settles the rows of dead processes after a refusal, and charges if there is room then.
#[cold]
#[inline(never)]
pub(crate) fn try_again(slot: u32, group: Group<'_>, mut refusal: Refusal) -> bool {
    let own = process::identity();
    group.ledger().settle_dead(&|owner| Identity::from_owner(owner).may_live(own));
    // This process or another may have made room. (The usage is looked at first, since a second refusal would count.)
    let usage = group.ledger().group(refusal.group).approximate().value;
    if usage.saturating_add(refusal.requested) <= refusal.limit {
        match group.try_charge_units(refusal.requested) {
            Ok(()) => return true,
            Err(again) => refusal = again,
        }
    }
    note(slot, refusal.requested);
    if process::on_max() == OnMax::Kill {
        kill(slot, &refusal);
    }
    false
}

/// Keeps what a row was refused first, and when, and the most.
fn note(slot: u32, requested: u64) {
    let Some(largest) = STATE.refused.get(slot as usize) else { return };
    // Each request that raises it adds what it raised it by, so the item is the largest, and the one that finds a zero
    // is the first, whatever threads do at a time. (Each is an exchange of one word, which needs no ordering.)
    let before = largest.fetch_max(requested, Ordering::Relaxed);
    if before == 0 {
        process::note(slot, Item::RefusedFirst, requested.cast_signed());
        process::note(slot, Item::RefusedFirstTime, milliseconds());
    }
    if requested > before {
        process::note(slot, Item::RefusedLargest, (requested - before).cast_signed());
    }
}

/// The time of `CLOCK_MONOTONIC`.
fn milliseconds() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the record is live and writable; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// [`OnMax::Kill`]: says who asked, who refused and why, and ends the process.
fn kill(slot: u32, refusal: &Refusal) -> ! {
    let mut line = Text::line();
    line.push(b"killed: /");
    process::push_name(&mut line);
    if let Some(name) = process::slot_name(slot) {
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        line.push(b"/").push(&name[..length]);
    }
    line.push(b": max of ").push_number(refusal.limit);
    line.push(b" bytes reached, ").push_number(refusal.usage);
    line.push(b" in use, ").push_number(refusal.requested);
    write(line.push(b" requested"));
    // SAFETY: signals this process; nothing runs after it.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::abort()
    }
}
