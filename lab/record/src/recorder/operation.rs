//! The fields that one operation touches together.
//!
//! An operation begins at the entry of a named function, and ends at its return. The thread's table gathers the
//! operation's accesses to a type. At the end of the operation, the counts are added to the row of operations that
//! touched the same fields. So the recording shows not only the rates of fields but also which of them one operation
//! touches.

use crate::format::{KINDS, REST, header, table, thread as block};
use crate::recorder::arena;
use crate::recorder::local::Busy;
use crate::recorder::plan::{Plan, recording};
use crate::recorder::thread::{self, Table, Words};

/// Notes the entry of the function that contains an address, with the stack pointer there.
#[inline(always)]
pub(crate) fn entered(function: usize, stack: usize) {
    let Some(plan) = recording() else { return };
    if plan.operations.is_empty() {
        return;
    }
    let own = thread::existing();
    if let Some(own) = own {
        own.add_at_once(block::PROBES, 1);
        let depth = own.get(block::DEPTH);
        if depth != 0 {
            if (stack as u64) < own.get(block::STACK) {
                own.set(block::DEPTH, depth + 1);
                return;
            }
            // The frame of the operation is gone, by longjmp, which ended the operation.
            end(plan, own);
        }
    }
    if plan.operations.iter().any(|range| range.contains(&function)) {
        begin(plan, stack);
    }
}

/// Notes the return of a function.
#[inline(always)]
pub(crate) fn left() {
    let Some(own) = thread::existing() else { return };
    own.add_at_once(block::PROBES, 1);
    let depth = own.get(block::DEPTH);
    if depth > 1 {
        own.set(block::DEPTH, depth - 1);
    } else if depth == 1
        && let Some(plan) = recording()
    {
        end(plan, own);
    }
}

fn begin(plan: &Plan, stack: usize) {
    let Some(_busy) = Busy::enter() else { return };
    let Some(own) = thread::own(plan) else { return };
    own.set(block::DEPTH, 1);
    own.set(block::STACK, stack as u64);
    own.add(block::OPERATIONS, 1);
    if thread::due(own.get(block::OPERATIONS)) {
        thread::measure(own, block::LAST);
    }
}

/// Notes that a cell is touched within an operation. The caller is busy.
#[inline(always)]
pub(crate) fn touch(own: Words, table: Table, cell: u16, kind: usize) {
    let (words, shape) = (table.words, table.shape);
    let index = usize::from(cell);
    words.add(shape.table_counts() + index * KINDS + kind, 1);
    let (mask, bit) = (table::MASK + index / 64, 1 << (index % 64));
    if words.get(mask) & bit != 0 {
        return;
    }
    words.set(mask, words.get(mask) | bit);
    let touched = words.get(table::TOUCHED) as usize;
    words.set_small(shape.table_order(), touched, cell);
    words.set(table::TOUCHED, touched as u64 + 1);
    if words.get(table::LISTED) == 0 {
        words.set(table::LISTED, 1);
        words.set(table::NEXT, own.get(block::OPEN));
        own.set(block::OPEN, words.offset() as u64);
    }
}

#[inline(never)]
fn end(plan: &Plan, own: Words) {
    let Some(_busy) = Busy::enter() else { return };
    own.set(block::DEPTH, 0);
    let mut open = own.get(block::OPEN) as usize;
    own.set(block::OPEN, 0);
    while open != 0 {
        let words = Words::at(open);
        let Some(ty) = plan.types.get(words.get(table::TYPE) as usize) else { return };
        gather(Table { words, shape: ty.shape });
        open = words.get(table::NEXT) as usize;
        words.set(table::LISTED, 0);
    }
}

/// Adds an operation's counts to the row of those that touched the same cells.
fn gather(table: Table) {
    let (words, shape) = (table.words, table.shape);
    let touched = words.get(table::TOUCHED) as usize;
    let row = row_of(table, touched);
    match row {
        Some(row) => row.add(0, 1),
        None => {
            arena::add(header::TABLES_LOST, 1);
        }
    }
    for at in 0..touched {
        let cell = usize::from(words.small(shape.table_order(), at));
        words.set(table::MASK + cell / 64, 0);
        for kind in 0..KINDS {
            let count = shape.table_counts() + cell * KINDS + kind;
            if let Some(row) = row {
                row.add(shape.row_counts() + cell * KINDS + kind, words.get(count));
            }
            words.set(count, 0);
        }
    }
    words.set(table::TOUCHED, 0);
}

/// Returns the row of operations that touched the same cells. It is a new row for the first of them, and the last row
/// if there are too many combinations.
fn row_of(table: Table, touched: usize) -> Option<Words> {
    let (words, shape) = (table.words, table.shape);
    let same = |row: Words| {
        (0..shape.mask()).all(|at| row.get(shape.row_mask() + at) == words.get(table::MASK + at))
    };
    let recent = words.get(table::RECENT) as usize;
    if recent != 0 && recent != REST && same(table.row(recent)) {
        return Some(table.row(recent));
    }
    let used = words.get(table::USED) as usize;
    for index in 1..used.min(REST) {
        if same(table.row(index)) {
            words.set(table::RECENT, index as u64);
            return Some(table.row(index));
        }
    }
    if used > REST {
        return Some(table.row(REST));
    }
    let row = table.make_row(used)?;
    words.set(table::USED, used as u64 + 1);
    words.set(table::RECENT, used as u64);
    if used < REST {
        for at in 0..shape.mask() {
            row.set(shape.row_mask() + at, words.get(table::MASK + at));
        }
        row.set(1, touched as u64);
        for at in 0..shape.order() {
            row.set(shape.row_order() + at, words.get(shape.table_order() + at));
        }
    }
    Some(row)
}
