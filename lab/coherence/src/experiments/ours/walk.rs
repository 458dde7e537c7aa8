//! The walk from a group's row to the root: the effect of one charge or uncharge in a batch.
//!
//! ```text
//! charge:    pass the gate; follow the parents; look at the own cell and the group's usage
//!            in_flight += surplus               root first
//!            max, and usage where it is set     root first
//!            reserved += , max again            root first
//!            usage += ; watermark, high, max    root first
//!            in_flight -= surplus               row first
//!            leave the gate
//! uncharge:  pass the gate; follow the parents; look at the own cell and the group's usage
//!            in_flight += ; usage, reserved -= ; in_flight -= ; prepaid (what may lie idle); leave the gate
//! ```
//!
//! A charge makes four additions a level, on two lines of a pair, and so does an uncharge. Limits, parent and state
//! lie on the next pair and are only read. No group here has a limit, so the walk looks at no level's usage before.
//! `prepaid` shares a line with `in_flight`. The gate costs a compare-and-swap on entering and two stores on leaving,
//! on one of 64 pairs of lines. Threads are spread evenly over these here; the library spreads them by a hash.

use crate::layout::{FieldId, Layout, Scope};
use crate::program::Step;

/// The offsets in bytes of a row's fields: the library's `Row`, of 256 bytes and aligned to as many.
pub const ROW: [(&str, u64); 11] = [
    ("counter.hot.reserved", 0),
    ("counter.hot.usage", 8),
    ("counter.track.watermark", 64),
    ("counter.track.prepaid", 96),
    ("counter.track.in_flight", 112),
    ("counter.limits.max", 128),
    ("counter.limits.high", 136),
    ("parent", 160),
    ("generation", 164),
    ("state", 168),
    ("columns", 184),
];

/// The offset in bytes of the slots in a stripe of the gate: the library's `Stripe`, a pair of lines.
pub const STRIPE: [(&str, u64); 1] = [("slots", 0)];

/// The offsets in bytes of a slot's word that names the thread inside, and of the count of visits: the library's
/// `Slot`.
pub const SLOT: [(&str, u64); 2] = [("who", 0), ("visits", 8)];

/// How many stripes the gate has.
pub const STRIPES: usize = 64;

/// Cycles of a walk beside its accesses: it copies the path to the root, chooses the cell's cap and makes some tests.
/// A walk of two levels alone takes 0.1 µs, half of that in its atomics.
const CYCLES: f64 = 150.0;

struct Level {
    reserved: FieldId,
    usage: FieldId,
    watermark: FieldId,
    prepaid: FieldId,
    in_flight: FieldId,
    max: FieldId,
    high: FieldId,
    parent: FieldId,
    generation: FieldId,
    state: FieldId,
    columns: FieldId,
}

impl Level {
    fn new(layout: &mut Layout, name: &str, scope: Scope) -> Level {
        let row = layout.object(name, scope);
        let mut fields = ROW.into_iter();
        let mut next = || {
            let (field, offset) = fields.next().expect("as many as a level has");
            layout.field(row, field, offset)
        };
        Level {
            reserved: next(),
            usage: next(),
            watermark: next(),
            prepaid: next(),
            in_flight: next(),
            max: next(),
            high: next(),
            parent: next(),
            generation: next(),
            state: next(),
            columns: next(),
        }
    }
}

/// The rows from a group to the root, and the gate before them.
pub struct Tree {
    /// The levels, the group's own first.
    levels: Vec<Level>,
    who: FieldId,
    visits: FieldId,
    closed_by: FieldId,
    cell: FieldId,
}

impl Tree {
    /// Lays out rows, given their names and scopes, the group's first and the root's last.
    #[must_use]
    pub fn new(layout: &mut Layout, levels: &[(&str, Scope)]) -> Tree {
        let stripe = layout.object("gate", Scope::Groups(STRIPES));
        let [who, visits] = SLOT.map(|(name, offset)| layout.field(stripe, name, offset));
        let closed = layout.object("gate", Scope::Machine);
        let closed_by = layout.field(closed, "closed_by", 0);
        let cell = layout.object("cell", Scope::Cpu);
        let cell = layout.field(cell, "word", 0);
        let levels = levels.iter().map(|&(name, scope)| Level::new(layout, name, scope)).collect();
        Tree { levels, who, visits, closed_by, cell }
    }

    /// Returns the steps of a charge that finds its cell empty.
    #[must_use]
    pub fn charge(&self) -> Vec<Step> {
        let mut steps = self.enter();
        steps.extend(self.levels.iter().rev().map(|level| Step::load_overlapping(level.max)));
        for level in self.levels.iter().rev() {
            steps.extend([
                Step::load_overlapping(level.max),
                Step::rmw(level.reserved),
                Step::load_overlapping(level.max),
            ]);
        }
        steps.push(Step::load_overlapping(self.leaf().generation));
        for level in self.levels.iter().rev() {
            steps.push(Step::rmw(level.usage));
            let read = [level.watermark, level.high, level.max];
            steps.extend(read.map(Step::load_overlapping));
        }
        steps.extend(self.cell_and_in_flight());
        steps.extend(self.out());
        steps
    }

    /// Returns the steps of an uncharge that finds its cell full.
    #[must_use]
    pub fn uncharge(&self) -> Vec<Step> {
        let mut steps = self.enter();
        for level in &self.levels {
            steps.extend([level.usage, level.reserved].map(Step::rmw));
        }
        steps.extend(self.cell_and_in_flight());
        steps.extend(self.levels.iter().rev().map(|level| Step::load_overlapping(level.prepaid)));
        steps.extend(self.out());
        steps
    }

    fn leaf(&self) -> &Level {
        &self.levels[0]
    }

    /// Passes the gate, follows the parents, looks at the cell, and notes units that are in flight.
    fn enter(&self) -> Vec<Step> {
        let leaf = self.leaf();
        let mut steps = vec![
            Step::load_overlapping(self.who),
            Step::rmw(self.who),
            Step::load_overlapping(self.closed_by),
            Step::load_overlapping(leaf.state),
            Step::load_overlapping(leaf.generation),
        ];
        let (_, below) = self.levels.split_last().expect("a tree has a root");
        steps.extend(below.iter().map(|level| Step::load(level.parent)));
        steps.extend([Step::load(self.cell), Step::load_overlapping(leaf.usage)]);
        steps.extend(self.levels.iter().map(|level| Step::load_overlapping(level.max)));
        steps.push(Step::compute(CYCLES));
        steps.extend(self.levels.iter().rev().map(|level| Step::rmw(level.in_flight)));
        steps
    }

    /// Puts the units in flight into the cell, and notes that they no longer are.
    fn cell_and_in_flight(&self) -> Vec<Step> {
        let mut steps = vec![
            Step::load(self.cell),
            Step::store(self.cell),
            Step::load_overlapping(self.leaf().columns),
        ];
        steps.extend(self.levels.iter().map(|level| Step::rmw(level.in_flight)));
        steps
    }

    /// Leaves the gate.
    fn out(&self) -> [Step; 2] {
        [Step::store(self.visits), Step::store(self.who)]
    }
}
