//! The names, kept in the header, of the statistics that a ledger counts for its program.

use super::name;
use crate::sync::AtomicU64;

/// The most items of its own that a ledger may have.
pub const ITEMS_MAX: usize = 24;
/// The longest name of an item, in bytes.
pub const ITEM_NAME_MAX: usize = 32;

/// One of a ledger's own items, which [`Group::add_stat`](crate::Group::add_stat) counts.
///
/// It belongs to the ledger that returned it. Another ledger takes it for its own item with the same index, or treats it
/// as a mistake if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatItem(pub(crate) u8);

impl StatItem {
    /// Returns the item's index among the ledger's items.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// A name in a header: UTF-8, padded with zeros.
pub(crate) type Name = [AtomicU64; ITEM_NAME_MAX / 8];

/// Writes a name of at most [`ITEM_NAME_MAX`] bytes.
pub(crate) fn set_name(into: &Name, name: &str) {
    name::store::<ITEM_NAME_MAX>(into, name);
}

pub(crate) fn name_of(name: &Name) -> String {
    let bytes = name::load::<ITEM_NAME_MAX>(name);
    let name = String::from_utf8_lossy(name::before_zeros(&bytes).0);
    name::escaped_unless(&name, allows).into_owned()
}

/// Returns whether an item has this name. Allocates nothing, since an allocator calls it.
pub(crate) fn is_called(name: &Name, wanted: &str) -> bool {
    let bytes = name::load::<ITEM_NAME_MAX>(name);
    name::before_zeros(&bytes).0 == wanted.as_bytes() && wanted.chars().all(allows)
}

/// Returns whether an item's name may hold a character. A line of `memory.stat` is a name, a space and a number.
fn allows(character: char) -> bool {
    name::allows(character) && !character.is_whitespace()
}

/// Checks that these names can be a ledger's items.
pub(crate) fn check(items: &[&str]) -> Result<(), String> {
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
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
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
