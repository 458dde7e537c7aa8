//! A scan is one look at all rows. Snapshots, diagnoses and leak reports are built from it.
//!
//! A look only loads, and uses no memory of its own, so it is short: 15 to 30 ns a row. It is repeated if a transfer or a
//! collection was under way (`counter/moves.rs`), or if units that a thread carries moved all the time. If these follow each
//! other too fast, the gate holds up those of this process for one look. If the tree is too large for that, or a process was
//! killed in the middle of a transfer, the scan is reported as not steady.

use crate::counter::IMPOSSIBLE;
use crate::gate::lock::{self, GATE};
use crate::percpu::thread_cache::places;
use crate::percpu::{thread_cache, word};
use crate::stock::totals;
use crate::sync::{Ordering, wait_a_turn};
use crate::table::id::GroupId;
use crate::table::path::DEPTH_MAX;
use crate::table::row::{Row, state};
use crate::table::sums::{COUNTED, FIXED};
use crate::table::{Table, collect, counts, follow, thread_caches};

/// How many looks are tried before writers are held up for one.
const TRIES: u32 = 32;
/// How many looks are tried at a large table.
const LARGE_TRIES: u32 = 4;
/// How many looks are tried while writers are held up: other processes' transfers continue.
const HELD_TRIES: u32 = 8;
/// The largest table for which writers are held up: a look takes about a millisecond.
const HELD_ROWS: usize = 1 << 15;

/// The fixed words that a group's subtree counted (`table/sums.rs`). The blocks stay zero: a line has them as counts.
pub(crate) type Words = [i64; COUNTED + FIXED];

/// One row at the time of the look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) state: u32,
    pub(crate) generation: u16,
    pub(crate) parent: u32,
    /// Levels below the root.
    pub(crate) depth: u32,
    /// Units granted, including the subtree's and the idle ones there.
    pub(crate) usage: u64,
    /// The row's own idle units; after [`Scan::sum_up`] the subtree's. The same holds for the counts.
    pub(crate) idle: u64,
    pub(crate) charges: u64,
    pub(crate) uncharges: u64,
    /// The row's counts that its totals do not have yet; after [`Scan::sum_up`] the subtree's.
    uncollected: Words,
    /// The totals of the row's subtree.
    collected: Words,
    /// Whether the row does not lead to the root, or has impossible counts, because another program wrote over it.
    pub(crate) damaged: bool,
}

impl Line {
    /// Returns the units charged in the subtree, once it is summed up.
    pub(crate) fn current(&self) -> u64 {
        self.usage.saturating_sub(self.idle)
    }

    /// Returns the counts of the subtree, destroyed groups included, once it is summed up.
    pub(crate) fn words(&self) -> Words {
        // A sum is below zero only in a row that another program wrote over.
        std::array::from_fn(|word| self.collected[word].wrapping_add(self.uncollected[word]).max(0))
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.state == state::RETIRED
    }
}

/// All rows. Unused rows are [`state::FREE`]. A row that does not lead to the root is damaged, and shown below the root.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) lines: Vec<Line>,
    /// Whether no transfer was under way during the look, and no units that threads carry moved.
    pub(crate) steady: bool,
}

/// Reads the rows until nothing was seen under way. Returns whether that succeeded. Reads the rows at least once.
fn look(table: &Table, lines: &mut [Line], tries: u32) -> bool {
    let transfers = table.transfers();
    for turn in 0..tries {
        // If statistics move from cells to totals, the reading starts again, as for transfers. A collection that does not end
        // is not waited for.
        let collected = totals::quiet(table);
        let before = transfers.quiet();
        if before.is_none() && turn + 1 < tries {
            wait_a_turn(turn);
            continue;
        }
        let undisturbed = read_rows(table, lines);
        let same = collected.is_none() || table.collections().quiet() == collected;
        if undisturbed && same && before.is_some() && transfers.quiet() == before {
            return true;
        }
    }
    false
}

/// Reads the rows. Returns whether no units moved between a thread cache and a cell of a row while it was read.
fn read_rows(table: &Table, lines: &mut [Line]) -> bool {
    let mut undisturbed = true;
    let mut read = |id, row: &Row| {
        let (line, of_row) = read_row(table, id, row);
        undisturbed &= of_row;
        line
    };
    for (index, line) in lines.iter_mut().enumerate() {
        let index = index as u32;
        let id = GroupId::from_parts(index, table.row(index).generation());
        // A row that goes to another group meanwhile is left out.
        *line = follow::read_held(table, id, |row| read(id, row)).unwrap_or_default();
    }
    // The root exists, whatever its row holds.
    let root = read(GroupId::ROOT, table.row(0));
    lines[0] = Line { state: state::LIVE, parent: 0, ..root };
    undisturbed
}

/// Reads a row. Returns it, and whether none of its units moved meanwhile.
fn read_row(table: &Table, id: GroupId, row: &Row) -> (Line, bool) {
    let mut line = Line {
        state: row.state.load(Ordering::Acquire),
        generation: id.generation(),
        parent: row.parent.load(Ordering::Relaxed),
        ..Line::default()
    };
    let look = || (counts::of_row(table, id.index()), idle(table, id, row));
    // Units that threads carry move for some ten nanoseconds at a time, unless a thread is preempted in between. Such a thread
    // has passed the gate, so a look while the gate is closed is not disturbed.
    let steady = (0..TRIES).find_map(|_| places::undisturbed(look));
    let undisturbed = steady.is_some();
    ((line.charges, line.uncharges), line.idle) = steady.unwrap_or_else(look);
    line.usage = row.counter.usage();
    for count in [&mut line.charges, &mut line.uncharges] {
        if *count > IMPOSSIBLE {
            *count = 0;
            line.damaged = true;
        }
    }
    collect::read_words(table, id.index(), &mut line.uncollected, &mut line.collected);
    for words in [&mut line.uncollected, &mut line.collected] {
        if words.iter().any(|word| word.unsigned_abs() > IMPOSSIBLE) {
            words.fill(0);
            line.damaged = true;
        }
    }
    (line, undisturbed)
}

/// Returns the idle units in a row's own cells and thread caches.
fn idle(table: &Table, id: GroupId, row: &Row) -> u64 {
    let cells = row.noted_columns(table.columns.count()).map(|column| {
        let word = table.columns.cell(column, id.index()).word.load(Ordering::Acquire);
        if word::generation(word) == table.cell_generation(row) { word::stock(word) } else { 0 }
    });
    let mut idle = cells.sum();
    thread_caches::each_of_row(table, id.index(), |thread_cache| {
        idle += thread_cache::units(thread_cache.word())
    });
    idle
}

impl Scan {
    /// Looks at all rows in use.
    pub(crate) fn of(table: &Table) -> Scan {
        let mut lines = vec![Line::default(); table.high_water() as usize];
        let small = lines.len() <= HELD_ROWS;
        let mut steady = look(table, &mut lines, if small { TRIES } else { LARGE_TRIES });
        if !steady && small && GATE.close(lock::thread()) {
            // No allocation in here: an allocator may wait at the gate while it holds its own locks.
            steady = look(table, &mut lines, HELD_TRIES);
            GATE.open();
        }
        Scan { lines, steady }.placed(table)
    }

    /// Looks at all rows of a table that does not change: a copy. The caller knows whether it is steady.
    pub(crate) fn of_copy(table: &Table, steady: bool) -> Scan {
        let mut lines = vec![Line::default(); table.high_water() as usize];
        read_rows(table, &mut lines);
        Scan { lines, steady }.placed(table)
    }

    /// Finds each row's depth. A row that does not lead to the root is dropped if its ancestors ended during the look; if
    /// another program wrote over it, it is placed below the root. The first round does that if the row's own parent is
    /// invalid, so that the rows below it stay there; the second, for a ring of parents.
    fn placed(mut self, table: &Table) -> Scan {
        for index in 1..self.lines.len() {
            let parent = self.lines[index].parent as usize;
            let is_used = self.lines.get(parent).is_some_and(|line| line.state != state::FREE);
            if parent == index || !is_used {
                self.place_below_root(table, index);
            }
        }
        for index in 1..self.lines.len() {
            match self.depth_of(index) {
                // All its ancestors lead to the root, too, and stay.
                Some(depth) => self.lines[index].depth = depth,
                None => self.place_below_root(table, index),
            }
        }
        self
    }

    fn place_below_root(&mut self, table: &Table, index: usize) {
        let line = &mut self.lines[index];
        let id = GroupId::from_parts(index as u32, line.generation);
        *line = if line.state != state::FREE && follow::is_lost(table, id) {
            Line { parent: 0, depth: 1, damaged: true, ..*line }
        } else {
            Line::default()
        };
    }

    /// Returns how many levels a row is below the root, or `None` if it does not lead there.
    fn depth_of(&self, index: usize) -> Option<u32> {
        let (mut at, mut depth) = (index, 0);
        while at != 0 {
            let line = self.lines.get(at).filter(|line| line.state != state::FREE)?;
            at = line.parent as usize;
            depth += 1;
            if depth as usize >= DEPTH_MAX {
                return None;
            }
        }
        Some(depth)
    }

    /// Returns the rows in use, the deepest first.
    pub(crate) fn deepest_first(&self) -> Vec<u32> {
        let mut rows: Vec<u32> = (0..self.lines.len() as u32)
            .filter(|&row| row == 0 || self.lines[row as usize].state != state::FREE)
            .collect();
        rows.sort_by_key(|&row| std::cmp::Reverse((self.lines[row as usize].depth, row)));
        rows
    }

    /// Adds the idle units and counts of each row to its ancestors.
    pub(crate) fn sum_up(&mut self) {
        for row in self.deepest_first().into_iter().filter(|&row| row != 0) {
            let own = self.lines[row as usize];
            let up = &mut self.lines[own.parent as usize];
            // Wrapping: another program may have written any number here.
            up.idle = up.idle.wrapping_add(own.idle);
            up.charges = up.charges.wrapping_add(own.charges);
            up.uncharges = up.uncharges.wrapping_add(own.uncharges);
            for (sum, word) in up.uncollected.iter_mut().zip(own.uncollected) {
                *sum = sum.wrapping_add(word);
            }
        }
    }
}
