//! The owner of a block: four bytes behind what the program asked for.
//!
//! ```text
//!  31          20 19                    0
//! +--------------+-----------------------+
//! | stamp        | row                   |
//! +--------------+-----------------------+
//! ```
//!
//! The *stamp* is the process's: never zero, and never that of an ancestor. So a forked child sees
//! at once that a block it inherited is not its own: the account of such a block stays with the
//! process that allocated it, which still has it. A block that was allocated while nobody was
//! accounted has tag zero.
//!
//! The tag lies at the very end of the block's usable size, where no header has to be made room for
//! and no alignment changes; what is asked of the allocator grows by four bytes, which the rounding
//! to 16 absorbs three times in four.

/// Bytes that a tag takes.
pub(crate) const SIZE: usize = 4;
const ROW_BITS: u32 = 20;
const ROW_MASK: u32 = (1 << ROW_BITS) - 1;
/// Stamps are below this.
pub(crate) const STAMPS: u32 = 1 << (32 - ROW_BITS);

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u32);

impl Tag {
    /// Of a block that nobody is charged for.
    pub(crate) const NONE: Tag = Tag(0);

    pub(crate) const fn new(stamp: u32, row: u32) -> Tag {
        Tag(stamp << ROW_BITS | row & ROW_MASK)
    }

    pub(crate) const fn from_raw(raw: u32) -> Tag {
        Tag(raw)
    }

    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    pub(crate) const fn stamp(self) -> u32 {
        self.0 >> ROW_BITS
    }

    pub(crate) const fn row(self) -> u32 {
        self.0 & ROW_MASK
    }

    /// Writes the tag of a block.
    ///
    /// # Safety
    /// `block` has `usable` bytes, at least four, of which the last four are not the program's.
    #[inline(always)]
    pub(crate) unsafe fn write(self, block: *mut u8, usable: usize) {
        // SAFETY: the last four bytes of the block, by the caller's word.
        unsafe { block.add(usable - SIZE).cast::<u32>().write_unaligned(self.0) }
    }

    /// Reads the tag of a block.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[inline(always)]
    pub(crate) unsafe fn read(block: *const u8, usable: usize) -> Tag {
        // SAFETY: as above.
        Tag(unsafe { block.add(usable - SIZE).cast::<u32>().read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_keeps_stamp_and_row_apart() {
        let tag = Tag::new(STAMPS - 1, ROW_MASK);
        assert_eq!((tag.stamp(), tag.row()), (STAMPS - 1, ROW_MASK));
        assert_eq!(Tag::new(1, 0).row(), 0);
        assert_eq!(Tag::NONE.stamp(), 0);
    }

    #[test]
    fn a_tag_is_read_back_from_any_alignment() {
        let mut block = [0u8; 32];
        for usable in 4..32 {
            // SAFETY: the array has 32 bytes.
            unsafe {
                Tag::new(77, usable as u32).write(block.as_mut_ptr(), usable);
                assert_eq!(Tag::read(block.as_ptr(), usable), Tag::new(77, usable as u32));
            }
        }
    }
}
