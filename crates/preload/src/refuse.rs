//! The handling of refusals.
//!
//! ```text
//! settle the rows of dead processes; if there is room then: charge
//! the limit counts resident memory, and that is within it: charge
//! small, and this process was refused before: charge its part of the reserve
//! otherwise: note the size and the time; refuse, or end the process
//! ```
//!
//! A program that was refused needs a little memory to report that: to format a message, to unwind, to log. If each of
//! those requests is refused again, handlers call themselves until the stack ends.

mod resident;

use crate::filter;
use crate::process::{self, STATE};
use crate::say::write;
use crate::stack;
use crate::text::Text;
use ledgerline::{Group, Refusal};
use ledgerline_protocol::{Identity, Item, OnMax, RESERVE_REQUEST, RESERVE_SHARE};
use std::sync::atomic::Ordering;

/// The limit that a charge asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The root's, for blocks and mappings together.
    All,
    /// That of the second ledger's root, for blocks alone.
    Heap,
}

/// Settles the rows of dead processes after a refusal, and charges if there is room then.
#[cold]
#[inline(never)]
pub(crate) fn try_again(slot: u32, group: Group<'_>, mut refusal: Refusal, limit: Limit) -> bool {
    let own = process::identity();
    // Under a filter this process cannot check which processes live.
    if !filter::is_on() {
        group.ledger().settle_dead(&|owner| Identity::from_owner(owner).may_live(own));
    }
    // This process or another may have made room. The usage is read first, since a second refusal would count.
    let usage = group.ledger().group(refusal.group).approximate().value;
    if usage.saturating_add(refusal.requested) <= refusal.limit {
        match group.try_charge_units(refusal.requested) {
            Ok(()) => return true,
            Err(again) => refusal = again,
        }
    }
    if limit == Limit::All
        && resident::is_counted()
        && resident::is_open(group.ledger().root())
        && group.charge_units(refusal.requested).is_ok()
    {
        // The program sees no refusal.
        process::note(slot, Item::Spared, 1);
        return true;
    }
    let now = filter::milliseconds();
    if spare(group, &refusal, now) {
        process::note(slot, if limit == Limit::Heap { Item::SparedHeap } else { Item::Spared }, 1);
        return true;
    }
    if limit == Limit::Heap {
        // The first ledger, which the account is made of, counts only its own refusals.
        process::note(slot, Item::RefusedHeap, 1);
    }
    note(slot, refusal.requested, refusal.usage, now);
    if process::run().is_some_and(|run| run.on_max == OnMax::Kill) {
        kill(slot, &refusal, with_reserve(group, &refusal), limit);
    }
    false
}

/// After this many milliseconds without a refusal a process may use its part of the reserve anew.
const QUIET: u64 = 1_000;

/// Charges the reserve, for a process that was refused before.
fn spare(group: Group<'_>, refusal: &Refusal, now: i64) -> bool {
    let (units, reserve) = (refusal.requested, reserve());
    // A clock at zero must not make every refusal the first.
    let now = now.unsigned_abs().max(1);
    let last = STATE.refused_last.swap(now, Ordering::Relaxed);
    if last == 0 || units > RESERVE_REQUEST {
        return false;
    }
    if now.saturating_sub(last) > QUIET {
        STATE.spared.store(0, Ordering::Relaxed);
    }
    // Relaxed: only the sum over all threads counts.
    if STATE.spared.fetch_add(units, Ordering::Relaxed) + units > reserve / RESERVE_SHARE {
        STATE.spared.fetch_sub(units, Ordering::Relaxed);
        return false;
    }
    let own = process::identity();
    let alive = |owner| filter::is_on() || Identity::from_owner(owner).may_live(own);
    let most = with_reserve(group, refusal);
    group.ledger().charge_reserve(group, units, most, &alive)
}

/// Returns the reserve within the root's limit, for processes that were refused.
fn reserve() -> u64 {
    process::run().map_or(0, |run| run.reserve)
}

/// Returns the limit that refused, as the user set it: the root's includes its reserve.
fn with_reserve(group: Group<'_>, refusal: &Refusal) -> u64 {
    let is_root = refusal.group == group.ledger().root().id();
    refusal.limit.saturating_add(if is_root { reserve() } else { 0 })
}

/// Notes a row's first refused size with its time, and the largest.
fn note(slot: u32, requested: u64, usage: u64, now: i64) {
    let Some(largest) = STATE.refused.get(slot as usize) else { return };
    // Each request that raises the maximum adds the increase, so that the sum is the maximum. The request that finds a
    // zero is the first, in any interleaving. Each step is an exchange of one word, which needs no ordering.
    let before = largest.fetch_max(requested, Ordering::Relaxed);
    if before == 0 {
        process::note(slot, Item::RefusedFirst, requested.cast_signed());
        process::note(slot, Item::RefusedFirstTime, now);
        process::note(slot, Item::RefusedUsage, usage.cast_signed());
        if process::run().is_some_and(|run| run.stack) && !filter::is_on() {
            stack::say(slot, requested);
        }
    }
    if requested > before {
        process::note(slot, Item::RefusedLargest, (requested - before).cast_signed());
    }
}

/// Handles [`OnMax::Kill`]: reports the request and the limit that refused it, and ends the process.
fn kill(slot: u32, refusal: &Refusal, most: u64, limit: Limit) -> ! {
    if filter::is_on() {
        filter::end();
    }
    let mut line = Text::line();
    line.push(b"killed: ");
    process::push_path(&mut line, slot);
    let of_resident = resident::is_counted();
    match limit {
        // The supervisor alone knows these two sizes.
        Limit::All if of_resident => line.push(b": resident memory is above max, "),
        Limit::All => line.push(b": max ").push_size(most).push(b": "),
        Limit::Heap => line.push(b": max-heap ").push_size(most).push(b": "),
    };
    if limit == Limit::Heap || !of_resident {
        line.push_size(refusal.usage).push(b" in use, ");
    }
    write(line.push_size(refusal.requested).push(b" asked for"));
    loop {
        // SAFETY: signals this process; nothing runs after it.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
