//! The number that names a group: its row, and the generation that distinguishes the row's successive groups.

use std::fmt;

/// The number of a group: its row, and the generation that distinguishes the row's successive groups.
///
/// The generation has sixteen bits. So an id that outlived its group is refused, unless exactly a multiple of 65 535 other
/// groups have used that row since. A group with live charges keeps its row, so the id of a charge never goes stale; only
/// a copy of a handle can.
///
/// Prints as `3#2`: row 3, its second group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupId(u64);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.index(), self.generation())
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl GroupId {
    pub(crate) const ROOT: GroupId = GroupId::from_parts(0, 1);
    /// A generation that no group ever has, so that no cell serves it.
    pub(crate) const NO_GENERATION: u16 = u16::MAX;
    /// An id that names no group. Its row exists in every ledger and is not the root's.
    pub(crate) const NOBODY: GroupId = GroupId::from_parts(1, GroupId::NO_GENERATION);

    /// Returns the id with these parts. Any numbers are accepted; an id that names no group is refused on use.
    pub const fn from_parts(index: u32, generation: u16) -> GroupId {
        const LAST: u32 = 0x7fff_ffff;
        // No ledger has a row beyond the last, so such an id names no group.
        let generation = if index > LAST { GroupId::NO_GENERATION } else { generation };
        GroupId((generation as u64) << 48 | (index & LAST) as u64)
    }

    /// Returns the row.
    pub const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Returns the generation: which of the row's successive groups it is. Never zero for a group that exists.
    pub const fn generation(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Returns the id as a number, for a table or an interface that keeps numbers. Never zero for a group that exists.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the id of a number that [`to_bits`](Self::to_bits) returned, or `None` for a number that it never returns.
    pub const fn from_bits(bits: u64) -> Option<GroupId> {
        let id = GroupId::from_parts(bits as u32, (bits >> 48) as u16);
        if id.0 == bits { Some(id) } else { None }
    }

    /// Returns the id of a number that [`raw`](Self::raw) returned.
    pub(crate) const fn from_raw(raw: u64) -> GroupId {
        GroupId(raw)
    }

    /// Returns the generation in the upper 16 bits, as in the charge word, and the row in the lower 32.
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_ledger_has_are_nobodys() {
        for (index, generation) in [(1 << 31, 1), (1 << 31 | 1, 1), (u32::MAX, 7)] {
            let id = GroupId::from_parts(index, generation);
            assert_eq!(id.generation(), GroupId::NO_GENERATION);
            assert_ne!(id, GroupId::ROOT);
        }
        let id = GroupId::from_parts(77, 3);
        assert_eq!((id.index(), id.generation()), (77, 3));
        assert_eq!(GroupId::from_bits(1 << 48 | 1 << 31), None);
    }
}
