//! Blocks that another allocator made, charged with their labels beside the heap.

use crate::border::{self, Outcome, fail, named, run, set_if_asked};
use crate::registry;
use crate::types::ledgerline_code_t::{self, *};
use crate::types::{ledgerline_group_t, ledgerline_realloc_t};
use ledgerline::Group;
use ledgerline::alloc::block::{self, Owner};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Charges a block that an allocator just made to a group, with `size` bytes, or one if that is zero, and labels it: its owner
/// and its size stand beside the heap, so that ledgerline_block_release needs neither. The block has no header. For hooks of
/// `malloc` and the like. Blocks start at multiples of 16, and 16 bytes apart at least. On an error the hook frees the block and
/// returns NULL. The group's ledger is kept for good (ledgerline_ledger_keep).
///
/// For LEDGERLINE_NOBODY the calling thread's current group (ledgerline_current_swap) is charged; if there is none the block is
/// not accounted, and the call succeeds. 65 535 groups may hold blocks at a time.
///
/// Costs ten to twenty nanoseconds more than ledgerline_try_charge_units. The labels take four bytes for each 16 of heap, where
/// they are touched.
///
/// Errors: as ledgerline_try_charge_units; LEDGERLINE_ERROR_ARGUMENT for NULL, and where a block is not aligned; _NOT_KEPT; _FULL
/// where all numbers of owners are taken; _SYSTEM if there is no memory for the label. Threads: any. Signals: async-signal-safe
/// but for the first block in a GiB of addresses and the first of a group.
#[unsafe(no_mangle)]
pub extern "C" fn ledgerline_block_charge(
    group: ledgerline_group_t,
    block: *mut c_void,
    size: usize,
) -> ledgerline_code_t {
    run(|| {
        let block = place(block)?;
        let Some(group) = owner_to_be(group)? else {
            // An older label is left if a free was not reported.
            let _stale = block::unlabel(block);
            return Ok(());
        };
        let (owner, size) = (numbered(group)?, size.max(1));
        charge(group, size as u64)?;
        if !owner.label(block, size) {
            group.uncharge_units(size as u64);
            return Err(no_room());
        }
        Ok(())
    })
}

/// Returns the bytes of a block to the group that was charged for them, and takes its label off. A hook of `free` calls it
/// before the block is freed, on any thread: another one may get the place at once. `size`, which may be NULL, receives the
/// bytes: zero for NULL and for a block that is not accounted, which is no error.
///
/// Errors: none but LEDGERLINE_ERROR_ARGUMENT, for a block that is not aligned. Threads: any. Signals: async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_block_release(
    block: *mut c_void,
    size: *mut usize,
) -> ledgerline_code_t {
    run(|| {
        let mut released = 0;
        if !block.is_null()
            && let Some(held) = block::unlabel(place(block)?)
        {
            released = held.size;
            if let Some(group) = held.owner().group() {
                group.uncharge_units(released as u64);
            }
        }
        // SAFETY: as the header asks of the caller.
        unsafe { set_if_asked(size, || released) }
    })
}

/// Resizes a block: charges its owner for what it grows by, calls `realloc(data, block, size)`, and labels what that returns. If
/// it returns NULL, all is as before. The owner stays the same, whichever group is current, and a block without an owner stays so.
/// If the owner was destroyed, growth is refused. `moved` receives the result of `realloc`.
///
/// Errors: as ledgerline_block_charge, and then `realloc` was not called, and the block is as before; LEDGERLINE_ERROR_SYSTEM where
/// `realloc` returned NULL. If there is no memory for the new label, the block is no longer accounted. Threads: any. Signals: as `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_block_resize(
    block: *mut c_void,
    size: usize,
    realloc: ledgerline_realloc_t,
    data: *mut c_void,
    moved: *mut *mut c_void,
) -> ledgerline_code_t {
    run(|| {
        let no_function = || fail(LEDGERLINE_ERROR_ARGUMENT, "the function is NULL");
        let (old, realloc) = (place(block)?, realloc.ok_or_else(no_function)?);
        // SAFETY: as the header asks of the caller.
        let into = unsafe { border::out(moved, "the moved block")? };
        let held = block::labelled(old).and_then(|held| Some((held, held.owner().group()?)));
        let growth = held.map_or(0, |(held, _)| size.max(1).saturating_sub(held.size)) as u64;
        if let Some((_, group)) = held.filter(|_| growth > 0) {
            charge(group, growth)?;
        }
        // (Before it: another thread may get the old place.)
        let _taken = block::unlabel(old);
        // SAFETY: a function of the caller's, with its own data.
        let resized = unsafe { realloc(data, block, size) };
        let Some((held, group)) = held else {
            return resized_to(resized).and_then(|new| into.set(new.as_ptr().cast()));
        };
        let Ok(new) = resized_to(resized) else {
            // Its place had a label before, so there is room.
            let _labelled = held.owner().label(old, held.size);
            group.uncharge_units(growth);
            return resized_to(resized).map(drop);
        };
        let size = size.max(1);
        if held.owner().label(new, size) {
            group.uncharge_units(held.size.saturating_sub(size) as u64);
        } else {
            group.uncharge_units(held.size.max(size) as u64);
        }
        into.set(new.as_ptr().cast())
    })
}

/// Reports the owner of a block and the bytes charged for it: LEDGERLINE_NOBODY and zero if it has none. Both places may be
/// NULL.
///
/// Errors: LEDGERLINE_ERROR_ARGUMENT; _HANDLE if code in Rust charged it to a ledger of its own. Threads: any. Signals:
/// async-signal-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ledgerline_block_owner(
    block: *mut c_void,
    group: *mut ledgerline_group_t,
    size: *mut usize,
) -> ledgerline_code_t {
    run(|| {
        let held = block::labelled(place(block)?);
        let owner = match held.and_then(|held| held.owner().group()) {
            Some(group) => registry::handle_of(group).ok_or_else(rusts)?,
            None => ledgerline_group_t { ledger: 0, id: 0 },
        };
        // SAFETY: as the header asks of the caller.
        unsafe {
            set_if_asked(size, || held.map_or(0, |held| held.size))?;
            set_if_asked(group, || owner)
        }
    })
}

fn rusts() -> border::Failure {
    fail(LEDGERLINE_ERROR_HANDLE, "the block's ledger was made in Rust")
}

fn no_room() -> border::Failure {
    fail(LEDGERLINE_ERROR_SYSTEM, "there is no memory for the label of a block")
}

fn place(block: *mut c_void) -> Outcome<NonNull<u8>> {
    let wrong = |how| fail(LEDGERLINE_ERROR_ARGUMENT, format_args!("the block is {how}"));
    let place = NonNull::new(block.cast::<u8>()).ok_or_else(|| wrong("NULL"))?;
    if !place.addr().get().is_multiple_of(16) {
        return Err(wrong("not at a multiple of 16"));
    }
    Ok(place)
}

fn resized_to(block: *mut c_void) -> Outcome<NonNull<u8>> {
    if block.is_null() {
        return Err(fail(LEDGERLINE_ERROR_SYSTEM, "the allocator beneath had no memory"));
    }
    place(block)
}

/// Returns the group to be charged; `None` if there is none.
fn owner_to_be(group: ledgerline_group_t) -> Outcome<Option<Group<'static>>> {
    if group == (ledgerline_group_t { ledger: 0, id: 0 }) {
        return Ok(ledgerline::current::group());
    }
    let named = named(group)?;
    let ledger = named.visit.kept()?;
    Ok(Some(ledger.group(named.group().id())))
}

fn numbered(group: Group<'static>) -> Outcome<Owner> {
    Owner::of(group).ok_or_else(|| match group.exists() {
        true => fail(LEDGERLINE_ERROR_FULL, "65535 groups hold blocks already"),
        false => fail(LEDGERLINE_ERROR_GONE, "the group was destroyed"),
    })
}

fn charge(group: Group<'static>, units: u64) -> Outcome {
    let number = registry::handle_of(group).map_or(0, |handle| handle.ledger);
    group.try_charge_units(units).map_err(|refusal| border::refused(number, refusal))
}
