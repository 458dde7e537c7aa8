//! Counting of events in our design: in a group's statistics, and in the counters of a zone.
//!
//! A group's statistics are sums in the running CPU's cell, behind a tag that names their group. Counting writes
//! nothing that another CPU reads until a reader asks. A zone's counters are differences in the running CPU's block,
//! with their threshold beside them. A difference that oversteps goes to the zone's total and to nothing else; the
//! total is kept in [`STRIPES`] stripes, each on a pair of lines of its own.

use crate::layout::{FieldId, Layout, Scope};
use crate::program::Step;

/// How many stripes a total has: the library's `STRIPES_MAX`.
pub const STRIPES: usize = 4;

/// The largest threshold of a difference of a signed byte: the library's `threshold::MOST`.
pub const MOST_OF_A_BYTE: u32 = 125;

/// Bytes of a zone's block before its differences: the word with the threshold.
pub const BLOCK_HEADER: u64 = 8;

/// The positions of `numa_hit` and `numa_local` among a zone's items.
pub const HIT_AND_LOCAL: [u64; 2] = [0, 4];

/// A group's statistics in the running CPU's column.
pub struct Sums {
    tag: FieldId,
    table: FieldId,
}

impl Sums {
    /// Lays out one cell for each CPU.
    #[must_use]
    pub fn new(layout: &mut Layout) -> Sums {
        let cell = layout.object("statistics", Scope::Cpu);
        let tag = layout.field(cell, "tag", 0);
        // The table holds the places of columns and the number of items. It is written when the ledger is made.
        let table = layout.object("table", Scope::Machine);
        let table = layout.field(table, "statistics", 0);
        Sums { tag, table }
    }

    /// Adds to an item. The addition itself is part of the document's work, as the document's own per-CPU addition is.
    #[must_use]
    pub fn add(&self) -> [Step; 2] {
        [Step::load(self.table), Step::load(self.tag)]
    }
}

/// The counters of a socket's zone, for the CPUs of that socket.
pub struct Zone {
    bytes: bool,
    differences: [FieldId; 2],
    totals: [FieldId; 2],
}

impl Zone {
    /// Lays out the zone of a socket, with differences of one byte each or of two.
    #[must_use]
    pub fn new(layout: &mut Layout, socket: usize, bytes: bool) -> Zone {
        let block = layout.object(&format!("differences of zone {socket}"), Scope::Cpu);
        let width = if bytes { 1 } else { 2 };
        let names = ["numa_hit", "numa_local"];
        let differences = [0, 1].map(|which| {
            layout.field(block, names[which], BLOCK_HEADER + width * HIT_AND_LOCAL[which])
        });
        // A CPU's number chooses its stripe, so CPUs take the stripes in turn.
        let total = layout.object(&format!("totals of zone {socket}"), Scope::Groups(STRIPES));
        let totals =
            [0, 1].map(|which| layout.field(total, names[which], 8 * HIT_AND_LOCAL[which]));
        Zone { bytes, differences, totals }
    }

    /// Counts an allocation that hit and was local, with a threshold.
    #[must_use]
    pub fn count(&self, threshold: u32) -> [Step; 4] {
        let [hit, local] = self.differences;
        // A byte that oversteps leaves minus half of the threshold behind, a word of 16 bits leaves nothing.
        let period = if self.bytes { threshold + threshold / 2 + 1 } else { threshold + 1 };
        [
            Step::load(hit),
            Step::store(hit),
            Step::store(local),
            Step::every(period, self.totals.map(Step::rmw)),
        ]
    }
}
