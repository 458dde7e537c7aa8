//! The layout of a table: the offsets of its parts in the region, which follow from its capacity, the machine's CPUs and
//! its items.

use super::handle::{self, CAPACITY_MAX};
use super::header::{Counts, Header};
use super::row::Row;
use super::sums;
use crate::percpu::STRIDE;
use crate::percpu::word::Cell;
use crate::region::Place;
use crate::region::parts::Parts;
use crate::region::row_set::RowSet;

/// The numbers that determine the offset of every part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) capacity: usize,
    pub(crate) columns: usize,
    /// Items of statistics beyond the fixed ones.
    pub(crate) items: usize,
}

impl Plan {
    pub(crate) const PAGE: usize = 4096;
    pub(super) const ROWS: usize = Plan::PAGE;
    /// The largest page size of any machine. The local page is a mapping of its own, so it starts and ends at a page.
    pub(crate) const LOCAL: usize = 1 << 16;
    pub(crate) const fn pages(bytes: usize) -> usize {
        bytes.next_multiple_of(Plan::PAGE)
    }

    pub(crate) const fn sets(self) -> usize {
        Plan::ROWS + Plan::pages(self.capacity * size_of::<Row>())
    }

    pub(crate) const fn set_size(self) -> usize {
        Plan::pages(RowSet::size(self.capacity))
    }

    pub(crate) const fn local(self) -> usize {
        (self.sets() + 2 * self.columns * self.set_size()).next_multiple_of(Plan::LOCAL)
    }

    pub(crate) const fn first_column(self) -> usize {
        self.local() + Plan::LOCAL
    }

    /// The offset of the counts in a column, behind the cells.
    pub(super) const fn counts(self) -> usize {
        Plan::pages(self.capacity * size_of::<Cell>())
    }

    /// The used bytes of a column.
    const fn column(self) -> usize {
        self.counts() + Plan::pages(self.capacity * size_of::<Counts>())
    }

    pub(crate) const fn statistics(self) -> usize {
        self.first_column() + self.columns * STRIDE
    }

    /// The bytes of a row's cell of statistics, which begins on a line.
    pub(crate) const fn statistics_width(self) -> usize {
        (sums::cell_words(self.items) * 8).next_multiple_of(64)
    }

    pub(crate) const fn statistics_stride(self) -> usize {
        Plan::pages(self.capacity * self.statistics_width())
    }

    pub(crate) const fn totals(self) -> usize {
        self.statistics() + self.columns * self.statistics_stride()
    }

    pub(crate) const fn totals_width(self) -> usize {
        (sums::total_words(self.items) * 8).next_multiple_of(64)
    }

    /// The alignment of the region: the first column begins at a multiple of its own size.
    pub(crate) const fn place(self) -> Place {
        Place { offset: self.first_column(), alignment: handle::ALIGNMENT }
    }

    /// The used parts: everything but the rest of each column.
    pub(crate) const fn parts(self) -> Parts {
        Parts {
            first: self.first_column(),
            length: self.column(),
            distance: STRIDE,
            count: self.columns,
            tail: self.statistics(),
            size: self.size(),
        }
    }

    /// The offset of the index of names (`names.rs`).
    pub(crate) const fn names(self) -> usize {
        self.totals() + Plan::pages(self.capacity * self.totals_width())
    }

    /// The size of the whole region in bytes.
    pub(crate) const fn size(self) -> usize {
        self.names() + self.names_size()
    }
}

const _: () = assert!(CAPACITY_MAX * (size_of::<Cell>() + size_of::<Counts>()) <= STRIDE);

const _: () = assert!(size_of::<Header>() <= Plan::PAGE);
