//! The object that contains an address: this library, or the allocator behind it.

use ledgerline_interpose::{Loaded, find, find_first, find_object};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the linker's description of an address in a named object. Its strings live as long as the object.
pub(crate) fn described(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: the call fills the record where it returns non-zero.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let is_found = libc::dladdr(address as *const c_void, &raw mut info) != 0;
        (is_found && !info.dli_fname.is_null()).then_some(info)
    }
}

/// The range that an object is mapped at; zeros before that is known.
struct Object([AtomicUsize; 2]);

impl Object {
    const fn unknown() -> Object {
        Object([const { AtomicUsize::new(0) }; 2])
    }

    fn look_up(&self, address: usize) {
        if let Some((start, end)) = object_of(address) {
            self.0[0].store(start, Ordering::Relaxed);
            self.0[1].store(end, Ordering::Relaxed);
        }
    }

    fn holds(&self, address: usize) -> bool {
        let [start, end] = &self.0;
        (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&address)
    }
}

static OURS: Object = Object::unknown();
static ALLOCATOR: Object = Object::unknown();

/// Looks both objects up.
pub(crate) fn resolve() {
    OURS.look_up(resolve as *const () as usize);
    ALLOCATOR.look_up(find(c"malloc"));
}

/// Returns the path by which the loader found this library; empty if it does not know.
pub(crate) fn own_path() -> &'static CStr {
    static PATH: AtomicUsize = AtomicUsize::new(0);
    let mut path = PATH.load(Ordering::Relaxed);
    if path == 0 {
        path = described(own_path as *const () as usize).map_or(0, |own| own.dli_fname as usize);
        PATH.store(path, Ordering::Relaxed);
    }
    // SAFETY: not null, and a string of the linker's.
    if path == 0 { c"" } else { unsafe { CStr::from_ptr(path as *const _) } }
}

/// Returns the malloc that the program finds in place of this library's; zero if it finds this library's.
pub(crate) fn own_malloc() -> usize {
    match called(c"malloc") {
        found if OURS.holds(found) => 0,
        found => found,
    }
}

/// Returns the function that the program and its libraries call by a name. This library has one of each name that it
/// stands before.
pub(crate) fn called(name: &CStr) -> usize {
    find_first(name)
}

/// Returns whether an address is in this library or in the allocator: their mappings are not the program's.
pub(crate) fn is_beneath(address: usize) -> bool {
    OURS.holds(address) || ALLOCATOR.holds(address)
}

/// Looks both objects up if that was not done: functions of this library may be called before it is started.
fn be_resolved() {
    if !OURS.holds(resolve as *const () as usize) {
        resolve();
    }
}

/// Returns whether a function belongs to the allocator behind this library.
pub(crate) fn is_allocators(function: usize) -> bool {
    be_resolved();
    ALLOCATOR.holds(function)
}

/// Returns whether two functions are in one object.
pub(crate) fn are_of_one(one: usize, other: usize) -> bool {
    object_of(one).is_some_and(|(start, end)| (start..end).contains(&other))
}

/// Returns the range of the object that holds an address.
pub(crate) fn object_of(address: usize) -> Option<(usize, usize)> {
    with_object(address, |object| object.span().unwrap_or_default())
}

/// Passes the object that holds an address to `look`, if there is one.
pub(crate) fn with_object<T>(address: usize, look: impl FnOnce(Loaded<'_>) -> T) -> Option<T> {
    let mut look = Some(look);
    find_object(|object| {
        let (start, end) = object.span()?;
        if !(start..end).contains(&address) {
            return None;
        }
        look.take().map(|look| look(object))
    })
}
