//! `--by library`: the slot of the shared object that called malloc, by its return address.
//!
//! A C++ library's `operator new` calls malloc for its own caller, which is found on the stack. If that operator lies
//! behind this library's, the caller is already known: operators.rs.
//!
//! A direct-mapped table caches the slot of each code page. A miss asks the dynamic linker by `_dl_find_object` (glibc
//! 2.35 and later), which takes no lock and allocates nothing, so it may be called in the middle of a `dlopen`. Other C
//! libraries are asked by `dladdr`.

use crate::objects;
use crate::process::{self, STATE};
use crate::stack;
use ledgerline_interpose::find;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

const SLOT_BITS: u32 = 8;

/// Marks the code of a C++ library in the table, in place of a slot.
const CXX: u32 = 0;
/// The prefixes of those libraries' names.
const CXX_NAMES: [&[u8]; 3] = [b"libstdc++.so", b"libc++.so", b"libc++abi.so"];

/// Returns the slot of the library that called malloc from this address.
pub(crate) fn slot_of_caller(caller: usize) -> u32 {
    match slot(caller) {
        CXX => {
            let library = objects::object_of(caller).unwrap_or_default();
            let beyond = stack::caller_beyond(library);
            match beyond.map_or(CXX, slot) {
                CXX => process::named_slot(object_name(caller)),
                slot => slot,
            }
        }
        slot => slot,
    }
}

/// Returns the slot of the library that called `operator new` from this address.
pub(crate) fn slot_of_new(caller: usize) -> u32 {
    match slot(caller) {
        CXX => process::named_slot(object_name(caller)),
        slot => slot,
    }
}

/// Returns the slot of the object that contains this address, or [`CXX`].
fn slot(caller: usize) -> u32 {
    // A page of code belongs to one object. Its number is mixed, so that objects of equal layout do not collide.
    let page = caller >> 12;
    let entry = &STATE.pages[(page ^ page >> 12) % STATE.pages.len()];
    let known = entry.load(Ordering::Relaxed);
    // One word holds both, so a reader never sees the page of one and the slot of another.
    if known >> SLOT_BITS == page as u64 && known != 0 {
        return known as u32 & ((1 << SLOT_BITS) - 1);
    }
    let name = object_name(caller);
    let is_cxx = CXX_NAMES.iter().any(|start| name.starts_with(start));
    let slot = if is_cxx { CXX } else { process::named_slot(name) };
    entry.store((page as u64) << SLOT_BITS | u64::from(slot), Ordering::Relaxed);
    slot
}

/// Forgets the places of all libraries, since one was unloaded. A call from another one meanwhile is looked up again.
pub(crate) fn forget() {
    for entry in &STATE.pages {
        // Most entries were never used, and a write would give them memory.
        if entry.load(Ordering::Relaxed) != 0 {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the file name of the object that contains an address.
fn object_name(address: usize) -> &'static [u8] {
    // SAFETY: the linker's names end in zero, and stay as long as their objects.
    let name = |found: libc::Dl_info| unsafe { CStr::from_ptr(found.dli_fname).to_bytes() };
    let path = by_find_object(address).or_else(|| objects::described(address).map(name));
    match path {
        None => b"(no library)",
        // The program itself has no name in the linker's list.
        Some([]) => process::program_name(),
        Some(path) => path.rsplit(|&byte| byte == b'/').next().unwrap_or(path),
    }
}

/// The public part of the linker's entry for a loaded object (link.h).
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: *const c_char,
}

/// glibc's `struct dl_find_object` on architectures without a data base (dlfcn.h).
#[repr(C)]
pub(crate) struct Found {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *const LinkMap,
    pub(crate) eh_frame: *mut c_void,
    reserved: [u64; 7],
}

fn by_find_object(address: usize) -> Option<&'static [u8]> {
    /// 0: not looked for, 1: there is none.
    static FUNCTION: AtomicUsize = AtomicUsize::new(0);
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function == 0 {
        function = find(c"_dl_find_object").max(1);
        FUNCTION.store(function, Ordering::Relaxed);
    }
    if function == 1 {
        return None;
    }
    // SAFETY: `function` is glibc's `_dl_find_object`; the result is larger than what it writes,
    // all of it valid as zeros. The name it leads to lives as long as the object, whose code is
    // running this call's caller.
    unsafe {
        let find: unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int =
            std::mem::transmute(function);
        let mut found: Found = std::mem::zeroed();
        if find(address as *mut c_void, &raw mut found) != 0 || found.link_map.is_null() {
            return None;
        }
        let name = (*found.link_map).name;
        Some(if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() })
    }
}
