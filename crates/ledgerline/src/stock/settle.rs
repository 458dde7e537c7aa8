//! Settles the rows of processes that ended: returns the units that they hold to the rows of other processes.

use super::precise;
use super::settler::{self, Settler};
use crate::gate::lock;
use crate::percpu::word;
use crate::sync::Ordering;
use crate::table::path::RowPath;
use crate::table::row::{Row, state};
use crate::table::{Table, allocate, collect, counts, fold, names};

/// Settles the rows that an earlier program left in this process, or an earlier process of this number.
pub(crate) fn earlier(table: &Table, process: u32) {
    Settler::forget_own(table, process);
    // Most processes find none, and need not become the settler.
    let left = |row: &Row| {
        row.owner.load(Ordering::Relaxed) == process
            && matches!(row.state.load(Ordering::Acquire), state::LIVE | state::EXITED)
    };
    if (1..table.high_water()).any(|index| left(table.row(index))) {
        // If another process settles for too long, the rows are left to it: a program that starts need not wait.
        all_but_within(table, &|owner| owner != process, settler::SHORT);
    }
}

/// Settles the rows of all processes but those to keep. Returns how many units went back to rows of other processes.
pub(crate) fn all_but(table: &Table, keep: &dyn Fn(u32) -> bool) -> u64 {
    all_but_within(table, keep, settler::LONG)
}

fn all_but_within(table: &Table, keep: &dyn Fn(u32) -> bool, patience: u32) -> u64 {
    let Some(_settler) = Settler::take(table, keep, patience) else { return 0 };
    // Rows of one process come in runs, so a kept process is remembered for the next row. A dead process is not
    // remembered: a later row may belong to a new process with the same number.
    let mut last = 0;
    let mut kept = |owner: u32| {
        let kept = owner == last || keep(owner);
        if kept {
            last = owner;
        }
        kept
    };
    // The first pass reads how much each group of the dead processes held. Their cells are untouched until that is
    // known.
    for index in 1..table.high_water() {
        let row = table.row(index);
        let owner = row.owner.load(Ordering::Relaxed);
        if owner == 0 || row.state.load(Ordering::Acquire) == state::FREE || kept(owner) {
            continue;
        }
        // The owner was read before it was known to be dead. It may have given the row back while it lived, or the row
        // was free and still had the owner's number, so the row may belong to a living process by now. From here on
        // only the settler frees rows of this owner. Acquire, partner of `Row::begin`: a thread that sees a new group
        // live sees its owner.
        let state = row.state.load(Ordering::Acquire);
        if state == state::FREE || row.owner.load(Ordering::Relaxed) != owner {
            continue;
        }
        // Of the destroyed groups only the topmost of its process is settled: it may be all that is left.
        let settled = match state {
            state::LIVE => false,
            state::RETIRED => !is_top(table, row, owner),
            _ => true,
        };
        if !settled {
            let held = row.counter.usage().saturating_sub(precise::idle(table, index).0);
            row.at_exit.store(held, Ordering::Relaxed);
            let exchanged = row.state.compare_exchange(
                state,
                state::EXITED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if exchanged == Ok(state::LIVE) {
                names::forget(table, index);
            }
        }
    }
    // The second pass takes the units out, by swaps: each unit once, even if several processes settle at a time, or one
    // was killed in the middle.
    (1..table.high_water()).map(|index| row(table, index)).sum()
}

/// Returns the topmost rows of the processes that ended and were settled.
pub(crate) fn ended(table: &Table) -> impl Iterator<Item = u32> {
    (1..table.high_water()).filter(|&row| fold::top(table, row) == Some(row))
}

/// Folds ended processes, named by their topmost rows, into another row. Returns the topmost rows that were folded: a
/// process with a row that is not settled yet stays as it is.
pub(crate) fn fold_into(table: &Table, tops: &[u32], into: u32) -> Vec<u32> {
    let Some(_settler) = Settler::take(table, &|_| true, settler::SHORT) else { return Vec::new() };
    let Some(held) = lock::lock() else { return Vec::new() };
    let owner = |index: u32| table.row(index).owner.load(Ordering::Relaxed);
    let parent = |index: u32| table.row(index).parent.load(Ordering::Relaxed);
    let wanted = |top: u32| tops.contains(&top) && parent(top) == parent(into);
    let mut rows = Vec::new();
    let mut unsettled = Vec::new();
    for index in 1..table.high_water() {
        match fold::top(table, index) {
            Some(top) if wanted(top) => rows.push((table.row(index).depth(), top, index)),
            Some(_) => {}
            None if table.row(index).state.load(Ordering::Acquire) == state::FREE => {}
            None => unsettled.push(owner(index)),
        }
    }
    rows.retain(|&(_, top, _)| !unsettled.contains(&owner(top)));
    // The lowest rows come first: a row is freed once no row below it is left.
    rows.sort_unstable_by_key(|&(depth, ..)| std::cmp::Reverse(depth));
    let under_way = table.collections().begin();
    for &(_, top, index) in &rows {
        fold::fold(table, &held, index, into, index == top);
    }
    drop(under_way);
    rows.iter().filter(|(_, top, index)| top == index).map(|&(.., index)| index).collect()
}

/// Calls `act` while no other process settles. Returns `false` if another process settles for too long.
pub(crate) fn alone(
    table: &Table,
    alive: &dyn Fn(u32) -> bool,
    act: impl FnOnce() -> bool,
) -> bool {
    Settler::take(table, alive, settler::LONG).is_some_and(|_settler| act())
}

/// Returns whether a row is the topmost of its process.
fn is_top(table: &Table, row: &Row, owner: u32) -> bool {
    let parent = row.parent.load(Ordering::Relaxed).min(table.capacity() - 1);
    table.row(parent).owner.load(Ordering::Relaxed) != owner
}

/// Empties a row of a dead process. Returns how many units went back to rows of other processes. Only the topmost row
/// returns any, since it holds all of them.
fn row(table: &Table, index: u32) -> u64 {
    let row = table.row(index);
    if row.state.load(Ordering::Acquire) != state::EXITED {
        return 0;
    }
    for column in row.noted_columns(table.columns.count()) {
        let cell = table.columns.cell(column, index);
        // No thread writes the cell any more. Its units are in the row's usage, or were taken before.
        let word = cell
            .word
            .swap(word::empty(table.cell_generation(row)) | word::FROZEN, Ordering::AcqRel);
        cell.cap.store(0, Ordering::Relaxed);
        table.unstock(column, index);
        if word::generation(word) == table.cell_generation(row) {
            counts::fold(table, column, index, word);
        }
    }
    if let Some(path) = RowPath::new(table, index) {
        collect::collect_row(table, &path);
    }
    let prepaid = row.counter.track.prepaid.take_all();
    let in_flight = row.counter.track.in_flight.take_all();
    let usage = row.counter.take_all();
    // A process that settles at the same time has found nothing left, either. The next settler need not look.
    row.state.store(state::SETTLED, Ordering::Release);
    if !is_top(table, row, row.owner.load(Ordering::Relaxed)) {
        return 0;
    }
    let Some(path) = RowPath::new(table, index) else { return 0 };
    if usage | prepaid | in_flight != 0 {
        for (counter, &row) in path.counters().iter().zip(path.rows()).skip(1) {
            let removed = counter.remove(usage);
            counter.disallow(prepaid);
            counter.track.in_flight.take(in_flight);
            match removed {
                Ok(true) => allocate::recycle(table, row),
                Ok(false) => {}
                Err(_) => table.count_underflow(),
            }
        }
    }
    table.heads.tell(path.rows());
    usage
}

#[cfg(test)]
mod tests {
    use crate::{GroupState, Ledger};
    use std::cell::Cell;

    const OLD: u32 = 4711;
    const NEW: u32 = 4712;

    /// The settler reads the owner of a row and asks whether that process lives. Meanwhile the owner gives the row back
    /// and ends, and a new process gets the row.
    #[test]
    fn a_row_that_changes_hands_while_somebody_settles_is_not_taken_from_its_new_process() {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        let old = ledger.create_for_process("old", OLD).unwrap();
        let new = Cell::new(None);
        ledger.settle_dead(&|process| {
            if process == OLD && new.get().is_none() {
                old.destroy().unwrap();
                new.set(Some(ledger.create_for_process("new", NEW).unwrap()));
            }
            process == NEW
        });
        let new = new.get().expect("it was asked whether the old process lives");
        assert_eq!(new.id().index(), old.id().index(), "the row was used again");
        assert!(new.exists());
        let snapshot = ledger.snapshot();
        let row = snapshot.groups.iter().find(|group| group.id == new.id()).unwrap();
        assert_eq!(row.state, GroupState::Live);
    }

    /// A free row still has the number of its last process.
    #[test]
    fn a_row_that_was_free_when_somebody_settled_is_not_taken_from_its_new_process() {
        let ledger = Ledger::builder().capacity(4).anonymous().unwrap();
        let first = ledger.create_for_process("first", NEW).unwrap();
        let old = ledger.create_for_process("old", OLD).unwrap();
        old.destroy().unwrap();
        let new = Cell::new(None);
        // While the settler asks about the first row's process, the row behind it gets a group.
        ledger.settle_dead(&|process| {
            if new.get().is_none() {
                new.set(Some(ledger.create_for_process("new", NEW).unwrap()));
            }
            process == NEW
        });
        let new = new.get().expect("it was asked");
        assert_eq!(new.id().index(), old.id().index());
        assert!(new.exists() && first.exists());
    }
}
