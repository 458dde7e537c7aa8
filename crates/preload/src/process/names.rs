//! Slots by name: the rows of a process's threads or libraries.

use super::{Item, OWN, SLOTS, STATE, group, note, set_group};
use crate::filter;
use crate::text::Text;
use ledgerline::NAME_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a slot's row is called; zeros of one without a row.
pub(super) struct Name {
    /// The name, filled up with zeros.
    text: [AtomicU64; NAME_MAX / 8],
}

impl Name {
    pub(super) const fn new() -> Name {
        Name { text: [const { AtomicU64::new(0) }; NAME_MAX / 8] }
    }
}

/// What the row of a slot is called below the process's own, if it is another.
pub(crate) fn slot_name(slot: u32) -> Option<[u8; NAME_MAX]> {
    let name = (slot > OWN).then(|| &STATE.names[slot as usize % SLOTS])?;
    let mut bytes = [0; NAME_MAX];
    for (to, from) in bytes.chunks_exact_mut(8).zip(&name.text) {
        to.copy_from_slice(&from.load(Ordering::Relaxed).to_le_bytes());
    }
    Some(bytes)
}

/// The slot of the row with this name below the process's own; creates the row when the name is new. Where
/// there are too many names, or no room in the ledger, it is the process's own slot.
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
            for (to, from) in name.text.iter().zip(words) {
                to.store(from, Ordering::Relaxed);
            }
            set_group(slot, group);
            return Some(slot as u32);
        }
        if name.text.iter().zip(words).all(|(have, want)| have.load(Ordering::Relaxed) == want) {
            return Some(slot as u32);
        }
    }
    None
}
