//! Functions behind this library, and whose code is at an address: this library's, or that of the allocator behind it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Looks a function up in the libraries behind this one.
pub(crate) fn find(name: &CStr) -> usize {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

/// As [`find`], and if need be as the code at `caller` sees it: an object that was loaded for itself
/// alone (`dlopen` without `RTLD_GLOBAL`) has libraries that nobody else sees.
#[cfg(target_arch = "x86_64")]
pub(crate) fn find_for(name: &CStr, caller: usize) -> usize {
    const LOADED: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    let found = find(name);
    if found != 0 {
        return found;
    }
    // SAFETY: the names are NUL-terminated, those of the linker stay as long as their objects; a
    // handle is only used when it is not null.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(caller as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return 0;
        }
        let object = libc::dlopen(info.dli_fname, LOADED);
        if object.is_null() {
            return 0;
        }
        let found = libc::dlsym(object, name.as_ptr());
        if !found.is_null() && libc::dladdr(found, &raw mut info) != 0 && !info.dli_fname.is_null()
        {
            // Never closed: the address is kept for good.
            libc::dlopen(info.dli_fname, LOADED);
        }
        libc::dlclose(object);
        found as usize
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
        // SAFETY: the call fills the record where it returns non-zero; the name stays as long as this library.
        path = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let own = own_path as *const c_void;
            if libc::dladdr(own, &raw mut info) == 0 { 0 } else { info.dli_fname as usize }
        };
        PATH.store(path, Ordering::Relaxed);
    }
    // SAFETY: not null, and a string of the linker's.
    if path == 0 { c"" } else { unsafe { CStr::from_ptr(path as *const _) } }
}

/// Whether malloc, as the program finds it, is another than this library's.
pub(crate) fn has_own_malloc() -> bool {
    /// The last argument of `dladdr1` for the symbol (dlfcn.h).
    const SYMBOL: c_int = 1;
    unsafe extern "C" {
        fn dladdr1(
            at: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *const c_void,
            flags: c_int,
        ) -> c_int;
    }
    // SAFETY: the name is NUL-terminated; the call fills the records where it returns non-zero.
    unsafe {
        let malloc = libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr());
        if OURS.holds(malloc as usize) {
            return false;
        }
        // A program at a fixed address that takes malloc's has a stub for it, under an undefined symbol's name.
        let mut info: libc::Dl_info = std::mem::zeroed();
        let mut symbol = std::ptr::null();
        let found = dladdr1(malloc, &raw mut info, &raw mut symbol, SYMBOL) != 0;
        !(found && !symbol.is_null() && (*symbol.cast::<libc::Elf64_Sym>()).st_shndx == 0)
    }
}

/// Whether code at an address is this library's, or the allocator's: what they map is not the program's.
pub(crate) fn is_beneath(address: usize) -> bool {
    OURS.holds(address) || ALLOCATOR.holds(address)
}

/// Whether a function is one of the allocator behind this library.
pub(crate) fn is_allocators(function: usize) -> bool {
    // (It may be asked before the library is started.)
    if !OURS.holds(resolve as *const () as usize) {
        resolve();
    }
    ALLOCATOR.holds(function)
}

/// Whether two functions are of one object.
pub(crate) fn are_of_one(one: usize, other: usize) -> bool {
    object_of(one).is_some_and(|(start, end)| (start..end).contains(&other))
}

/// Where the object that holds an address is mapped.
fn object_of(address: usize) -> Option<(usize, usize)> {
    struct Search {
        address: usize,
        found: Option<(usize, usize)>,
    }

    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the linker hands out a description that is valid during the call, and `data` is the search
        // below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: so many program headers lie there.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let ends = loaded.map(|header| {
            let start = info.dlpi_addr as usize + header.p_vaddr as usize;
            (start, start + header.p_memsz as usize)
        });
        let whole = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        match whole {
            Some((start, end)) if (start..end).contains(&search.address) => {
                search.found = Some((start, end));
                1
            }
            _ => 0,
        }
    }

    let mut search = Search { address, found: None };
    // SAFETY: the callback is of the type that is asked for, and gets what it casts back.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}
