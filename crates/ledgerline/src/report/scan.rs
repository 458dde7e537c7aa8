//! A scan is one look at all rows. Snapshots, diagnoses and leak reports are made of it.
//!
//! A look takes loads alone and no memory of its own, so it is short: 15 to 30 ns a row. It is repeated if
//! a transfer was under way (`counter/transfers.rs`). When transfers follow each other too fast, the gate
//! holds up those of this process for one look. If the tree is too large for that, or a process was killed
//! in the middle of a transfer, the scan is reported as not steady.

use crate::gate::lock::{self, GATE};
use crate::percpu::word;
use crate::sync::{Ordering, wait_a_turn};
use crate::table::Table;
use crate::table::counts;
use crate::table::follow;
use crate::table::id::GroupId;
use crate::table::path::DEPTH_MAX;
use crate::table::row::{Row, state};

/// How many looks are tried before writers are held up for one.
const TRIES: u32 = 32;
/// How many looks are tried at a large table.
const LARGE_TRIES: u32 = 4;
/// How many looks are tried while they are held up: other processes' transfers go on.
const HELD_TRIES: u32 = 8;
/// The largest table for which writers are held up: a look takes about a millisecond.
const HELD_ROWS: usize = 1 << 15;

/// One row at the time of the look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) state: u32,
    pub(crate) generation: u16,
    pub(crate) parent: u32,
    /// Levels below the root.
    pub(crate) depth: u32,
    /// Units granted, including the subtree's and what lies idle there.
    pub(crate) usage: u64,
    /// The row's own idle units; after [`Scan::sum_up`] the subtree's. The same holds for the counts.
    pub(crate) idle: u64,
    pub(crate) charges: u64,
    pub(crate) uncharges: u64,
    pub(crate) refused: u64,
}

impl Line {
    /// Units charged in the subtree, once it is summed up.
    pub(crate) fn current(&self) -> u64 {
        self.usage.saturating_sub(self.idle)
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.state == state::RETIRED
    }
}

/// All rows. Unused rows, and those that do not lead to the root, are [`state::FREE`].
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) lines: Vec<Line>,
    /// Whether no transfer was under way during the look.
    pub(crate) steady: bool,
}

/// Reads the rows until no transfer was seen. Says whether that succeeded. The rows are read at least once.
fn look(table: &Table, lines: &mut [Line], tries: u32) -> bool {
    let transfers = table.transfers();
    for turn in 0..tries {
        let before = transfers.quiet();
        if before.is_none() && turn + 1 < tries {
            wait_a_turn(turn);
            continue;
        }
        read_rows(table, lines);
        if before.is_some() && transfers.quiet() == before {
            return true;
        }
    }
    false
}

fn read_rows(table: &Table, lines: &mut [Line]) {
    for (index, line) in lines.iter_mut().enumerate() {
        let index = index as u32;
        let id = GroupId::from_parts(index, table.row(index).generation());
        // (A row that another group gets meanwhile is left out.)
        *line = follow::read_held(table, id, |row| read_row(table, id, row)).unwrap_or_default();
    }
}

fn read_row(table: &Table, id: GroupId, row: &Row) -> Line {
    let mut line = Line {
        state: row.state.load(Ordering::Acquire),
        generation: id.generation(),
        parent: row.parent.load(Ordering::Relaxed),
        refused: row.counter.failcnt(),
        ..Line::default()
    };
    (line.charges, line.uncharges) = counts::of_row(table, id.index());
    for column in row.noted_columns(table.columns.count()) {
        let word = table.columns.cell(column, id.index()).word.load(Ordering::Acquire);
        if word::generation(word) == table.cell_generation(row) {
            line.idle += word::stock(word);
        }
    }
    line.usage = row.counter.usage();
    line
}

impl Scan {
    /// Looks at all rows in use.
    pub(crate) fn of(table: &Table) -> Scan {
        let mut lines = vec![Line::default(); table.high_water() as usize];
        let small = lines.len() <= HELD_ROWS;
        let mut steady = look(table, &mut lines, if small { TRIES } else { LARGE_TRIES });
        if !steady && small && GATE.close(lock::thread()) {
            // No allocation in here: an allocator may wait at the gate, with its own locks.
            steady = look(table, &mut lines, HELD_TRIES);
            GATE.open();
        }
        let mut scan = Scan { lines, steady };
        scan.measure_depths();
        scan
    }

    /// Finds each row's depth, and drops rows that do not lead to the root: another process may have
    /// written over them.
    fn measure_depths(&mut self) {
        for index in 1..self.lines.len() {
            if self.lines[index].state == state::FREE {
                continue;
            }
            let (mut at, mut depth) = (index, 0);
            while at != 0 && depth < DEPTH_MAX {
                let line = self.lines.get(at).filter(|line| line.state != state::FREE);
                let Some(line) = line else { break };
                at = line.parent as usize;
                depth += 1;
            }
            if at == 0 && depth < DEPTH_MAX {
                self.lines[index].depth = depth as u32;
            } else {
                // It is not dropped at once: the rows below follow the same chain, with the same result.
                self.lines[index].depth = u32::MAX;
            }
        }
        for line in &mut self.lines {
            if line.depth == u32::MAX {
                *line = Line::default();
            }
        }
    }

    /// The rows in use, the deepest first.
    pub(crate) fn deepest_first(&self) -> Vec<u32> {
        let mut rows: Vec<u32> = (0..self.lines.len() as u32)
            .filter(|&row| row == 0 || self.lines[row as usize].state != state::FREE)
            .collect();
        rows.sort_by_key(|&row| std::cmp::Reverse((self.lines[row as usize].depth, row)));
        rows
    }

    /// Adds what each row counts itself (idle units and counts) to its ancestors.
    pub(crate) fn sum_up(&mut self) {
        for row in self.deepest_first() {
            if row == 0 {
                continue;
            }
            let own = self.lines[row as usize];
            let up = &mut self.lines[own.parent as usize];
            // (Wrapping: another process may have written anything here, too.)
            up.idle = up.idle.wrapping_add(own.idle);
            up.charges = up.charges.wrapping_add(own.charges);
            up.uncharges = up.uncharges.wrapping_add(own.uncharges);
            up.refused = up.refused.wrapping_add(own.refused);
        }
    }
}
