//! Slots by name: the rows of a process's threads or libraries.

use super::{OWN, SLOTS, STATE, group, note, set_group};
use crate::filter;
use crate::text::Text;
use ledgerline::NAME_MAX;
use ledgerline_protocol::Item;
use std::sync::atomic::{AtomicU64, Ordering};

/// The name of a slot's row, padded with zeros; all zeros for a slot without a row.
pub(super) type Name = [AtomicU64; NAME_MAX / 8];

/// Appends the name of a slot's row below the process's own, if it is another.
pub(super) fn push<const N: usize>(text: &mut Text<N>, slot: u32) {
    if slot > OWN {
        let mut name = [0; NAME_MAX];
        for (to, from) in name.chunks_exact_mut(8).zip(&STATE.names[slot as usize % SLOTS]) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_le_bytes());
        }
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        text.push(b"/").push(&name[..length]);
    }
}

/// Returns the slot of the row with this name below the process's own; creates the row if the name is new. If there are
/// too many names, or no room in the ledger, it is the process's own slot.
pub(crate) fn named_slot(name: &[u8]) -> u32 {
    let mut text = Text::name();
    text.push(if name.is_empty() { b"(no name)" } else { name });
    while STATE.naming.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        filter::wait();
    }
    let slot = find_or_create(&text).unwrap_or_else(|| {
        note(OWN, Item::Folded, 1);
        OWN
    });
    STATE.naming.store(0, Ordering::Release);
    slot
}

fn find_or_create(text: &Text<NAME_MAX>) -> Option<u32> {
    let words = text.words::<{ NAME_MAX / 8 }>();
    for (slot, name) in STATE.names.iter().enumerate().skip(OWN as usize + 1) {
        if STATE.groups[slot].load(Ordering::Relaxed) == 0 {
            let group = group(OWN)?.create(text.as_str()).ok()?;
            for (to, from) in name.iter().zip(words) {
                to.store(from, Ordering::Relaxed);
            }
            set_group(slot, group);
            return Some(slot as u32);
        }
        if name.iter().zip(words).all(|(have, want)| have.load(Ordering::Relaxed) == want) {
            return Some(slot as u32);
        }
    }
    None
}
