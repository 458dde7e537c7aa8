//! Whose code is at an address: this library's, or that of the allocator behind it.

use ledgerline_interpose::{Loaded, find, find_object};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// As [`find`], and if need be as the code at `caller` sees it: an object that was loaded for itself
/// alone (`dlopen` without `RTLD_GLOBAL`) has libraries that nobody else sees.
pub(crate) fn find_for(name: &CStr, caller: usize) -> usize {
    const LOADED: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    let found = find(name);
    if found != 0 {
        return found;
    }
    let Some(caller) = described(caller) else { return 0 };
    // SAFETY: the names are NUL-terminated, those of the linker stay as long as their objects; a
    // handle is only used when it is not null.
    unsafe {
        let object = libc::dlopen(caller.dli_fname, LOADED);
        if object.is_null() {
            return 0;
        }
        let found = libc::dlsym(object, name.as_ptr()) as usize;
        if let Some(holder) = described(found) {
            // Never closed: the address is kept for good.
            libc::dlopen(holder.dli_fname, LOADED);
        }
        libc::dlclose(object);
        found
    }
}

/// What the linker says of an address, if that is in an object that has a name. Its strings stay as long as the object.
pub(crate) fn described(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: the call fills the record where it returns non-zero.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let is_found = libc::dladdr(address as *const c_void, &raw mut info) != 0;
        (is_found && !info.dli_fname.is_null()).then_some(info)
    }
}

/// From where to where an object is mapped; zeros before that is known.
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

/// Looks both up.
pub(crate) fn resolve() {
    OURS.look_up(resolve as *const () as usize);
    ALLOCATOR.look_up(find(c"malloc"));
}

/// The path by which the loader was told of this library; empty if it cannot say.
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

/// Whether malloc, as the program finds it, is another than this library's.
pub(crate) fn has_own_malloc() -> bool {
    // SAFETY: the name is NUL-terminated.
    let malloc = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) } as usize;
    // A program at a fixed address that takes malloc's has a stub for it, under an undefined symbol's name.
    !OURS.holds(malloc) && !with_object(malloc, |object| is_stub(&object, malloc)).unwrap_or(false)
}

/// Whether what lies at an address stands in for another object's function.
fn is_stub(object: &Loaded<'_>, address: usize) -> bool {
    /// Tags of the dynamic segment (elf.h).
    const END: i64 = 0;
    const STRTAB: i64 = 5;
    const SYMTAB: i64 = 6;
    // (One that can be moved has none. Of one that cannot, the addresses in its file are those in memory.)
    let Some(dynamic) = object.part(libc::PT_DYNAMIC).filter(|_| object.base == 0) else {
        return false;
    };
    // SAFETY: the linker read this table of pairs up to its end, and the program keeps it.
    let find = |tag| unsafe {
        let mut entry = dynamic as *const [i64; 2];
        while (*entry)[0] != END && (*entry)[0] != tag {
            entry = entry.add(1);
        }
        ((*entry)[0] == tag).then(|| (*entry)[1] as usize)
    };
    let Some((symbols, names)) = find(SYMTAB).zip(find(STRTAB)) else { return false };
    // No table says how many symbols there are: linkers put the names, and perhaps other tables, behind them.
    let count = names.saturating_sub(symbols) / size_of::<libc::Elf64_Sym>();
    // SAFETY: all of that is one part of the program, which was loaded to be read.
    let symbols = unsafe { std::slice::from_raw_parts(symbols as *const libc::Elf64_Sym, count) };
    symbols.iter().any(|symbol| symbol.st_shndx == 0 && symbol.st_value as usize == address)
}

/// Whether code at an address is this library's, or the allocator's: what they map is not the program's.
pub(crate) fn is_beneath(address: usize) -> bool {
    OURS.holds(address) || ALLOCATOR.holds(address)
}

/// Looks both up where nobody has: functions of this library may be called before it is started.
fn be_resolved() {
    if !OURS.holds(resolve as *const () as usize) {
        resolve();
    }
}

/// Whether a function is one of the allocator behind this library.
pub(crate) fn is_allocators(function: usize) -> bool {
    be_resolved();
    ALLOCATOR.holds(function)
}

/// Whether a function is one of this library.
pub(crate) fn is_own(function: usize) -> bool {
    be_resolved();
    OURS.holds(function)
}

/// Whether two functions are of one object.
pub(crate) fn are_of_one(one: usize, other: usize) -> bool {
    object_of(one).is_some_and(|(start, end)| (start..end).contains(&other))
}

/// Where the object that holds an address is mapped.
fn object_of(address: usize) -> Option<(usize, usize)> {
    with_object(address, |object| object.span().unwrap_or_default())
}

/// Looks at the object that holds an address, if one does.
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
