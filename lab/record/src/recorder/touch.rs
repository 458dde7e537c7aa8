//! The work at an access: the library finds the object, and counts the field.

use crate::format::{KINDS, NO_CELL, OUTSIDE, header, thread as block};
use crate::recorder::arena;
use crate::recorder::local::Busy;
use crate::recorder::objects;
use crate::recorder::operation;
use crate::recorder::plan::recording;
use crate::recorder::shadow;
use crate::recorder::thread::{self, Table};

/// Notes an access to `size` bytes.
#[inline(always)]
pub(crate) fn touch(address: usize, size: usize, kind: usize) {
    if let Some(own) = thread::existing() {
        own.add_at_once(block::PROBES, 1);
    }
    if let Some(id) = shadow::at(address) {
        count(address, size, kind, id);
    }
}

/// Notes an access to bytes that may hold, or reach into, several objects: a copied structure.
pub(crate) fn touch_range(address: usize, size: usize, kind: usize) {
    if let Some(own) = thread::existing() {
        own.add_at_once(block::PROBES, 1);
    }
    let end = address.saturating_add(size);
    let mut from = address;
    while let Some((place, id)) = shadow::first(from, end) {
        let place = place.max(address);
        from = place + count_one(place, end - place, kind, id).max(4 - place % 4);
    }
}

#[inline(never)]
fn count(address: usize, size: usize, kind: usize, id: u32) {
    let counted = count_one(address, size, kind, id);
    if counted != 0 && counted < size {
        // The compiler may have joined stores to neighbours.
        let (rest, end) = (address + counted, address + size);
        if let Some((place, id)) = shadow::first(rest, end) {
            count_one(place.max(rest), end - place.max(rest), kind, id);
        }
    }
}

/// Counts an access to one object. Returns the number of the bytes that lie in the object, or 0 if it is gone by now.
#[inline(always)]
fn count_one(address: usize, size: usize, kind: usize, id: u32) -> usize {
    let Some(plan) = recording() else { return 0 };
    let Some(object) = objects::get(id) else { return 0 };
    if object.suspected > 0 {
        let within = || thread::existing().is_some_and(|own| own.get(block::DEPTH) != 0);
        if plan.operations.is_empty() || within() {
            // A suspect only records that it is used, so all threads share one user.
            object.used_by(0);
        }
        let offset = address.wrapping_sub(object.start);
        return size.min(object.reach(plan).saturating_sub(offset));
    }
    let Some(_busy) = Busy::enter() else {
        dropped();
        return 0;
    };
    let Some(ty) = plan.types.get(object.ty) else { return 0 };
    // Checked, since the number may belong to another object by now (R3).
    let offset = address.wrapping_sub(object.start);
    if offset >= ty.size {
        return 0;
    }
    let size = size.min(ty.size - offset);
    let Some(own) = thread::own(plan) else { return size };
    own.add(block::COUNTED, 1);
    let Some(table) = Table::of(own, object.ty, ty) else {
        arena::add(header::TABLES_LOST, 1);
        return size;
    };
    let inside = own.get(block::DEPTH) != 0;
    if inside || plan.operations.is_empty() {
        object.used_by(own.get(block::NUMBER) as usize);
    }
    let outside = table.row(OUTSIDE);
    let counts = ty.shape.row_counts();
    let mut last = NO_CELL;
    for &cell in &ty.map[offset..offset + size] {
        if cell == last || cell == NO_CELL {
            continue;
        }
        last = cell;
        if inside {
            operation::touch(own, table, cell, kind);
        } else {
            outside.add(counts + usize::from(cell) * KINDS + kind, 1);
        }
    }
    if plan.operations.is_empty() {
        own.add(block::OPERATIONS, 1);
        if thread::due(own.get(block::OPERATIONS)) {
            thread::measure(own, block::LAST);
        }
    }
    size
}

/// Counts an access of a signal handler that interrupted a busy thread. The thread may be busy with getting its
/// block, which takes longer than any other work.
#[cold]
fn dropped() {
    match thread::existing() {
        Some(own) => own.add_at_once(block::DROPPED, 1),
        None => {
            arena::add(header::DROPPED, 1);
        }
    }
}
