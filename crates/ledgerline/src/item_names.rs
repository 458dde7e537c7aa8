//! The names of the statistics that a ledger counts for its program, in its header.

use crate::ledger::Ledger;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Plan;

/// Items of its own that a ledger may have.
pub const ITEMS_MAX: usize = 24;
/// Longest name of an item, in bytes.
pub const ITEM_NAME_MAX: usize = 32;

impl Ledger {
    /// The names of the ledger's own items, in the order of their declaration. What is not UTF-8
    /// (another process wrote over it) shows as replacement marks.
    pub fn item_names(&self) -> Vec<String> {
        let names = &self.table().header().items;
        names.iter().take(self.table().plan.items).map(name_of).collect()
    }
}

/// A name in a header: UTF-8, filled up with zeros.
pub(crate) type Name = [AtomicU64; ITEM_NAME_MAX / 8];

/// Writes a name of at most [`ITEM_NAME_MAX`] bytes.
pub(crate) fn set_name(into: &Name, name: &str) {
    let mut bytes = [0u8; ITEM_NAME_MAX];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    for (word, part) in into.iter().zip(bytes.chunks_exact(8)) {
        let part = part.try_into().expect("chunks of eight");
        word.store(u64::from_le_bytes(part), Ordering::Relaxed);
    }
}

fn name_of(name: &Name) -> String {
    let mut bytes = [0u8; ITEM_NAME_MAX];
    for (word, part) in name.iter().zip(bytes.chunks_exact_mut(8)) {
        part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(ITEM_NAME_MAX);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

impl Plan {
    /// Whether these names can be a ledger's items.
    pub(crate) fn takes(items: &[&str]) -> Result<(), String> {
        if items.len() > ITEMS_MAX {
            return Err(format!("{} items: a ledger has at most {ITEMS_MAX}", items.len()));
        }
        let fixed = [
            "charged",
            "freed",
            "blocks_live",
            "blocks_total",
            "refused",
            "reclaimed",
            "throttled",
            "throttled_usec",
        ];
        for (place, name) in items.iter().enumerate() {
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            if name.is_empty() || name.len() > ITEM_NAME_MAX || !name.bytes().all(plain) {
                return Err(format!(
                    "item {name:?}: a name has 1 to {ITEM_NAME_MAX} of a-z, 0-9 and _"
                ));
            }
            if fixed.contains(name) || items[..place].contains(name) {
                return Err(format!("item {name:?} is there already"));
            }
        }
        Ok(())
    }
}
