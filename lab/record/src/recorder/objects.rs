//! Objects as they come and go.
//!
//! An object is one value of a wanted type; an array is as many objects as it has elements. A number is reused when
//! its object is gone. Its users are then added to the table of folds, by type and set of users.
//!
//! A suspect is a block that may be an array, if the user did not request arrays. It has a number like an object. Its
//! record only shows whether it was accessed.

use crate::format::{self, OBJECTS_AT, ROW, header};
use crate::recorder::arena;
use crate::recorder::lock::Lock;
use crate::recorder::plan::Plan;
use crate::recorder::shadow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The record of an object.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) start: usize,
    pub(crate) ty: usize,
    /// The number of values that a suspect covers; 0 for an object.
    pub(crate) suspected: usize,
    id: u32,
}

/// The most values of a suspect that are watched, so that a buffer that is not an array, or a large one, costs no
/// more.
const MOST_SUSPECTED: usize = 16;
/// The number of suspects that suffices for the report. After that, blocks cost no more than before.
const MOST_SUSPECTS: usize = 1 << 16;
static SUSPECTS: AtomicUsize = AtomicUsize::new(0);

fn word(id: u32, at: usize) -> &'static AtomicU64 {
    let offset = OBJECTS_AT + (id as usize * ROW + at) * 8;
    // SAFETY: R1: a number that the shadow ever held is below the header's count, for which there was room.
    unsafe { AtomicU64::from_ptr(arena::at(offset)) }
}

const START: usize = 0;
/// The type and one; 0 if the number is free.
const TYPE: usize = 1;
const USERS: usize = 2;

/// Returns the object of a number; `None` if it is gone by now.
#[inline(always)]
pub(crate) fn get(id: u32) -> Option<Object> {
    let word_of_type = word(id, TYPE).load(Ordering::Relaxed);
    let ty = ((word_of_type % format::UNASKED) as usize).checked_sub(1)?;
    let start = word(id, START).load(Ordering::Relaxed) as usize;
    Some(Object { start, ty, suspected: (word_of_type / format::UNASKED) as usize, id })
}

impl Object {
    /// Notes that a thread uses it.
    #[inline(always)]
    pub(crate) fn used_by(self, thread: usize) {
        let bit = 1 << thread.min(format::MANY);
        let users = word(self.id, USERS);
        // Written once for each thread and object, so that counting moves no lines between the threads.
        if users.load(Ordering::Relaxed) & bit == 0 {
            users.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Returns the number of its bytes from its start.
    #[inline(always)]
    pub(crate) fn reach(self, plan: &Plan) -> usize {
        plan.types.get(self.ty).map_or(0, |ty| ty.size * self.suspected.max(1))
    }
}

/// Notes `count` adjacent values of a type. An object that lies there already stays, and is counted.
pub(crate) fn add(plan: &Plan, start: usize, ty: usize, count: usize, _: &Lock) {
    let size = plan.types[ty].size;
    for at in (0..count).map(|index| start + index * size) {
        if shadow::first(at, at + size).is_some() {
            arena::add(header::OVERLAPPING, 1);
            continue;
        }
        if !claim(at, at + size, ty as u64 + 1) {
            arena::add(header::OBJECTS_LOST, 1);
        }
    }
}

/// Notes that `count` values of a type may lie somewhere.
pub(crate) fn suspect(plan: &Plan, start: usize, ty: usize, count: usize, _: &Lock) {
    let count = count.min(MOST_SUSPECTED);
    let end = start + count * plan.types[ty].size;
    // If there is no room, no requested object is lost.
    claim(start, end, (ty as u64 + 1) | (count as u64 * format::UNASKED));
    SUSPECTS.fetch_add(1, Ordering::Relaxed);
}

/// Returns whether more suspects are wanted.
pub(crate) fn suspecting() -> bool {
    SUSPECTS.load(Ordering::Relaxed) < MOST_SUSPECTS
}

/// Gives a number to the bytes from one address up to another; returns `false` if there is no room, or another object
/// has them.
fn claim(from: usize, end: usize, word_of_type: u64) -> bool {
    let Some(id) = take_number() else { return false };
    word(id, START).store(from as u64, Ordering::Relaxed);
    word(id, TYPE).store(word_of_type, Ordering::Relaxed);
    word(id, USERS).store(0, Ordering::Relaxed);
    let claimed = shadow::claim(from, end, id);
    if !claimed {
        free_number(id);
    }
    claimed
}

/// Forgets the objects in a range that the program declares itself. Suspects in it are not counted at all.
pub(crate) fn supersede(plan: &Plan, from: usize, end: usize, lock: &Lock) {
    let mut place = from;
    while let Some((at, id)) = shadow::first(place, end) {
        place = (at & !3) + 4;
        if let Some(object) = get(id) {
            if object.suspected > 0 {
                word(id, USERS).store(0, Ordering::Relaxed);
            }
            place = place.max(object.start + object.reach(plan));
        }
    }
    remove(plan, from, end, lock);
}

/// Forgets the objects that touch the bytes from one address up to another.
pub(crate) fn remove(plan: &Plan, from: usize, end: usize, _: &Lock) {
    let mut from = from;
    while let Some((place, id)) = shadow::first(from, end) {
        from = (place & !3) + 4;
        let Some(object) = get(id) else { continue };
        let behind = object.start + object.reach(plan);
        beside(plan, object, behind);
        shadow::release(object.start, behind);
        fold(object);
        free_number(id);
        from = from.max(behind);
    }
}

fn take_number() -> Option<u32> {
    let free = arena::get(header::FREE);
    if free != 0 {
        arena::set(header::FREE, word(free as u32, START).load(Ordering::Relaxed));
        return Some(free as u32);
    }
    let next = arena::get(header::OBJECTS);
    let end = OBJECTS_AT + (next as usize + 1) * ROW * 8;
    if next as usize >= format::MOST_OBJECTS || !arena::room_for_object(end) {
        return None;
    }
    arena::set(header::OBJECTS, next + 1);
    Some(next as u32)
}

fn free_number(id: u32) {
    word(id, TYPE).store(0, Ordering::Relaxed);
    word(id, START).store(arena::get(header::FREE), Ordering::Relaxed);
    arena::set(header::FREE, id.into());
}

/// Adds an object that is gone to the table of folds.
fn fold(object: Object) {
    let users = word(object.id, USERS).load(Ordering::Relaxed);
    if users == 0 {
        return;
    }
    let unasked = if object.suspected > 0 { format::UNASKED } else { 0 };
    let key = [(object.ty as u64 + 1) | unasked, users];
    count_in(format::FOLDS_AT, format::MOST_FOLDS, key, header::FOLDS_LOST);
}

/// Notes the neighbours of an object that goes: objects of its type with other users on its pairs of lines. Each two
/// are met once, since the other's turn comes later.
fn beside(plan: &Plan, object: Object, behind: usize) {
    let pair = |at: usize| at / format::PAIR * format::PAIR;
    let is_used = |other: &Object| word(other.id, USERS).load(Ordering::Relaxed) != 0;
    // The next used object in each direction.
    let (mut from, end) = (behind, pair(behind - 1) + format::PAIR);
    let mut after = None;
    while let Some(other) = shadow::first(from, end).and_then(|(_, id)| get(id)) {
        if is_used(&other) {
            after = Some(other);
            break;
        }
        from = from.max(other.start + other.reach(plan)).max(from + 4);
    }
    let (start, mut until) = (pair(object.start), object.start);
    let mut before = None;
    while let Some(other) = shadow::last(start, until).and_then(get) {
        if is_used(&other) {
            before = Some(other);
            break;
        }
        until = other.start.min(until - 4);
    }
    for other in [before, after].into_iter().flatten() {
        let [ours, theirs] = [object, other].map(|of| word(of.id, USERS).load(Ordering::Relaxed));
        let known = [object, other].iter().all(|of| of.suspected == 0);
        if object.ty != other.ty || ours == theirs || ours == 0 || theirs == 0 || !known {
            continue;
        }
        let (first, second) = (object.start.min(other.start), object.start.max(other.start));
        let key = [format::neighbours(object.ty as u64, first, second), ours ^ theirs];
        count_in(format::NEIGHBOURS_AT, format::MOST_NEIGHBOURS, key, header::FOLDS_LOST);
    }
}

/// Notes the site that requested a block of a type: an address within the plan's file, or [`format::FOREIGN`]. `how`
/// is 0 or [`format::ROUNDED`].
pub(crate) fn note_site(site: u64, ty: usize, how: u64, _: &Lock) {
    let key = [site, (ty as u64 + 1) | how];
    count_in(format::SITES_AT, format::MOST_SITE_ROWS, key, header::SITES_LOST);
}

/// Adds one to the row of a key in a table of the recording: two words of key, not both zero, and a count. If the
/// table is full, adds one to a word of the header instead.
fn count_in(table: usize, rows: usize, key: [u64; 2], lost: usize) {
    let hash = (key[0] ^ key[1].rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for probe in 0..rows.min(64) {
        let row = table + (hash as usize + probe) % rows * ROW * 8;
        // SAFETY: R1; within the table, which exists from the start. Under the lock.
        unsafe {
            let [first, second, count] = [0, 1, 2].map(|word| arena::at(row).add(word));
            if *count == 0 {
                (*first, *second) = (key[0], key[1]);
            }
            if (*first, *second) == (key[0], key[1]) {
                *count += 1;
                return;
            }
        }
    }
    arena::add(lost, 1);
}

/// Clears all users, in a child: none of its threads has used anything yet.
pub(crate) fn forget_users() {
    for id in 1..arena::get(header::OBJECTS) {
        word(id as u32, USERS).store(0, Ordering::Relaxed);
    }
}
