//! The objects that are loaded.

use std::ffi::{CStr, c_int, c_void};

/// Returns a symbol's name as C writes it, with its NUL.
pub const fn symbol(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!(),
    }
}

/// A loaded object, as the linker describes it.
pub struct Loaded<'l> {
    /// Its path; empty for the program itself.
    pub path: &'l CStr,
    /// The offset between addresses in memory and in its file.
    pub base: usize,
    headers: &'l [libc::Elf64_Phdr],
}

impl Loaded<'_> {
    /// Returns the address of its segment of a kind.
    pub fn part(&self, kind: u32) -> Option<usize> {
        let header = self.headers.iter().find(|header| header.p_type == kind)?;
        Some(self.base.wrapping_add(header.p_vaddr as usize))
    }

    /// Returns the range of addresses that it is mapped at.
    pub fn span(&self) -> Option<(usize, usize)> {
        let loaded = self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let ends = loaded.map(|header| {
            let start = self.base.wrapping_add(header.p_vaddr as usize);
            (start, start.wrapping_add(header.p_memsz as usize))
        });
        ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }
}

/// Passes each loaded object to `look` until that returns something.
pub fn find_object<T, L: FnMut(Loaded<'_>) -> Option<T>>(look: L) -> Option<T> {
    struct Search<T, L> {
        look: L,
        found: Option<T>,
    }

    unsafe extern "C" fn each<T, L: FnMut(Loaded<'_>) -> Option<T>>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker hands out a description that is valid during the call, and `data` is the search below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search<T, L>>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: that many program headers lie there, and a name ends in zero.
        let (headers, path) = unsafe {
            let path = info.dlpi_name;
            let path = if path.is_null() { c"" } else { CStr::from_ptr(path) };
            (std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)), path)
        };
        search.found = (search.look)(Loaded { path, base: info.dlpi_addr as usize, headers });
        c_int::from(search.found.is_some())
    }

    let mut search = Search { look, found: None };
    // SAFETY: the callback has the required type, and gets the pointer that it casts back.
    unsafe { libc::dl_iterate_phdr(Some(each::<T, L>), (&raw mut search).cast()) };
    search.found
}
